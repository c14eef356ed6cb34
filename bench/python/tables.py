"""How many rows of a table a second are read, batch by batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import keepstep
import pyarrow
from workload import payload

STEPS_OF_AN_EPISODE = 500
# What a list says of an episode: nothing else is read for these.
LISTED = [
    "ref", "id", "run", "task", "iteration", "sample", "attempt", "state", "why", "steps", "reward", "first_time",
    "last_time",
]  # fmt: skip


def step(number: int) -> dict[str, Any]:
    """A step of about 1 KB: 900 fresh characters, and what stands around them."""
    given = payload(number)
    seen = {name: given[name] for name in ("title", "page", "url", "status", "elapsed", "tags")}
    return {"action": {"tool": "click", "x": number % 100}, "observation": seen, "reward": 0.5}


def steps_a_second(folder: Path, rows: int) -> float:
    """All columns of so many steps, in a store that is closed."""
    with keepstep.open(folder, level="kill") as store:
        for number in range(rows // STEPS_OF_AN_EPISODE):
            with store.run("bench").episode(f"t{number}") as episode:
                for at in range(STEPS_OF_AN_EPISODE):
                    episode.submit(**step(at))
                episode.end("finished")
    return rows_a_second(folder, "steps", None, rows // STEPS_OF_AN_EPISODE * STEPS_OF_AN_EPISODE)


def episodes_a_second(folder: Path, rows: int) -> float:
    """What a list says of so many episodes of one step."""
    with keepstep.open(folder, level="kill") as store:
        run = store.run("bench")
        for number in range(rows):
            with run.episode(f"t{number}") as episode:
                episode.submit(action=1, reward=0.5)
                episode.end("finished")
    return rows_a_second(folder, "episodes", LISTED, rows)


def rows_a_second(
    folder: Path, of: Literal["episodes", "steps"], columns: list[str] | None, rows: int
) -> float:
    """Of the best of three: the first one opens the files."""
    best = 0.0
    with keepstep.open(folder) as store:
        run = store.run("bench")
        for _ in range(3):
            began = time.perf_counter()
            reader = pyarrow.RecordBatchReader.from_stream(run.table(of, columns))
            assert sum(batch.num_rows for batch in reader) == rows
            best = max(best, rows / (time.perf_counter() - began))
    return best
