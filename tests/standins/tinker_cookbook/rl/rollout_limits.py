"""Stand-in: the limits of a rollout, and what rewards make of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RolloutLimits:
    max_turns: int | None = None
    rollout_timeout_seconds: float | None = None


@dataclass(frozen=True)
class TerminationRewardPolicy:
    zero_reward_on_limit: bool = False
    limit_stop_reasons: tuple[str, ...] = ("max_tokens", "max_turns", "rollout_timeout")
