"""How an episode is opened."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypedDict

from ._endings import Why


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
