"""Memory does not grow with the length of an episode."""

from __future__ import annotations

import shutil
from pathlib import Path

import outside
import pytest

STEPS = r"""
    import os, re, sys
    import keepstep

    count, kind, how = int(sys.argv[2]), sys.argv[3], sys.argv[4]
    size = 200_000

    def observation():
        return os.urandom(size) if kind == "bytes" else os.urandom(size // 2).hex()

    with keepstep.open(sys.argv[1]).run("memory").episode("long") as episode:
        receipts = []
        for number in range(count):
            if how == "step":
                episode.step(action=number, observation=observation())
                continue
            while True:
                try:
                    receipts.append(episode.submit(action=number, observation=observation()))
                    break
                except keepstep.Busy:
                    receipts.pop(0).wait()
            receipts = receipts[-1000:]
        episode.end("finished").wait()
        assert episode.turns == count
    # Not getrusage: its peak is also that of the process which started this one, before it became this one.
    print(int(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""
BOUND_MB = 300


def peak_mb(folder: Path, count: int, kind: str, how: str) -> int:
    """The most memory that a process needed to record so many steps of 200 KB."""
    try:
        return int(outside.run(STEPS, folder / "runs", count, kind, how, timeout_s=1800))
    finally:
        shutil.rmtree(folder / "runs", ignore_errors=True)


@pytest.mark.parametrize("how", ["step", "submit"])
def test_a_long_episode_stays_small(tmp_path: Path, how: str) -> None:
    """2,000 steps of 200 KB are more than the bound; the process stays far below."""
    assert peak_mb(tmp_path, 2_000, "bytes", how) < BOUND_MB


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", "str"])
def test_an_episode_of_10_000_steps_stays_small(tmp_path: Path, kind: str) -> None:
    """2 GB of observations, in less than 300 MB."""
    assert peak_mb(tmp_path, 10_000, kind, "step") < BOUND_MB
