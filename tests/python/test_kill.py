"""Whatever a loop of one's own was doing when it was killed with -9, running it again finishes the same record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest

LOOP = Path(__file__).parent / "loop_to_kill.py"
TURNS = 3
IN_A_TURN = (
    "before-call",
    "called",
    "call-recorded",
    "intent-durable",
    "acted",
    "result-said",
    "result-durable",
)
POINTS = [f"{turn}:{where}" for turn in range(TURNS) for where in IN_A_TURN]
# Killed here, an effect may happen again: it had happened, and nothing durable says so.
MAY_REPEAT = {"called": "ask", "acted": "act", "result-said": "act"}
REF = "shop/shop-17#0.0"


def loop(folder: Path, how: str, point: str | None = None) -> None:
    """Runs the loop in a process of its own: to its end, or to the point where it kills itself."""
    given = [] if point is None else [point]
    code = 0 if point is None else outside.KILLED
    outside.run(LOOP, folder / "runs", folder / "effects", how, *given, code=code)


def effects(folder: Path) -> Counter[str]:
    return Counter((folder / "effects").read_text().split("\n")[:-1])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The record of a loop that nobody killed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    loop(folder, "with")
    assert set(effects(folder).values()) == {1}
    essence = outside.essence(folder / "runs", REF)
    whats = Counter(line["what"] for line in essence)
    assert whats == {"step": TURNS, "call": TURNS, "end": 1}, "the measure itself must be right"
    return essence


def test_the_async_loop_records_the_same(tmp_path: Path, uninterrupted: list[dict[str, Any]]) -> None:
    """`async with` and `with` are one class family: the same loop leaves the same record."""
    loop(tmp_path, "async")
    assert outside.essence(tmp_path / "runs", REF) == uninterrupted


@pytest.mark.parametrize("how", ["with", "async"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_finishes_the_same_record(
    tmp_path: Path, uninterrupted: list[dict[str, Any]], point: str, how: str
) -> None:
    """For every turn, and every point in it: kill -9, run again, and the finished record is that of an uninterrupted loop."""
    loop(tmp_path, how, point)
    loop(tmp_path, how)
    assert outside.essence(tmp_path / "runs", REF) == uninterrupted
    turn, _, where = point.partition(":")
    for effect, times in effects(tmp_path).items():
        may_repeat = effect == f"{MAY_REPEAT.get(where)} {turn}"
        assert 1 <= times <= 1 + may_repeat, f"{effect} happened {times} times"
    assert len(effects(tmp_path)) == 2 * TURNS


@pytest.mark.parametrize("how", ["with", "async"])
def test_killed_at_every_point_one_after_the_other(
    tmp_path: Path, uninterrupted: list[dict[str, Any]], how: str
) -> None:
    """A machine that never lets a process get further than one more point: the loop gets to its end all the same."""
    for point in POINTS:
        # What is durable already is not done again, so some points are passed without dying.
        with outside.start(LOOP, tmp_path / "runs", tmp_path / "effects", how, point) as process:
            _, err = process.communicate(timeout=60)
        assert process.returncode in (0, outside.KILLED), err
        if process.returncode == 0:
            break
    else:
        loop(tmp_path, how)
    assert outside.essence(tmp_path / "runs", REF) == uninterrupted
    attempts = max(line["attempt"] for line in outside.listed(tmp_path / "runs", "shop"))
    assert attempts >= TURNS


def test_killed_after_its_end_it_stays_over(tmp_path: Path, uninterrupted: list[dict[str, Any]]) -> None:
    """An end that was acknowledged is the end: the next process is told so, and records nothing."""
    loop(tmp_path, "with", f"{TURNS}:ended")
    assert outside.essence(tmp_path / "runs", REF) == uninterrupted
    with outside.start(LOOP, tmp_path / "runs", tmp_path / "effects", "with") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "keepstep.errors.Ended" in err
    assert outside.essence(tmp_path / "runs", REF) == uninterrupted


def test_a_loop_that_says_something_else_is_stopped(tmp_path: Path) -> None:
    """A pending turn is not paired with another action: what was said, and what is said now, are both shown."""
    loop(tmp_path, "with", "2:intent-durable")
    with keepstep.open(tmp_path / "runs") as store:
        run = store.run("shop", config={"model": "m-7b"})
        with pytest.raises(keepstep.Diverged, match=r"turn 2 diverged in action"):
            with run.episode("shop-17") as episode:
                episode.turn(action="another").__enter__()


def test_the_comparison_notices_a_difference(tmp_path: Path, uninterrupted: list[dict[str, Any]]) -> None:
    """The negative control: a loop that was killed and not run again is not equal to a finished one."""
    loop(tmp_path, "with", "1:result-durable")
    cut = outside.essence(tmp_path / "runs", REF)
    assert cut != uninterrupted
    assert [line for line in cut if line["what"] == "step"] == [
        line for line in uninterrupted if line["what"] == "step"
    ][:2]
