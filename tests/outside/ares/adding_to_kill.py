"""A rollout of ARES' real CodeEnvironment that kills itself at some point.

Points: `in COMMAND` (the container is running it), `after COMMAND` (the step that it was has returned), `end` (the last step is
durable, the end is not), `never`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import keepstep
from adding_task import WORDS, answer, environment
from keepstep.adapters.ares import KeepstepTrajectoryCollector, TrajectoryCollectingEnvironment


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Collector(KeepstepTrajectoryCollector):
    """Dies before it says how an episode ended, if it is to."""

    point = ""

    def end_episode(self, **said: Any) -> Any:
        if self.point == "end":
            die()
        return super().end_episode(**said)


async def rollout(where: Path, mode: Any, point: str) -> str:
    """Goes to the end, or dies before. What there was left to do."""
    asked = 0
    with keepstep.open(where / "runs") as store:
        collector = Collector(store.run("code"), sample=0, environment=mode)
        collector.point = point
        inner = environment(where, lambda command: die() if point == f"in {command}" else None)
        async with TrajectoryCollectingEnvironment(inner, collector) as env:
            try:
                await env.reset()
            except keepstep.Ended:
                return "done before"
            for word in WORDS[collector.episode.turns :]:
                asked += 1
                time_step = await env.step(answer(word))
                if point == f"after {word}":
                    die()
            assert time_step.last() and time_step.reward == 10.0, time_step
    return f"asked the model {asked} times"


def main(where: Path, mode: str, point: str) -> None:
    """Runs it in a process of its own, which says what it did in a file."""
    (where / "said").write_text(asyncio.run(rollout(where, mode, point)))
