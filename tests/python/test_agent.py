"""The agent that people copy: 64 tasks of 4 samples, 32 at a time, a server that fails, a judge beside it, all killed at random.

Nothing is lost or doubled, no recorded answer is asked again, every score is on its sample, and all are finished or given up
by name.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import keepstep
import pytest

pytest.importorskip("openai")

AGENT = Path(__file__).parents[2] / "examples" / "agent"
FAILING = 0.02
KILLS = 6


def start(script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-W", "ignore", str(AGENT / script), *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_the_agent_of_the_guide_is_killed_and_finishes(tmp_path: Path) -> None:
    seed = int(os.environ.get("KEEPSTEP_SEED", random.randrange(1 << 30)))
    print(f"KEEPSTEP_SEED={seed}")
    chance = random.Random(seed)
    where, told = str(tmp_path / "runs"), tmp_path / "told"
    with told.open("w") as out:
        command = [sys.executable, "-u", str(AGENT / "model.py"), "0", str(FAILING)]
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:
        while not (address := told.read_text().partition("\n")[0]):
            time.sleep(0.05)
        killed = 0
        for _ in range(KILLS):
            agent, judge = start("agent.py", where, OPENAI_BASE_URL=address), start("judge.py", where)
            time.sleep(1.5 + 2 * chance.random())
            killed += agent.poll() is None
            for process in chance.sample([agent, judge], 2):
                kill(process)
        assert killed > 1, "it was done before it could be killed"
        agent = start("agent.py", where, OPENAI_BASE_URL=address)
        judge = start("judge.py", where)
        out, _ = agent.communicate(timeout=600)
        assert agent.returncode == 0, out
        said, _ = judge.communicate(timeout=120)
        assert judge.returncode == 0, said
    finally:
        kill_server(server)
    check(where, told.read_text().splitlines()[1:])


def kill_server(server: subprocess.Popen[Any]) -> None:
    server.kill()
    server.wait()


def check(where: str, told: list[str]) -> None:
    """What is on record, against what the server says that it answered."""
    answers: dict[str, list[int]] = defaultdict(list)
    for line in told:
        asked, _, number = line.rpartition(": ")
        answers[asked].append(int(number))
    store = keepstep.open(where)
    run = store.run("agent")
    progress = run.progress()
    given_up = {each.ref for each in progress.given_up}
    assert (progress.planned, progress.left, progress.done) == (256, 0, 256), progress
    finished = list(run.episodes(ends=["finished"]))
    assert len(finished) + len(given_up) == 256
    for view in finished:
        turns = [step for step in view.steps if not step.failed]
        assert [step.index for step in turns] == list(range(len(turns))), view.ref
        assert len(turns) == 4
        for turn, step in enumerate(turns):
            said = re.fullmatch(r"answer (\d+) to (.*)", step.response["content"])
            assert said is not None
            asked = f"{view.task}, sample {view.sample}, turn {turn}"
            assert said[2] == asked, "an answer is on another sample"
            # One that was recorded and asked again would have a later answer than the one on record.
            assert int(said[1]) == max(answers[asked]), f"{asked}: {said[1]} of {answers[asked]}"
        assert view.notes["score"] == len(view.steps) / 10, view.ref
    store.close()


@pytest.mark.parametrize("program", ["agent.py", "judge.py"])
def test_the_guide_shows_the_program(program: str) -> None:
    page = (AGENT.parents[1] / "docs" / "guides" / "agent.md").read_text()
    shown = page.partition(f'```python title="{program}"\n')[2].partition("```\n")[0]
    assert shown == (AGENT / program).read_text()
