"""Files of episodes of ARES, as pull request 86 describes them: whole or absent; and environments made by preset."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import ares
import keepstep
import numpy
import pytest
from keepstep.adapters import ares as adapter
from keepstep.adapters.ares import (
    EpisodeTrajectory,
    JsonTrajectoryCollector,
    KeepstepTrajectoryCollector,
    StepRecord,
    TrajectoryCollectingEnvironment,
)
from toy_ares import Talk, talk


def rollout(collector: Any, **how: Any) -> TrajectoryCollectingEnvironment[Any, Any, Any, Any]:
    """An episode from its begin to its end."""
    env = TrajectoryCollectingEnvironment(Talk(**how), collector)
    to_the_end(env)
    return env


def to_the_end(env: Any) -> None:
    async def loop() -> None:
        await env.reset()
        await talk(env)

    asyncio.run(loop())


def test_a_file_has_what_pr_86_puts_there(tmp_path: Path) -> None:
    collector = JsonTrajectoryCollector(tmp_path / "some" / "where")
    env = rollout(collector, turns=2)
    (path,) = collector.output_dir.iterdir()
    data = json.loads(path.read_text())
    assert path.name == f"{data['episode_id']}.json"
    assert [*data] == [
        *("episode_id", "task_name", "start_time", "end_time", "total_reward", "num_steps", "truncated"),
        *("ending", "steps"),
    ]
    assert (data["task_name"], data["total_reward"], data["num_steps"]) == ("greet", 1.0, 3)
    assert data["ending"]["why"] == "finished"
    assert [*data["steps"][1]] == [
        *("step_index", "step_type", "observation", "action", "reward", "discount", "timestamp")
    ]
    assert EpisodeTrajectory.load(path) == env.last_trajectory


def test_a_file_without_an_ending_has_none(tmp_path: Path) -> None:
    collector = JsonTrajectoryCollector(tmp_path)
    collector.begin_episode(task_name="t")
    collector.record_step(StepRecord(0, "FIRST", {}, None, None, None, 1.0))
    episode = collector.end_episode(truncated=True)
    data = json.loads((tmp_path / f"{episode.episode_id}.json").read_text())
    assert "ending" not in data and data["truncated"] is True
    with pytest.raises(RuntimeError, match="No episode in progress"):
        collector.record_step(StepRecord(0, "FIRST", {}, None, None, None, 1.0))
    with pytest.raises(RuntimeError, match="No episode in progress"):
        collector.end_episode()


def test_an_episode_that_was_not_ended_is_not_thrown_away(tmp_path: Path) -> None:
    collector = JsonTrajectoryCollector(tmp_path)
    collector.begin_episode(task_name="one")
    with pytest.warns(RuntimeWarning, match="abandoned"):
        collector.begin_episode(task_name="two")
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["ending"]["why"] == "abandoned"


def test_a_file_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written beside, synced, renamed, and the folder synced: in this order. If it fails, nothing is left of it."""
    done: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: done.append(name) or real(*a))
    collector = JsonTrajectoryCollector(tmp_path)
    collector.begin_episode(task_name="t")
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            collector.end_episode()
    assert list(tmp_path.iterdir()) == []
    done.clear()
    collector.end_episode()
    assert done == ["fsync", "replace", "fsync"]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_is_not_written_on_the_thread_of_the_loop(tmp_path: Path) -> None:
    threads = []

    class Watched(JsonTrajectoryCollector):
        def end_episode(self, **said: Any) -> EpisodeTrajectory:
            threads.append(threading.current_thread())
            return super().end_episode(**said)

    rollout(Watched(tmp_path), turns=1)
    assert threads and threads[0] is not threading.main_thread()


def test_values_that_json_has_no_word_for_do_not_cost_the_episode(tmp_path: Path) -> None:
    """An environment of somebody else's may show arrays, or anything."""
    collector = JsonTrajectoryCollector(tmp_path)
    collector.begin_episode(task_name="t")
    collector.record_step(StepRecord(0, "FIRST", {"a": numpy.arange(3), "b": {1j}}, None, None, None, 1.0))
    episode = collector.end_episode()
    data = json.loads((tmp_path / f"{episode.episode_id}.json").read_text())
    assert data["steps"][0]["observation"] == {"a": [0, 1, 2], "b": "{1j}"}


def test_a_growing_history_costs_what_is_new(tmp_path: Path, run: keepstep.Run) -> None:
    """A file repeats the history at each step."""
    turns = 60
    rollout(KeepstepTrajectoryCollector(run), turns=turns)
    rollout(files := JsonTrajectoryCollector(tmp_path / "files"), turns=turns)
    run.store.close()
    kept = sum(path.stat().st_size for path in Path(str(run.store.where)).rglob("*") if path.is_file())
    written = sum(path.stat().st_size for path in files.output_dir.iterdir())
    assert kept * 10 < written, (kept, written)


def test_any_preset_is_made_and_told(tmp_path: Path) -> None:
    @ares.register_env(name="talk", num_tasks=2)
    def make_talk(*, selector: Any, container_factory: Any, tracker: Any = None) -> Any:
        inner = Talk(tuple(selector(["greet", "leave"])), turns=1)
        inner.given = (container_factory, tracker)  # type: ignore[attr-defined]
        return inner

    try:
        files = JsonTrajectoryCollector(tmp_path)
        env = adapter.make("talk:1", trajectory_collector=files, container_factory="docks")
        to_the_end(env)
        assert env.last_trajectory is not None and env.last_trajectory.task_name == "leave"
        assert env.given == ("docks", None)
        silent = adapter.make("talk")
        to_the_end(silent)
        assert silent.last_trajectory is not None and silent.last_trajectory.steps == ()
    finally:
        ares.registry.unregister_preset("talk")
