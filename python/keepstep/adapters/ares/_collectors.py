"""The protocol of collectors, one that keeps nothing, and one that writes a file for each episode."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ... import Ending
from ...adapting import warn_caller
from ._records import EpisodeTrajectory, StepRecord

_NONE_BEGUN = "No episode in progress. Call begin_episode() first."


@runtime_checkable
class TrajectoryCollector(Protocol):
    """Gets each episode in this order: it begins, its steps, it ends.

    If a method returns an awaitable, it is awaited: so a collector may wait for a disk without blocking the event loop. If
    its `end_episode` takes no `ending`, it gets only `truncated`.
    """

    def begin_episode(self, *, task_name: str) -> Awaitable[object] | None:
        """An episode begins. The name is empty if the reset failed before it was known."""

    def record_step(self, record: StepRecord) -> Awaitable[object] | None:
        """A step of the episode."""

    def end_episode(
        self, *, truncated: bool = False, ending: Ending | None = None
    ) -> EpisodeTrajectory | Awaitable[EpisodeTrajectory]:
        """The episode ended: as `ending` says, if that is given."""


@runtime_checkable
class DurableTrajectoryCollector(TrajectoryCollector, Protocol):
    """A collector that also records an action before it is taken, and has the steps of an interrupted episode."""

    def turn(self, action: Any) -> AbstractAsyncContextManager[object]:
        """Entered before the environment gets the action, left when the step is recorded or has failed."""

    def recorded(self) -> AsyncIterator[StepRecord]:
        """The steps that the episode inherited: none, unless it is resumed."""


class NullTrajectoryCollector:
    """Keeps no steps. Environments may share it."""

    def begin_episode(self, *, task_name: str) -> None:
        """Nothing."""

    def record_step(self, record: StepRecord) -> None:
        """Nothing."""

    def end_episode(self, *, truncated: bool = False, ending: Ending | None = None) -> EpisodeTrajectory:
        """An episode with nothing but its end."""
        now = time.time()
        return EpisodeTrajectory("", "", (), now, now, truncated=truncated, ending=ending)


class JsonTrajectoryCollector:
    """Writes each episode to a file of its own when it has ended, `{episode_id}.json`: completely or not at all."""

    def __init__(self, output_dir: str | os.PathLike[str]) -> None:
        self._output_dir = Path(output_dir)
        _make_dir(self._output_dir)
        self._episode: EpisodeTrajectory | None = None
        self._steps: list[StepRecord] = []

    @property
    def output_dir(self) -> Path:
        """Where the files are."""
        return self._output_dir

    def begin_episode(self, *, task_name: str) -> None:
        """Begins an episode. If the one before was not ended, it is written as abandoned."""
        if self._episode is not None:
            warn_caller(
                f"episode {self._episode.episode_id} was not ended, so it is written as abandoned: call end_episode() first",
                RuntimeWarning,
            )
            self.end_episode(ending=Ending("abandoned", said_by="begin_episode"))
        self._episode = EpisodeTrajectory(str(uuid.uuid4()), task_name, (), time.time())
        self._steps = []

    def record_step(self, record: StepRecord) -> None:
        """Keeps the step in memory until the end."""
        if self._episode is None:
            raise RuntimeError(_NONE_BEGUN)
        self._steps.append(record)

    def end_episode(self, *, truncated: bool = False, ending: Ending | None = None) -> EpisodeTrajectory:
        """Writes the episode; durable when it returns. If that fails, it can be called again."""
        if self._episode is None:
            raise RuntimeError(_NONE_BEGUN)
        begun = self._episode
        episode = EpisodeTrajectory(
            episode_id=begun.episode_id,
            task_name=begun.task_name,
            steps=tuple(self._steps),
            start_time=begun.start_time,
            end_time=time.time(),
            total_reward=self._steps[-1].reward if self._steps else None,
            num_steps=len(self._steps),
            truncated=truncated,
            ending=ending,
        )
        _write(self._output_dir / f"{episode.episode_id}.json", episode.to_dict())
        self._episode = None
        return episode

    async def aend_episode(
        self, *, truncated: bool = False, ending: Ending | None = None
    ) -> EpisodeTrajectory:
        """As `end_episode`, without blocking the event loop."""
        return await asyncio.to_thread(self.end_episode, truncated=truncated, ending=ending)


def _write(path: Path, plain: dict[str, Any]) -> None:
    """Writes a file that is there completely or not at all, even after a crash."""
    # In the same folder: between file systems a rename is not atomic.
    unfinished = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        with open(unfinished, "x", encoding="utf-8") as file:
            json.dump(plain, file, indent=2, default=_as_json)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    _sync_dir(path.parent)


def _as_json(value: Any) -> Any:
    """Values that JSON does not have: arrays as lists, anything else as its `repr`."""
    return value.tolist() if hasattr(value, "tolist") else repr(value)


def _make_dir(path: Path) -> None:
    """Makes a folder whose name survives a power cut, like the files in it."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _sync_dir(folder.parent)


def _sync_dir(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
