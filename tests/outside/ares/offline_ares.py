"""Imports ARES without its network: it would ask a remote registry which datasets there are. Import this before `ares`."""

from __future__ import annotations

from typing import Any

import harbor.registry.client
from harbor.models.registry import DatasetSpec


class Registry:
    """Two datasets without tasks, whose presets ARES' own tests look for."""

    def get_datasets(self) -> list[DatasetSpec]:
        return [
            DatasetSpec(name=name, version="1.0", description=name, tasks=[])
            for name in ("swebench-verified", "terminal-bench")
        ]


def create(*_: Any, **__: Any) -> Registry:
    return Registry()


harbor.registry.client.RegistryClientFactory.create = create
