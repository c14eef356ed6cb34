"""Stand-in: the loop of one rollout."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import tinker

from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.rollout_limits import RolloutLimits
from tinker_cookbook.rl.types import (
    STOP_METRIC_PREFIX,
    ActionExtra,
    Env,
    InitialObservationOverflow,
    Trajectory,
    Transition,
)


async def run_rollout(policy: TokenCompleter, env: Env, *, limits: RolloutLimits | None = None) -> Trajectory:
    limits = limits or getattr(env, "rollout_limits", None) or RolloutLimits()
    loop = _Loop(policy, env, limits)
    task = asyncio.current_task()
    assert task is not None
    if limits.rollout_timeout_seconds is None:
        return await loop.run()
    # As asyncio.timeout, which Python 3.10 has not: in the same task.
    alarm = asyncio.get_running_loop().call_later(limits.rollout_timeout_seconds, loop.ring, task)
    try:
        return await loop.run()
    except asyncio.CancelledError:
        if not loop.is_late:
            raise
        if hasattr(task, "uncancel"):
            task.uncancel()
        return loop.stopped("rollout_timeout")
    finally:
        alarm.cancel()


class _Loop:
    def __init__(self, policy: TokenCompleter, env: Env, limits: RolloutLimits) -> None:
        self.policy, self.env, self.limits = policy, env, limits
        self.transitions: list[Transition] = []
        self.ob = tinker.ModelInput.empty()
        self.is_late = False

    def ring(self, task: asyncio.Task[object]) -> None:
        self.is_late = True
        task.cancel()

    async def run(self) -> Trajectory:
        initial = await self.env.initial_observation()
        nothing = TokensWithLogprobs([], [])
        if isinstance(initial, InitialObservationOverflow):
            empty = tinker.ModelInput.empty()
            made_up = Transition(empty, nothing, initial.reward, True, initial.metrics, initial.logs)
            return Trajectory([made_up], empty, _reason(made_up))
        self.ob, stop = initial
        while True:
            if self.limits.max_turns is not None and len(self.transitions) >= self.limits.max_turns:
                return self.stopped("max_turns")
            answer = await self.policy(self.ob, stop)
            extra = ActionExtra(stop_reason=answer.stop_reason)
            came = await self.env.step(answer.tokens, extra=extra)
            done = Transition(self.ob, answer, came.reward, came.episode_done, came.metrics, came.logs)
            self.transitions.append(done)
            self.ob, stop = came.next_observation, came.next_stop_condition
            if came.episode_done:
                return Trajectory(self.transitions, self.ob, _reason(done))

    def stopped(self, reason: str) -> Trajectory:
        mark = {f"{STOP_METRIC_PREFIX}{reason}": 1.0}
        if self.transitions:
            last = self.transitions[-1]
            self.transitions[-1] = replace(last, episode_done=True, metrics={**last.metrics, **mark})
        else:
            nothing = TokensWithLogprobs([], [])
            self.transitions.append(Transition(tinker.ModelInput.empty(), nothing, 0.0, True, {**mark}))
        return Trajectory(self.transitions, self.ob, reason)


def _reason(last: Transition) -> str | None:
    marks = [name for name in last.metrics if name.startswith(STOP_METRIC_PREFIX)]
    return marks[0][len(STOP_METRIC_PREFIX) :] if marks else None
