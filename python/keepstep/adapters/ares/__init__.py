"""ARES: an environment that tells a collector all that passes through it, and a collector that keeps it for good.

    env = TrajectoryCollectingEnvironment(ares.make("sbv-mswea:0"), KeepstepTrajectoryCollector(run))

What is recorded of a step is durable when `step` returns, and the event loop is never blocked.
"""

from ._collectors import (
    DurableTrajectoryCollector,
    JsonTrajectoryCollector,
    NullTrajectoryCollector,
    TrajectoryCollector,
)
from ._environment import TrajectoryCollectingEnvironment, make, task_name_of
from ._keepstep import KeepstepTrajectoryCollector
from ._records import EpisodeTrajectory, StepRecord

__all__ = [
    "DurableTrajectoryCollector",
    "EpisodeTrajectory",
    "JsonTrajectoryCollector",
    "KeepstepTrajectoryCollector",
    "NullTrajectoryCollector",
    "StepRecord",
    "TrajectoryCollectingEnvironment",
    "TrajectoryCollector",
    "make",
    "task_name_of",
]
