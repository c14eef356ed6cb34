"""Stand-in: the prompts that the cookbook's rollouts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic

from ._models import StrictBase

StopReason = Literal["length", "stop"]


class EncodedTextChunk(StrictBase):
    tokens: Sequence[int]
    type: Literal["encoded_text"] = "encoded_text"

    @property
    def length(self) -> int:
        return len(self.tokens)


class ImageChunk(StrictBase):
    data: bytes
    format: Literal["png", "jpeg"]
    expected_tokens: int | None = None
    type: Literal["image"] = "image"

    @property
    def length(self) -> int:
        if self.expected_tokens is None:
            raise ValueError("expected_tokens is not set")
        return self.expected_tokens


ModelInputChunk = Annotated[EncodedTextChunk | ImageChunk, pydantic.Field(discriminator="type")]


class ModelInput(StrictBase):
    chunks: list[ModelInputChunk]

    @classmethod
    def from_ints(cls, tokens: list[int]) -> ModelInput:
        return cls(chunks=[EncodedTextChunk(tokens=tokens)])

    @classmethod
    def empty(cls) -> ModelInput:
        return cls(chunks=[])

    def to_ints(self) -> list[int]:
        return [
            token for chunk in self.chunks if isinstance(chunk, EncodedTextChunk) for token in chunk.tokens
        ]

    @property
    def length(self) -> int:
        return sum(chunk.length for chunk in self.chunks)
