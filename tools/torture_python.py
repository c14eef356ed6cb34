"""Kills Python recorders with -9 at random, and compares what a fresh process reads with what was acknowledged.

usage: torture_python.py [--seconds 60] [--modes threads,tasks,fork,spawn,company] [--seed N] [--dir DIR] [--keep]
                         [--break early-ack|lost-segment]

The oracle is outside: recorders write each acknowledgement to a pipe, the tormentor reads it, and the `keepstep` command,
which shares nothing with them, reads the store. What a step holds follows from its name and the seed, so that a torn or
misplaced one is noticed. Prints a line of JSON for each mode; exits with 1 if anything was lost, torn or doubled.
`--break` is the negative control: the run must fail. The mode `company` is in torture_company.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODES = ("threads", "tasks", "fork", "spawn", "company")
RECORDER = Path(__file__).with_name("torture_recorder.py")
RUN = "torture"
# A recorder is killed this long after its first acknowledgement.
LIFE_S = (0.05, 1.5)

# What no report may have any of.
FAULTS = ("lost", "torn", "doubled", "told_twice", "never_told", "not_pruned", "errors")

Name = tuple[str, int]


def observation_of(seed: int, task: str, sample: int, index: int) -> str:
    """What a step must hold: another for every step, of any length, some of them compressible."""
    source = random.Random(f"{seed}/{task}/{sample}/{index}")
    length = source.choice((1, 40, 300, 2_000, 9_000))
    return "".join(source.choices("abcdefgh ", k=length)) + f" {index}"


def acknowledgement(task: str, sample: int, index: int) -> bytes:
    """A line for the pipe. Short enough to be written whole or not at all."""
    line = f"{task} {sample} {index}"
    return f"{line} {zlib.crc32(line.encode()):08x}\n".encode()


def parse_acknowledgement(line: bytes) -> tuple[str, int, int] | None:
    """What a line says; None if it was cut by the kill."""
    text, _, check = line.decode().rpartition(" ")
    if check != f"{zlib.crc32(text.encode()):08x}":
        return None
    task, sample, index = text.split(" ")
    return task, int(sample), int(index)


class Oracle:
    """How many steps of each episode were acknowledged, and which ended; what is wrong with what was read."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.acked: dict[Name, int] = defaultdict(int)
        self.ended: set[Name] = set()
        self.count = 0
        self.faults: dict[str, set[str]] = {"lost": set(), "torn": set(), "doubled": set()}

    def hear(self, task: str, sample: int, index: int) -> Name:
        """An acknowledgement covers all earlier steps too. -1 is the end of the episode."""
        name = (task, sample)
        self.count += 1
        if index < 0:
            self.ended.add(name)
        else:
            self.acked[name] = max(self.acked[name], index + 1)
        return name

    def compare(self, names: set[Name], found: dict[Name, list[dict[str, Any]]]) -> None:
        """Adds what is wrong with these episodes."""
        for name in sorted(names):
            steps = found.get(name, [])
            if len({step["index"] for step in steps}) < self.acked[name]:
                self.faults["lost"].add(f"{name}: {len(steps)} of {self.acked[name]} acknowledged steps")
            if name in self.ended and (not steps or steps[0]["ending"] != "finished"):
                self.faults["lost"].add(f"{name}: its end")
            for place, step in enumerate(steps):
                self._compare_step(name, place, step)

    def _compare_step(self, name: Name, place: int, step: dict[str, Any]) -> None:
        index = step["index"]
        if index != place or step.get("action") != place:
            self.faults["doubled"].add(f"{name}: step {index}, action {step.get('action')}, at {place}")
        elif step.get("observation") != observation_of(self.seed, *name, index):
            self.faults["torn"].add(f"{name}: step {index}")


class Tormentor:
    """Starts recorders of one mode, kills them, and compares."""

    def __init__(self, mode: str, store: Path, seed: int, wrong: str | None) -> None:
        self.mode, self.store, self.seed, self.wrong = mode, store, seed, wrong
        self.random = random.Random(f"{mode}/{seed}")
        self.oracle = Oracle(seed)
        self.kills = 0

    def run(self, seconds: float) -> dict[str, Any]:
        """Torments until the time is over or something is wrong; then reads everything once more."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(self.oracle.faults.values()):
            touched = self.torment()
            if self.wrong == "lost-segment":
                self.delete_a_segment()
            self.oracle.compare(touched, self.read(touched))
        self.oracle.compare(set(self.oracle.acked) | self.oracle.ended, self.read(None))
        return self.report()

    def torment(self) -> set[Name]:
        """One recorder's life. The episodes that it acknowledged something of."""
        command = [sys.executable, str(RECORDER), self.mode, str(self.store), str(self.seed)]
        command.append(self.wrong or "-")
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as recorder:
            try:
                return self.listen_and_kill(recorder)
            finally:
                kill(-recorder.pid)

    def listen_and_kill(self, recorder: subprocess.Popen[bytes]) -> set[Name]:
        assert recorder.stdout is not None
        touched: set[Name] = set()
        workers: list[int] = []
        is_killed = False
        deadline = Deadline()
        for line in lines_of(recorder.stdout.fileno(), deadline):
            if line is None:
                # A worker alone at first, sometimes; then all that are left.
                if workers and self.random.random() < 0.7:
                    self.kills += kill(workers.pop(self.random.randrange(len(workers))))
                    deadline.set(self.random.uniform(0.02, 0.3))
                    continue
                self.kills += kill(-recorder.pid)
                is_killed = True
                deadline.at = None
            elif line.startswith(b"worker "):
                workers.append(int(line.split()[1]))
            elif (said := parse_acknowledgement(line)) is not None:
                touched.add(self.oracle.hear(*said))
                if deadline.at is None and not is_killed:
                    deadline.set(self.random.uniform(*LIFE_S))
        recorder.wait()
        if not is_killed:
            raise SystemExit(f"error: a recorder of {self.mode} ended by itself, with {recorder.returncode}")
        return touched

    def delete_a_segment(self) -> None:
        """Breaks the store as a bad disk would: the largest segment is gone."""
        segments = self.store.glob("writers/*/*.seg")
        max(segments, key=lambda segment: segment.stat().st_size).unlink()

    def read(self, names: set[Name] | None) -> dict[Name, list[dict[str, Any]]]:
        """The steps of episodes, or of all, as a fresh process reads them."""
        refs = [RUN] if names is None else [f"{RUN}/{task}#0.{sample}" for task, sample in sorted(names)]
        command = [sys.executable, "-m", "keepstep", "export", "jsonl", "-s", str(self.store), *refs]
        found: dict[Name, list[dict[str, Any]]] = defaultdict(list)
        if names is not None and not names:
            return found
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            for line in reader.stdout:
                step = json.loads(line)
                found[(step["task"], step["sample"])].append(step)
        # 3 says that data was lost: then it is counted here.
        if reader.returncode not in (0, 3) and self.wrong is None:
            raise SystemExit(f"error: {' '.join(command[:6])} failed with {reader.returncode}")
        return found

    def report(self) -> dict[str, Any]:
        """What happened, in numbers, with the first faults of each kind."""
        faults = self.oracle.faults
        counts = {kind: len(found) for kind, found in faults.items()}
        first = [f"{kind}: {fault}" for kind, found in faults.items() for fault in sorted(found)[:3]]
        did = {"mode": self.mode, "kills": self.kills, "acked": self.oracle.count}
        more = {"first": first} if first else {}
        return {**did, **counts, "seed": self.seed, "episodes": len(self.oracle.acked), **more}


def kill(pid: int) -> int:
    """Kills a process of ours, or, with a negative number, its whole session. How many kills that was."""
    try:
        if pid < 0:
            os.killpg(-pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


class Deadline:
    """When somebody is killed next, if that is known."""

    at: float | None = None

    def set(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left_s(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - time.monotonic())


def lines_of(pipe: int, deadline: Deadline) -> Iterator[bytes | None]:
    """Lines from a pipe until nobody can write to it any more; None each time that the deadline passes."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(deadline.left_s()):
                yield None
                continue
            data = os.read(pipe, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from lines


def tormentor(mode: str, folder: Path, seed: int, wrong: str | None) -> Any:
    """Whoever torments in this mode."""
    if mode == "company":
        from torture_company import Company

        return Company(folder / "store", seed, wrong)
    return Tormentor(mode, folder, seed, wrong)


def main() -> int:
    """Torments each mode in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each mode")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seed", type=int, default=os.environ.get("KEEPSTEP_SEED"), help="of an earlier run")
    parser.add_argument("--dir", type=Path, default=None, help="where the stores go; a temporary folder")
    parser.add_argument("--keep", action="store_true", help="keep the stores")
    parser.add_argument("--break", dest="wrong", choices=("early-ack", "lost-segment"))
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=given.dir))
    is_whole = True
    try:
        for mode in given.modes.split(","):
            report = tormentor(mode, folder / mode, seed, given.wrong).run(given.seconds)
            print(json.dumps(report), flush=True)
            is_whole &= not any(report.get(fault) for fault in FAULTS) and report["kills"] > 0
            if not given.keep:
                shutil.rmtree(folder / mode, ignore_errors=True)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
