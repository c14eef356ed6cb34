"""Makes pytest run TransferQueue's own tests with our backend in the place of theirs: `-p keepstep_backend`."""

from __future__ import annotations

import os
from typing import Any

import keepstep.adapters.transfer_queue
import pytest

CONFIG: dict[str, Any] = {
    "controller": {"polling_mode": True},
    "backend": {"storage_backend": "Keepstep", "Keepstep": {"store": os.environ.get("KEEPSTEP_TQ_STORE")}},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before a fixture reads them, the tests' own configurations are ours."""
    from omegaconf import OmegaConf

    class Manager(keepstep.adapters.transfer_queue.KeepstepStorageManager):
        """Ours, for tests that know nothing of a store."""

        def __init__(self, controller_info: Any, config: Any) -> None:
            super().__init__(controller_info, {**config, "store": os.environ["KEEPSTEP_TQ_STORE"]})

    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        if hasattr(module, "BACKEND_CONFIGS"):
            module.BACKEND_CONFIGS["Keepstep"] = CONFIG
        if hasattr(module, "KVStorageManager"):
            module.KVStorageManager = Manager
        if hasattr(module, "_TQ_CONFIG"):
            module._TQ_CONFIG = OmegaConf.create(CONFIG)
