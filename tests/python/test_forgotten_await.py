"""What gives its value later is no value: a forgotten `await` was recorded as `<coroutine object …>`, with one warning."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import keepstep
import pytest


async def ask(question: str) -> str:
    return f"buy {question}"


async def streamed() -> AsyncIterator[str]:
    yield "buy"


class Later:
    """As the futures of other frameworks."""

    def __await__(self) -> Any:
        yield


@pytest.fixture
def store(tmp_path: Path) -> keepstep.Store:
    return keepstep.open(tmp_path / "runs")


GIVEN = {
    "observation": lambda later: {"observation": later},
    "action": lambda later: {"action": {"tool": later}},
    "response": lambda later: {"response": [later]},
    "reward": lambda later: {"action": 1, "reward": later},
    "policy": lambda later: {"action": 1, "policy": later},
    "state.messages": lambda later: {"action": 1, "state": {"messages": later}},
    "info.raw": lambda later: {"action": 1, "info": {"raw": later}},
}


@pytest.mark.parametrize("field", GIVEN)
@pytest.mark.parametrize("make", [lambda: ask("tea"), Later], ids=["coroutine", "awaitable"])
def test_a_forgotten_await_is_refused_and_named(
    store: keepstep.Store, field: str, make: Callable[[], Any]
) -> None:
    """Nothing is recorded, the error names the field, and Python does not warn a second time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with store.run("r").episode("t") as episode:
            with pytest.raises(keepstep.BadInput, match=rf"^{field.split('.')[0]}.*did you forget `await`\?"):
                episode.step(**GIVEN[field](make()))
            gc.collect()
            assert episode.turns == 0
            episode.step(action="tea")
            episode.end("finished")
    assert [step.action for step in store.find("r/t").steps] == ["tea"]


def test_an_async_generator_and_a_future_of_a_thread_are_refused(store: keepstep.Store) -> None:
    with store.run("r").episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match=r"response.*collect what it gives first"):
            episode.step(response=streamed())
        with pytest.raises(keepstep.BadInput, match=r"response.*did you forget `\.result\(\)`\?"):
            episode.step(response=concurrent.futures.Future())
        episode.end("finished")


def test_the_loop_of_a_first_user(store: keepstep.Store) -> None:
    """`episode.call` of an async function without `await`: as an intent, an argument of a call, a result, a note, a config."""

    async def both() -> list[Any]:
        return [ask("m")]

    async def rollout() -> None:
        async with store.run("r").episode("t") as episode:
            with pytest.raises(
                keepstep.BadInput,
                match=r"response is .*coroutine, which gives its value later: did you forget `await`",
            ):
                async with episode.turn(prompt="m", response=episode.call("llm", ask, "m")):
                    raise AssertionError("entered")
            with pytest.raises(keepstep.BadInput, match="forget `await`"):
                await episode.call("judge", ask, ask("m"))
            with pytest.raises(keepstep.BadInput, match=r"call \"both\": result\[0\].*forget `await`"):
                await episode.call("both", both)
            future = asyncio.get_running_loop().create_future()
            with pytest.raises(keepstep.BadInput, match=r"observation.*forget `await`"):
                await episode.submit(action="a", observation=future)
            await episode.submit(action="a")
            await episode.end("finished")
        with pytest.raises(keepstep.BadInput, match="forget `await`"):
            store.run("r").annotate("r/t", "score", ask("m"), source="judge")
        with pytest.raises(keepstep.BadInput, match=r"config\.model.*forget `await`"):
            store.run("other", config={"model": ask("m")})
        with pytest.raises(keepstep.BadInput, match=r"task is .*forget `await`"):
            store.run("r").episode(ask("m"))  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(rollout())
        gc.collect()


def test_a_coroutine_that_runs_is_not_closed(store: keepstep.Store) -> None:
    """Only one that never began is closed: another may be somebody's."""

    async def main() -> str:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            await waiting
            return "done"

        coroutine = work()
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        async with store.run("r").episode("t") as episode:
            with pytest.raises(keepstep.BadInput):
                episode.submit(action=coroutine)
            await episode.end("finished")
        waiting.set_result(None)
        return await task

    assert asyncio.run(main()) == "done"


def test_an_error_is_recorded_whatever_is_in_it(store: keepstep.Store) -> None:
    """An exception whose arguments have an awaitable is how the episode ended: it is recorded, not refused."""
    with pytest.raises(ValueError), store.run("r").episode("t"), warnings.catch_warnings():
        warnings.simplefilter("ignore", keepstep.RecordedAsRepr)
        raise ValueError(Later())
    assert store.find("r/t").state == "errored"


def test_a_mock_is_recorded_as_before(store: keepstep.Store) -> None:
    """It has every method there is, and is no value that comes later."""
    with store.run("r").episode("t") as episode, pytest.warns(keepstep.RecordedAsRepr):
        episode.step(action=1, info={"env": MagicMock()})
        episode.end("finished")


def test_a_turn_that_is_never_entered_is_told(store: keepstep.Store) -> None:
    """`episode.turn(...)` without `with` recorded nothing, and nobody said so."""
    with store.run("r").episode("t") as episode:
        with pytest.warns(RuntimeWarning, match=r"a turn of r/t#0\.0.* never entered.*with episode\.turn"):
            episode.turn(action="a")
            gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with episode.turn(action="a") as turn:
                turn.result(observation=1)
            with pytest.raises(keepstep.BadInput):
                with episode.turn(action=ask("m")):
                    pass
            del turn
            gc.collect()
        episode.end("finished")
