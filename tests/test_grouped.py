"""The second reader against what `compact` makes, laid out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from second_reader.build import Body, Ref, SegmentBuilder, StoreBuilder, block_place
from second_reader.cards import Card
from second_reader.errors import Malformed
from second_reader.frames import Kind
from second_reader.store import Store
from test_second_reader import EPISODE, KEY, LOG, W, seqs, three_commits


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def grouped(built: StoreBuilder, number: int, first: int) -> SegmentBuilder:
    """A shared value, and two records of one block: one refers to it, the other to the one before it."""
    segment = built.segment(bytes(16), number)
    [shared] = segment.block(0, 0, [(Kind.VALUE, Body().put("shared by many records"))])
    segment.bind(1, LOG._replace(writer=W))
    one = Body().fields({4: ["x", "y"], 5: Ref(shared)})
    here = block_place(number, len(segment.data), one, 0, 0)
    two = Body().fields({4: Ref(here, (4,)), 5: Ref(shared)})
    segment.block(1, first, [(Kind.STEP, one), (Kind.STEP, two)])
    segment.commit()
    return segment


def held(*segments: tuple[int, SegmentBuilder]) -> list[dict[str, int]]:
    return [{"segment": number, "bytes": len(segment.data)} for number, segment in segments]


def test_grouped_segments_are_read_by_the_newest_manifest(store):
    segments = [grouped(store, number, 2 * number) for number in range(2)]
    for segment in segments:
        store.save(bytes(16), segment)
    (store.path / "grouped/.tmp-1").write_bytes(b"in the making")
    store.card("grouped/9.manifest", Card.MANIFEST, {96: held((0, segments[0])), 1: 0})
    store.card("grouped/10.manifest", Card.MANIFEST, {96: held((1, segments[1])), 1: 0})
    found = Store(store.path, verify=True)
    assert seqs(found) == [2, 3]
    assert [record.fields for record in found.records()[KEY]] == [
        {4: ["x", "y"], 5: "shared by many records"}
    ] * 2
    assert found.damage == []


def test_what_a_manifest_replaces_or_prunes_does_not_exist(store):
    segment = grouped(store, 0, 0)
    store.save(bytes(16), segment)
    plain, _ = three_commits(store)
    store.save(W, plain)
    assert seqs(Store(store.path)) == list(range(9))
    replaced = [{"path": f"writers/{W.hex()}/0.seg", "time": 0}]
    store.card("grouped/0.manifest", Card.MANIFEST, {96: held((0, segment)), 97: replaced})
    assert seqs(Store(store.path)) == [0, 1]
    pruned = [{"episode": EPISODE, "attempt": 0, "reason": "test", "time": 0}]
    store.card("grouped/1.manifest", Card.MANIFEST, {96: held((0, segment)), 97: replaced, 98: pruned})
    assert Store(store.path).records() == {}


def test_a_damaged_manifest_has_a_copy_and_a_cut_segment_is_noticed(store):
    segment = grouped(store, 0, 0)
    store.save(bytes(16), segment, segment.data[:-40])
    manifest = store.card("grouped/0.manifest", Card.MANIFEST, {96: held((0, segment))})
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(Malformed):
        Store(store.path)
    store.card("grouped/0.copy", Card.MANIFEST, {96: held((0, segment))})
    assert "cut off" in [damage.why for damage in Store(store.path).damage]
