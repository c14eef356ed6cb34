"""TransferQueue on disk: values survive the process, and a checkpoint costs nothing.

Importing this registers a storage backend named `Keepstep`. Only the process that calls `transfer_queue.init` has to import
it: the shared configuration imports it in the others.
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from transfer_queue.storage.bootstrap.provider import StorageBootstrapProvider
    from transfer_queue.storage.clients.base import StorageClientFactory, StorageKVClient
    from transfer_queue.storage.managers.base import KVStorageManager, StorageManagerFactory
    from transfer_queue.storage.simple_storage import StorageKeyNotFoundError
except ImportError as _missing:
    raise ImportError(
        "keepstep.adapters.transfer_queue needs TransferQueue: pip install TransferQueue"
    ) from _missing

from keepstep.adapting import place_of

from ._shelf import ABSENT, Shelf

__all__ = ["KeepstepStorageClient", "KeepstepStorageManager", "spent"]

NAME = "Keepstep"
_CHECKPOINT = "keepstep_storage.json"


class _Registered(enum.Enum):
    """Part of the shared configuration: unpickling that imports this module, which registers the backend."""

    HERE = "keepstep.adapters.transfer_queue"


@StorageBootstrapProvider.register_provider(NAME)
def _prepare(conf: Any) -> dict[str, str]:
    """Runs once, in the process that starts TransferQueue, before the others get the configuration."""
    own = conf.backend[NAME]
    # Workers of Ray run in other folders, so the path must be absolute.
    own.store = place_of(_store_of(own))
    own.registered = _Registered.HERE
    return {"store": own.store}


def _store_of(config: Any) -> str:
    where = config.get("store")
    if not isinstance(where, (str, os.PathLike)):
        raise ValueError(f"Missing store in the config of {NAME}: give the directory for the data")
    return os.fspath(where)


@StorageClientFactory.register(NAME)
class KeepstepStorageClient(StorageKVClient):
    """Keeps values by key in a run of a keepstep store. Durable when `put` and `clear` return.

    Its configuration: `store`, the directory, on a disk; `run` (default `transfer_queue`), a name for each training run;
    `log_bytes_max` (default 1 GiB), after which a process starts a new log, so that the old one can be compacted.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.shelf = Shelf(
            _store_of(config),
            config.get("run") or "transfer_queue",
            log_bytes_max=config.get("log_bytes_max") or 1 << 30,
        )

    def put(self, keys: list[str], values: list[Any]) -> list[Any] | None:
        """Stores values, all of them or none; newer ones replace older ones. Durable when it returns."""
        if not isinstance(keys, list) or not isinstance(values, list):
            raise ValueError(f"keys and values must be lists, but got {type(keys)} and {type(values)}")
        if len(keys) != len(values):
            raise ValueError("Number of keys must match number of values")
        return [self.shelf.put(keys, values)] * len(keys)

    def get(
        self, keys: list[str], shapes: Any = None, dtypes: Any = None, custom_backend_meta: Any = None
    ) -> list[Any]:
        """The newest values, in the order of the keys; None for a key that has none. Shapes and dtypes are not needed."""
        return [None if value is ABSENT else value for value in self._fetch(keys, custom_backend_meta)]

    def get_all(self, keys: list[str], custom_backend_meta: Any = None) -> list[Any]:
        """As `get`, but a key without a value is a `StorageKeyNotFoundError`."""
        values = self._fetch(keys, custom_backend_meta)
        absent = [key for key, value in zip(keys, values, strict=True) if value is ABSENT]
        if absent:
            raise StorageKeyNotFoundError(
                f"{len(absent)} of {len(keys)} keys have no value, such as {absent[0]!r}"
            )
        return values

    def clear(self, keys: list[str], custom_backend_meta: Any = None) -> None:
        """Removes values. Durable when it returns; their bytes stay until they are pruned."""
        self.shelf.clear(keys, custom_backend_meta or ())

    def keys(self) -> list[str]:
        """All keys that have a value, such as `17@input_ids`."""
        return self.shelf.keys()

    def close(self) -> None:
        """Ends what this process records."""
        self.shelf.close()

    def _fetch(self, keys: list[str], custom_backend_meta: Sequence[Any] | None) -> list[Any]:
        if not isinstance(keys, list):
            raise ValueError(f"keys must be a list, but got {type(keys)}")
        return self.shelf.fetch(keys, custom_backend_meta or ())


@StorageManagerFactory.register(NAME)
class KeepstepStorageManager(KVStorageManager):
    """TransferQueue's manager for key-value backends, over a keepstep store."""

    storage_client: KeepstepStorageClient

    def __init__(self, controller_info: Any, config: Any, zmq_context: Any = None) -> None:
        _store_of(config)
        super().__init__(controller_info, {**config, "client_name": NAME}, zmq_context=zmq_context)

    async def get_data(self, metadata: Any) -> Any:
        """As its parent, without blocking the event loop. A value that was cleared meanwhile is a `StorageKeyNotFoundError`."""
        if not metadata.field_names:
            return await super().get_data(metadata)
        keys = self._generate_keys(metadata.field_names, metadata.global_indexes)
        _, _, words = self._get_shape_type_custom_backend_meta_list(metadata)
        values = await asyncio.to_thread(self.storage_client.get_all, keys, words)
        return self._merge_tensors_to_tensordict(metadata, values)

    async def clear_data(self, metadata: Any) -> None:
        """As its parent, without blocking the event loop."""
        if not metadata.field_names:
            return await super().clear_data(metadata)
        keys = self._generate_keys(metadata.field_names, metadata.global_indexes)
        _, _, words = self._get_shape_type_custom_backend_meta_list(metadata)
        await asyncio.to_thread(self.storage_client.clear, keys, words)

    async def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves which version of the data this is: the data are on disk already."""
        shelf = self.storage_client.shelf
        said = {"store": shelf.where, "run": shelf.run, "mark": await asyncio.to_thread(shelf.mark)}
        with (Path(checkpoint_dir) / _CHECKPOINT).open("w") as file:
            json.dump(said, file)
            file.flush()
            os.fsync(file.fileno())

    async def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Brings back the data as of the checkpoint, including what was cleared since."""
        said = json.loads((Path(checkpoint_dir) / _CHECKPOINT).read_text())
        shelf = self.storage_client.shelf
        if said["run"] != shelf.run:
            raise ValueError(
                f"the checkpoint is of run {said['run']!r}, but this is run {shelf.run!r}: give run={said['run']!r}"
            )
        await asyncio.to_thread(shelf.go_back, said["mark"])

    def close(self) -> None:
        """Ends what this process records, then closes the sockets."""
        client = getattr(self, "storage_client", None)
        if client is not None:
            client.close()
        super().close()


def spent(store: str | os.PathLike[str], run: str = "transfer_queue") -> list[str]:
    """The refs of episodes whose values were all cleared or replaced: `keepstep prune` may delete them."""
    shelf = Shelf(os.fspath(store), run)
    try:
        return shelf.spent()
    finally:
        shelf.close()
