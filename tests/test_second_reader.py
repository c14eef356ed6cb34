"""The second reader against stores laid out by hand (`second_reader.build`), and against the golden stores."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from second_reader.build import More, Ref, SegmentBuilder, StoreBuilder
from second_reader.cards import Card, read_card
from second_reader.dump import lines
from second_reader.errors import HashMismatch, Malformed, NewerFormat
from second_reader.frames import Kind
from second_reader.hashes import Hasher
from second_reader.segment import Log
from second_reader.store import Key, Store
from second_reader.test_values import VALUES
from second_reader.values import (
    STRING,
    Array,
    Lost,
    Media,
    Pairs,
    Repr,
    Typed,
)

W = bytes.fromhex("aa" * 16)
EPISODE = bytes.fromhex("e0" * 16)
LOG = Log(1, EPISODE, 0)
KEY = Key(1, EPISODE, 0, W)
F32, C64 = 11, 14


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def seqs(store: Store, key: Key = KEY) -> list[int]:
    return [record.seq for record in store.records().get(key, [])]


def read(
    built: StoreBuilder, segment: SegmentBuilder, data: bytes | None = None, *, verify: bool = True
) -> Store:
    built.save(W, segment, data)
    return Store(built.path, verify=verify)


def steps(segment: SegmentBuilder, first: int, count: int, *, synced_to: int = 128) -> None:
    """Some records of slot 1, and a commit."""
    for sequence in range(first, first + count):
        segment.record(Kind.STEP, 1, sequence, {2: sequence, 4: f"observation {sequence}"})
    segment.commit(synced_to)


def three_commits(
    built: StoreBuilder, writer: bytes = W, number: int = 0
) -> tuple[SegmentBuilder, list[int]]:
    """Nine records by three commits; the first six are synced. Also gives where each commit ends."""
    segment = built.segment(writer, number)
    segment.bind(1, LOG)
    ends = [128]
    for i in range(3):
        steps(segment, i * 3, 3, synced_to=ends[-1])
        ends.append(len(segment.data))
    return segment, ends[1:]


# What is there.


def test_a_store_gives_back_what_was_written(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    segment.bind(2, Log(3, b"s" * 16, 0))
    segment.record(Kind.BEGIN, 1, 0, {1: 17, 20: "run", 26: VALUES})
    segment.commit()
    segment.record(Kind.PUT, 2, 0, {30: "entry", 41: Media("text/plain", b"x")}, synced_to=128)
    segment.record(Kind.END, 1, 1, {50: "done", 999: "a field that is not known"}, zstd=True)
    segment.commit(len(segment.data))
    found = read(store, segment)
    assert [(r.seq, r.kind) for r in found.records()[KEY]] == [(0, Kind.BEGIN), (1, Kind.END)]
    assert found.records()[KEY][0].fields == {1: 17, 20: "run", 26: VALUES}
    assert found.records()[KEY][1].fields == {50: "done", 999: "a field that is not known"}
    assert found.records()[Key(3, b"s" * 16, 0, W)][0].fields[41] == Media("text/plain", b"x")
    assert found.damage == found.torn == []
    assert found.gaps() == {}


def test_a_log_goes_on_across_segments_and_copies_stand_apart(store):
    for number in range(3):
        segment = store.segment(W, number)
        segment.bind(7, LOG)
        segment.bind(8, Log(2, EPISODE, 0, b"o" * 16))
        segment.record(Kind.STEP, 7, number, {2: number})
        segment.record(Kind.STEP, 8, number, {2: number})
        segment.commit()
        if number < 2:
            segment.seal()
        store.save(W, segment)
    found = Store(store.path, verify=True)
    assert seqs(found) == seqs(found, Key(2, EPISODE, 0, W)) == [0, 1, 2]


def test_a_log_that_was_closed_ends_there_whatever_its_writer_adds(store):
    """The first answer "closed" decides, in the order of the numbers; "alive" before it means nothing."""
    segment, ends = three_commits(store)
    store.save(W, segment)
    later = store.segment(W, 1)
    later.bind(1, LOG)
    steps(later, 9, 3)
    store.save(W, later)
    answers = {2: "alive", 9: ends[1], 10: ends[2]}
    for number, said in answers.items():
        closed = {50: "closed", 63: W, 81: 0, 84: said} if isinstance(said, int) else {50: said, 63: W}
        store.card(f"mail/{W.hex()}/{number}.answer", Card.ANSWER, closed)
    found = Store(store.path, verify=True)
    assert seqs(found) == [0, 1, 2, 3, 4, 5]
    assert found.damage == []


def test_a_record_of_many_chunks_is_put_together(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    noise = bytes(i * i >> 3 & 0xFF for i in range(2_500_000))
    segment.record(Kind.STEP, 1, 0, {4: noise})
    small = segment.record(Kind.STEP, 1, 1, {4: "x" * 100, 5: "target"}, zstd=True, piece_bytes=8)
    segment.record(Kind.STEP, 1, 2, {4: Ref(small, (5,))})
    segment.commit()
    segment.seal()
    found = read(store, segment).records()[KEY]
    assert [r.fields.get(4) for r in found] == [noise, "x" * 100, "target"]


def test_frames_that_may_be_skipped_are_and_others_are_refused(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    segment.frame(0x80, 1, 0, b"later work")
    steps(segment, 0, 1)
    assert seqs(read(store, segment)) == [0]
    for kind, flags in ((0x1B, 0), (0x09, 0), (Kind.STEP, 0x20)):
        newer = store.segment(W, 0)
        newer.frame(kind, 1, 0, b"", flags=flags)
        newer.commit()
        with pytest.raises(NewerFormat, match="version 1"):
            read(store, newer)


# References.


def test_references_lead_to_what_they_name(store):
    first = store.segment(W, 0)
    first.bind(1, LOG)
    shared = first.value({"system": "be brief", "tools": ["a", "b", "c"]})
    long = first.value(["x" * 5000, list(range(100))], zstd=True)
    one = first.record(
        Kind.FIRST, 1, 0, {4: Ref(shared), 14: [Ref(shared, ("tools",)), "own", Ref(long, (0,))]}
    )
    first.commit()
    first.seal()
    store.save(W, first)
    second = store.segment(W, 1)
    second.bind(1, LOG)
    # `base` is 2 here: the value starts behind two references of its record.
    second.record(Kind.STEP, 1, 1, {4: Ref(one, (14, 2)), 5: Ref(one, (14,)), 9: Ref(long, (1,), take=3)})
    second.record(Kind.STEP, 1, 2, {5: Ref(long, (0,), take=4096), 9: Ref(long, (0,), take=4100)})
    second.commit()
    second.seal()
    found = read(store, second).records()[KEY]
    tools = ["a", "b", "c"]
    assert found[0].fields == {4: {"system": "be brief", "tools": tools}, 14: [tools, "own", "x" * 5000]}
    assert found[1].fields == {4: "x" * 5000, 5: [tools, "own", "x" * 5000], 9: [0, 1, 2]}
    assert found[2].fields == {5: "x" * 4096, 9: "x" * 4100}


def test_spans_are_joined_with_what_follows(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    elements = Array(F32, (2, 2), struct.pack("<4f", 1, 2, 3, 4))
    a = segment.record(Kind.STEP, 1, 0, {4: list("abcdef"), 9: "héllo", 10: b"12345", 5: elements})
    whole = Array(F32, (3, 2), struct.pack("<3f", 7, 8, 9))
    fields = {
        4: More([(2, Ref(a, (4,), 4)), (0, Ref(a, (4,), 1))], ["new", Ref(a, (9,))]),
        5: More([(1, Ref(a, (5,), 4))], whole),
        9: More([(0, Ref(a, (9,), 2))], b"\xa9!", STRING),  # the span ends inside é
        10: More([(3, Ref(a, (10,), 5)), (5, Ref(a, (10,), 5))], b""),
    }
    segment.record(Kind.STEP, 1, 1, fields)
    segment.commit()
    found = read(store, segment).records()[KEY][1].fields
    assert found[4] == ["c", "d", "a", "new", "héllo"]
    assert found[5] == Array(F32, (3, 2), struct.pack("<6f", 2, 3, 4, 7, 8, 9))
    assert found[9] == "hé!"
    assert found[10] == b"45"


def test_a_long_chain_of_links_is_followed(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    link = segment.record(Kind.STEP, 1, 0, {4: [0]})
    for i in range(1, 1500):
        link = segment.record(Kind.STEP, 1, i, {4: More([(0, Ref(link, (4,), i))], [i])})
    segment.commit()
    assert read(store, segment, verify=False).records()[KEY][-1].fields[4] == list(range(1500))


def test_a_reference_to_something_else_is_found_by_its_hash(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    place = segment.value(["this", "that"])
    place.values[()] = (0, 0, ["this", "thaT"])
    segment.record(Kind.STEP, 1, 0, {4: Ref(place)})
    segment.commit()
    with pytest.raises(HashMismatch):
        read(store, segment)
    assert read(store, segment, verify=False).records()[KEY][0].fields[4] == ["this", "that"]


@pytest.mark.parametrize("offset", [0, 8, 4096], ids=["before the data", "not a frame", "ahead"])
def test_a_reference_to_no_record_is_refused(store, offset):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    place = segment.value("x")
    wrong = type(place)(0, offset, place.values)
    segment.record(Kind.STEP, 1, 0, {4: Ref(wrong)})
    segment.commit()
    with pytest.raises(Malformed):
        read(store, segment)


def test_dictionaries_may_stand_in_earlier_segments(store):
    first = store.segment(W, 0)
    dictionary = first.dictionary(b"observation: the quick brown fox " * 8)
    first.commit()
    store.save(W, first)
    second = store.segment(W, 1)
    second.bind(1, LOG)
    text = "observation: the quick brown fox jumps"
    second.record(Kind.STEP, 1, 0, {4: text}, dictionary=dictionary)
    second.record(Kind.STEP, 1, 1, {4: text}, zstd=True)
    second.commit()
    second.seal()
    assert [r.fields[4] for r in read(store, second).records()[KEY]] == [text, text]

    # Without the dictionary the record is lost, by name; the other one is not.
    data = bytearray(first.data)
    data[dictionary.offset + 30] ^= 1
    store.save(W, first, bytes(data))
    found = Store(store.path, verify=True)
    assert seqs(found) == [1]
    assert [(d.segment, d.why) for d in found.damage] == [(0, "hole"), (1, "dictionary lost")]
    assert found.damage[1].lost[0].sequence == 0
    assert found.gaps() == {KEY: [(0, 1)]}


# What is not there.


def in_padding(segment: SegmentBuilder, at: int) -> bool:
    """Whether a byte is one of the zeros behind a frame, which carry nothing."""
    return any(end <= at < (end + 7 & ~7) for end in segment.content_ends)


def test_a_cut_at_any_byte_leaves_a_readable_prefix(store):
    segment, ends = three_commits(store)
    commits = [end for end in segment.content_ends if end + 7 & ~7 in ends]
    for cut in range(128, len(segment.data) + 1):
        found = read(store, segment, bytes(segment.data[:cut]))
        committed = sum(cut >= end for end in commits)
        assert seqs(found) == list(range(committed * 3)), f"cut at {cut}"
        assert found.damage == [], f"cut at {cut}"
        at_commit = cut == 128 or any(a <= cut <= b for a, b in zip(commits, ends, strict=True))
        assert bool(found.torn) == (not at_commit), f"cut at {cut}"


def test_a_flipped_byte_below_what_is_synced_is_damage_and_above_it_a_torn_end(store):
    segment, ends = three_commits(store)
    written = read(store, segment).records()[KEY]
    for at in range(128, len(segment.data)):
        data = bytearray(segment.data)
        data[at] ^= 0x10
        found = read(store, segment, bytes(data))
        got = found.records().get(KEY, [])
        if in_padding(segment, at):
            assert got == written and not found.damage and not found.torn, f"flip at {at}"
        elif at >= ends[1]:
            assert got == written[:6] and found.torn and not found.damage, f"flip at {at}"
        else:
            missing = [record for record in written if record not in got]
            named = [name.sequence for d in found.damage for name in d.lost if name.kind == Kind.STEP]
            assert found.damage and not found.torn, f"flip at {at}"
            assert [record.seq for record in missing] == named, f"flip at {at}"
            in_bind = at < segment.content_ends[0]
            assert len(missing) == 9 if in_bind else len(missing) <= 1, f"flip at {at}"


def test_every_hole_in_a_sealed_segment_is_damage_with_a_name(store):
    segment, _ = three_commits(store)
    data_end = len(segment.data)
    segment.seal()
    written = read(store, segment).records()[KEY]
    for at in range(128, data_end):
        data = bytearray(segment.data)
        data[at] ^= 0x10
        found = read(store, segment, bytes(data))
        got = found.records()[KEY]  # also when BIND is lost: the index has the name
        missing = {r.seq for r in written} - {r.seq for r in got}
        assert len(missing) <= 1 and not found.torn, f"flip at {at}"
        named = {name.sequence for d in found.damage for name in d.lost if name.kind == Kind.STEP}
        assert named == missing, f"flip at {at}"
    for at in range(data_end, len(segment.data)):
        # Without its index the segment is as if it had not been sealed.
        data = bytearray(segment.data)
        data[at] ^= 0x10
        assert read(store, segment, bytes(data)).records()[KEY] == written, f"flip at {at}"


def test_a_hole_across_what_is_synced_is_damage_below_and_the_end_above(store):
    segment, ends = three_commits(store)
    data = bytearray(segment.data)
    data[ends[1] - 16 : ends[1] + 16] = b"\xee" * 32
    found = read(store, segment, bytes(data))
    assert seqs(found) == [0, 1, 2, 3, 4, 5]
    assert [(d.offset + d.length, d.segment) for d in found.damage] == [(ends[1], 0)]
    assert [(t.offset, t.why) for t in found.torn] == [(ends[1], "hole")]


def test_frames_without_a_commit_do_not_exist(store):
    segment, ends = three_commits(store)
    segment.record(Kind.STEP, 1, 9, {2: 9})
    found = read(store, segment)
    assert seqs(found) == list(range(9))
    assert [(t.offset, t.why) for t in found.torn] == [(ends[2], "uncommitted")]


@pytest.mark.parametrize("follows", ["nothing", "a header", "a frame", "a frame, voiding"])
def test_a_later_segment_tells_that_all_before_it_was_synced(store, follows):
    segment, ends = three_commits(store)
    data = bytearray(segment.data)
    data[ends[1] + 20] ^= 1  # the head of a frame above what is synced
    if follows != "nothing":
        later = store.segment(W, 3, **({"voids": (0, ends[2])} if "voiding" in follows else {}))
        if "frame" in follows:
            later.bind(1, LOG)
            steps(later, 9, 1)
        store.save(W, later)
    found = read(store, segment, bytes(data))
    if "frame" in follows:  # a writer voids from what it had synced
        assert seqs(found) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
        assert len(found.damage) == 1 and not found.torn
        assert found.gaps() == {KEY: [(6, 7)]}
    else:
        assert seqs(found)[:6] == list(range(6)) and 7 not in seqs(found)
        assert found.torn and not found.damage


def test_what_is_voided_does_not_exist_and_the_lowest_offset_holds(store):
    first, ends = three_commits(store)
    store.save(W, first)
    for number, void in ((1, ends[1]), (2, ends[0])):
        later = store.segment(W, number, voids=(0, void))
        store.save(W, later)
    third = store.segment(W, 3)
    third.bind(1, LOG)
    third.record(Kind.STEP, 1, 3, {2: 33})
    third.commit()
    found = read(store, third)
    assert [(r.seq, r.fields[2]) for r in found.records()[KEY]] == [(0, 0), (1, 1), (2, 2), (3, 33)]
    assert found.torn == []
    assert found.damage == []


def test_bytes_of_another_time_or_place_are_not_frames(store):
    old = store.segment(W, 0, salt=1)
    old.bind(1, LOG)
    steps(old, 0, 4)
    new = store.segment(W, 0, salt=2)
    new.bind(1, LOG)
    steps(new, 0, 1)
    kept = bytes(new.data)
    found = read(store, new, kept + old.data[len(kept) :])
    assert seqs(found) == [0] and len(found.torn) == 1
    found = read(store, new, kept + kept[128:])
    assert seqs(found) == [0] and len(found.torn) == 1


def test_a_missing_chunk_takes_its_record_only(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    segment.record(Kind.STEP, 1, 0, {4: "before"})
    big = segment.record(Kind.STEP, 1, 1, {4: "x" * 200}, piece_bytes=64)
    segment.record(Kind.STEP, 1, 2, {4: Ref(big, (4,)), 5: "after"})
    segment.commit()
    segment.seal()
    for frame in range(4):
        data = bytearray(segment.data)
        data[big.offset + frame * 88 + 30] ^= 1
        found = read(store, segment, bytes(data))
        assert seqs(found) == [0, 2], f"frame {frame}"
        lost = found.records()[KEY][1].fields
        assert isinstance(lost[4], Lost) and lost[5] == "after", f"frame {frame}"
        assert [(n.kind, n.sequence) for d in found.damage for n in d.lost] == [(Kind.STEP, 1)], (
            f"frame {frame}"
        )


def test_a_heal_stands_in_for_what_is_lost(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    place = segment.value(list("abc"))
    segment.record(Kind.STEP, 1, 0, {4: Ref(place), 5: More([(1, Ref(place, (), 2))], ["d"]), 9: ["kept"]})
    segment.commit()
    segment.seal()
    data = bytearray(segment.data)
    data[place.offset] ^= 1
    found = read(store, segment, bytes(data)).records()[KEY][0].fields
    hasher = Hasher(store.id)
    whole, prefix = hasher.hash(list("abc")), hasher.hash(list("ab"))
    assert found == {4: Lost(whole), 5: Lost(prefix), 9: ["kept"]}
    store.card("heals/0", Card.HEAL, {88: [{"hash": whole, "value": list("abc")}], 1: 0})
    store.card("heals/1", Card.HEAL, {88: [{"hash": prefix, "value": list("ab")}], 1: 0})
    assert Store(store.path).records()[KEY][0].fields == {4: list("abc"), 5: ["b", "d"], 9: ["kept"]}


def test_a_segment_without_its_header_is_damage(store):
    segment, _ = three_commits(store)
    for data in (
        segment.data[:100],
        b"\0" + segment.data[1:],
        segment.data[:70] + b"\xff" + segment.data[71:],
    ):
        found = read(store, segment, bytes(data))
        assert found.records() == {} and [(d.offset, d.length) for d in found.damage] == [(0, len(data))]
    other = b"b" * 16
    (store.path / "writers" / other.hex()).mkdir()
    (store.path / "writers" / other.hex() / "0.seg").write_bytes(segment.data)
    assert len(read(store, segment).damage) == 1, "a segment under the name of another writer"


# The index.


def test_the_index_of_a_sealed_segment_agrees_with_its_frames(store):
    segment = store.segment(W, 0)
    segment.bind(2, LOG)
    segment.bind(1, Log(2, EPISODE, 0, b"o" * 16))
    segment.dictionary(b"x" * 64)
    for sequence in (4, 5, 8):  # 6 and 7 are in no segment: a new entry
        segment.record(Kind.STEP, 2, sequence, {2: sequence}, synced_to=128)
    segment.record(Kind.NOTE, 1, 0, {30: "n"}, synced_to=128)
    segment.seal({LOG: {20: "run", 70: 3, 71: 1.5}})
    found = read(store, segment)
    index = found.segments[W][0].index
    assert [(e.what, e.slot, e.first_sequence, len(e.records)) for e in index.entries] == [
        (0, 0, 0, 3),
        (1, 2, 4, 2),
        (1, 2, 8, 1),
        (2, 1, 0, 1),
    ]
    assert index.entries[1].summary == {20: "run", 70: 3, 71: 1.5}
    assert found.gaps() == {KEY: [(0, 4), (6, 8)]}


def test_an_index_that_lies_is_found(store):
    segment, _ = three_commits(store)
    segment.written.pop()
    segment.seal()
    with pytest.raises(Malformed, match="the index has None"):
        read(store, segment)


def test_a_commit_that_lies_is_found(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    segment.written.clear()
    steps(segment, 0, 1)
    with pytest.raises(Malformed, match="does not list what it commits"):
        read(store, segment)


# Small files, and the rest of the store.


def test_a_card_is_only_valid_under_its_own_name(store):
    store.card("heals/0", Card.HEAL, {1: 5, 88: []})
    assert read_card(store.path, "heals/0", store.id, Card.HEAL) == {1: 5, 88: []}
    (store.path / "heals/1").write_bytes((store.path / "heals/0").read_bytes())
    with pytest.raises(Malformed):
        read_card(store.path, "heals/1", store.id, Card.HEAL)
    with pytest.raises(Malformed):
        read_card(store.path, "heals/0", store.id, Card.DROP)


def test_the_head_of_a_store_is_checked(store):
    head = json.loads((store.path / "keepstep.json").read_text())
    for change, error in (
        ({"format": 2}, NewerFormat),
        ({"created": 1}, Malformed),
        ({"keepstep": "x"}, Malformed),
    ):
        (store.path / "keepstep.json").write_text(json.dumps(head | change))
        with pytest.raises(error):
            Store(store.path)
    (store.path / "keepstep.json").write_text(json.dumps(head | {"unknown": True}))
    assert Store(store.path).records() == {}


# The canonical form.


def test_the_canonical_form_is_this(store):
    segment = store.segment(W, 0)
    segment.bind(1, LOG)
    fields = {
        2: 2**53,
        3: -(2**53) - 1,
        4: ["é\x1f\n\u2028", None, True, b"\1"],
        5: {"k": 1.0, "e": {}},
        7: Pairs([[1, Array(3, (1, 2), b"\1\2\3\4")]]),
        9: Typed("T", Media("m", b"\xff")),
        10: Repr("T", "<t>"),
        100: 2**70,
    }
    segment.record(Kind.STEP, 1, 0, fields, synced_to=128)
    store.save(W, segment)
    expected = (
        '{"what":1,"id":"'
        + "e0" * 16
        + '","attempt":0,"writer":"'
        + "aa" * 16
        + '","seq":0,"kind":18,"fields":{'
        '"2":9007199254740992,"3":"-9007199254740993","4":["é\\u001f\\n\u2028",null,true,{"$bytes":"01"}],'
        '"5":{"$map":[["k",{"$float":"000000000000f03f"}],["e",{"$map":[]}]]},'
        '"7":{"$map":[[1,{"$array":[3,[1,2],"01020304"]}]]},"9":{"$typed":["T",{"$media":["m","ff"]}]},'
        '"10":{"$repr":["T","<t>"]},"100":"1180591620717411303424"}}\n'
    )
    assert "".join(lines(Store(store.path))) == expected
    command = [sys.executable, "-m", "second_reader", str(store.path), "--json", "--verify"]
    ran = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, expected.encode(), b"")


def test_lines_are_sorted_by_id_attempt_writer_and_sequence(store):
    for writer in (b"\xbb" * 16, W):
        segment = store.segment(writer, 0)
        for slot, (attempt, id) in enumerate([(10, b"\1" * 16), (9, b"\1" * 16), (0, bytes(16))], 1):
            segment.bind(slot, Log(1, id, attempt))
            for sequence in range(11):
                segment.record(Kind.STEP, slot, sequence, {}, synced_to=128)
        store.save(writer, segment)
    found = [json.loads(line) for line in lines(Store(store.path))]
    order = [(line["id"], line["attempt"], line["writer"], line["seq"]) for line in found]
    assert order == sorted(order) and len(order) == 66


# The golden stores: tests/golden/<name>/store and the lines that every reader must print for it.

GOLDEN = Path(__file__).parent / "golden"


def golden_stores() -> list[Path]:
    return sorted(folder for folder in GOLDEN.iterdir() if folder.is_dir()) if GOLDEN.is_dir() else []


def golden_is_tracked() -> bool:
    """Whether git knows of golden stores: then they must not be missing."""
    command = ["git", "ls-files", "--", str(GOLDEN)]
    try:
        ran = subprocess.run(command, cwd=GOLDEN.parent, capture_output=True, check=False)
    except OSError:
        return False
    return bool(ran.stdout.strip())


if GOLDEN.is_dir() or golden_is_tracked():

    def test_there_is_at_least_one_golden_store():
        assert golden_stores(), f"{GOLDEN} holds no golden store; take it from git again"

    @pytest.mark.parametrize("golden", golden_stores(), ids=lambda folder: folder.name)
    def test_a_golden_store_reads_as_it_always_did(golden):
        found = "".join(lines(Store(golden / "store", verify=True)))
        assert found == (golden / "expected.jsonl").read_bytes().decode()
