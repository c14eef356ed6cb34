"""What an attacker and a first user with the wheel and the pages alone found."""

from __future__ import annotations

import decimal
import fractions
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keepstep
import numpy as np
import outside
import pytest
from keepstep._log import shown

HOSTILE = "x\x1b]0;title\x07\x1b[2J\u202e"


@pytest.mark.parametrize(
    "what",
    ["task", "run", "limit", "config value", "config key", "note", "stream", "missing run", "missing task"],
)
def test_no_recorded_text_reaches_a_terminal_through_an_exception_or_a_repr(
    store: keepstep.Store, what: str
) -> None:
    """Tracebacks are read on terminals, and recorded text is hostile."""
    run = store.run("r")
    with run.episode("t") as episode:
        episode.end("truncated", limit=HOSTILE, said_by=HOSTILE)

    def ended(run: keepstep.Run, task: str) -> object:
        with run.episode(task) as episode:
            episode.end("finished")
        return run.episode(task).__enter__()

    def config(first: dict[str, Any]) -> object:
        store.run("c", config=first)
        return store.run("c", config={"k": 1})

    asks = {
        "task": lambda: ended(run, HOSTILE),
        "run": lambda: ended(store.run(HOSTILE), "t"),
        "limit": lambda: run.episode("t").__enter__(),
        "config value": lambda: config({"k": HOSTILE}),
        "config key": lambda: config({HOSTILE: 2}),
        "note": lambda: run.annotate("r/t", HOSTILE, 1, source="s"),
        "stream": lambda: run.stream("s").put(HOSTILE, 1),
        "missing run": lambda: store.find(f"{HOSTILE}/t"),
        "missing task": lambda: store.find(f"r/{HOSTILE}"),
    }
    try:
        said = repr(asks[what]())
    except keepstep.KeepstepError as error:
        said = str(error)
    assert shown(said.replace("\n", "")) == said.replace("\n", "")


ROUNDED = [
    fractions.Fraction(1, 3),
    decimal.Decimal("0.1"),
    np.longdouble("0.1"),
    2**53 + 1,
    np.int64(2**53 + 1),
    np.array(2**53 + 1),
]
EXACT = [
    (fractions.Fraction(1, 4), 0.25),
    (decimal.Decimal("0.5"), 0.5),
    (np.longdouble(0.1), 0.1),
    (np.float32(0.1), float(np.float32(0.1))),
    (np.float64(0.1), 0.1),
    (np.array(0.1), 0.1),
    (np.float16(0.1), float(np.float16(0.1))),
    (True, 1.0),
    (7, 7.0),
    (2**60, float(2**60)),
    (decimal.Decimal("Infinity"), float("inf")),
]


@pytest.mark.parametrize("given", ROUNDED, ids=repr)
@pytest.mark.parametrize("field", ["reward", "discount", "reward_terms"])
def test_a_number_that_a_float_cannot_hold_is_refused(run: keepstep.Run, field: str, given: Any) -> None:
    """It came back as another number."""
    with run.episode() as episode:
        with pytest.raises(keepstep.BadInput, match="exactly"):
            episode.step(action=1, **{field: {"term": given} if field == "reward_terms" else given})
        episode.end("abandoned")


@pytest.mark.parametrize(("given", "number"), EXACT, ids=repr)
def test_a_number_that_a_float_can_hold_is_taken(run: keepstep.Run, given: Any, number: float) -> None:
    with run.episode("t") as episode:
        episode.step(action=1, reward=given, reward_terms={"term": given})
        episode.end("finished")
    [step] = run.store.find("shop/t").steps
    assert (step.reward, step.reward_terms) == (number, {"term": number})


@pytest.mark.parametrize("step", [None, "0", 1.5, -1, [], True])
def test_notes_on_something_else_than_a_step_is_refused(run: keepstep.Run, step: Any) -> None:
    """It was no step, so there were no notes on it."""
    with run.episode("t") as episode:
        episode.step(action=1)
        episode.end("finished")
    with pytest.raises(keepstep.BadInput, match="step"):
        run.store.find("shop/t").notes_on(step)


def test_no_store_is_made_over_another(tmp_path: Path) -> None:
    """A store keeps its runs in a folder called `runs`, and so is the store called that people make: opening the directory
    above made a second store, of which the first one's files were damage."""
    with keepstep.open(tmp_path / "runs") as store, store.run("r").episode("t") as episode:
        episode.end("finished")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(keepstep.BadInput, match="there is a store in its folder"):
        keepstep.open(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    # A folder of that name that is no store harms nobody.
    (tmp_path / "other" / "runs" / "tensorboard").mkdir(parents=True)
    keepstep.open(tmp_path / "other").close()


def test_a_secret_goes_with_one_command(tmp_path: Path) -> None:
    """It stayed on disk until a second command that nothing named."""
    secret = os.urandom(5_000)
    with keepstep.open(tmp_path / "runs") as store:
        for task in ("holds", "stays"):
            with store.run("r").episode(task) as episode:
                episode.step(observation=secret if task == "holds" else b"nothing")
                episode.end("finished")

    def prune(*more: str) -> str:
        command = [sys.executable, "-m", "keepstep", "prune", "-s", str(tmp_path / "runs"), *more]
        done = subprocess.run(command, text=True, capture_output=True, env=outside.environment(), check=True)
        return done.stdout + done.stderr

    def holders() -> list[Path]:
        files = (path for path in (tmp_path / "runs").rglob("*") if path.is_file())
        return [path for path in files if secret[100:200] in path.read_bytes()]

    assert holders()
    with keepstep.open(tmp_path / "runs") as store, store.run("r").episode("busy") as episode:
        episode.step(observation=1)
        said = prune("r/holds", "--reason", "holds a secret", "--grace", "0")
        assert "left alone" in said and "compact --grace 0" in said and "nothing to do" not in said
        assert not holders()
        episode.end("finished")
    outside.command("verify", tmp_path / "runs")
    with keepstep.open(tmp_path / "runs") as store:
        assert store.find("r/stays").steps[0].observation == b"nothing"
    assert "still on disk" in prune("r/stays", "--reason", "old")


def test_a_task_without_its_run_is_found_in_the_hint(run: keepstep.Run) -> None:
    """The hint named the run alone."""
    with run.episode("pay", sample=1) as episode:
        episode.end("finished")
    with pytest.raises(keepstep.NotFound, match="perhaps shop/pay is meant"):
        run.annotate("pay", "score", 1.0, source="judge")


@pytest.mark.parametrize("wanted", [{"since": float("nan")}, {"reward": (float("nan"), 1.0)}], ids=repr)
def test_nan_is_no_bound(run: keepstep.Run, wanted: dict[str, Any]) -> None:
    """Everything matched."""
    with pytest.raises(keepstep.BadInput, match="nan"):
        run.episodes(**wanted)


@pytest.mark.parametrize("level", ["disk", "\ud800", 3, b"power"], ids=repr)
def test_a_level_that_is_none_is_refused(run: keepstep.Run, level: Any) -> None:
    with run.episode() as episode:
        receipt = episode.submit(action=1)
        with pytest.raises(keepstep.BadInput, match="level"):
            receipt.wait(level=level)
        episode.end("finished")


@pytest.mark.parametrize(
    "reward", [fractions.Fraction(1, 3), decimal.Decimal("0.1"), np.longdouble("0.1")], ids=repr
)
def test_a_seal_does_not_round_either(run: keepstep.Run, reward: Any) -> None:
    group = run.group("g", size=1)
    episode = group.claim()
    assert episode is not None
    with episode:
        episode.end("finished")
    with pytest.raises(keepstep.BadInput, match="exactly"):
        group.seal({group.refs[0]: reward}, source="judge")
