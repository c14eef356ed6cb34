"""Generations of a run: each has names of its own, and without one the newest is meant everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import keepstep
import outside
import pytest


def record(run: keepstep.Run, task: str, reward: float) -> str:
    with run.episode(task) as episode:
        episode.step(action=1, reward=reward)
        episode.end("finished")
        return episode.ref


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """Two generations of one run, with an episode of the same name in each, and one of its own in each."""
    place = tmp_path / "runs"
    with keepstep.open(place) as store:
        old = store.run("ev", config={"v": 0})
        record(old, "q0", 0.0)
        record(old, "old", 0.0)
        new = store.run("ev", config={"v": 1}, new=True)
        assert (old.generation, new.generation) == (0, 1)
        record(new, "q0", 1.0)
        record(new, "new", 1.0)
    return place


def test_the_command_takes_what_it_prints(where: Path) -> None:
    """`ls` printed "ev (generation 1)", which no command took."""
    runs = [line.split()[0] for line in outside.command("ls", where).splitlines()[1:]]
    assert runs == ["ev#0", "ev"]
    refs = [json.loads(it)["ref"] for it in outside.command("ls", where, "--all", "--json").splitlines()]
    assert sorted(refs) == ["ev#0/old#0.0", "ev#0/q0#0.0", "ev/new#0.0", "ev/q0#0.0"]
    for ref in refs:
        shown = [json.loads(it) for it in outside.command("show", "-s", where, ref, "--json").splitlines()]
        assert {it["ref"] for it in shown} == {ref}
        rewards = {it["reward"] for it in shown if it["what"] == "step"}
        assert rewards == {0.0 if "#0/" in ref else 1.0}
    of_runs = {run: outside.command("ls", where, run).count("finished") for run in runs}
    assert all(number >= 2 for number in of_runs.values())
    for wanted, found in [
        (["ev"], 2),
        (["ev#0"], 2),
        (["--run", "ev"], 2),
        (["--run", "ev#0"], 2),
        (["ev#1"], 2),
    ]:
        assert len(outside.command("ls", where, *wanted, "--json").splitlines()) == found, wanted
    outside.command("ls", where, "ev#7", code=1)
    outside.command("show", "-s", where, "ev/old", code=1)


def test_an_export_says_the_generation(where: Path) -> None:
    """Lines of both were mixed, and told apart by nothing."""
    lines = [json.loads(it) for it in outside.command("export", "jsonl", "-s", where, "--all").splitlines()]
    assert {(it["generation"], it["reward"]) for it in lines} == {(0, 0.0), (1, 1.0)}
    for ref, generation in [("ev", 1), ("ev#0", 0), ("ev/q0", 1), ("ev#0/q0", 0)]:
        lines = [json.loads(it) for it in outside.command("export", "jsonl", "-s", where, ref).splitlines()]
        assert {it["generation"] for it in lines} == {generation}, ref


def test_prune_deletes_one_generation(where: Path) -> None:
    """`prune --run ev` took all of them."""
    outside.command("prune", "-s", where, "--run", "ev#0", "--reason", "old")
    left = [json.loads(it)["ref"] for it in outside.command("ls", where, "--all", "--json").splitlines()]
    assert sorted(left) == ["ev/new#0.0", "ev/q0#0.0"]
    outside.command("prune", "-s", where, "--run", "ev", "--reason", "all of it")
    assert outside.command("ls", where, "--all", "--json") == ""


def test_python_takes_the_same_names(where: Path) -> None:
    """`find` took the newest, and the old one could be named by nothing but its id."""
    with keepstep.open(where) as store:
        assert store.find("ev/q0").reward == 1.0
        old = store.find("ev#0/q0#0.0")
        assert (old.reward, old.ref) == (0.0, "ev#0/q0#0.0~0")
        assert store.find(old.ref) == old
        assert store.find("ev#1/q0").ref == "ev/q0#0.0~0"
        with pytest.raises(keepstep.NotFound, match=r"ev#0/old#0\.0"):
            store.find("ev/old#0.0")
        with pytest.raises(keepstep.NotFound, match="generation"):
            store.find("ev#7/q0")


def test_an_old_generation_is_opened_by_its_number(where: Path) -> None:
    """It reads, records, plans and notes as any run does, and its refs say which it is."""
    with keepstep.open(where) as store:
        run = store.run("ev", generation=0)
        assert (run.generation, run.config) == (0, {"v": 0})
        assert {view.ref for view in run.episodes()} == {"ev#0/q0#0.0~0", "ev#0/old#0.0~0"}
        ref = record(run, "more", 0.5)
        assert ref == "ev#0/more#0.0~0"
        run.annotate(ref, "score", 1.0, source="judge").wait()
        run.annotate("ev#0/q0", "score", 2.0, source="judge").wait()
        assert store.find("ev#0/q0").notes == {"score": 2.0}
        assert not store.find("ev/q0").notes
        assert run.group("g", size=1).refs == ("ev#0/g#0.0",)
        with pytest.raises(keepstep.NotFound, match="generation"):
            run.annotate("ev/q0#0.0", "score", 1.0, source="judge")
        assert store.run("ev", generation=1).generation == 1
        assert store.run("ev").generation == 1
        with pytest.raises(keepstep.ConfigChanged):
            store.run("ev", generation=0, config={"v": 1})
        with pytest.raises(keepstep.NotFound, match=r"generation 7 of run.*it has generations 0 and 1"):
            store.run("ev", generation=7)
        with pytest.raises(keepstep.NotFound):
            store.run("nobody", generation=0)
        assert [run.name for run in store.runs()] == ["ev", "ev"]
        with pytest.raises(keepstep.BadInput, match="generation"):
            store.run("ev", generation=0, new=True)


def test_a_run_made_without_a_config_takes_an_empty_one(store: keepstep.Store) -> None:
    """Nothing and {} say the same, in both orders."""
    store.run("a")
    store.run("a", config={})
    store.run("b", config={})
    store.run("b")
    assert store.run("b").generation == 0
    with store.run("a").episode("q") as episode:
        episode.step(action=1)
        episode.end("finished")
    with pytest.raises(keepstep.ConfigChanged):
        store.run("a", config={"x": 1})
