"""NeMo Gym's captured tokens in a keepstep store: what is acknowledged is frozen, what is lost is seen, what is retired is gone."""

from __future__ import annotations

import asyncio
import math
import struct
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import keepstep
import pytest
from keepstep import _core, adapting

pytest.importorskip("pydantic")

from keepstep.adapters.nemo_gym import (
    KeepstepLineage,
    KeepstepTokenSink,
    KeepstepTokenSource,
    _capture,
    _entries,
)
from nemo_gym.token_id_capture.lineage import stamp_continuation
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry

T = TypeVar("T")
ASKED = [{"role": "user", "content": "how is the weather?"}]


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def entry(call: str, *, prompt: list[int] | None = None, rollout: str = "7-0", **more: Any) -> TokenEntry:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": call}]}
    fields = {
        "generation_token_ids": [5, 6],
        "generation_log_probs": [-0.5, -0.25],
        "output_items": [said],
        "token_item_index": 0,
        "created_at": 1.5,
        **more,
    }
    made = TokenEntry(
        rollout_id=rollout,
        model_call_id=call,
        prompt_token_ids=[1, 2] if prompt is None else prompt,
        **fields,
    )
    return stamp_continuation(made, ASKED)


def dump(made: TokenEntry) -> Any:
    return made.model_dump(mode="json")


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": []},
        {"prompt": [0, 2**31 - 1, -1]},
        {"prompt": [2**31, 2**62]},
        {"prompt": [2**70]},
        {"generation_log_probs": [-0.1, -0.2]},
        {"generation_log_probs": [-0.1, -1e300]},
        {"generation_log_probs": [-0.0, -math.inf]},
        {"generation_log_probs": [math.nan, -0.5]},
        {"routed_experts": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]},
        {"routed_experts": [[1, 2], [3]]},
        {"routed_experts": [[1, True]]},
        {"routed_experts": "aGVsbG8="},
        {"parent_resolution": ParentResolutionStatus.RESOLVED, "parent_call_id": "c0"},
        {"zeta": 1, "alpha": {"x": [1.5, None]}},
    ],
)
def test_an_entry_comes_back_as_it_was(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Arrays are narrow only where nothing is lost: each number, and its type, comes back."""
    put = entry("c1", **fields)

    async def there_and_back() -> Any:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(put)
        snapshot = await source.freeze("7-0")
        await sink.close()
        await source.close()
        return snapshot.entries

    (found,) = run(there_and_back())
    assert repr(vars(found)) == repr(vars(put))
    assert (found.model_extra or {}) == (put.model_extra or {})


def test_an_array_that_comes_back_without_numpy_is_the_same_list() -> None:
    made = entry("c1", routed_experts=[[[1, 2], [3, 4], [5, 6]]])
    assert dump(_entries.unpacked(_entries.packed(made))) == dump(made)


def test_a_retry_is_harmless_and_a_conflict_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c1"))
        await KeepstepTokenSink(tmp_path).put(TokenEntry.model_validate(dump(entry("c1"))))
        with pytest.raises(keepstep.BadInput, match="another value"):
            await sink.put(entry("c1", created_at=2.5))
        snapshot = await source.freeze("7-0")
        assert [dump(found) for found in snapshot.entries] == [dump(entry("c1"))]
        assert not snapshot.incomplete

    run(scene())


def test_after_a_freeze_nothing_enters_and_the_snapshot_stays(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c1"))
        first = await source.freeze("7-0")
        for late in (sink, KeepstepTokenSink(tmp_path)):
            with pytest.raises(keepstep.Fenced):
                await late.put(entry("c2"))
        assert await KeepstepTokenSource(tmp_path).freeze("7-0") == first

    run(scene())


def test_a_call_that_was_begun_and_never_came_makes_the_rollout_incomplete(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.begin_call("7-0", "c1")
        await sink.put(entry("c1"))
        await sink.begin_call("7-1", "c1")
        assert not (await source.freeze("7-0")).incomplete
        assert (await source.freeze("7-1")).incomplete

    run(scene())


def test_each_mark_is_seen_and_makes_older_snapshots_stale(tmp_path: Path) -> None:
    """Also the second mark for the same call: each is a loss that a consumer did not know of."""

    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c1"))
        snapshots = [await source.freeze("7-0")]
        for _ in range(3):
            await sink.mark_incomplete("7-0", "c2")
            snapshots.append(await source.freeze("7-0"))
        assert [snapshot.incomplete for snapshot in snapshots] == [False, True, True, True]
        assert len({snapshot.version for snapshot in snapshots}) == 4
        for stale in snapshots[:-1]:
            assert not await source.drop("7-0", snapshot_id=stale.snapshot_id, version=stale.version)
        newest = snapshots[-1]
        assert await source.drop("7-0", snapshot_id=newest.snapshot_id, version=newest.version)

    run(scene())


@pytest.mark.parametrize("marks_before", [0, 1, 2])
def test_no_mark_is_lost_to_a_retirement_that_runs_beside_it(tmp_path: Path, marks_before: int) -> None:
    """A mark that comes while a snapshot is retired is either seen, and the snapshot kept, or refused: never lost."""

    class Slow(KeepstepTokenSource):
        """Lets a mark in between looking and closing the door."""

        def _frontier(self, rollout_id: str) -> tuple[int, int]:
            seen = super()._frontier(rollout_id)
            if self.lets_in:
                self.lets_in = False
                asyncio.run(sink.mark_incomplete(rollout_id, "late"))
            return seen

        lets_in = False

    sink = KeepstepTokenSink(tmp_path)

    async def scene() -> None:
        source = Slow(tmp_path)
        await sink.put(entry("c1"))
        for _ in range(marks_before):
            await sink.mark_incomplete("7-0")
        asked = await source.freeze("7-0")
        source.lets_in = True
        assert not await source.drop("7-0", snapshot_id=asked.snapshot_id, version=asked.version)
        seen = await source.freeze("7-0")
        assert seen.incomplete and seen.version == asked.version + 1
        # The door is open again for the next one.
        await sink.mark_incomplete("7-0")
        last = await source.freeze("7-0")
        assert last.version == seen.version + 1
        assert not await source.drop("7-0", snapshot_id=seen.snapshot_id, version=seen.version)
        assert await source.drop("7-0", snapshot_id=last.snapshot_id, version=last.version)

    run(scene())


def test_retiring_is_idempotent_and_final(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c1"))
        seen = await source.freeze("7-0")
        meant = {"snapshot_id": seen.snapshot_id, "version": seen.version}
        for client in (source, source, KeepstepTokenSource(tmp_path)):
            assert await client.drop("7-0", **meant)
        assert not await source.drop("7-0", snapshot_id=seen.snapshot_id, version=seen.version + 1)
        for refused in (source.freeze("7-0"), sink.mark_incomplete("7-0")):
            with pytest.raises(keepstep.Ended):
                await refused
        with pytest.raises(keepstep.Fenced):
            await sink.put(entry("c2"))

    run(scene())


def test_retiring_what_nobody_froze_closes_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c1"))
        assert not await source.drop("7-0", snapshot_id="guessed", version=2)
        await sink.put(entry("c2"))

    run(scene())


@pytest.mark.parametrize("dies_at", ["put", "drop"])
def test_a_retirement_that_died_half_way_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    """Once the door for marks is closed the rollout is retired, whoever finishes the work."""

    def dies(*_: Any) -> Any:
        raise OSError("killed here")

    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c1"))
        seen = await source.freeze("7-0")
        meant = {"snapshot_id": seen.snapshot_id, "version": seen.version}
        with monkeypatch.context() as patched:
            patched.setattr(keepstep.Stream, dies_at, dies)
            with pytest.raises(OSError, match="killed here"):
                await source.drop("7-0", **meant)
        with pytest.raises(keepstep.Ended):
            await sink.mark_incomplete("7-0")
        assert await source.drop("7-0", **meant)
        with pytest.raises(keepstep.Ended):
            await source.freeze("7-0")

    run(scene())


def test_a_later_attempt_inherits_what_it_goes_on_from_and_the_earlier_one_is_closed(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        for call in ("c1", "c2", "c3"):
            await sink.put(entry(call, response_id=f"r-{call}"))
        assert await sink.inherit("7-0", "7-0-a1", response_ids=["r-c1", "r-c2"]) == 2
        with pytest.raises(keepstep.Fenced):
            await sink.put(entry("c4"))
        await sink.put(entry("c4", rollout="7-0-a1"))
        later = await source.freeze("7-0-a1")
        assert {found.model_call_id for found in later.entries} == {"c1", "c2", "c4"}
        assert {found.rollout_id for found in later.entries} == {"7-0-a1"}
        # What becomes of the earlier one is nothing to the later.
        earlier = await source.freeze("7-0")
        assert await source.drop("7-0", snapshot_id=earlier.snapshot_id, version=earlier.version)
        assert await source.freeze("7-0-a1") == later
        assert await sink.inherit("7-0", "7-0-a2") == 0

    run(scene())


def test_a_resolver_sees_what_any_client_put(tmp_path: Path) -> None:
    async def scene() -> None:
        lineage, sink, source = (
            KeepstepLineage(tmp_path),
            KeepstepTokenSink(tmp_path),
            KeepstepTokenSource(tmp_path),
        )
        assert (await lineage.resolve("7-0", ASKED)).status == ParentResolutionStatus.ROOT
        put = entry("c1", prompt=[1, 2, 3])
        await sink.put(put)
        goes_on = [*ASKED, *put.output_items, {"role": "user", "content": "and tomorrow?"}]
        found = await lineage.resolve("7-0", goes_on)
        assert found.match is not None and found.match.model_call_id == "c1"
        assert list(found.match.cumulative_token_ids) == [1, 2, 3, 5, 6]
        assert lineage.is_process_shared()
        snapshot = await source.freeze("7-0")
        assert (await lineage.resolve("7-0", goes_on)).match == found.match
        await source.drop("7-0", snapshot_id=snapshot.snapshot_id, version=snapshot.version)
        assert (await lineage.resolve("7-0", goes_on)).status == ParentResolutionStatus.UNRESOLVED

    run(scene())


def test_one_call_with_two_payloads_is_nobodys_parent(tmp_path: Path) -> None:
    """Two processes may put one id before either sees the other: reading says so, and nothing is guessed."""

    async def scene() -> None:
        lineage, source = KeepstepLineage(tmp_path), KeepstepTokenSource(tmp_path)
        with keepstep.open(tmp_path) as one, keepstep.open(tmp_path) as two:
            sinks = [KeepstepTokenSink(store) for store in (one, two)]
            # Each has looked a moment ago, and does not look again so soon.
            await asyncio.gather(*(sink.begin_call("7-0", "c1") for sink in sinks))
            conflicts = (entry("c1", created_at=1.0), entry("c1", created_at=2.0))
            done = await asyncio.gather(
                *(sink.put(put) for sink, put in zip(sinks, conflicts, strict=True)), return_exceptions=True
            )
            goes_on = [*ASKED, *conflicts[0].output_items]
            if any(done):
                assert any(isinstance(refused, keepstep.BadInput) for refused in done)
                return
            found = await lineage.resolve("7-0", goes_on)
            assert (found.status, found.reason) == (ParentResolutionStatus.UNRESOLVED, "conflict")
            with pytest.raises(keepstep.BadInput, match="several values"):
                await source.freeze("7-0")

    run(scene())


def test_a_prompt_that_grows_costs_what_is_new(tmp_path: Path) -> None:
    prompt = [(number * 2654435761) % 120_000 for number in range(2000)]

    async def scene() -> int:
        sink = KeepstepTokenSink(tmp_path)
        written = 0
        for call in range(20):
            put = entry(f"c{call}", prompt=list(prompt))
            written += len(put.model_dump_json())
            await sink.put(put)
            prompt.extend((number * 40503 + call) % 120_000 for number in range(300))
        await sink.close()
        return written

    as_json = run(scene())
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    assert on_disk * 10 < as_json, (on_disk, as_json)


def test_while_the_queue_is_full_the_callers_wait_and_nothing_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter([keepstep.Busy("the queue is full")] * 3)
    really = keepstep.Stream.put

    def put(self: keepstep.Stream, id: str, value: Any) -> keepstep.Receipt:
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        return really(self, id, value)

    async def scene(is_claimed: bool, rollout: str) -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        if is_claimed:
            await sink.put(entry("c0", rollout=rollout))
        with monkeypatch.context() as patched:
            patched.setattr(keepstep.Stream, "put", put)
            await asyncio.gather(*(sink.put(entry(f"c{call}", rollout=rollout)) for call in range(5)))
        assert next(refusals, None) is None
        assert len((await source.freeze(rollout)).entries) == 5

    run(scene(False, "7-0"))
    refusals = iter([keepstep.Busy("the queue is full")] * 8)
    run(scene(True, "7-1"))


def test_a_short_entry_is_put_at_once_and_a_long_one_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's thread is not kept for milliseconds, and not left for microseconds."""
    packed_in = []
    really = _entries.packed

    def packed(made: TokenEntry) -> dict[str, Any]:
        packed_in.append(threading.current_thread() is threading.main_thread())
        return really(made)

    monkeypatch.setattr(_capture, "packed", packed)

    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        for call, length in enumerate([1, 2_000, 60_000]):
            await sink.put(entry(f"c{call}", prompt=list(range(length))))
        found = (await source.freeze("7-0")).entries
        assert sorted(len(kept.prompt_token_ids) for kept in found) == [1, 2_000, 60_000]

    run(scene())
    # The first one of a rollout claims it, which waits for the disk.
    assert packed_in == [False, True, False]


class _Odd(int):
    pass


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0, -1, 2**31 - 1, -(2**31)],
        list(range(-3_000, 3_000, 7)),
        [2**31],
        [-(2**31) - 1],
        [2**64],
        [True],
        [_Odd(3)],
        [1.0],
        ["1"],
        (1, 2),
        None,
    ],
)
def test_whole_numbers_are_packed_as_struct_does_or_not_at_all(numbers: Any) -> None:
    is_plain = type(numbers) is list and all(type(one) is int for one in numbers)
    if is_plain and all(-(2**31) <= one < 2**31 for one in numbers):
        assert _core.int32_bytes(numbers) == struct.pack(f"<{len(numbers)}i", *numbers)
    else:
        assert _core.int32_bytes(numbers) is None


@pytest.mark.parametrize(
    ("numbers", "fits"),
    [
        ([], True),
        ([0.5, -0.0, math.inf, -math.inf, 2.0**-149, 2.0**127], True),
        ([0.1], False),
        ([1e300], False),
        ([2.0**-150], False),
        ([math.nan], False),
        ([1], False),
        ([None], False),
        ((0.5,), False),
    ],
)
def test_reals_are_packed_as_struct_does_or_not_at_all(numbers: Any, fits: bool) -> None:
    packed = struct.pack(f"<{len(numbers)}f", *numbers) if fits else None
    assert _core.float32_bytes(numbers) == packed


def test_of_many_puts_at_once_each_gets_its_own_answer(tmp_path: Path) -> None:
    """A conflict among them is refused, one that is cancelled is nobody's trouble, and all others are kept."""

    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        await sink.put(entry("c0"))
        puts = [asyncio.ensure_future(sink.put(entry(f"c{call}", created_at=2.5))) for call in range(60)]
        await asyncio.sleep(0)
        puts[7].cancel()
        came = await asyncio.gather(*puts, return_exceptions=True)
        assert isinstance(came[0], keepstep.BadInput) and isinstance(came[7], asyncio.CancelledError)
        assert [one for place, one in enumerate(came) if place not in (0, 7)] == [None] * 58
        found = {kept.model_call_id: kept for kept in (await source.freeze("7-0")).entries}
        found.pop("c7", None)
        expected = {f"c{call}": entry(f"c{call}", created_at=2.5) for call in range(60) if call != 7}
        assert found == {**expected, "c0": entry("c0")}

    run(scene())


def test_a_sink_holds_a_bounded_number_of_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_capture, "_OPEN_MAX", 2)

    async def scene() -> None:
        sink, source = KeepstepTokenSink(tmp_path), KeepstepTokenSource(tmp_path)
        for call in ("c1", "c2"):
            for rollout in ("1-0", "2-0", "3-0"):
                await sink.put(entry(call, rollout=rollout))
        assert len(sink._open) == 2
        assert len((await source.freeze("1-0")).entries) == 2

    run(scene())


def test_clients_of_one_place_share_a_store_until_the_last_is_closed(tmp_path: Path) -> None:
    async def scene() -> None:
        one, two = KeepstepTokenSink(tmp_path), KeepstepTokenSink(str(tmp_path))
        assert len(adapting._opened) == 1
        await one.close()
        await one.close()
        await two.put(entry("c1"))
        await two.close()
        assert not adapting._opened
        mine = keepstep.open(tmp_path)
        lent = KeepstepTokenSource(mine)
        await lent.close()
        assert len((await KeepstepTokenSource(mine).freeze("7-0")).entries) == 1
        mine.close()

    adapting._opened.clear()
    run(scene())
