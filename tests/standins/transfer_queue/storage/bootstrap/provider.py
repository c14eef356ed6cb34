"""What prepares a backend before the configuration is shared."""

from collections.abc import Callable
from typing import Any, ClassVar


class StorageBootstrapProvider:
    """Functions by the name of their backend."""

    _providers: ClassVar[dict[str, Callable[..., Any]]] = {}

    @classmethod
    def register_provider(cls, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
            cls._providers[name.lower()] = fn
            return fn

        return decorator

    @classmethod
    def get_provider(cls, name: str) -> Callable[..., Any] | None:
        return cls._providers.get(name.lower())
