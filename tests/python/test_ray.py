"""Ray: a run is sent to actors, and an actor that dies is gone on with by the one that Ray starts in its place."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import keepstep
import outside
import pytest

ray: Any = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": inherited()})
    yield
    ray.shutdown()


def inherited() -> dict[str, str]:
    return {"PYTHONPATH": outside.environment()["PYTHONPATH"]}


class Recorder:
    """Kills itself once, in the middle of an episode."""

    def __init__(self, run: keepstep.Run) -> None:
        self.run = run

    def record(self, task: str) -> tuple[int, int]:
        with self.run.episode(task, busy="wait") as episode:
            while episode.turns < 6:
                episode.step(action=episode.turns)
                if episode.turns == 3 and episode.attempt == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            episode.end("finished")
        return episode.attempt, os.getpid()


def test_an_actor_that_dies_is_gone_on_with(store: keepstep.Store, run: keepstep.Run) -> None:
    """Two actors, each killed in its episode: the restarted ones inherit every step."""
    actor = ray.remote(max_restarts=1, max_task_retries=1)(Recorder)
    actors = [actor.remote(run) for _ in range(2)]
    came = ray.get([one.record.remote(f"task-{number}") for number, one in enumerate(actors)], timeout=120)
    assert [attempt for attempt, _ in came] == [1, 1]
    assert os.getpid() not in [pid for _, pid in came]
    for number in range(2):
        steps = outside.events(store.where, f"shop/task-{number}", "step")
        assert [step["action"] for step in steps] == list(range(6))
