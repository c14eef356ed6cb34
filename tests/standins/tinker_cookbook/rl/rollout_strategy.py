"""Stand-in: how the rollouts of a group are run. They come back in the order in which they end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RolloutError, Trajectory


@dataclass(frozen=True)
class RolloutResult:
    trajectories: list[Trajectory]
    envs: Sequence[Env]
    errors: list[RolloutError]


class RolloutStrategy(ABC):
    @property
    def catches_group_errors(self) -> bool:
        return False

    @abstractmethod
    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult: ...


@dataclass(frozen=True)
class FailFast(RolloutStrategy):
    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        from tinker_cookbook.rl.rollouts import do_single_rollout

        envs = await env_group_builder.make_envs()
        trajectories = await asyncio.gather(*[do_single_rollout(policy, env) for env in envs])
        return RolloutResult(list(trajectories), envs, [])


@dataclass(frozen=True)
class RetryOnFailure(RolloutStrategy):
    max_retries: int = 3
    per_rollout_timeout: float = 0

    @property
    def catches_group_errors(self) -> bool:
        return True

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        return await _collect(env_group_builder, policy, self.max_retries, None)


@dataclass(frozen=True)
class MinViableGroup(RolloutStrategy):
    min_successful: int | None = None
    max_retries: int = 3
    per_rollout_timeout: float | None = None

    @property
    def catches_group_errors(self) -> bool:
        return True

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        return await _collect(env_group_builder, policy, self.max_retries, self.min_successful or 1)


async def _collect(
    builder: EnvGroupBuilder, policy: TokenCompleter, retries: int, floor: int | None
) -> RolloutResult:
    """Without a floor all must succeed, and a failure that is not tried again ends the group."""
    from tinker_cookbook.rl.rollouts import do_single_rollout

    def launch(env: Env) -> asyncio.Task[Trajectory]:
        return asyncio.create_task(do_single_rollout(policy, env))

    running = {launch(env): env for env in await builder.make_envs()}
    size = len(running)
    result = RolloutResult([], [], [])
    envs: list[Env] = []
    while running:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            env = running.pop(task)
            raised = task.exception()
            if raised is None:
                result.trajectories.append(task.result())
                envs.append(env)
                continue
            result.errors.append(RolloutError(type(raised).__name__, str(raised)))
            if retries > 0 and len(envs) < (floor or size):
                retries -= 1
                fresh = (await builder.make_envs())[0]
                running[launch(fresh)] = fresh
            elif floor is None:
                for other in running:
                    other.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                raise raised
    if floor is not None and len(envs) < floor:
        raise AllTrajectoriesFailedError(f"{len(envs)} of {size}")
    return RolloutResult(result.trajectories, envs, result.errors)
