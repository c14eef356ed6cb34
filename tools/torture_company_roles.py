"""Processes that torture_company.py kills and stops: recorders that share episodes, and followers with cursors.

usage: torture_company_roles.py record STORE SEED LEASE_S BREAK
       torture_company_roles.py follow STORE RUN FILE [--until-quiet]

A recorder says on stdout what was acknowledged to it, before it does anything else. A follower writes each event down with
its cursor, as one line; whoever comes after it goes on from the last whole line.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="this keepstep is a debug build")

import keepstep  # noqa: E402
from torture_company_oracle import (  # noqa: E402
    KEEP,
    RUNS,
    WASTE,
    Name,
    observation_of,
    signed,
    steps_of,
    whole_lines,
)

THREADS = 4
# All recorders work at the same tasks, so that they meet.
TASKS = 6
OUT = 1


def say(*words: object) -> None:
    os.write(OUT, signed(*words))


class Worker:
    """A thread that records whichever episode is free."""

    def __init__(self, store: keepstep.Store, seed: int, number: int, is_early: bool) -> None:
        self.store, self.seed, self.is_early = store, seed, is_early
        self.runs = {name: store.run(name) for name in RUNS}
        self.random = random.Random(f"{seed}/{os.getpid()}/{number}")
        self.me, self.steps = f"{os.getpid()}.{number}", 0
        # Samples before these are over.
        self.next = {(run, f"task-{task}"): 0 for run in RUNS for task in range(TASKS)}

    def work(self) -> None:
        while True:
            run = WASTE if self.random.random() < 0.3 else KEEP
            task = f"task-{self.random.randrange(TASKS)}"
            name = (run, task, self.next[run, task])
            try:
                self.record(name)
            except (keepstep.Ended, keepstep.NotFound):
                # It is over, or was pruned.
                self.next[run, task] += 1
            except keepstep.Busy:
                time.sleep(0.02)
            except keepstep.Fenced:
                # Taken over, or our log was closed: it can be opened again at once.
                say("fenced")
            if self.random.random() < 0.1:
                self.slip()

    def record(self, name: Name) -> None:
        run, task, sample = name
        busy = "take" if self.random.random() < 0.1 else "raise"
        leaves_at = self.random.randrange(1, 20)
        with self.runs[run].episode(task, sample=sample, busy=busy) as episode:
            for done in range(1000):
                if episode.turns >= steps_of(self.seed, name):
                    why = "finished"
                    break
                if done == leaves_at:
                    # It is gone on with later, by whoever comes first.
                    why = self.random.choice(("aborted", "errored"))
                    break
                self.step(name, episode)
            say("ends", *name, episode.attempt, why)
            episode.end(why).wait()
            say("ended", *name, episode.attempt, why)

    def step(self, name: Name, episode: keepstep.Episode) -> None:
        index, self.steps = episode.turns, self.steps + 1
        # Another for each try: one that was lost and recorded again is not the one that was acknowledged.
        mark = f"{self.me}.{self.steps}"
        both = {
            "action": index,
            "observation": observation_of(self.seed, name, index),
            "info": {"mark": mark},
        }
        if self.is_early:
            episode.submit(**both)
        elif self.random.randrange(2):
            episode.step(**both)
        else:
            episode.submit(**both).wait()
        say("step", *name, episode.attempt, index, mark)
        if self.random.random() < 0.1:
            time.sleep(self.random.uniform(0, 0.2))

    def slip(self) -> None:
        """What frees the locks of a process, or looks as if it did."""
        where = Path(self.store.where or "")
        what = self.random.randrange(8)
        if what < 5:
            for lock in where.glob("writers/*/lock"):
                try:
                    os.close(os.open(lock, os.O_RDONLY))
                except FileNotFoundError:
                    pass
        elif what < 6:
            # An upload of the store from the recorder.
            target = Path(tempfile.mkdtemp(prefix="copy-", dir=where.parent))
            try:
                shutil.copytree(where, target / "store")
            except (shutil.Error, FileNotFoundError):
                pass
            finally:
                shutil.rmtree(target, ignore_errors=True)
        elif what < 7:
            self.store.reap()
        else:
            self.open_twice(where)

    def open_twice(self, where: Path) -> None:
        """A second handle of the store meets episodes of the first."""
        with keepstep.open(where) as second:
            run = second.run(KEEP)
            for task in range(TASKS):
                sample = self.next[KEEP, f"task-{task}"]
                try:
                    native = run.episode(f"task-{task}", sample=sample)
                    native.__enter__()
                    say("ends", KEEP, f"task-{task}", sample, native.attempt, "aborted")
                    native.end("aborted").wait()
                    say("ended", KEEP, f"task-{task}", sample, native.attempt, "aborted")
                    native.__exit__(None, None, None)
                except (keepstep.Busy, keepstep.Ended, keepstep.Fenced):
                    pass


def record(where: str, seed: str, lease_s: str, wrong: str) -> None:
    threading.excepthook = fail
    store = keepstep.open(where, lease_s=float(lease_s))
    for number in range(THREADS):
        worker = Worker(store, int(seed), number, wrong == "early-ack")
        threading.Thread(target=worker.work).start()


def fail(raised: threading.ExceptHookArgs) -> None:
    """A worker that fails ends the recorder, so that the tormentor hears of it."""
    traceback.print_exception(raised.exc_value)
    os._exit(3)


def end_with_stdin() -> None:
    """Nobody is left behind when the tormentor is gone."""
    sys.stdin.read()
    os._exit(0)


def follow(where: str, run_name: str, written: str, *more: str) -> None:
    """Tells of ends behind the last one that was written down."""
    path = Path(written)
    lines, length = whole_lines(path)
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.ftruncate(out, length)
    cursor = lines[-1][4] if lines else ""
    if not more:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    run = keepstep.open(where).run(run_name)
    for view in run.episodes(after=cursor, attempts="all", follow=not more):
        os.write(out, signed(view.task, view.sample, view.attempt, view.state, view.cursor))
        os.fsync(out)


if __name__ == "__main__":
    {"record": record, "follow": follow}[sys.argv[1]](*sys.argv[2:])
