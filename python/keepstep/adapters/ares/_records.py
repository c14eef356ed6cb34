"""What a collector gets for a step, and what it returns for an episode. Both are frozen snapshots of plain data.

An agent keeps writing to the list of messages that it sent, so everything in a time step is copied.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from ... import Ending

StepType = Literal["FIRST", "MID", "LAST"]


@dataclasses.dataclass(frozen=True)
class StepRecord:
    """A step: the action, and what the environment returned.

    A FIRST step has only an observation. Observation and action are plain data (`dataclasses.asdict` of the request and
    the response); the observation of a LAST step may be None.
    """

    step_index: int
    step_type: StepType
    observation: Any
    action: Any
    reward: float | None
    discount: float | None
    timestamp: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StepRecord:
        """Back from plain data."""
        return cls(**data)


@dataclasses.dataclass(frozen=True)
class EpisodeTrajectory:
    """An episode: its steps, and the facts about it as a whole. The total reward is that of its last step."""

    episode_id: str
    task_name: str
    steps: Sequence[StepRecord]
    start_time: float
    end_time: float | None = None
    total_reward: float | None = None
    num_steps: int = 0
    truncated: bool = False
    ending: Ending | None = None
    """How it ended and who said so, if that is known."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data; with "ending" only if there is one."""
        plain: dict[str, Any] = {
            "episode_id": self.episode_id,
            "task_name": self.task_name,
            "start_time": self.start_time,
            "end_time": self.end_time,
            "total_reward": self.total_reward,
            "num_steps": self.num_steps,
            "truncated": self.truncated,
        }
        if self.ending is not None:
            plain["ending"] = self.ending._asdict()
        plain["steps"] = [step.to_dict() for step in self.steps]
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EpisodeTrajectory:
        """Back from plain data."""
        known = dict(data)
        known["steps"] = tuple(map(StepRecord.from_dict, data.get("steps", ())))
        known.setdefault("num_steps", len(known["steps"]))
        if known.get("ending") is not None:
            known["ending"] = Ending(**known["ending"])
        return cls(**known)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EpisodeTrajectory:
        """Back from a file of `JsonTrajectoryCollector`."""
        with open(path, encoding="utf-8") as file:
            return cls.from_dict(json.load(file))


def snapshot(value: Any) -> Any:
    """A copy of a value as plain data, so that later changes are not in it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return copy.deepcopy(value)
