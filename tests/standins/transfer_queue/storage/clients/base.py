"""Clients of key-value backends."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

_C = TypeVar("_C", bound="type[StorageKVClient]")


class StorageKVClient(ABC):
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    @abstractmethod
    def put(self, keys: list[str], values: list[Any]) -> list[Any] | None: ...

    @abstractmethod
    def get(
        self, keys: list[str], shapes: Any = None, dtypes: Any = None, custom_backend_meta: Any = None
    ) -> list[Any]: ...

    @abstractmethod
    def clear(self, keys: list[str], custom_backend_meta: Any = None) -> None: ...


class StorageClientFactory:
    _registry: ClassVar[dict[str, type[StorageKVClient]]] = {}

    @classmethod
    def register(cls, client_type: str) -> Callable[[_C], _C]:
        def decorator(client_class: _C) -> _C:
            cls._registry[client_type] = client_class
            return client_class

        return decorator

    @classmethod
    def create(cls, client_type: str, config: dict[str, Any]) -> StorageKVClient:
        return cls._registry[client_type](config)
