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


def test_a_reader_that_comes_first_does_not_decide_the_config(tmp_path: Path) -> None:
    """A judge was started before the workers: they died of ConfigChanged, and `new=True` gave each its own generation."""
    judge = keepstep.open(tmp_path / "runs").run("evaluation")
    assert judge.progress().planned == 0
    assert judge.config == {}
    for _ in range(2):
        worker = keepstep.open(tmp_path / "runs").run("evaluation", config={"model": "m-7b"})
        assert worker.generation == 0
        worker.plan(["a"])
    assert judge.config == {"model": "m-7b"}
    assert judge.progress().planned == 1
    with pytest.raises(keepstep.ConfigChanged, match="m-70b"):
        keepstep.open(tmp_path / "runs").run("evaluation", config={"model": "m-70b"})


def test_a_run_with_episodes_takes_no_config(tmp_path: Path) -> None:
    """The message says which side gave none."""
    store = keepstep.open(tmp_path / "runs")
    with store.run("shop").episode("t") as episode:
        episode.step(action=1)
        episode.end("finished")
    with pytest.raises(
        keepstep.ConfigChanged, match=r"made without one and has episodes.*; give none, or start"
    ):
        store.run("shop", config={"model": "m-7b"})
    assert store.run("shop").config == {}
