"""Each example is killed once and run again; then all that it should record is there, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import keepstep
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# The run that each records to, and how many episodes it has at the end.
RECORDED = {
    "own_loop.py": ("guess", 3),
    "async_loop.py": ("async", 64),
    "gymnasium_env.py": ("frozen-lake", 3),
    "workers.py": ("evaluation", 32),
    "groups.py": ("training", 16),
}


def test_every_example_is_tried() -> None:
    assert sorted(RECORDED) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", RECORDED)
def test_an_example_goes_on_after_a_kill(name: str, tmp_path: Path) -> None:
    where = tmp_path / "runs"
    command = [sys.executable, "-u", "-W", "ignore", str(EXAMPLES / name), str(where)]
    # A session of its own, so that the processes that it started are killed with it.
    first = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert first.stdout is not None
    assert first.stdout.readline(), "it said nothing"
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()

    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    run, count = RECORDED[name]
    with keepstep.open(where) as store:
        views = list(store.run(run).episodes(ends=["finished"]))
        for view in views:
            assert [step.index for step in view.steps] == list(range(len(view.steps))), view.ref
    ended = Counter(view.ref for view in views)
    assert len(ended) == count and set(ended.values()) == {1}
