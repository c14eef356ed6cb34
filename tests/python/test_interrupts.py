"""Ctrl-C while something waits for a disk that takes nothing: heard at once, and nothing is lost by it."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import keepstep
import pytest
import slow_disk


class _Waiting:
    """Presses Ctrl-C once this process has waited for a while."""

    def __enter__(self) -> None:
        self._timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()


def _full_queue(episode: Any) -> None:
    for _ in range(100):
        episode.step(observation=os.urandom(1 << 20))


WAITS: dict[str, Callable[[Any], object]] = {
    "step": lambda episode: episode.step(action=2),
    "receipt": lambda episode: episode.submit(action=2).wait(),
    "turn": lambda episode: episode.turn(action=2).__enter__(),
    "queue": _full_queue,
}


@pytest.mark.parametrize("what", WAITS)
def test_a_stalled_wait_ends_with_ctrl_c(tmp_path: pathlib.Path, what: str) -> None:
    """The wait would take ten minutes; then the disk has room again, and what was handed over is there."""
    store = keepstep.open(tmp_path / "runs", stall_s=600.0)
    episode = store.run("r").episode("t").__enter__()
    episode.step(action=1)
    with slow_disk.stopped():
        with pytest.raises(KeyboardInterrupt), _Waiting():
            WAITS[what](episode)
    if what == "step":
        episode.step(action=3)
        store.close()
        with keepstep.open(tmp_path / "runs") as store:
            assert [step.action for step in store.find("r/t").steps] == [1, 2, 3]
    elif what == "turn":
        # Its intent is written once there is room, so the turn is pending: for readers, and for the episode itself.
        assert episode.pending is not None
        with episode.pending as turn:
            assert turn.said["action"] == 2
            turn.result(reward=1.0)
        store.close()
        with keepstep.open(tmp_path / "runs") as store:
            assert [step.action for step in store.find("r/t").steps] == [1, 2]
    else:
        store.close()


def test_leaving_by_ctrl_c_does_not_wait_for_the_disk(tmp_path: pathlib.Path) -> None:
    """Leaving the block says `aborted`, and does not wait ten minutes for that."""
    store = keepstep.open(tmp_path / "runs", stall_s=600.0)
    with slow_disk.stopped_later() as stop:
        with pytest.raises(KeyboardInterrupt), store.run("r").episode("t") as episode:
            episode.step(action=1)
            stop()
            with _Waiting():
                episode.step(action=2)
    store.close()
    with keepstep.open(tmp_path / "runs") as store:
        view = store.find("r/t")
        assert (view.state, len(view.steps)) == ("aborted", 2)


def test_closing_a_store_can_be_interrupted(tmp_path: pathlib.Path) -> None:
    store = keepstep.open(tmp_path / "runs", stall_s=600.0)
    episode = store.run("r").episode("t").__enter__()
    episode.step(action=1)
    with slow_disk.stopped():
        episode.submit(action=2)
        with pytest.raises(KeyboardInterrupt), _Waiting():
            store.close()
