"""What stands around a recorder: second handles, copies of the store, `compact`, `prune` and `reap` by others.

Whatever they believe of it, nothing that it was acknowledged is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import keepstep
import pytest
import store_files


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "keepstep", *words], capture_output=True, text=True, timeout=300
    )


def read_elsewhere(store: Path) -> dict[str, object]:
    """The one episode, as another process reads it."""
    listed = command("ls", str(store), "run", "--json")
    assert listed.returncode == 0, listed.stderr
    return json.loads(listed.stdout.splitlines()[0])


def slip_by_second_handle(path: Path) -> None:
    other = keepstep.open(path).run("run")
    with pytest.raises(keepstep.Busy, match="process"):
        other.episode("task").step(action=-1)


def slip_by_copy(path: Path) -> None:
    store_files.copy(path, path.with_name("copy"))


def slip_by_reading(path: Path) -> None:
    store = keepstep.open(path)
    assert len(list(store.run("run").episodes())) == 1


@pytest.mark.parametrize("slip", [slip_by_second_handle, slip_by_copy, slip_by_reading])
@pytest.mark.parametrize("act", [("compact", "{}"), ("compact", "{}", "--grace", "0"), ("reap", "{}")])
def test_a_recorder_that_seems_dead_loses_nothing(tmp_path, slip, act):
    """Five steps, one `Busy`, `compact`, five more and the end: another process read five, `interrupted`."""
    path = tmp_path / "runs"
    run = keepstep.open(path).run("run")
    episode = run.episode("task")
    done = 0
    for _ in range(5):
        episode.step(action=done)
        done += 1
    slip(path)
    acted = command(*(word.format(path) for word in act))
    assert acted.returncode == 0, acted.stderr
    refused = 0
    while done < 10:
        try:
            episode.step(action=done)
            done += 1
        except keepstep.Fenced:
            refused += 1
            episode = run.episode("task", busy="take")
            assert [step.action for step in episode.history] == list(range(done))
    episode.end("finished").wait()
    assert refused <= 1
    found = read_elsewhere(path)
    assert (found["steps"], found["state"]) == (10, "finished"), found
    assert command("verify", str(path)).returncode == 0


def test_a_second_handle_does_not_cost_the_lock(tmp_path):
    """`Busy` described the owner by reading its lock file, and closing that freed the lock."""
    path = tmp_path / "runs"
    episode = keepstep.open(path).run("run").episode("task")
    episode.step(action=0)
    slip_by_second_handle(path)
    left = command("compact", str(path), "--json")
    assert json.loads(left.stdout.splitlines()[-1])["logs"] == 0, left.stdout
    episode.step(action=1)


def test_a_crash_loop_leaves_what_it_recorded(tmp_path):
    """One episode resumed 300 times left 44,850 letters: each resume wrote to all who ever had it."""
    path = tmp_path / "runs"
    loop = (
        "import keepstep, os, sys\n"
        "run = keepstep.open(sys.argv[1]).run('run')\n"
        "episode = run.episode('task')\n"
        "episode.step(action=len(episode.history))\n"
        "os._exit(9)\n"
    )
    times = 40
    for _ in range(times):
        assert subprocess.run([sys.executable, "-c", loop, str(path)], timeout=60).returncode == 9
    letters = [each for each in (path / "mail").rglob("*") if each.is_file()]
    assert len(letters) <= 2 * times, len(letters)
    bases = sum(each.stat().st_size for each in (path / "claims").rglob("*.base"))
    assert bases < 40_000, bases
    episode = keepstep.open(path).run("run").episode("task")
    assert [step.action for step in episode.history] == list(range(times))
