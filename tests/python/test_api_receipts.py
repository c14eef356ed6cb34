"""Receipts, the queue behind them, and event loops: who waits, who never does, and who is told."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
import slow_disk
from keepstep import _loops


def test_a_receipt_says_what_it_survives(run: keepstep.Run) -> None:
    """None on its way; then the level, for which episode, and which step."""
    with run.episode("t") as episode:
        receipt = episode.submit(action=1)
        assert receipt.level in (None, "kill", "power")
        assert receipt.wait() is receipt
        assert (receipt.level, receipt.ref, receipt.step) == ("power", "shop/t#0.0~0", 0)
        assert isinstance(receipt, keepstep.Receipt)
        assert episode.note("score", 1.0, source="me").wait().step is None
        episode.end("finished")


def test_a_level_below_power_can_be_raised_later(tmp_path: Path) -> None:
    """A store at `kill` acknowledges before the sync; whoever needs more asks the receipt for it."""
    with keepstep.open(tmp_path / "runs", level="kill") as store:
        assert store.level == "kill"
        with store.run("shop").episode("t") as episode:
            receipt = episode.step(action=1)
            assert receipt.level in ("kill", "power")
            assert receipt.wait(level="power").level == "power"
            episode.end("finished")


def test_a_level_that_cannot_be_reached_is_an_error(tmp_path: Path, run: keepstep.Run) -> None:
    """Never a silent downgrade: neither on opening nor when a receipt is asked."""
    with pytest.raises(keepstep.LevelOutOfReach):
        keepstep.open(tmp_path / "other", level="machine")
    with run.episode("t") as episode:
        receipt = episode.step(action=1)
        with pytest.raises(keepstep.LevelOutOfReach):
            receipt.wait(level="machine")
        episode.end("finished")


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_senseless_timeout_is_refused(run: keepstep.Run, timeout: float) -> None:
    """It is said which argument it was."""
    with run.episode("t") as episode:
        receipt = episode.submit(action=1)
        with pytest.raises(keepstep.BadInput, match="timeout"):
            receipt.wait(timeout)
        episode.end("finished")


def fill(episode: keepstep.Episode) -> list[Any]:
    """Submits to a disk that takes nothing, until the queue is full and one more has passed."""
    receipts = []
    big = os.urandom(1 << 20)
    for number in range(1 << 10):
        try:
            receipts.append(episode.submit(action=number, observation=big + number.to_bytes(2, "big")))
        except keepstep.Busy:
            return receipts
    raise AssertionError("the queue was never full")


def test_await_gives_the_receipt(run: keepstep.Run) -> None:
    """Awaited before it came, after it came, twice, and by several tasks at once."""

    async def main() -> None:
        async with run.episode("t") as episode:
            receipt = episode.submit(action=1)
            assert await receipt is receipt
            assert await receipt is receipt
            other = episode.submit(action=2)

            async def wait() -> Any:
                return await other

            assert set(await asyncio.gather(*(wait() for _ in range(8)))) == {other}
            assert await asyncio.wait_for(episode.submit(action=3), 10)
            await episode.end("finished")

    asyncio.run(main())


def test_cancelling_an_await_does_not_withdraw_the_step(store: keepstep.Store, run: keepstep.Run) -> None:
    """The step was handed over: it is recorded, and can be awaited again."""

    async def main() -> None:
        async with run.episode("t") as episode:
            receipts = []
            for number in range(50):
                receipt = episode.submit(action=number)
                waiting = asyncio.ensure_future(asyncio.wait_for(receipt, 10))
                await asyncio.sleep(0)
                waiting.cancel()
                receipts.append(receipt)
            for receipt in receipts:
                assert (await receipt).level == "power"
            await episode.end("finished")

    asyncio.run(main())
    assert len(outside.events(store.where, "shop/t", "step")) == 50


def test_receipts_are_awaited_on_one_loop_after_the_other(run: keepstep.Run) -> None:
    """A loop that is gone takes nothing with it; two at once in two threads do not disturb each other."""

    async def record(sample: int) -> None:
        async with run.episode("t", sample=sample) as episode:
            for number in range(20):
                await episode.submit(action=number)
            await episode.end("finished")

    for sample in range(3):
        asyncio.run(record(sample))
    threads = [threading.Thread(target=lambda at=at: asyncio.run(record(at))) for at in range(3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert all(run_done(run, sample) for sample in range(7))


def run_done(run: keepstep.Run, sample: int) -> bool:
    with pytest.raises(keepstep.Ended):
        run.episode("t", sample=sample).__enter__()
    return True


def test_waiting_on_a_loop_warns_once(run: keepstep.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning for the process, that points to the caller's line, though it blocks again and again."""
    monkeypatch.setattr(_loops, "_has_warned", False)

    async def main() -> None:
        with run.episode("t") as episode:
            for number in range(5):
                episode.step(action=number)
                episode.submit(action=number).wait()
            with episode.turn(action=1) as turn:
                turn.result(reward=0.0)
            episode.trajectory().append(1)
            episode.end("finished")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
    blocking = [warning for warning in caught if "event loop" in str(warning.message)]
    assert len(blocking) == 1
    assert Path(blocking[0].filename).name == Path(__file__).name


def test_threads_and_async_code_are_not_warned(run: keepstep.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the above: neither waiting off the loop nor awaiting on it is worth a warning."""
    monkeypatch.setattr(_loops, "_has_warned", False)

    async def main() -> None:
        async with run.episode("t") as episode:
            await episode.submit(action=1)
            async with episode.turn(action=1) as turn:
                turn.result(reward=0.0)
            await episode.end("finished")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        with run.episode("u") as episode:
            episode.step(action=1)
            episode.submit(action=2).wait()
            episode.end("finished")


def test_a_full_queue_is_late_receipts_then_busy(store: keepstep.Store, run: keepstep.Run) -> None:
    """submit() never waits: while the queue is full an episode has one more step in flight, then Busy; later it goes on."""
    with run.episode("t") as episode, run.episode("other") as other:
        with slow_disk.stopped():
            receipts = fill(episode)
            assert {receipt.level for receipt in receipts} == {None}
            one_more = other.submit(observation=os.urandom(1 << 20))
            with pytest.raises(keepstep.Busy, match="wait for a receipt"):
                other.submit(observation=os.urandom(1 << 20))
        for receipt in [*receipts, one_more]:
            assert receipt.wait(60).level == "power"
        assert episode.submit(action="again").wait(60).step == len(receipts)
        other.end("finished")
        episode.end("finished")
    assert len(outside.events(store.where, "shop/other", "step")) == 1


def test_an_end_passes_a_full_queue(store: keepstep.Store, run: keepstep.Run) -> None:
    """Nobody says an end twice: it is taken though the queue is full, by end() and by leaving."""
    with slow_disk.stopped_later() as stop:
        with pytest.raises(ZeroDivisionError):
            with run.episode("left") as left:
                with run.episode("t") as episode:
                    stop()
                    fill(left)
                    fill(episode)
                    episode.end("finished")
                    threading.Timer(0.1, slow_disk.go_on).start()
                _ = 1 / 0
    assert outside.ending(store.where, "shop/t")["why"] == "finished"
    assert outside.ending(store.where, "shop/left")["why"] == "errored"


def test_wait_gives_up_in_time(run: keepstep.Run) -> None:
    """A timeout is TimeoutError, and the step goes on being written."""
    with run.episode("t") as episode:
        with slow_disk.stopped():
            receipt = episode.submit(action=1)
            for timeout in (0, 0.05):
                with pytest.raises(TimeoutError, match="goes on being written"):
                    receipt.wait(timeout)
            assert receipt.level is None
            assert "on its way" in repr(receipt)
        assert receipt.wait(60).level == "power"
        episode.end("finished")


def test_the_loop_goes_on_while_the_disk_takes_nothing(run: keepstep.Run) -> None:
    """64 episodes open and record while a ticker ticks. Only the ticker lets the disk go on: a loop that waits never ends."""

    async def record(sample: int) -> None:
        async with run.episode("t", sample=sample) as episode:
            await episode.first("hello")
            async with episode.turn(action=1) as turn:
                turn.result(reward=0.0)
            assert await episode.call("tool", echo, sample) == sample
            await episode.submit(action=2)
            await episode.end("finished")

    async def echo(value: int) -> int:
        return value

    async def main() -> None:
        async with run.episode("full") as full:
            slow_disk.stop()
            receipts = fill(full)
            recording = asyncio.gather(*(record(sample) for sample in range(64)))
            for _ in range(200):
                await asyncio.sleep(0.001)
            assert not recording.done()
            assert receipts[0].level is None
            slow_disk.go_on()
            await recording
            await full.end("finished")

    try:
        asyncio.run(main())
    finally:
        slow_disk.go_on()


def waits_of(run: keepstep.Run, episode: keepstep.Episode) -> dict[str, Callable[[], object]]:
    """The calls that wait for the disk; those that make a file of their own (plans, seals, a stream's first entry) are refused at once."""
    turn = episode.turn(action="turn")
    stream = run.stream("s")
    stream.put("a", 1).wait()
    run.episode("left").__enter__().end("finished")
    return {
        "step": lambda: episode.step(action=1),
        "wait": lambda: episode.submit(action=2).wait(),
        "await of a level": lambda: episode.submit(action=3).wait(60, level="power"),
        "call": lambda: episode.call("tool", lambda: 1),
        "trajectory": lambda: episode.trajectory().append(1),
        "enter a turn": turn.__enter__,
        "leave a turn": lambda: leave(turn),
        "open": lambda: run.episode("opened").__enter__().end("finished"),
        "open unnamed": lambda: run.episode().__enter__().end("finished"),
        "stream": lambda: stream.put("b", 1).wait(),
        "note": lambda: run.annotate("shop/left", "score", 1.0, source="me").wait(),
        "leave": lambda: leave(episode),
        "close": lambda: run.store.close(),
    }


def leave(scope: keepstep.Turn | keepstep.Episode) -> None:
    if isinstance(scope, keepstep.Turn):
        scope.result(reward=0.0)
    else:
        scope.end("finished")
    scope.__exit__(None, None, None)


def test_others_go_on_while_one_waits(run: keepstep.Run) -> None:
    """The interpreter is never held by a call that waits: only another Python thread lets the disk go on."""
    for name, wait in waits_of(run, run.episode("t").__enter__()).items():
        go = threading.Event()

        def let_go(go: threading.Event = go) -> None:
            go.wait()
            for _ in range(10_000):
                pass
            time.sleep(0.02)
            slow_disk.go_on()

        helper = threading.Thread(target=let_go)
        helper.start()
        slow_disk.stop()
        go.set()
        try:
            wait()
        except Exception as raised:
            raise AssertionError(f"{name}: {raised!r}") from raised
        finally:
            helper.join()


def test_many_threads_record_to_one_store(store: keepstep.Store, run: keepstep.Run) -> None:
    """32 threads, an episode each, and one episode that all of them share: every step is there, once."""
    with run.episode("shared") as shared:

        def record(sample: int) -> None:
            with run.episode("own", sample=sample) as episode:
                for number in range(10):
                    episode.step(action=number)
                    shared.submit(action=[sample, number])
                episode.end("finished")

        threads = [threading.Thread(target=record, args=(sample,)) for sample in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        shared.end("finished")
    found = [step["action"] for step in outside.events(store.where, "shop/shared", "step")]
    assert sorted(found) == [[sample, number] for sample in range(32) for number in range(10)]
    assert {row["steps"] for row in outside.listed(store.where, "shop") if row["task"] == "own"} == {10}
