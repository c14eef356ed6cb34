"""The strategy: it records the policy, and how every rollout of the group ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder

from ._env import RecordedPolicy
from ._group import RecordedBuilder


@dataclass(frozen=True)
class RecordedStrategy(RolloutStrategy):
    """The same strategy, for groups of a `RecordedBuilder`: a rollout that it tries again resumes after its last turn.

    The policy's answers and logprobs are recorded. The results are in the order of the samples. It can be pickled.
    """

    strategy: RolloutStrategy = field(default_factory=FailFast)

    @property
    def catches_group_errors(self) -> bool:
        """As the strategy does."""
        return self.strategy.catches_group_errors

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        """Rolls the group out: rollouts that are over come from the record, interrupted ones resume."""
        if not isinstance(env_group_builder, RecordedBuilder) or not env_group_builder.records:
            return await self.strategy.execute(env_group_builder, policy)
        try:
            result = await self.strategy.execute(env_group_builder, RecordedPolicy(policy))
        except BaseException:
            await env_group_builder.give_up()
            raise
        return await env_group_builder.settle(result)
