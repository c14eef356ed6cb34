"""What recorders, pruners and followers said of a store, and what is wrong with what is read from it.

Shares nothing with keepstep: a step holds what follows from its name and the seed, and a mark of whoever recorded it, so that
one that was lost and recorded again is told from the one that was acknowledged.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Episodes of the first stay; those of the second may be pruned once they finished.
KEEP, WASTE = "keep", "waste"
RUNS = (KEEP, WASTE)
KINDS = ("lost", "torn", "doubled", "told_twice", "never_told", "not_pruned", "errors")

Name = tuple[str, str, int]


def observation_of(seed: int, name: Name, index: int) -> str:
    """What a step must hold: a text that its episode shares with others, and one of its own."""
    run, task, sample = name
    shared = random.Random(f"{seed}/{run}/{task}/{index % 3}").choices("abcdefgh ", k=700)
    source = random.Random(f"{seed}/{run}/{task}/{sample}/{index}")
    own = source.choices("abcdefgh ", k=source.choice((1, 40, 300, 2_000)))
    return "".join(shared + own) + f" {index}"


def steps_of(seed: int, name: Name) -> int:
    """How many steps an episode has when it is finished."""
    return random.Random(f"{seed}/{name}/steps").randrange(2, 25)


def signed(*words: object) -> bytes:
    """A line that a kill cannot cut unnoticed."""
    text = " ".join(str(word) for word in words)
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def read_signed(line: bytes) -> list[str] | None:
    """The words of a line; None if it was cut."""
    text, _, check = line.decode(errors="replace").rpartition(" ")
    return text.split(" ") if check == f"{zlib.crc32(text.encode()):08x}" else None


def whole_lines(path: Path) -> tuple[list[list[str]], int]:
    """The lines of a file that were written whole, and how many bytes they are."""
    lines, length = [], 0
    data = path.read_bytes() if path.exists() else b""
    for line in data.splitlines(keepends=True):
        words = read_signed(line.removesuffix(b"\n")) if line.endswith(b"\n") else None
        if words is None:
            break
        lines.append(words)
        length += len(line)
    return lines, length


@dataclass
class Known:
    """What was said of one episode."""

    # Whose mark each acknowledged step has.
    acked: dict[int, str] = field(default_factory=dict)
    # Ends that were acknowledged, by attempt.
    ended: dict[int, str] = field(default_factory=dict)
    # Somebody was about to say that it finished: from here on it may be pruned, if it is waste.
    may_finish: bool = False
    is_pruned: bool = False


class Oracle:
    """Hears what was promised, and compares it with what is read."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.known: dict[Name, Known] = defaultdict(Known)
        self.faults: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self.counts = {"acked": 0, "ends": 0, "pruned": 0, "fenced": 0}

    def fault(self, kind: str, what: str) -> None:
        self.faults[kind].add(what)

    def hear(self, words: list[str]) -> None:
        """A line of a recorder."""
        kind, *rest = words
        if kind == "fenced":
            self.counts["fenced"] += 1
            return
        run, task, sample, attempt, *said = rest
        known = self.known[(run, task, int(sample))]
        if kind == "step":
            self.counts["acked"] += 1
            known.acked[int(said[0])] = said[1]
        elif kind == "ends":
            known.may_finish |= said[0] == "finished"
        elif kind == "ended":
            self.counts["ends"] += 1
            known.ended[int(attempt)] = said[0]
        else:
            raise AssertionError(f"a recorder said {words}")

    def hear_pruned(self, name: Name) -> None:
        """A pruner said that it deleted an episode."""
        self.counts["pruned"] += 1
        if name[0] != WASTE:
            self.fault("lost", f"{name}: pruned, and nobody asked for it")
        self.known[name].is_pruned = True

    def compare(self, found: dict[Name, list[dict[str, Any]]], is_copy: bool = False) -> None:
        """Adds what is wrong with the steps that were read: of a copy, which may lack some, only with those that are there."""
        for name, steps in found.items():
            for place, step in enumerate(steps):
                if is_copy and (step.get("damaged") or step["index"] > place):
                    # It lacks something from here on, and says so.
                    break
                self._compare_step(name, place, step)
        for name in [] if is_copy else sorted(self.known):
            self._compare_episode(name, self.known[name], found.get(name, []))

    def _compare_step(self, name: Name, place: int, step: dict[str, Any]) -> None:
        index = step["index"]
        if index != place or step.get("action") != place:
            self.fault("doubled", f"{name}: step {index}, action {step.get('action')}, at {place}")
        elif step.get("observation") != observation_of(self.seed, name, index):
            self.fault("torn", f"{name}: step {index}")

    def _compare_episode(self, name: Name, known: Known, steps: list[dict[str, Any]]) -> None:
        if known.is_pruned:
            if steps:
                self.fault("not_pruned", f"{name}: {len(steps)} steps are still there")
            return
        if not steps and name[0] == WASTE and known.may_finish:
            # Pruned by somebody who was killed before it could say so.
            return
        marks = {step["index"]: (step.get("info") or {}).get("mark") for step in steps}
        for index, mark in known.acked.items():
            if marks.get(index) != mark:
                self.fault(
                    "lost", f"{name}: step {index} was acknowledged to {mark}, and is {marks.get(index)}"
                )
        ending = steps[0]["ending"] if steps else None
        if "finished" in known.ended.values() and ending != "finished":
            self.fault("lost", f"{name}: its end, which is {ending}")

    def compare_told(self, run: str, told: Iterable[list[str]], finished: set[Name] | None) -> None:
        """Adds what is wrong with what a follower was told; with what finished, also with what it was not told."""
        seen: dict[tuple[Name, int], str] = {}
        for task, sample, attempt, why, *_ in told:
            event = ((run, task, int(sample)), int(attempt))
            if event in seen:
                self.fault("told_twice", f"{event}: {seen[event]}, {why}")
            seen[event] = why
        if finished is None:
            return
        for name, known in self.known.items():
            missing = {(name, attempt) for attempt in known.ended} - set(seen) if name[0] == run else ()
            for event in missing:
                self.fault("never_told", f"{event}: {known.ended[event[1]]}, which was acknowledged")
        said = [name for (name, _), why in seen.items() if why == "finished"]
        for name in finished - set(said):
            self.fault("never_told", f"{name}: finished")
        for name in {name for name in said if said.count(name) > 1} if len(said) > len(set(said)) else ():
            self.fault("told_twice", f"{name}: finished in several attempts")
        for name in set(said) - finished:
            self.fault("lost", f"{name}: was told as finished, and is not")
