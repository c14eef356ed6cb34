"""Stand-in: a group from its environments to its rewards."""

from __future__ import annotations

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl.rollout_limits import TerminationRewardPolicy
from tinker_cookbook.rl.rollout_runner import run_rollout
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutStrategy
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, Metrics, Trajectory, TrajectoryGroup


async def do_single_rollout(policy: TokenCompleter, env: Env) -> Trajectory:
    return await run_rollout(policy, env)


async def do_group_rollout(
    env_group_builder: EnvGroupBuilder,
    policy: TokenCompleter,
    strategy: RolloutStrategy | None = None,
    termination: TerminationRewardPolicy | None = None,
) -> TrajectoryGroup:
    try:
        result = await (strategy or FailFast()).execute(env_group_builder, policy)
        graded = await env_group_builder.compute_group_rewards(result.trajectories, result.envs)
        rewards: list[float] = [reward for reward, _ in graded]
        metrics: list[Metrics] = [said for _, said in graded]
        if termination is not None and termination.zero_reward_on_limit:
            for place, trajectory in enumerate(result.trajectories):
                mine = sum(transition.reward for transition in trajectory.transitions)
                if trajectory.stop_reason in termination.limit_stop_reasons and mine + rewards[place] > 0:
                    rewards[place] = -mine
                    metrics[place] = {**metrics[place], "zero_reward_on_limit": 1.0}
        return TrajectoryGroup(result.trajectories, rewards, metrics, rollout_errors=result.errors)
    finally:
        await env_group_builder.cleanup()
