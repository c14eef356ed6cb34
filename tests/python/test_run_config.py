"""A run is opened again by its name; a config that is given has to be the one that it was made with."""

from pathlib import Path

import keepstep
import pytest


def test_a_run_is_opened_without_saying_its_config(tmp_path: Path) -> None:
    """Whoever reads a run rarely knows its config: saying nothing was refused as another config."""
    store = keepstep.open(tmp_path / "runs")
    made = store.run("shop", config={"model": "m-7b"})
    assert store.run("shop").config == {"model": "m-7b"}
    assert store.run("shop").generation == made.generation


def test_without_a_config_the_newest_generation_is_opened(tmp_path: Path) -> None:
    store = keepstep.open(tmp_path / "runs")
    store.run("shop", config={"model": "m-7b"})
    store.run("shop", config={"model": "m-70b"}, new=True)
    assert store.run("shop").config == {"model": "m-70b"}


def test_another_config_is_refused_and_named(tmp_path: Path) -> None:
    store = keepstep.open(tmp_path / "runs")
    store.run("shop", config={"model": "m-7b"})
    with pytest.raises(keepstep.ConfigChanged, match="model"):
        store.run("shop", config={"model": "m-70b"})
    with pytest.raises(keepstep.ConfigChanged):
        store.run("shop", config={})
