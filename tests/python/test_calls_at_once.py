"""Calls that are made at once: none is given another's answer, none waits for itself, and none that was paid for is lost."""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keepstep
import pytest
from keepstep.errors import BadInput, Ended

# What waits for itself would wait longer.
PATIENCE_S = 60


@pytest.fixture(params=["store", "null"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    store = keepstep.open(tmp_path / "store" if request.param == "store" else None)
    yield store.run("run")
    store.close()


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    store = keepstep.open(tmp_path / "store")
    yield store.run("run")
    store.close()


async def answered(value: Any, wait: asyncio.Event | None = None) -> Any:
    await (asyncio.sleep(0) if wait is None else wait.wait())
    return value


def test_tasks_that_nothing_tells_apart_are_refused_before_they_are_made(run: keepstep.Run) -> None:
    """Without a key, a resumed attempt gave each task the answer of whichever had come at its place in the order."""
    made: list[int] = []

    async def use(episode: keepstep.Episode, number: int) -> Any:
        return await episode.call("tool", lambda: made.append(number) or answered(number))

    async def main() -> None:
        async with run.episode("t") as episode:
            came = await asyncio.gather(
                *(use(episode, number) for number in range(3)), return_exceptions=True
            )
            assert came[0] == 0 and made == [0]
            for refused in came[1:]:
                assert isinstance(refused, BadInput)
                assert (
                    "key is missing" in str(refused) and "'tool'" in str(refused) and "key=" in str(refused)
                )
            episode.end("finished")

    asyncio.run(main())


def test_threads_that_nothing_tells_apart_are_refused_before_they_are_made(run: keepstep.Run) -> None:
    go, begun = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go.wait(60)
        return "slow"

    with ThreadPoolExecutor(1) as threads, run.episode("t") as episode:
        first = threads.submit(lambda: episode.call("tool", slow))
        assert begun.wait(60)
        with pytest.raises(BadInput, match="key is missing"):
            episode.call("tool", lambda: pytest.fail("was made"))
        assert episode.call("other", lambda: "other") == "other", "another name is another call"
        assert episode.call("tool", lambda: "k", key="k") == "k", "and so is one with a key"
        go.set()
        assert first.result() == "slow"
        episode.end("finished")


def test_what_tells_calls_apart_or_makes_no_difference_is_taken(run: keepstep.Run) -> None:
    """Other arguments, the same function with the same arguments, and the order in which one task has them."""

    async def use(episode: keepstep.Episode, name: str, *args: Any) -> Any:
        return await episode.call(name, answered, *args)

    async def main() -> list[Any]:
        async with run.episode("t") as episode:
            told = [await asyncio.gather(*(use(episode, "arguments", number) for number in range(3)))]
            told.append(await asyncio.gather(*(use(episode, "same", "it") for _ in range(3))))
            written = [episode.call("order", lambda number=number: answered(number)) for number in range(3)]
            told.append(await asyncio.gather(*written))
            episode.end("finished")
        return told

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(main()) == [[0, 1, 2], ["it"] * 3, [0, 1, 2]]


def test_with_keys_each_is_given_its_own_answer_in_whatever_order_they_begin(kept: keepstep.Run) -> None:
    async def attempt(order: list[int], *, fails: bool) -> dict[int, Any]:
        came: dict[int, Any] = {}

        async def use(episode: keepstep.Episode, number: int) -> None:
            tool: Callable[[], Any] = (lambda: answered(10 * number)) if fails else pytest.fail
            came[number] = await episode.call("tool", tool, key=str(number))

        async with kept.episode("t") as episode:
            await asyncio.gather(*(use(episode, number) for number in order))
            if fails:
                raise ConnectionError("away")
            episode.end("finished")
        return came

    with pytest.raises(ConnectionError):
        asyncio.run(attempt([0, 1, 2], fails=True))
    assert asyncio.run(attempt([2, 0, 1], fails=False)) == {0: 0, 1: 10, 2: 20}


def test_tasks_that_come_one_after_another_are_warned_of(kept: keepstep.Run) -> None:
    """They do not meet this time: the order is the program's or chance's, and nobody can tell which."""

    async def use(episode: keepstep.Episode, number: int) -> Any:
        return await episode.call("one-by-one", lambda: answered(number))

    async def main() -> None:
        async with kept.episode("t") as episode:
            for number in range(3):
                await asyncio.create_task(use(episode, number))
            episode.end("finished")

    with pytest.warns(RuntimeWarning, match="'one-by-one'.*key=") as told:
        asyncio.run(main())
    assert [warning.filename for warning in told] == [__file__]


def test_a_key_is_one_call_over_several_event_loops(run: keepstep.Run) -> None:
    made: list[int] = []
    together = threading.Barrier(4)

    async def tool() -> int:
        made.append(1)
        await asyncio.sleep(0.05)
        return len(made)

    async def ask(episode: keepstep.Episode) -> Any:
        together.wait(60)
        return await episode.call("tool", tool, key="k")

    with ThreadPoolExecutor(4) as threads, run.episode("t") as episode:
        came = list(threads.map(lambda _: asyncio.run(ask(episode)), range(4)))
        episode.end("finished")
    if run.store.where is not None:
        assert (came, made) == ([1] * 4, [1])


@pytest.mark.parametrize("how", ["async", "lambda", "sync"])
def test_a_call_that_asks_for_itself_is_told(run: keepstep.Run, how: str) -> None:
    """It waited for its own end."""

    async def main() -> None:
        async with run.episode("t") as episode:

            async def outer() -> Any:
                return await episode.call("tool", outer if how == "async" else lambda: outer(), key="k")

            with pytest.raises(BadInput, match="call 'tool' with key 'k' asks for itself"):
                await asyncio.wait_for(outer(), PATIENCE_S)
            episode.end("finished")

    if how == "sync":
        with run.episode("t") as episode:
            asks = lambda: episode.call("tool", asks, key="k")  # noqa: E731
            with pytest.raises(BadInput, match="call 'tool' with key 'k' asks for itself"):
                asks()
            episode.end("finished")
    else:
        asyncio.run(main())


def test_tasks_that_wait_for_one_another_are_told(run: keepstep.Run) -> None:
    async def main() -> None:
        async with run.episode("t") as episode:

            async def asks(other: str) -> Any:
                await asyncio.sleep(0)
                return await episode.call("tool", answered, other, key=other)

            async def first(key: str, other: str) -> Any:
                return await episode.call("tool", lambda: asks(other), key=key)

            both = asyncio.gather(first("a", "b"), first("b", "a"), return_exceptions=True)
            came = await asyncio.wait_for(both, PATIENCE_S)
            told = [str(it) for it in came if isinstance(it, BadInput)]
            assert any("'a'" in it and "'b'" in it and "wait for one another" in it for it in told), came
            episode.end("finished")

    asyncio.run(main())


def test_threads_that_wait_for_one_another_are_told(run: keepstep.Run) -> None:
    together = threading.Barrier(2)

    def ask(episode: keepstep.Episode, key: str, other: str) -> Any:
        def asks() -> Any:
            together.wait(60)
            return episode.call("tool", lambda: other, key=other)

        try:
            return episode.call("tool", asks, key=key)
        except BadInput as told:
            return told

    with ThreadPoolExecutor(2) as threads, run.episode("t") as episode:
        both = [threads.submit(ask, episode, *keys) for keys in (("a", "b"), ("b", "a"))]
        told = [str(it.result(PATIENCE_S)) for it in both if isinstance(it.result(PATIENCE_S), BadInput)]
        assert any("'a'" in it and "'b'" in it for it in told)
        episode.end("finished")


async def gathered(episode: keepstep.Episode, made: list[str], until: asyncio.Event) -> Any:
    """As the guide has it: tools at once, of which one fails."""

    async def tool(name: str) -> str:
        made.append(name)
        if name == "fails" and made.count("fails") == 1:
            raise ConnectionError("away")
        await until.wait()
        return name

    calls = [episode.call("tool", lambda it=it: tool(it), key=it) for it in ("fails", "slow", "slower")]
    return await asyncio.gather(*calls)


def test_what_others_were_asked_for_is_recorded_although_one_failed(kept: keepstep.Run) -> None:
    """The answers that came after the first failure were thrown away, and paid for again by the next attempt."""
    made: list[str] = []

    async def attempt(until: asyncio.Event) -> Any:
        async with kept.episode("t", on_error="keep") as episode:
            async with episode.turn(action="a") as turn:
                turn.result(observation=await gathered(episode, made, until))
            episode.end("finished")

    async def main() -> None:
        until = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, until.set)
        with pytest.raises(ConnectionError):
            await attempt(until)
        await attempt(until)

    asyncio.run(main())
    assert made == ["fails", "slow", "slower", "fails"]
    assert kept.store.find("run/t").steps[0].observation == ["fails", "slow", "slower"]


def test_leaving_waits_until_it_is_cancelled(kept: keepstep.Run) -> None:
    opened: list[keepstep.Episode] = []

    async def attempt() -> None:
        async with kept.episode("t") as episode:
            opened.append(episode)
            await gathered(episode, [], asyncio.Event())

    async def main() -> None:
        task = asyncio.create_task(attempt())
        while not opened or not opened[0]._flights._is_left:
            await asyncio.sleep(0.01)
        done, _ = await asyncio.wait([task], timeout=0.1)
        assert not done
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(main())
    assert kept.store.find("run/t").state == "errored"


def test_leaving_does_not_wait_when_it_is_cancelled_or_over(
    kept: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def attempt(task: str, never: asyncio.Event) -> None:
        async with kept.episode(task) as episode:
            slow = asyncio.create_task(episode.call("tool", answered, 1, never))
            await asyncio.sleep(0)
            if task == "over":
                episode.end("finished")
            else:
                await slow

    async def main() -> None:
        never = asyncio.Event()
        await asyncio.wait_for(attempt("over", never), PATIENCE_S)
        task = asyncio.create_task(attempt("cancelled", never))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_S)
        assert task.done()

    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(main())
    assert [kept.store.find(f"run/{task}").state for task in ("over", "cancelled")] == [
        "finished",
        "cancelled",
    ]


def test_what_is_left_begins_no_more_calls(kept: keepstep.Run) -> None:
    """A tool that goes on by itself would be paid for, and have nowhere to put its answer. What is inside one is part of it."""
    made: list[str] = []

    async def attempt(left: asyncio.Event) -> Any:
        async with kept.episode("t", on_error="keep") as episode:

            async def nested() -> Any:
                await left.wait()
                return await episode.call("inner", lambda: made.append("inner") or answered("inner"), key="i")

            async def goes_on() -> Any:
                await left.wait()
                await episode.call("more", lambda: made.append("more") or answered("more"), key="m")

            async with episode.turn(action="a") as turn:
                outer = asyncio.ensure_future(episode.call("outer", nested, key="o"))
                await asyncio.sleep(0)
                if not episode.resumed:
                    more = asyncio.ensure_future(goes_on())
                    asyncio.get_running_loop().call_later(0.05, left.set)
                    attempts.append((outer, more))
                    raise ConnectionError("away")
                turn.result(observation=await outer)
            episode.end("finished")

    attempts: list[Any] = []

    async def main() -> None:
        left = asyncio.Event()
        with pytest.raises(ConnectionError):
            await attempt(left)
        ((outer, more),) = attempts
        assert await outer == "inner"
        with pytest.raises(Ended, match="being left"):
            await more
        await attempt(left)

    asyncio.run(main())
    assert made == ["inner"]


def test_threads_that_are_under_way_are_waited_for_too(kept: keepstep.Run) -> None:
    go, begun = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go.wait(60)
        return "slow"

    def ask(episode: keepstep.Episode) -> Any:
        return episode.call("tool", slow, key="k")

    threads = ThreadPoolExecutor(1)
    with pytest.raises(ConnectionError), kept.episode("t") as episode:
        asked = threads.submit(ask, episode)
        assert begun.wait(60)
        threading.Timer(0.05, go.set).start()
        raise ConnectionError("away")
    assert asked.result() == "slow"
    threads.shutdown()
    with kept.episode("t") as episode:
        assert episode.call("tool", lambda: pytest.fail("was made"), key="k") == "slow"
        episode.end("finished")
