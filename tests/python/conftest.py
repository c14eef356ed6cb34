"""What the tests of the Python package share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keepstep
import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:this keepstep is a debug build:RuntimeWarning")
    config.addinivalue_line("markers", "slow: takes more than half a minute; `make torture-python` runs it")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[keepstep.Store]:
    """A store of its own for each test."""
    with keepstep.open(tmp_path / "runs") as opened:
        yield opened


@pytest.fixture
def run(store: keepstep.Store) -> keepstep.Run:
    """A run in it."""
    return store.run("shop")
