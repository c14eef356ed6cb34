"""The fields that people record, by the part of a turn that they belong to."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypedDict

from ._endings import Why
from ._tokens import Tokens


class Opts(TypedDict, total=False):
    """How an episode is opened."""

    resume: Literal["continue", "restart", "refuse"]
    at: int
    busy: Literal["raise", "wait", "take"]
    policy: int | str
    new_policy: Literal["continue", "restart", "refuse"]
    retry: Collection[Why]
    parent: str
    meta: Mapping[str, Any]
    on_error: Literal["fail", "keep"]


class Said(TypedDict, total=False):
    """What is durable before the action is taken."""

    action: Any
    prompt: Any
    response: Any
    tokens: Tokens
    policy: int | str
    agent: str


class Result(TypedDict, total=False):
    """What came of an action."""

    observation: Any
    reward: float | None
    reward_terms: Mapping[str, float]
    discount: float | None
    info: Any
    state: Mapping[str, Any]


class Both(Said, Result):
    """A whole step: what was said, and what came of it."""
