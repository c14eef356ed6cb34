"""An agent server of the real NeMo Gym is killed in mid-rollout, again and again; and its own rollout files."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docs_pages
import keepstep
import outside
import pytest
import resources_servers
from keepstep.adapters.nemo_gym import RolloutName, read_rollouts, write_rollouts

SERVER = Path(__file__).parent / "nemo_server.py"
BODY = {
    "responses_create_params": {"input": [{"role": "user", "content": "count to ten"}]},
    "expected_count": 10,
    "_ng_task_index": 7,
    "_ng_rollout_index": 0,
}
POINTS = {
    "export/restore": ["asking 0", "acting 1", "acted 1", "asking 3", "acted 3", "verifying", "answering"],
    "restart-only": ["acting 1", "acted 3", "verifying"],
    "stateless": ["acting 0", "asking 2", "acted 3", "verifying"],
}


def ask(port: int) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/run", json.dumps(BODY).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


class Nursery:
    """Starts servers, one at a time, in processes of their own."""

    def __init__(self) -> None:
        self.process = outside.start(SERVER)
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1][-3000:]
        return line.strip()

    def start(self, store: Path, environment: str, point: str | None) -> tuple[int, int]:
        """The process and port of a server."""
        assert self.process.stdin is not None
        asked = {"store": str(store), "environment": environment, "point": point}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.line())
        return told["pid"], told["port"]

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert json.loads(self.line()) == {"died": outside.KILLED}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.process.communicate(timeout=30)


def answer_of(nursery: Nursery, store: Path, environment: str) -> dict[str, Any]:
    """What a server answers that nobody stops."""
    pid, port = nursery.start(store, environment, None)
    try:
        return ask(port)
    finally:
        nursery.kill(pid)


def killed_at(nursery: Nursery, store: Path, environment: str, point: str) -> None:
    """Starts a server, sends the request, and kills it where it says that it is at the point."""
    pid, port = nursery.start(store, environment, point)

    def send() -> None:
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            ask(port)

    sent = threading.Thread(target=send)
    sent.start()
    assert nursery.line() == f"at {point}"
    nursery.kill(pid)
    sent.join()


@pytest.mark.parametrize("environment", POINTS)
def test_a_server_that_is_killed_again_and_again_finishes_as_if_nobody_had(
    nursery: Nursery, tmp_path: Path, environment: str
) -> None:
    """The environment dies with the server; the real verifier counts, so a call that were lost or doubled would show."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    answer = answer_of(nursery, whole, environment)
    for point in POINTS[environment]:
        killed_at(nursery, broken, environment, point)
    assert answer_of(nursery, broken, environment) == answer
    assert answer["reward"] == (0.0 if environment == "stateless" else 1.0)
    assert outside.essence(broken, "rollouts/7") == outside.essence(whole, "rollouts/7")
    with keepstep.open(broken) as store:
        attempts = store.find("rollouts/7").attempts()
    # The last one was finished by the time it was killed, if it was answering.
    ends = ["crashed"] * (len(POINTS[environment]) - ("answering" in POINTS[environment])) + ["finished"]
    assert [view.ending.why for view in attempts if view.ending] == ends


def its_own_files() -> list[Path]:
    root = Path(next(iter(resources_servers.__path__)))
    found = sorted(
        path for path in root.glob("*/data/example_rollouts.jsonl") if path.stat().st_size < 400_000
    )
    return [path for path in found if not path.read_text().startswith("<PLACEHOLDER")]


def test_its_own_rollout_files_are_read_and_written_as_they_were(tmp_path: Path) -> None:
    files = its_own_files()
    assert len(files) > 20
    rows = 0
    with keepstep.open(tmp_path / "store") as store:
        for number, path in enumerate(files):
            rows_of_file = map(json.loads, filter(str.strip, path.read_text().splitlines()))
            # One of the files says a rollout twice; rows without a name are told apart by their place.
            given = list(
                {RolloutName.of(row) or place: row for place, row in enumerate(rows_of_file)}.values()
            )
            if not all("response" in row and "reward" in row for row in given):
                continue
            run = store.run(f"{number} {path.parent.parent.name}")
            assert read_rollouts(path, run) == len(given), path
            written = write_rollouts(run, tmp_path / "written.jsonl")
            assert (written.rows, written.left_out) == (len(given), {}), path
            found = [json.loads(line) for line in (tmp_path / "written.jsonl").read_text().splitlines()]
            assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, given)), path
            rows += written.rows
    assert rows > 100


def test_the_guide_works_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "guides" / "nemo-gym.md"
    here = re.sub(r"<!-- not run: needs NeMo Gym;[^\n]*-->\n", "", page.read_text())
    assert docs_pages.run_page(here, page.name, tmp_path) == 3
