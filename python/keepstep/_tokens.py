"""The tokens of a turn."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Tokens(NamedTuple):
    """Token ids and the arrays that belong to them, as arrays or lists of numbers."""

    prompt: Any = None
    ids: Any = None
    logprobs: Any = None
    mask: Any = None
    arrays: Mapping[str, Any] = {}
