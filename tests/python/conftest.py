"""What the tests of the Python package share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import keepstep
import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: runs with KEEPSTEP_SLOW=1 only, as `make torture-python` does")
    # A shell ignores Ctrl-C for what it runs in the background, and that is inherited: then tests of it would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("KEEPSTEP_SLOW") == "1":
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: set KEEPSTEP_SLOW=1"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[keepstep.Store]:
    """A store of its own for each test."""
    with keepstep.open(tmp_path / "runs") as opened:
        yield opened


@pytest.fixture
def run(store: keepstep.Store) -> keepstep.Run:
    """A run in it."""
    return store.run("shop")
