"""An acknowledgement covers all earlier steps: nothing is recorded behind a failure that the program has not heard of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest
import slow_disk

NEXT: dict[str, Callable[[keepstep.Episode], Any]] = {
    "submit": lambda episode: episode.submit(action=3).wait(),
    "step": lambda episode: episode.step(action=3),
    "turn": lambda episode: episode.turn(action=3).__enter__(),
    "note": lambda episode: episode.note("n", 1, source="s").wait(),
    "call": lambda episode: episode.call("tool", lambda: 1),
    "finished": lambda episode: episode.end("finished").wait(),
}


def failed_unheard(store: keepstep.Store) -> tuple[keepstep.Episode, Any]:
    """An episode of which a step could not be written, and nobody asked for its receipt."""
    episode = store.run("r").episode("t").__enter__()
    episode.step(action=1)
    with slow_disk.stopped():
        receipt = episode.submit(action=2)
        while "not recorded" not in repr(receipt):
            time.sleep(0.05)
    return episode, receipt


@pytest.mark.parametrize("what", NEXT)
def test_what_comes_behind_a_failure_that_was_not_heard_is_refused(tmp_path: Path, what: str) -> None:
    """It was recorded in the place of the step that had failed, acknowledged, and nothing said that a step was missing."""
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        episode, _ = failed_unheard(store)
        with pytest.raises(OSError):
            NEXT[what](episode)
        # Now it was heard: the program records again what is missing, and goes on.
        assert episode.turns == 1
        episode.step(action=2)
        NEXT[what](episode)
        if episode.ended is None:
            episode.end("abandoned")
        episode.__exit__(None, None, None)
    with keepstep.open(tmp_path / "runs") as store:
        actions = [step.action for step in store.find("r/t").steps]
        assert actions == ([1, 2, 3] if what in ("submit", "step") else [1, 2])


def test_whoever_asked_the_receipt_has_heard(tmp_path: Path) -> None:
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        episode, receipt = failed_unheard(store)
        with pytest.raises(OSError):
            receipt.wait()
        episode.step(action=2)
        episode.end("finished")
        episode.__exit__(None, None, None)
        assert store.find("r/t").state == "finished"


def leave(episode: keepstep.Episode, raised: BaseException | None = None) -> None:
    episode.__exit__(type(raised) if raised else None, raised, None)


async def leave_on_loop(episode: keepstep.Episode, raised: BaseException | None = None) -> None:
    await episode.__aexit__(type(raised) if raised else None, raised, None)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    return [line for line in lines if "lacks a step" in line]


def test_an_episode_that_is_left_says_how_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only `finished` and `truncated` say that nothing is missing."""
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        episode, _ = failed_unheard(store)
        episode.end("abandoned").wait()
        leave(episode)
        (line,) = told(caplog)
        assert "r/t#0.0" in line
        view = store.find("r/t")
        assert (view.state, len(view.steps)) == ("abandoned", 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_without_an_end_raises_what_nobody_has_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    """`aborted` was recorded behind the missing step, and nothing said that it is missing."""
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        episode, _ = failed_unheard(store)
        with pytest.raises(OSError, match="an earlier step"), pytest.warns(RuntimeWarning):
            asyncio.run(leave_on_loop(episode)) if is_async else leave(episode)
        assert (store.find("r/t").state, told(caplog)) == ("aborted", [])
        # It is said once, and the episode is free.
        with store.run("r").episode("t") as episode:
            assert episode.turns == 1
            episode.end("finished")


@pytest.mark.parametrize("is_async", [False, True])
def test_what_nobody_has_heard_does_not_hide_the_error_that_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        episode, _ = failed_unheard(store)
        mine = ValueError("mine")
        asyncio.run(leave_on_loop(episode, mine)) if is_async else leave(episode, mine)
        (line,) = told(caplog)
        assert "r/t#0.0" in line
        assert store.find("r/t").state == "errored"


def test_closing_the_store_names_what_nobody_has_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = keepstep.open(tmp_path / "runs", stall_s=0.2)
    _, receipt = failed_unheard(store)
    store.close()
    (line,) = told(caplog)
    assert "episode" in line
    caplog.clear()
    store.close()
    assert told(caplog) == []
    del receipt


def test_what_was_heard_is_not_said_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        episode, receipt = failed_unheard(store)
        with pytest.raises(OSError):
            receipt.wait()
        with pytest.warns(RuntimeWarning):
            leave(episode)
    assert told(caplog) == []
