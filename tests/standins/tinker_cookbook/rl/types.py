"""Stand-in: environments, trajectories and groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import tinker
from typing_extensions import TypedDict

from tinker_cookbook.completers import StopCondition, TokensWithLogprobs

Action = list[int]
Observation = tinker.ModelInput
Metrics = dict[str, float | int]
Logs = dict[str, str | int | float]

STOP_METRIC_PREFIX = "stop/"


@dataclass(frozen=True)
class InitialObservationOverflow:
    reward: float
    metrics: Metrics = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)


@dataclass
class StepResult:
    reward: float
    episode_done: bool
    next_observation: Observation
    next_stop_condition: StopCondition
    metrics: Metrics = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)


@dataclass
class Transition:
    ob: Observation
    ac: TokensWithLogprobs
    reward: float
    episode_done: bool
    metrics: Metrics = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)


class ActionExtra(TypedDict, total=False):
    stop_reason: tinker.StopReason


class Env(ABC):
    @abstractmethod
    async def initial_observation(
        self,
    ) -> tuple[Observation, StopCondition] | InitialObservationOverflow: ...

    @abstractmethod
    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult: ...


@dataclass(frozen=True)
class Trajectory:
    transitions: list[Transition]
    final_ob: Observation
    stop_reason: str | None = None


@dataclass(frozen=True)
class RolloutError:
    error_type: str
    error_message: str


class EnvGroupBuilder(ABC):
    @abstractmethod
    async def make_envs(self) -> Sequence[Env]: ...

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        return None

    def logging_tags(self) -> list[str]:
        return []


@dataclass
class TrajectoryGroup:
    trajectories_G: list[Trajectory]
    final_rewards_G: list[float]
    metrics_G: list[Metrics]
    rollout_errors: list[RolloutError] = field(default_factory=list)

    def get_total_rewards(self) -> list[float]:
        steps = [
            sum(transition.reward for transition in trajectory.transitions)
            for trajectory in self.trajectories_G
        ]
        return [mine + final for mine, final in zip(steps, self.final_rewards_G, strict=True)]


class RLDataset(ABC):
    @abstractmethod
    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]: ...

    @abstractmethod
    def __len__(self) -> int: ...
