"""A plugin for pytest: ARES' own tests make their environments by our `make`, and look at what it wrapped."""

from __future__ import annotations

from typing import Any

import offline_ares  # noqa: F401  (before ARES)
from ares import registry
from keepstep.adapters.ares import make

calls = 0


def make_and_unwrap(preset_id: str, **given: Any) -> Any:
    global calls
    calls += 1
    return make(preset_id, **given).env


registry.make = make_and_unwrap


def pytest_sessionfinish() -> None:
    assert calls > 0, "no test made an environment: our make was not tried"
