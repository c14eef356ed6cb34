"""Stand-in: policies."""

from __future__ import annotations

from dataclasses import dataclass

import tinker

StopCondition = list[str] | list[int]


@dataclass
class TokensWithLogprobs:
    tokens: list[int]
    maybe_logprobs: list[float] | None
    stop_reason: tinker.StopReason = "stop"


class TokenCompleter:
    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        raise NotImplementedError
