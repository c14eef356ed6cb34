"""`keepstep demo`: episodes are killed with -9 half-way, listed, resumed, and compared with an uninterrupted run.

What survived is read from the disk afterwards. What was acknowledged is known from the recorder, which writes it to a pipe;
the pipe survives the kill.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import keepstep

from . import _demo_screen as screen
from ._command import again
from ._demo_agent import seed_of, steps_of
from ._demo_screen import counted

if TYPE_CHECKING:
    from keepstep import Step, Store, View

EXIT_DONE, EXIT_FAILED, EXIT_LOST, EXIT_STOPPED = 0, 1, 3, 130

# What two records of the same episode have in common; the time differs.
COMPARED = ("index", "kind", "observation", "action", "prompt", "response", "reward", "info", "state")

Told = Counter[tuple[str, int]]
"""How often the recorder reported each step, by task and index, as durable."""


def main(arguments: Sequence[str]) -> int:
    """Runs the demo, and returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        return Demo(given.store, given.episodes, given.steps, given.pause_ms).play()
    except KeyboardInterrupt:
        screen.say("\nStopped. What was recorded stays.")
        return EXIT_STOPPED
    except (keepstep.KeepstepError, OSError) as error:
        screen.say(f"error: {error}")
        return EXIT_FAILED


class Demo:
    """One run of the demo."""

    def __init__(self, store: str, episodes: int, steps_max: int, pause_ms: int) -> None:
        self._where = store
        self._tasks = [f"shop-{number}" for number in range(1, episodes + 1)]
        self._turns_max = steps_max - 1
        self._pause_ms = pause_ms
        self._run = ""

    def play(self) -> int:
        with keepstep.open(self._where) as store:
            self._run = _new_name(store)
            total = sum(steps_of(seed_of(task), self._turns_max) for task in self._tasks)
            told = self._record_and_kill(total)
            store.reap()
            self._list()
            if self._show_survivors(store, told):
                return EXIT_LOST
            self._go_on(store, told, total)
            self._record_whole(total)
            if self._show_comparison(store, told):
                return EXIT_LOST
        self._say_what_next()
        return EXIT_DONE

    def _record_and_kill(self, total: int) -> Told:
        screen.say(f"Recording {counted(len(self._tasks), 'episode')} at once to {self._where}.")
        told, was_killed = self._record(self._run, total, kill_at=total // 2)
        how = "was killed with -9" if was_killed else "was done before it could be killed"
        screen.say(f"The recorder {how}: {told.total()} of {counted(total, 'step')} had been acknowledged.\n")
        return told

    def _record(self, run: str, total: int, kill_at: int | None = None) -> tuple[Told, bool]:
        """Records in a process of its own, which is killed after `kill_at` steps. Returns what it reported, and whether it was
        killed.
        """
        options = {
            "store": self._where,
            "run": run,
            "turns-max": self._turns_max,
            "pause-s": self._pause_ms / 1000,
        }
        named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        agent = again("from keepstep._demo_agent import main; main()")
        command = [sys.executable, *agent, *named, *self._tasks]
        bar = screen.Progress(total, "steps acknowledged")
        told, was_killed = Told(), False
        # In a session of its own, so that Ctrl-C reaches only this process, and the recorder prints nothing.
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as recorder:
            assert recorder.stdout is not None
            try:
                # Continues after the kill: the steps that are still in the pipe were acknowledged too.
                for line in recorder.stdout:
                    task, _, index = line.strip().partition(" ")
                    told[task, int(index)] += 1
                    bar.advance()
                    if kill_at is not None and not was_killed and told.total() >= kill_at:
                        recorder.kill()
                        was_killed = True
            except BaseException:
                recorder.kill()
                raise
        bar.leave()
        was_killed = was_killed and recorder.returncode < 0
        if recorder.returncode != 0 and not was_killed:
            raise OSError(f"the recorder failed with exit code {recorder.returncode}: see its output above")
        return told, was_killed

    def _list(self) -> None:
        screen.say(f"What is on disk, by `{self._command('ls', self._where, self._run)}`:")
        command = again("from keepstep._command import main; main()")
        subprocess.run([sys.executable, *command, "ls", self._where, self._run], check=True)
        screen.say()

    def _show_survivors(self, store: Store, told: Told) -> int:
        """Shows what was acknowledged next to what is there. Returns how much is missing."""
        rows, lost, more = [], 0, 0
        for view in self._views(store, self._run):
            promised = {index for task, index in told if task == view.task}
            found = {step.index for step in view.steps}
            lost += len(promised - found)
            more += len(found - promised)
            ending = "running" if view.ending is None else view.ending.why
            rows.append([view.ref, len(promised), len(found), len(promised - found), ending])
        screen.say("The same by the API, next to what was acknowledged to the recorder:")
        screen.table(["EPISODE", "ACKNOWLEDGED", "FOUND", "LOST", "ENDED"], rows)
        promised_all = len(told)
        lost += promised_all - sum(row[1] for row in rows if isinstance(row[1], int))
        if lost:
            _say_wrong(f"{counted(lost, 'acknowledged step')} lost")
        else:
            screen.say(f"{counted(promised_all, 'step')} acknowledged, none lost.")
        if more:
            screen.say(f"{counted(more, 'step')} in flight when it was killed: there too, and whole.")
        screen.say()
        return lost

    def _go_on(self, store: Store, told: Told, total: int) -> None:
        views = self._views(store, self._run)
        rest = sum(view.ending is None or view.ending.why == "crashed" for view in views)
        screen.say(f"Resuming {counted(rest, 'unfinished episode')}, each from its last durable step.")
        again, _ = self._record(self._run, total - sum(len(view.steps) for view in views))
        told.update(again)
        screen.say()

    def _record_whole(self, total: int) -> None:
        screen.say("Recording the same episodes in one go, to compare.")
        self._record(self._whole_run, total)
        screen.say()

    def _show_comparison(self, store: Store, told: Told) -> int:
        """Shows the resumed episodes next to uninterrupted ones. Returns how many steps are lost, doubled or different."""
        resumed = {view.task: view for view in self._views(store, self._run)}
        whole = {view.task: view for view in self._views(store, self._whole_run)}
        rows, wrong = [], 0
        for task in self._tasks:
            here, there = resumed[task], whole[task]
            lost, doubled, different = compared(list(here.steps), list(there.steps))
            doubled += sum(times - 1 for (of, _), times in told.items() if of == task)
            different += here.ending is None or there.ending is None or here.ending[:2] != there.ending[:2]
            wrong += lost + doubled + different
            ended = "running" if here.ending is None else here.ending.why
            rows.append(
                [
                    here.ref,
                    here.attempt + 1,
                    len(here.steps),
                    len(there.steps),
                    lost,
                    doubled,
                    different,
                    ended,
                ]
            )
        screen.table(
            ["EPISODE", "ATTEMPTS", "STEPS", "IN ONE GO", "LOST", "DOUBLED", "DIFFERENT", "ENDED"], rows
        )
        if wrong:
            _say_wrong(f"{counted(wrong, 'difference')} found")
        else:
            screen.say("Killed and resumed, or in one go: the same steps, none lost, none doubled.")
        return wrong

    @property
    def _whole_run(self) -> str:
        return f"{self._run}-in-one-go"

    def _views(self, store: Store, run: str) -> list[View]:
        views = store.run(run).episodes()
        return sorted(views, key=lambda view: self._tasks.index(view.task))

    def _command(self, *words: str) -> str:
        return shlex.join(["keepstep", *words])

    def _say_what_next(self) -> None:
        first = f"{self._run}/{self._tasks[0]}"
        screen.say("\nLook at it:")
        for words in (
            ["ls", self._where],
            ["show", "-s", self._where, first],
            ["diff", "-s", self._where, first, f"{self._whole_run}/{self._tasks[0]}"],
            ["stats", self._where],
            ["verify", self._where],
        ):
            screen.say(f"  {self._command(*words)}")
        agent = os.path.join(os.path.dirname(__file__), "_demo_agent.py")
        screen.say(f"The agent's loop, to copy from: {agent}")


def compared(here: Sequence[Step], there: Sequence[Step]) -> tuple[int, int, int]:
    """How many steps of `there` are not `here`, how many are here more than once, and how many differ."""
    times = Counter(step.index for step in here)
    facts = {step.index: _facts(step) for step in here}
    wanted = {step.index: _facts(step) for step in there}
    lost = sum(index not in facts for index in wanted)
    doubled = sum(times.values()) - len(times)
    different = sum(index not in wanted or facts[index] != wanted[index] for index in facts)
    return lost, doubled, different


def _facts(step: Step) -> list[object]:
    return [getattr(step, name) for name in COMPARED]


def _say_wrong(what: str) -> None:
    screen.say(f"error: {what}")
    screen.say("hint: this must never happen: keep the directory, and report it")


def _new_name(store: Store) -> str:
    """A name that the store does not have yet, so that the demo can run twice."""
    taken = {run.name for run in store.runs()}
    names = ("demo" if number == 1 else f"demo-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keepstep demo",
        description="Record a few episodes, kill the recorder with -9, show what survived,\nand resume the episodes to their end",
        epilog="""examples:
  keepstep demo                       records to ./runs/demo
  keepstep demo /mnt/data/demo        on another disk
  keepstep demo --episodes 32 --steps 100""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "store", metavar="STORE", nargs="?", default="./runs/demo", help="where to record [./runs/demo]"
    )
    for name, least, most, default, what in (
        ("--episodes", 1, 512, 8, "how many episodes at once"),
        ("--steps", 2, 10_000, 40, "how many steps an episode has at most"),
        ("--pause-ms", 0, 10_000, 30, "how long the agent thinks, on average"),
    ):
        number = _number_between(least, most)
        parser.add_argument(name, type=number, metavar="N", default=default, help=f"{what} [{default}]")
    return parser


def _number_between(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return number
