"""ARES: an environment that reports its episodes to a collector, and a collector that makes them durable.

    env = TrajectoryCollectingEnvironment(ares.make("sbv-mswea:0"), KeepstepTrajectoryCollector(run))

A step is durable when `step` returns, and the event loop is never blocked.
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
