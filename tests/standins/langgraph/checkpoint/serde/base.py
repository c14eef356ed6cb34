"""How values become bytes."""

from __future__ import annotations

from typing import Any, Protocol


class SerializerProtocol(Protocol):
    """What a serializer can do."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...
