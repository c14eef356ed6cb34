"""WebArena's `run.py`, recorded: every state and action is durable when it is appended, and a killed task is not lost.

The task's list is a real `list` that records. Its environment never says that it is over, so the loop ends the episode: by
the stop action, an early stop, an exception or the score. A task without a score does not count as done.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal

import keepstep
from keepstep.adapting import FINAL, SharedStore, place_of

from ._mirror import make_whole
from ._task import Task, Trajectory
from ._types import register_types

__all__ = ["Task", "Trajectory", "task", "unfinished"]

Where = keepstep.Run | str | os.PathLike[str]
"""A run, or the folder of the results: then the store is `keepstep` within it, and its run is called `webarena`."""

# Open until the process exits: WebArena never says that it is done.
_runs: dict[tuple[str, int], tuple[SharedStore, keepstep.Run]] = {}

register_types()


def task(
    where: Where,
    config_file: str | os.PathLike[str],
    *,
    results: str | os.PathLike[str] | None = None,
    environment: Literal["restart", "replay"] = "restart",
    agent: Any = None,
    ignore: Collection[str] = (),
    needs_score: bool = True,
    sample: int = 0,
    iteration: int = 0,
) -> Task:
    """A task, to be entered with `with` around what `run.py` does for one config file.

    Parameters:
        where: a run, or the folder of the results.
        config_file: the task's file; its `task_id` names the episode.
        results: where the live mirror `{task_id}.traj.jsonl` is written. The default is the folder of the results if
            `where` is one; else no mirror is written.
        environment: how an interrupted task resumes. `restart` begins it again, as the next attempt. `replay` lets the
            loop run from the start, and compares what it appends with the recorded items as long as there are any: the
            browser takes the recorded actions again, side effects included.
        agent: in a replay, the agent whose `next_action` returns the recorded actions instead of thinking again. Leave it
            out for an agent that counts its own steps, such as TeacherForcingAgent.
        ignore: in a replay, parts of a state that need not be the same: `"image"`, `"text"`, `"url"`, `"fail_error"`.
        needs_score: False if tasks are not scored: then the stop action alone makes a task done.
        sample: which sample of the task.
        iteration: which visit to the task, for training that comes back to it.
    """
    if environment not in ("restart", "replay"):
        raise keepstep.BadInput(
            f'environment is {environment!r}: give "restart" or "replay"; a browser cannot be restored'
        )
    if agent is not None and environment != "replay":
        raise keepstep.BadInput('agent is only used in a replay: give environment="replay" too')
    run, folder = _home(where, results)
    name = _name_of(config_file)
    return Task(
        functools.partial(run.episode, name, sample=sample, iteration=iteration),
        run.store,
        _mirror_of(run, folder, name, sample, iteration),
        replay=environment == "replay",
        agent=agent,
        ignore=frozenset(ignore),
        needs_score=needs_score,
    )


def unfinished(
    where: Where,
    config_files: Iterable[str],
    *,
    results: str | os.PathLike[str] | None = None,
    needs_score: bool = True,
    sample: int = 0,
    iteration: int = 0,
) -> list[str]:
    """The config files whose tasks are not done: new, killed, failed or unscored ones. Replaces `get_unfinished`.

    Tasks that a live process records now are left out. This also marks attempts of dead processes as `crashed`, and writes
    every incomplete mirror again from the store.

    Parameters:
        where: a run, or the folder of the results.
        config_files: the tasks' files.
        results: where the mirrors are. The default is the folder of the results if `where` is one.
        needs_score: False if tasks are not scored.
        sample: which sample of the tasks.
        iteration: which visit to the tasks.
    """
    run, folder = _home(where, results)
    run.store.reap()
    views = {view.task: view for view in run.episodes(iteration=iteration) if view.sample == sample}
    left = []
    for config_file in config_files:
        # The loop itself reports a file that is missing, as before.
        name = _name_of(config_file) if Path(config_file).exists() else None
        view = views.get(name) if name is not None else None
        if view is not None and name is not None:
            mirror = _mirror_of(run, folder, name, sample, iteration)
            if mirror is not None and view.state not in ("running", "silent"):
                make_whole(mirror, view)
        if view is None or not _is_done_or_taken(view, needs_score):
            left.append(config_file)
    return left


def _is_done_or_taken(view: keepstep.View, needs_score: bool) -> bool:
    if view.state in ("running", "silent"):
        return True
    return view.state in FINAL and (not needs_score or "score" in view.notes)


def _home(where: Where, results: str | os.PathLike[str] | None) -> tuple[keepstep.Run, Path | None]:
    """The run, and the folder of its mirrors if there is one."""
    if isinstance(where, keepstep.Run):
        return where, None if results is None else Path(results)
    return _run_in(place_of(where)), Path(where if results is None else results)


def _run_in(folder: str) -> keepstep.Run:
    # Once per process: a forked child opens its own.
    key = (folder, os.getpid())
    if key not in _runs:
        shared = SharedStore(os.path.join(folder, "keepstep"))
        _runs[key] = shared, shared.store.run("webarena")
    return _runs[key][1]


def _name_of(config_file: str | os.PathLike[str]) -> str:
    said = json.loads(Path(config_file).read_text())
    if not isinstance(said, dict) or "task_id" not in said:
        raise keepstep.BadInput(f"{os.fspath(config_file)} has no task_id: is it a WebArena config file?")
    return str(said["task_id"])


def _mirror_of(run: keepstep.Run, folder: Path | None, name: str, sample: int, iteration: int) -> Path | None:
    # The null store has nothing to make a mirror from.
    if folder is None or run.store.where is None:
        return None
    # The first sample is named after the task alone, like WebArena's other files.
    which = f".{iteration}.{sample}" if (iteration, sample) != (0, 0) else ""
    return folder / f"{name}{which}.traj.jsonl"
