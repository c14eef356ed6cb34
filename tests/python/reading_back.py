"""Reads an episode back as plain data, by the command: the tests of wrappers compare such records."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_NOISE = ("ref", "id", "what", "time_us", "index", "by", "writer")


@dataclass
class Record:
    """What is recorded of an episode."""

    steps: list[dict[str, Any]]
    end: dict[str, Any] | None
    others: list[dict[str, Any]]


def read(store: Any, ref: str) -> Record:
    """Reads an episode, or an attempt at it."""
    where = store if isinstance(store, str) else store.where
    command = [sys.executable, "-W", "ignore", "-m", "keepstep", "show", "-s", where, ref, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = Record([], None, [])
    for line in map(json.loads, done.stdout.splitlines()):
        what = line["what"]
        kept = {name: value for name, value in line.items() if name not in _NOISE}
        if what == "step":
            record.steps.append(kept)
        elif what == "end":
            record.end = kept
        else:
            record.others.append({"what": what, **kept})
    return record


def ending(store: Any, ref: str) -> tuple[str, Any, str]:
    """Why it ended, by which limit, and who said so."""
    end = read(store, ref).end
    assert end is not None, f"{ref} has no end"
    return end["why"], end.get("limit"), end["said_by"]
