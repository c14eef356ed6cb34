"""A sample of `make torture-python`, and its negative controls: what it is to notice, it notices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import outside
import pytest

TORTURE = Path(__file__).parents[2] / "tools" / "torture_python.py"


def torture(folder: Path, mode: str, seconds: float, *more: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, str(TORTURE), "--modes", mode, "--seconds", str(seconds), "--dir", str(folder)]
    done = subprocess.run([*command, *more], text=True, capture_output=True, env=outside.environment())
    assert done.stdout, done.stderr
    print(done.stdout, done.stderr)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["threads", "tasks", "fork", "spawn"])
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path, mode: str) -> None:
    """A few kills at random: 0 lost, 0 torn, 0 doubled. The seed is in what is printed when it fails."""
    code, report = torture(tmp_path, mode, 3)
    assert (report["lost"], report["torn"], report["doubled"], code) == (0, 0, 0, 0), report
    assert report["kills"] >= 1
    assert report["acked"] > 0


def test_nothing_is_lost_or_told_twice_in_company(tmp_path: Path) -> None:
    """Compactors, pruners, reapers, followers and copies beside recorders whose locks slip, all killed at random."""
    code, report = torture(tmp_path, "company", 15)
    assert (code, [report[kind] for kind in company_oracle().KINDS]) == (0, [0] * 7), report
    assert report["kills"] >= 1
    assert report["acked"] > 0


@pytest.mark.parametrize("wrong", ["early-ack", "lost-segment"])
def test_a_broken_promise_is_noticed_in_company(tmp_path: Path, wrong: str) -> None:
    """The negative controls of the same."""
    code, report = torture(tmp_path, "company", 10, "--break", wrong)
    assert report["lost"] > 0, report
    assert code == 1


def company_oracle() -> Any:
    sys.path.insert(0, str(TORTURE.parent))
    try:
        import torture_company_oracle
    finally:
        sys.path.remove(str(TORTURE.parent))
    return torture_company_oracle


def test_the_oracle_of_a_company_notices_each_fault() -> None:
    """What no store should ever show is shown to the oracle: a step that was recorded again, an end that was told twice, …"""
    oracle = company_oracle()
    name = ("keep", "t", 0)
    steps = [
        {
            "index": at,
            "action": at,
            "observation": oracle.observation_of(7, name, at),
            "info": {"mark": f"a.{at}"},
            "ending": "finished",
        }
        for at in range(3)
    ]
    told = [["t", "0", "1", "finished", "cursor"]]
    cases: dict[str, tuple[list[dict[str, Any]], list[list[str]]]] = {
        "": (steps, told),
        "lost": (steps[:2], told),
        "lost again": ([*steps[:2], {**steps[2], "info": {"mark": "b.2"}}], told),
        "torn": ([*steps[:2], {**steps[2], "observation": "else"}], told),
        "doubled": ([*steps, steps[2]], told),
        "told_twice": (steps, [*told, *told]),
        "told_twice in another attempt": (steps, [*told, ["t", "0", "2", "finished", "cursor"]]),
        "never_told": (steps, []),
    }
    for kind, (found, events) in cases.items():
        it = oracle.Oracle(7)
        for at in range(3):
            it.hear(["step", *map(str, name), "1", str(at), f"a.{at}"])
        it.hear(["ends", *map(str, name), "1", "finished"])
        it.hear(["ended", *map(str, name), "1", "finished"])
        it.compare({name: found})
        it.compare_told("keep", events, {name})
        assert {fault for fault, those in it.faults.items() if those} == set(kind.split(" ")[:1]) - {""}, kind
    it.hear_pruned(name)
    it.compare({name: steps})
    assert it.faults["lost"] and it.faults["not_pruned"]


@pytest.mark.parametrize("wrong", ["early-ack", "lost-segment"])
def test_a_broken_promise_is_noticed(tmp_path: Path, wrong: str) -> None:
    """The negative controls: an acknowledgement before the receipt, and a segment that is gone."""
    code, report = torture(tmp_path, "threads", 30, "--break", wrong)
    assert report["lost"] > 0
    assert code == 1


def test_torn_and_doubled_steps_are_noticed() -> None:
    """The same for what no kill should ever leave: the oracle is shown such records."""
    sys.path.insert(0, str(TORTURE.parent))
    try:
        import torture_python as tormentor
    finally:
        sys.path.remove(str(TORTURE.parent))
    right: list[dict[str, Any]] = [
        {"index": at, "action": at, "observation": tormentor.observation_of(7, "t", 0, at), "ending": "x"}
        for at in range(3)
    ]
    for kind, steps in {
        "torn": [right[0], {**right[1], "observation": right[1]["observation"][:-1]}, right[2]],
        "doubled": [right[0], right[0], right[1], right[2]],
        "lost": right[:2],
        None: right,
    }.items():
        oracle = tormentor.Oracle(7)
        oracle.hear("t", 0, 2)
        oracle.compare({("t", 0)}, {("t", 0): steps})
        noticed = {name for name, found in oracle.faults.items() if found}
        assert noticed == ({kind} if kind else set())
