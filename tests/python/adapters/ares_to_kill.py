"""A rollout of a small environment of ARES that kills itself at some point.

Points: `begun` (its first step is durable), `in 2` (the step is being taken), `after 2`, `end` (its last step is durable, its end is
not), `never`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import keepstep
from keepstep.adapters.ares import KeepstepTrajectoryCollector, TrajectoryCollectingEnvironment
from toy_ares import Talk, answer

TURNS = 5


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Collector(KeepstepTrajectoryCollector):
    """Dies before it says how an episode ended, if it is to."""

    point = ""

    def end_episode(self, **said: Any) -> Any:
        if self.point == "end":
            die()
        return super().end_episode(**said)


async def rollout(where: Path, mode: Any, sample: int | None, point: str) -> str:
    """Goes to the end, or dies before. Where it began: how many turns, and how many messages were shown."""
    what, _, number = point.partition(" ")
    troubles: dict[Any, Any] = {int(number): die} if what == "in" else {}
    with keepstep.open(where) as store:
        collector = Collector(store.run("talk"), sample=sample, environment=mode)
        collector.point = point
        inner = Talk(("greet",), turns=TURNS, troubles=troubles)
        env = TrajectoryCollectingEnvironment(inner, collector)
        try:
            time_step = await env.reset()
        except keepstep.Ended:
            return "done before"
        if what == "begun":
            die()
        begun = f"{collector.episode.turns} {len(time_step.observation.messages)}"
        for turn in range(collector.episode.turns, TURNS):
            time_step = await env.step(answer(f"word {turn}"))
            if point == f"after {turn}":
                die()
        assert time_step.last()
        return begun
