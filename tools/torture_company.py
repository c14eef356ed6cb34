"""The mode `company` of torture_python.py: recorders that share episodes, and everybody else who works at a store beside them.

Compactors, pruners, reapers, readers, followers with cursors and copies of the store run beside recorders whose locks slip.
All are killed at random, and some are stopped for longer than a lease. At the end nothing that was acknowledged is lost, each
end was told once, what was pruned is gone, nothing else is, and the store is whole.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from torture_company_oracle import RUNS, WASTE, Name, Oracle, read_signed, whole_lines

ROLES = Path(__file__).with_name("torture_company_roles.py")
RECORDERS = 3
TENDERS = 3
LEASE_S = 1.0
# How long somebody is stopped: longer than the lease.
STOPPED_S = (1.2, 2.0)
# With more than these something is wrong that more of them will not explain.
FAULTS_MAX = 20


class Life:
    """One process of the company, until it ends or is killed."""

    def __init__(
        self, role: str, command: list[str], chance: random.Random, kills: float, life_s: float
    ) -> None:
        self.role, self.command = role, command
        # The end of its stdin tells a follower that nobody is there any more.
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        now = time.monotonic()
        self.kill_at = now + chance.uniform(0.0, life_s) if chance.random() < kills else None
        self.stop_at = now + chance.uniform(0.0, life_s) if chance.random() < 0.15 else None
        self.go_on_at: float | None = None
        self.stopped_s = chance.uniform(*STOPPED_S)
        self.is_killed = self.was_stopped = False
        self.lines: list[bytes] = []
        self.errors = b""
        self._ears: list[threading.Thread] = []

    def listen(self, hear: Any) -> None:
        """Hears what it says until it is gone."""

        def lines() -> None:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                hear(line)

        def errors() -> None:
            assert self.process.stderr is not None
            self.errors = self.process.stderr.read()

        self._ears = [threading.Thread(target=ear) for ear in (lines, errors)]
        for ear in self._ears:
            ear.start()

    def tend(self) -> bool:
        """Stops it, lets it go on, kills it when the time has come. True if it is gone."""
        now = time.monotonic()
        if self.process.poll() is not None:
            return True
        if self.go_on_at is not None:
            if now >= self.go_on_at:
                self.process.send_signal(signal.SIGCONT)
                self.go_on_at = None
        elif self.stop_at is not None and now >= self.stop_at:
            self.process.send_signal(signal.SIGSTOP)
            self.stop_at, self.go_on_at, self.was_stopped = None, now + self.stopped_s, True
            if self.kill_at is not None:
                self.kill_at += self.stopped_s
        elif self.kill_at is not None and now >= self.kill_at:
            self.kill()
        return False

    def kill(self) -> None:
        self.is_killed |= self.process.poll() is None
        self.process.kill()

    def bury(self) -> None:
        """All that it said was heard when this returns."""
        self.process.wait()
        for ear in self._ears:
            ear.join()


class Company:
    """Starts everybody, kills them, and compares."""

    mode = "company"

    def __init__(self, store: Path, seed: int, wrong: str | None) -> None:
        self.store, self.seed, self.wrong = store, seed, wrong
        self.random = random.Random(f"{self.mode}/{seed}")
        self.oracle = Oracle(seed)
        self.kills = self.stops = self.checks = 0
        self.done: dict[str, int] = defaultdict(int)
        self.slots: dict[str, Life | None] = {f"record {number}": None for number in range(RECORDERS)}
        self.slots |= {f"follow {run}": None for run in RUNS}
        self.slots |= {f"tend {number}": None for number in range(TENDERS)}
        self.copies = 0
        self.lock = threading.Lock()

    def run(self, seconds: float) -> dict[str, Any]:
        """Torments until the time is over or something is wrong; then everything is read."""
        until = time.monotonic() + seconds
        self.store.parent.mkdir(exist_ok=True)
        try:
            while time.monotonic() < until and self.faults() < FAULTS_MAX:
                for slot in self.slots:
                    self.tend(slot)
                time.sleep(0.01)
        finally:
            for life in filter(None, self.slots.values()):
                life.kill()
                life.bury()
                self.kills += 1
        if self.wrong == "lost-segment":
            self.delete_a_segment()
        self.read_everything()
        return self.report()

    def faults(self) -> int:
        return sum(map(len, self.oracle.faults.values()))

    def tend(self, slot: str) -> None:
        life = self.slots[slot]
        if life is not None and life.tend():
            life.bury()
            self.slots[slot] = None
            self.kills += life.is_killed
            self.stops += life.was_stopped
            self.judge(life)
        elif life is None and (slot.startswith("record") or self.oracle.counts["ends"] > 5):
            self.slots[slot] = self.start(slot)

    def start(self, slot: str) -> Life:
        kind, _, of = slot.partition(" ")
        chance = self.random
        if kind == "record":
            command = ["record", str(self.store), str(self.seed), str(LEASE_S), self.wrong or "-"]
            life = Life(kind, [sys.executable, str(ROLES), *command], chance, 1.0, 6.0)
            life.listen(self.hear)
        elif kind == "follow":
            command = ["follow", str(self.store), of, str(self.told(of))]
            life = Life(kind, [sys.executable, str(ROLES), *command], chance, 1.0, 5.0)
            life.listen(lambda _: None)
        else:
            life = self.start_tender()
        return life

    def start_tender(self) -> Life:
        """Somebody who does one thing to the store, or reads it."""
        store = str(self.store)
        prune = [
            "prune",
            "-s",
            store,
            "--run",
            WASTE,
            "--ending",
            "finished",
            "--reason",
            "torture",
            "--json",
        ]
        self.copies += 1
        copy = str(self.store.with_name(f"copy-of-store-{self.copies}"))
        weights: list[tuple[int, list[str]]] = [
            (4, ["compact", store, "--grace", "0", "--json"]),
            (2, ["compact", store, "--json"]),
            (2, [*prune, "--grace", "0"]),
            (1, prune),
            (2, ["reap", store, "--lease", str(LEASE_S), "--json"]),
            (1, ["verify", store]),
            (1, ["export", "jsonl", "-s", store, "--all"]),
            (1, ["cp", "-r", store, copy]),
        ]
        (verb,) = self.random.choices([verb for _, verb in weights], [weight for weight, _ in weights])
        command = verb if verb[0] == "cp" else keepstep(*verb)
        life = Life(verb[0], command, self.random, 0.4, 1.5)
        life.listen(life.lines.append)
        return life

    def told(self, run: str) -> Path:
        """Where the follower of a run writes down what it was told."""
        return self.store.with_name(f"told-{run}")

    def hear(self, line: bytes) -> None:
        words = read_signed(line.removesuffix(b"\n"))
        if words is not None:
            with self.lock:
                self.oracle.hear(words)

    def judge(self, life: Life) -> None:
        """What somebody did who is gone now."""
        code = life.process.returncode
        if life.role == "prune":
            # What it says it has done, also if it was killed afterwards.
            self.hear_pruned(life.lines)
        if life.role == "cp":
            self.check_copy(Path(life.command[-1]))
        elif not life.is_killed:
            # `prune` exits with 1 if all that was to go is still recorded.
            is_fine = code == 0 or (life.role == "prune" and code == 1 and b"error:" not in life.errors)
            if not is_fine:
                said = life.errors.decode(errors="replace").strip()
                self.oracle.fault("errors", f"{life.role} ended with {code}: {said[-900:]}")
        if not life.is_killed:
            self.done[life.role] += 1

    def hear_pruned(self, lines: list[bytes]) -> None:
        for line in lines:
            told = json.loads(line) if line.endswith(b"\n") else {}
            if told.get("what") == "episode" and told["goes"]:
                run, _, rest = told["ref"].partition("/")
                task, _, numbers = rest.partition("#")
                with self.lock:
                    self.oracle.hear_pruned((run, task, int(numbers.partition(".")[2])))

    def check_copy(self, copy: Path) -> None:
        """A copy that was made of a store at work may lack something, and has nothing that is wrong."""
        if (copy / "keepstep.json").exists():
            found, code, said = self.read(copy)
            # A copy may hold a manifest without its segments: that is damage, and is told.
            if code not in (0, 1, 3):
                self.oracle.fault("errors", f"reading a copy ended with {code}: {said}")
            self.oracle.compare(found, is_copy=True)
            self.checks += 1
        shutil.rmtree(copy, ignore_errors=True)

    def read(self, store: Path) -> tuple[dict[Name, list[dict[str, Any]]], int, str]:
        """All steps, as a fresh process reads them."""
        command = keepstep("export", "jsonl", "-s", str(store), "--all")
        found: dict[Name, list[dict[str, Any]]] = defaultdict(list)
        done = subprocess.run(command, capture_output=True)
        for line in done.stdout.splitlines():
            step = json.loads(line)
            found[(step["run"], step["task"], step["sample"])].append(step)
        return found, done.returncode, done.stderr.decode(errors="replace")[-900:]

    def read_everything(self) -> None:
        """Compares as it stands, then with all logs regrouped, and what was told before with what is told now."""
        self.compare()
        for _ in range(2):
            self.command("compact", str(self.store), "--grace", "0")
        self.compare()

    def compare(self) -> None:
        found, code, said = self.read(self.store)
        if code != 0:
            self.oracle.fault("errors", f"reading all ended with {code}: {said}")
        self.oracle.compare(found)
        for run in RUNS:
            finished = {
                name for name, steps in found.items() if name[0] == run and steps[0]["ending"] == "finished"
            }
            from_start = self.told(run).with_suffix(".again")
            from_start.unlink(missing_ok=True)
            for written in (self.told(run), from_start):
                self.role("follow", str(self.store), run, str(written), "--until-quiet")
                told, _ = whole_lines(written)
                # Of what was pruned nobody has to be told.
                self.oracle.compare_told(run, told, finished if run != WASTE else None)
        self.command("verify", str(self.store))
        self.checks += 1

    def command(self, *verb: str) -> None:
        self._must(keepstep(*verb))

    def role(self, *role: str) -> None:
        self._must([sys.executable, str(ROLES), *role])

    def _must(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-900:]
            self.oracle.fault("errors", f"{' '.join(command[2:5])} ended with {done.returncode}: {said}")

    def delete_a_segment(self) -> None:
        """Breaks the store as a bad disk would: the largest segment is gone."""
        segments = [*self.store.glob("writers/*/*.seg"), *self.store.glob("grouped/*.seg")]
        max(segments, key=lambda segment: segment.stat().st_size).unlink()

    def report(self) -> dict[str, Any]:
        """What happened, in numbers, with the first faults of each kind."""
        faults = self.oracle.faults
        counts = {kind: len(found) for kind, found in faults.items()}
        first = [f"{kind}: {fault}" for kind, found in faults.items() for fault in sorted(found)[:3]]
        did = {"mode": self.mode, "kills": self.kills, "stops": self.stops, **self.oracle.counts}
        told = {"told": sum(len(whole_lines(self.told(run))[0]) for run in RUNS), "checks": self.checks}
        more = {"first": first} if first else {}
        episodes = {"episodes": len(self.oracle.known), "done": dict(self.done)}
        return {**did, **told, **counts, "seed": self.seed, **episodes, **more}


def keepstep(*verb: str) -> list[str]:
    return [sys.executable, "-m", "keepstep", *verb]
