"""What a model is asked."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class LLMRequest:
    """A request: the observation of an environment."""

    messages: list[Any]
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    tools: list[Any] | None = None
    tool_choice: Any = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    stop_sequences: list[str] | None = None
    system_prompt: str | None = None
    top_k: int | None = None
