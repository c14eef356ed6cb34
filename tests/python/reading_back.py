"""Reads an episode back as plain data, by the command: the tests of wrappers compare such records."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from keepstep import _core

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
    record = Record([], None, [])
    for line in map(json.loads, _command(["keepstep", "show", "-s", where, ref, "--json"])):
        what = line["what"]
        kept = {name: value for name, value in line.items() if name not in _NOISE}
        if what == "step":
            record.steps.append(kept)
        elif what == "end":
            record.end = kept
        else:
            record.others.append({"what": what, **kept})
    return record


def _command(arguments: list[str]) -> list[str]:
    """What the command prints, in a process of its own: a forked one, to be quick."""
    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            os.dup2(printed.fileno(), 1)
            os._exit(_core.command(sys.executable, ["-m", "keepstep"], arguments))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, arguments
        printed.seek(0)
        return printed.read().splitlines()


def ending(store: Any, ref: str) -> tuple[str, Any, str]:
    """Why it ended, by which limit, and who said so."""
    end = read(store, ref).end
    assert end is not None, f"{ref} has no end"
    return end["why"], end.get("limit"), end["said_by"]
