"""What a graph is called with."""

from __future__ import annotations

from typing import Any, TypedDict


class RunnableConfig(TypedDict, total=False):
    """What a graph is called with."""

    tags: list[str]
    metadata: dict[str, Any]
    run_name: str
    max_concurrency: int | None
    recursion_limit: int
    configurable: dict[str, Any]
