"""What somebody met who used it for the third time: small things that were said wrongly, or not at all."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
from keepstep.errors import BadInput, KeepstepError, NotFound


@pytest.fixture
def run(tmp_path: Path) -> Any:
    store = keepstep.open(tmp_path / "store")
    yield store.run("run")
    store.close()


def record(run: keepstep.Run, task: str, *, sample: int = 0, why: str = "finished") -> str:
    with run.episode(task, sample=sample) as episode:
        episode.step(action=1, reward=1.0)
        episode.end(why)
    return episode.ref.split("~")[0]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("strict", "yes"),
        ("strict", 1),
        ("stall_s", "x"),
        ("stall_s", None),
        ("lease_s", "x"),
        ("lease_s", True),
    ],
)
def test_what_opens_a_store_is_told_by_its_name(tmp_path: Path, argument: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"^{argument} is "):
        keepstep.open(tmp_path / "store", **{argument: value})
    assert not (tmp_path / "store").exists()


def test_what_is_final_is_not_offered_as_a_retry(run: keepstep.Run) -> None:
    record(run, "a", why="truncated")
    run.plan(["a", "b"])
    asked: list[Callable[[Any], Any]] = [
        lambda retry: run.remaining(retry=retry),
        lambda retry: run.claim(retry=retry),
        lambda retry: run.episode("a", retry=retry),
        lambda retry: next(run.remaining()).episode(retry=retry),
        lambda retry: run.group("a", size=1).claim(retry=retry),
    ]
    for ask in asked:
        with pytest.raises(BadInput, match="retry has 'trunc': give some of") as told:
            ask(["trunc"])
        assert "finished" not in str(told.value)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter])
def test_any_collection_of_endings_is_taken(run: keepstep.Run, kind: Any) -> None:
    record(run, "a", why="truncated")
    with run.episode("a", retry=kind(["truncated"])) as episode:
        assert episode.attempt == 1
        episode.end("finished")


def test_asking_for_more_and_for_nothing_to_be_resumed_is_told_as_such(run: keepstep.Run) -> None:
    record(run, "a", why="truncated")
    with (
        pytest.raises(KeepstepError, match="leave out `retry` or `resume`"),
        run.episode("a", retry=["truncated"], resume="refuse"),
    ):
        pass


def test_a_score_that_is_no_number_is_warned_of(run: keepstep.Run) -> None:
    ref = record(run, "a")
    with pytest.warns(RuntimeWarning, match="score is NaN"):
        run.annotate(ref, "score", float("nan"), source="judge").wait()
    with pytest.warns(RuntimeWarning, match="reward is NaN"):
        run.group("a", size=1).seal({ref: float("nan")}, source="judge").wait()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.annotate(ref, "score", float("nan"), source="judge").wait()


def test_a_pruned_member_is_missing_and_the_others_are_sealed(run: keepstep.Run) -> None:
    refs = [record(run, "a", sample=0), record(run, "a", sample=1)]
    where = str(run.store.where)
    run.store.close()
    outside.command("prune", "-s", where, refs[0], "--reason", "a secret")
    with keepstep.open(where) as store:
        group = store.run("run").group("a", size=2)
        with pytest.raises(BadInput, match="sample 0: pruned"):
            group.seal(source="test")
        group.seal(source="test", least=1).wait()
        (sealed,) = store.run("run").groups()
        assert sealed.missing == {0: "pruned"}
        assert len(sealed.members) == 1


def test_a_run_that_is_planned_and_not_begun_is_listed(run: keepstep.Run) -> None:
    run.plan(["a", "b"])
    where = str(run.store.where)
    assert "0 of 2 done" in outside.complaint("ls", where, "run", code=0)
    assert outside.command("ls", where, "run", "--json") == ""
    assert json.loads(outside.command("ls", where, "--json"))["progress"]["planned"] == 2


def test_an_attempt_that_is_not_there_is_told_as_such(run: keepstep.Run) -> None:
    run.plan(["a", "b"])
    ref = record(run, "a")
    for called in (ref, "run/a"):
        with pytest.raises(NotFound) as told:
            run.annotate(f"{called}~7", "score", 1.0, source="judge").wait()
        assert "attempt" in str(told.value)
        assert "has not begun" not in str(told.value)
    with pytest.raises(NotFound, match="planned and has not begun"):
        run.annotate("run/b", "score", 1.0, source="judge").wait()


def test_two_generations_are_both_named(run: keepstep.Run) -> None:
    ref = record(run, "a")
    episode_id = run.store.find(ref).id
    newer = run.store.run("run", new=True)
    with pytest.raises(NotFound) as told:
        newer.annotate(episode_id, "score", 1.0, source="judge").wait()
    assert "generation 0" in str(told.value)
    assert "generation 1" in str(told.value)
