"""What a first user stumbled over in the life of an episode: entering it, being cancelled there, and going on with it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest
from keepstep import _episode
from left_behind import leave
from toy_envs import KeptGymCorridor

PATIENCE_S = 60


# Who is cancelled while it enters leaves nothing behind.


def held(episode: keepstep.Episode) -> tuple[threading.Event, threading.Event]:
    """Makes opening wait in its thread: it began, and it may go on."""
    began, may_go = threading.Event(), threading.Event()
    name = "_open" if episode._open_at_once is None else "_open_at_once"
    inner = getattr(episode, name)

    def open() -> Any:
        began.set()
        assert may_go.wait(PATIENCE_S)
        return inner()

    setattr(episode, name, open)
    return began, may_go


async def entered(episode: keepstep.Episode) -> None:
    async with episode:
        raise AssertionError("it was cancelled before")


async def said(episode: keepstep.Episode) -> None:
    async with episode.turn(action=1):
        raise AssertionError("it was cancelled before")


@pytest.mark.parametrize("does", [entered, said])
@pytest.mark.parametrize("how", [{}, {"busy": "wait"}])
def test_an_episode_is_free_when_its_cancellation_came_through(
    run: keepstep.Run, does: Callable[[Any], Any], how: dict[str, Any]
) -> None:
    """It was Busy until a thread had opened it for nobody, and longer."""

    async def main(sample: int) -> None:
        episode = run.episode("t", sample=sample, **how)
        began, may_go = held(episode)
        task = asyncio.create_task(does(episode))
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        task.cancel()
        may_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with run.episode("t", sample=sample) as again:
            await again.end("finished")
        first, second = run.store.find(again.ref).attempts()
        assert (first.state, second.state) == ("cancelled", "finished")
        assert first.ending is not None and first.ending.said_by == "cancelled while it was opened"

    for sample in range(10):
        asyncio.run(main(sample))


def test_who_was_not_opened_yet_leaves_no_attempt(run: keepstep.Run) -> None:
    """Cancelled before its thread began, or in the instant in which it is done: free either way."""

    async def main() -> None:
        for sample in range(30):
            task = asyncio.create_task(entered(run.episode("t", sample=sample)))
            for _ in range(sample % 6):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            async with run.episode("t", sample=sample) as again:
                await again.end("finished")

    asyncio.run(main())


def test_who_cancels_twice_does_not_wait_for_the_disk(run: keepstep.Run) -> None:
    async def main() -> None:
        episode = run.episode("t")
        began, may_go = held(episode)
        task = asyncio.create_task(entered(episode))
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        try:
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
        finally:
            may_go.set()
        async with run.episode("t", busy="wait") as again:
            await again.end("finished")

    asyncio.run(main())


# Who resumes looks where it stands.


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_episode, "_has_warned_of_unread", False)


def turned(episode: keepstep.Episode) -> None:
    with episode.turn(action=9) as turn:
        turn.result(reward=1.0)


RECORDS: dict[str, Callable[[keepstep.Episode], Any]] = {
    "step": lambda it: it.step(action=9),
    "submit": lambda it: it.submit(action=9),
    "turn": turned,
    "behind a new call": lambda it: (it.call("new", lambda: 1, key="new"), it.step(action=9)),
}


@pytest.mark.usefixtures("unwarned")
@pytest.mark.parametrize("records", RECORDS)
@pytest.mark.parametrize("is_claimed", [True, False])
def test_who_begins_from_scratch_on_recorded_steps_is_warned(
    run: keepstep.Run, records: str, is_claimed: bool
) -> None:
    """It recorded its first steps a second time, on top of the ones that it had, and nobody noticed."""
    leave(run)
    leave(run, "other")
    given = run.group("t", size=1).claim() if is_claimed else run.episode("t")
    assert given is not None
    with pytest.warns(RuntimeWarning, match=r"shop/t#0\.0~1 was resumed at step 2.*resume=") as told:
        with given as episode:
            RECORDS[records](episode)
            RECORDS[records](episode)
            episode.end("finished")
        with run.episode("other") as episode:
            RECORDS[records](episode)
            episode.end("finished")
    assert [Path(it.filename).name for it in told] == [Path(__file__).name], "once"


@pytest.mark.usefixtures("unwarned")
def test_tasks_that_begin_from_scratch_are_warned_too(run: keepstep.Run) -> None:
    leave(run)

    async def main() -> None:
        async with run.episode("t") as episode:
            async with episode.turn(action=9) as turn:
                turn.result(reward=1.0)
            await episode.end("finished")

    with pytest.warns(RuntimeWarning, match="was resumed at step 2"):
        asyncio.run(main())


LOOKS: dict[str, Callable[[keepstep.Episode], Any]] = {
    "attempt": lambda it: it.attempt,
    "resumed": lambda it: it.resumed,
    "turns": lambda it: it.turns,
    "history": lambda it: it.history,
    "pending": lambda it: it.pending,
    "state": lambda it: it.state("n"),
    "trajectory": lambda it: it.trajectory(),
    "a recorded call": lambda it: it.call("llm", lambda it: it, "asked"),
}


@pytest.mark.usefixtures("unwarned")
@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("records", RECORDS)
@pytest.mark.parametrize("is_entered", [True, False])
def test_who_looks_where_it_stands_is_not_warned(
    run: keepstep.Run, looks: str, records: str, is_entered: bool
) -> None:
    leave(run, calls=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        episode = run.episode("t")
        with episode if is_entered else contextlib.nullcontext():
            LOOKS[looks](episode)
            RECORDS[records](episode)
            episode.end("finished")


@pytest.mark.usefixtures("unwarned")
@pytest.mark.parametrize(
    "how",
    [
        {"resume": "continue"},
        {"resume": "restart"},
        {"at": 1},
        {"policy": 2, "new_policy": "restart"},
    ],
)
def test_who_says_what_becomes_of_the_steps_is_not_warned(run: keepstep.Run, how: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError), run.episode("t") as episode:
        episode.step(action=1, policy=1)
        raise RuntimeError("gone")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run.episode("t", **how) as episode:
            episode.step(action=9)
            episode.end("finished")


@pytest.mark.usefixtures("unwarned")
def test_new_episodes_pending_turns_and_environments_are_not_warned_of(run: keepstep.Run) -> None:
    """Who says again what was said stands where it stood; a wrapper brings its environment there."""
    leave(run, says="buy")
    env: Any = keepstep.record(KeptGymCorridor(), run, task="env", sample=0)
    env.reset(seed=1)
    env.step(1)
    env.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run.episode("new") as episode:
            episode.step(action=1)
            episode.step(action=2)
            episode.end("finished")
        with run.episode("t") as episode:
            with episode.turn(action="buy") as turn:
                turn.result(reward=1.0)
            episode.step(action=1)
            episode.end("finished")
        env = keepstep.record(KeptGymCorridor(), run, task="env", sample=0)
        assert env.reset(seed=1)[0] == 1
        env.step(1)
        assert len(keepstep.current(env).history) == 2
        env.close()
