"""What a model answered."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Usage:
    """How many tokens it took."""

    prompt_tokens: int
    generated_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens


@dataclasses.dataclass(frozen=True)
class TextData:
    """A text."""

    content: str


@dataclasses.dataclass(frozen=True)
class LLMResponse:
    """An answer: the action of an environment."""

    data: list[TextData]
    cost: float
    usage: Usage
