"""Managers: what a client of TransferQueue talks to. Here without sockets; what the controller is told is kept."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from transfer_queue.storage.clients.base import StorageClientFactory, StorageKVClient

_M = TypeVar("_M", bound="type[StorageManager]")


class StorageManager(ABC):
    def __init__(self, controller_info: Any, config: Any, zmq_context: Any = None) -> None:
        self.controller_info = controller_info
        self.config = config
        self.is_closed = False

    @abstractmethod
    async def put_data(self, data: Any, metadata: Any, data_parser: Any = None) -> None: ...

    @abstractmethod
    async def get_data(self, metadata: Any) -> Any: ...

    @abstractmethod
    async def clear_data(self, metadata: Any) -> None: ...

    async def save_checkpoint(self, checkpoint_dir: str) -> None:
        raise NotImplementedError

    async def load_checkpoint(self, checkpoint_dir: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True


class StorageManagerFactory:
    _registry: ClassVar[dict[str, type[StorageManager]]] = {}

    @classmethod
    def register(cls, manager_type: str) -> Callable[[_M], _M]:
        def decorator(manager_cls: _M) -> _M:
            cls._registry[manager_type] = manager_cls
            return manager_cls

        return decorator

    @classmethod
    def create(
        cls, manager_type: str, controller_info: Any, config: dict[str, Any], **kwargs: Any
    ) -> StorageManager:
        return cls._registry[manager_type](controller_info, config, **kwargs)


class KVStorageManager(StorageManager):
    storage_client: StorageKVClient

    def __init__(self, controller_info: Any, config: dict[str, Any], zmq_context: Any = None) -> None:
        super().__init__(controller_info, config)
        self.storage_client = StorageClientFactory.create(config["client_name"], config)

    @staticmethod
    def _generate_keys(field_names: list[str], global_indexes: list[int]) -> list[str]:
        return [f"{index}@{field}" for field, index in itertools.product(sorted(field_names), global_indexes)]

    @staticmethod
    def _get_shape_type_custom_backend_meta_list(metadata: Any) -> tuple[list[Any], list[Any], list[Any]]:
        fields = sorted(metadata.field_names)
        return [], [], [meta.get(field) for field in fields for meta in metadata._custom_backend_meta]

    def _merge_tensors_to_tensordict(self, metadata: Any, values: list[Any]) -> Any:
        size = len(metadata.global_indexes)
        fields = sorted(metadata.field_names)
        return {field: values[n * size : (n + 1) * size] for n, field in enumerate(fields)}

    async def put_data(self, data: Any, metadata: Any, data_parser: Any = None) -> None:
        keys = self._generate_keys(list(data), metadata.global_indexes)
        values = [value for field in sorted(data) for value in data[field]]
        words = await asyncio.to_thread(self.storage_client.put, keys, values)
        assert words is not None
        for (field, at), word in zip(
            itertools.product(sorted(data), range(len(metadata.global_indexes))), words, strict=True
        ):
            metadata._custom_backend_meta[at][field] = word

    async def get_data(self, metadata: Any) -> Any:
        return {}

    async def clear_data(self, metadata: Any) -> None:
        raise RuntimeError("no field_names in BatchMeta")
