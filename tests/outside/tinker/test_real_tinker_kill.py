"""kill -9 in the middle of a group of the real cookbook: run again, it is the group that was never interrupted."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import keepstep
import outside
import pytest
import rollouts_to_kill
import tinker_toys as toys

SCRIPT = Path(rollouts_to_kill.__file__)


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.BaseContext:
    """Processes that need not import the cookbook again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rollouts_to_kill"])
    paths = [str(SCRIPT.parent), str(Path(toys.__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return context


def essence(store: Path, task: str) -> list[object]:
    """What the record of a group says, without who recorded it and when, and without what failed on the way."""
    refs = [f"training/{task}#0.{member}" for member in range(toys.SIZE)]
    said = [outside.essence(store, ref) for ref in refs]
    return [[line for line in lines if line["what"] in ("step", "end")] for lines in said]


@pytest.mark.parametrize("kind", ["restore", "replay", "restart"])
@pytest.mark.parametrize("seed", range(3))
def test_a_group_that_is_killed_again_and_again(
    tmp_path: Path, processes: multiprocessing.context.BaseContext, kind: str, seed: int
) -> None:
    """At random points, in mid-turn and between turns and rewards, until it comes through."""
    dice = random.Random(f"{kind} {seed}")
    store, kills = tmp_path / "runs", 0
    while True:
        # Late enough that one who begins again gets through at last.
        kill_at = dice.randint(1, 60) if kills < 5 else 0
        args = (str(store), "talk", kind, kill_at, seed + 10 * kills)
        process = processes.Process(target=rollouts_to_kill.roll_out, args=args)
        process.start()
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL), f"exit code {process.exitcode} after {kills} kills"
        if process.exitcode == 0:
            break
        kills += 1
    assert kills > 0
    with keepstep.open(store) as opened:
        toys.check_record(opened.run("training"), "talk")
    other = processes.Process(
        target=rollouts_to_kill.roll_out, args=(str(tmp_path / "other"), "talk", kind, 0, 99)
    )
    other.start()
    other.join(120)
    assert essence(store, "talk") == essence(tmp_path / "other", "talk")


@pytest.mark.parametrize("kill_at", [7, 50, 88])
def test_the_script_is_run_again(tmp_path: Path, kill_at: int) -> None:
    """88: all members are over, and their rewards are being asked for."""
    store = tmp_path / "runs"
    outside.run(SCRIPT, store, "talk", "restore", kill_at, 1, code=outside.KILLED, timeout_s=180)
    with keepstep.open(store) as opened:
        assert list(opened.run("training").groups()) == []
    outside.run(SCRIPT, store, "talk", "restore", 0, 2, timeout_s=180)
    with keepstep.open(store) as opened:
        toys.check_record(opened.run("training"), "talk")
