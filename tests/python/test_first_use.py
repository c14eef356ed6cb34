"""What somebody met who used the wheel for the first time: pages that did not do what they say, and messages that did not help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import keepstep
import pytest
from docs_pages import blocks_of

ROOT = Path(__file__).parents[2]


def test_the_loop_over_seeds_of_the_page_is_done_once(tmp_path: Path) -> None:
    """An episode that the loop left by its own limit was `aborted`, and ran again with every run of the program."""
    pytest.importorskip("gymnasium")
    blocks = [block.code for block in blocks_of((ROOT / "docs/guides/gymnasium.md").read_text())]
    (loop,) = (code for code in blocks if "lake-seeds" in code)
    begin = 'import gymnasium, keepstep\nrun = keepstep.open("seeds").run("r")\n'
    tell = "print([(view.state, view.attempt, len(view.steps)) for view in run.episodes()])\n"
    program = tmp_path / "seeds.py"
    program.write_text(begin + loop + tell)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    printed = []
    for _ in range(3):
        command = [sys.executable, str(program)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1] == printed[2]
    assert "aborted" not in printed[0]


def test_a_reward_under_another_name_is_told_the_refs_of_the_group(tmp_path: Path) -> None:
    run = keepstep.open(tmp_path / "runs").run("r")
    group = run.group("shop", size=2)
    for wrong in ("g0", "r/shop#0.x"):
        with pytest.raises(
            (keepstep.NotFound, keepstep.BadInput),
            match=r"the refs of the group are group\.refs: 'r/shop#0\.0'",
        ):
            group.seal({wrong: 1.0}, source="judge")


def test_a_wrong_ref_reads_as_a_sentence(tmp_path: Path) -> None:
    store = keepstep.open(tmp_path / "runs")
    with pytest.raises(
        keepstep.BadInput, match=r'^ref is not valid: the iteration of "shop/t1#x" is not a number'
    ):
        store.find("shop/t1#x")


def test_a_bucket_is_told_to_come_later() -> None:
    with pytest.raises(keepstep.BadInput, match="not supported yet: give a local directory") as told:
        keepstep.open("s3://bucket/runs")
    assert "./s3:" not in str(told.value)


def test_anybody_seals_and_the_first_seal_counts(tmp_path: Path) -> None:
    """A judge that was killed seals again, others may try at any time, and what has not ended yet is told, and passes."""
    stores = [keepstep.open(tmp_path / "runs") for _ in range(2)]
    one, two = (store.run("r") for store in stores)
    group = one.group("shop", size=2)
    rewards = dict(zip(group.refs, (1.0, -1.0), strict=True))
    with group.claim() as episode:  # type: ignore[union-attr]
        episode.step(action=1)
        episode.end("finished")
    with pytest.raises(keepstep.BadInput, match="the episode has not ended for good"):
        two.group("shop", size=2).seal(rewards, source="judge")
    with group.claim() as episode:  # type: ignore[union-attr]
        episode.step(action=1)
        episode.end("finished")
    one.store.close()
    for run in (two, keepstep.open(tmp_path / "runs").run("r"), two):
        run.group("shop", size=2).seal(rewards, source="judge").wait()
    with pytest.raises(keepstep.Ended, match="these differ: reward of"):
        two.group("shop", size=2).seal({ref: 0.0 for ref in group.refs}, source="judge")
    assert [sealed.rewards for sealed in two.groups()] == [(1.0, -1.0)]
