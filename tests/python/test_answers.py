"""The same question has the same answer, whoever asks: views, filters, tables, groups, `ls`, `export` and the second reader.

Random histories by processes that close, are killed, or go on; asked by other processes, while they record and afterwards.
`KEEPSTEP_SEED` repeats a run, `KEEPSTEP_CASES` says how many histories.
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("KEEPSTEP_SEED", "20261116"))
CASES = int(os.environ.get("KEEPSTEP_CASES", "4"))

# Records what it is told, a line at a time, and says when it is durable.
RECORDER = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import keepstep
store = keepstep.open(sys.argv[1])
run = store.run(sys.argv[2])
held = {}
for line in sys.stdin:
    what, task, sample, more = json.loads(line)
    episode = held.get((task, sample))
    if what == "open":
        held[task, sample] = run.episode(task, sample=sample).__enter__()
    elif what == "step":
        episode.step(**more)
    elif what == "fails":
        try:
            with episode.turn(action=more):
                raise ValueError("no")
        except ValueError:
            pass
    elif what == "note":
        episode.note("seen", more, source="loop").wait()
    elif what == "end":
        episode.end(more).wait()
    elif what == "score":
        run.annotate(task, "score", more, source="judge").wait()
    elif what == "seal":
        run.group(task, size=sample).seal(more, source="judge")
    elif what == "close":
        # Whoever leaves an episode without a word aborts it.
        for episode in held.values():
            if episode.ended is None:
                episode.end("aborted").wait()
        store.close()
    print("done", flush=True)
"""


class Recorder:
    """A process that records what it is told to."""

    def __init__(self, where: Path, run: str):
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", RECORDER, str(where), run], **pipes)

    def tell(self, what: str, task: str = "", sample: int = 0, more: Any = None) -> None:
        self.process.stdin.write(json.dumps([what, task, sample, more]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", f"{what} failed"

    def leave(self, in_order: bool) -> None:
        if in_order:
            self.tell("close")
        self.process.kill()
        self.process.wait()


class Attempt:
    """On paper: the rewards of its steps, inherited ones too, and how it ended."""

    def __init__(self, rewards: list[float | None]):
        self.rewards, self.why, self.inherited = rewards, None, len(rewards)

    @property
    def total(self) -> float | None:
        given = [reward for reward in self.rewards if reward is not None]
        return math.fsum(given) if given else None


class Paper:
    """All that was recorded: attempts by task and sample, scores, sealed groups."""

    def __init__(self, run: str, names: list[tuple[str, int]]):
        self.run = run
        self.attempts: dict[tuple[str, int], list[Attempt]] = {name: [] for name in names}
        self.scores: dict[tuple[str, int], float] = {}
        self.groups: dict[str, list[float | None]] = {}

    def last(self) -> dict[tuple[str, int], Attempt]:
        return {name: attempts[-1] for name, attempts in self.attempts.items() if attempts}

    def reap(self) -> None:
        for attempt in self.last().values():
            attempt.why = attempt.why or "crashed"


def same(number: float | None) -> Any:
    """A number, so that NaN is like itself."""
    return "nan" if number is not None and math.isnan(number) else number


def record(dice: random.Random, where: Path, paper: Paper, asks: Callable[[Paper], None]) -> None:
    """A process comes, goes on with what is not over, and goes."""
    recorder = Recorder(where, paper.run)
    held = []
    for name, attempts in paper.attempts.items():
        if attempts and attempts[-1].why in ("finished", "truncated"):
            continue
        recorder.tell("open", *name)
        if attempts:
            attempts[-1].why = attempts[-1].why or "crashed"
        attempts.append(Attempt(list(attempts[-1].rewards) if attempts else []))
        held.append(name)
    for number in range(dice.randrange(4, 16)):
        if not held:
            break
        name = dice.choice(held)
        attempt = paper.attempts[name][-1]
        match dice.choice(["step", "step", "step", "fails", "note", "score", "end"]):
            case "step":
                reward = dice.choice([None, None, None, 0.0, -0.5, 1.5, math.nan])
                step = {"action": number, "observation": "o" * number}
                recorder.tell("step", *name, step if reward is None else {**step, "reward": reward})
                attempt.rewards.append(reward)
            case "fails":
                recorder.tell("fails", *name, number)
                attempt.rewards.append(None)
            case "note":
                recorder.tell("note", *name, number)
            case "score":
                recorder.tell("score", ref(paper, name), 0, float(number))
                paper.scores[name] = float(number)
            case "end":
                attempt.why = dice.choice(["finished", "truncated", "errored"])
                recorder.tell("end", *name, attempt.why)
                held.remove(name)
    for task in {task for task, _ in paper.attempts}:
        members = [
            attempts[-1].why for (of, _), attempts in paper.attempts.items() if of == task and attempts
        ]
        if task not in paper.groups and members and all(why in ("finished", "truncated") for why in members):
            recorder.tell("seal", task, len(members), None)
            of_task = [attempt for (of, _), attempt in paper.last().items() if of == task]
            paper.groups[task] = [attempt.total for attempt in of_task]
    asks(paper)
    in_order = dice.random() < 0.5
    recorder.leave(in_order)
    for name in held if in_order else []:
        paper.attempts[name][-1].why = "aborted"


def ref(paper: Paper, name: tuple[str, int]) -> str:
    return f"{paper.run}/{name[0]}#0.{name[1]}"


def command(*arguments: Any) -> str:
    command = [sys.executable, "-m", "keepstep", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def expected(paper: Paper) -> dict[tuple[str, int], Any]:
    return {name: (len(it.rewards), same(it.total), it.why) for name, it in paper.last().items()}


def ask_views(store: keepstep.Store, paper: Paper) -> None:
    """Views, found by their name and by filters."""
    run = store.run(paper.run)
    found = {}
    for name, attempt in paper.last().items():
        view = store.find(ref(paper, name))
        rewards = [same(step.reward) for step in view.steps]
        assert rewards == [same(reward) for reward in attempt.rewards], name
        assert view.task == name[0]
        found[name] = (len(rewards), same(view.reward), attempt.why)
        assert view.state in ((attempt.why,) if attempt.why else ("running", "interrupted")), name
    assert found == expected(paper)
    by_reward = {(view.task, view.sample) for view in run.episodes(reward=(-math.inf, math.inf))}
    numbers = {name for name, it in paper.last().items() if it.total is not None and not math.isnan(it.total)}
    assert by_reward == numbers
    for task in {task for task, _ in paper.last()}:
        of_task = {view.sample for view in run.episodes(task=task)}
        assert of_task == {sample for of, sample in paper.last() if of == task}
    everybody = [(view.task, view.sample, view.attempt) for view in run.episodes(attempts="all")]
    counted = [(*name, number) for name, all_ in paper.attempts.items() for number in range(len(all_))]
    assert sorted(everybody) == sorted(counted)


def ask_groups(store: keepstep.Store, paper: Paper) -> None:
    groups = {}
    for group in store.run(paper.run).groups():
        assert group.members, group.ref
        groups[group.members[0].task] = [same(reward) for reward in group.rewards]
    assert groups == {task: [same(reward) for reward in rewards] for task, rewards in paper.groups.items()}


def ask_tables(store: keepstep.Store, paper: Paper) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    run = store.run(paper.run)
    rows = pyarrow.table(run.table("episodes")).to_pylist()
    found = {}
    for row in rows:
        name = (row["task"], row["sample"])
        why = paper.last()[name].why
        assert row["state"] in ((why,) if why else ("running", "interrupted")), name
        assert row["run"] == paper.run
        found[name] = (row["steps"], same(row["reward"]), why)
    assert found == expected(paper)
    steps: dict[tuple[str, int], list[Any]] = {name: [] for name in paper.last()}
    for row in pyarrow.table(run.table("steps")).to_pylist():
        steps[row["task"], row["sample"]].append(same(row["reward"]))
    assert steps == {name: [same(r) for r in it.rewards] for name, it in paper.last().items()}


def ask_commands(where: Path, paper: Paper) -> None:
    """`ls --json` and `export`, in processes of their own."""
    found = {}
    for line in map(json.loads, command("ls", where, paper.run, "--json").splitlines()):
        name = (line["task"], line["sample"])
        why = paper.last()[name].why
        assert line["state"] in ((why,) if why else ("running", "interrupted")), line
        total = line["return"]
        found[name] = (line["steps"], "nan" if isinstance(total, dict | str) else total, why)
    assert found == expected(paper)
    exported: dict[tuple[str, int], list[Any]] = {name: [] for name in paper.last()}
    for line in map(json.loads, command("export", "jsonl", "-s", where, paper.run).splitlines()):
        assert line["run"] == paper.run
        reward = line.get("reward")
        exported[line["task"], line["sample"]].append("nan" if isinstance(reward, dict) else reward)
    assert exported == {name: [same(r) for r in it.rewards] for name, it in paper.last().items()}
    command("verify", where)


def ask_second_reader(where: Path, paper: Paper) -> None:
    """What somebody reads who knows the format only: the records of each attempt, its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    reading = [sys.executable, "-m", "second_reader", str(where), "--json", "--verify"]
    lines = subprocess.run(reading, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout
    names: dict[tuple[str, int], tuple[str, int]] = {}
    found: dict[tuple[str, int], list[Any]] = {}
    for line in map(json.loads, lines.splitlines()):
        if line["what"] != 1:
            continue
        key, fields = (line["id"], line["attempt"]), line["fields"]
        if line["kind"] == 0x10:
            assert fields["20"] == paper.run
            names[key] = (fields["22"], fields["24"])
        elif line["kind"] in (0x12, 0x14):
            reward = fields.get("6")
            found.setdefault(key, []).append(None if reward is None else reward["$float"])
    by_name = {(*names[key], key[1]): found.get(key, []) for key in names}
    own = {
        (*name, number): [None if r is None else as_bytes(r) for r in it.rewards[it.inherited :]]
        for name, attempts in paper.attempts.items()
        for number, it in enumerate(attempts)
    }
    assert {name: [same_bits(r) for r in rewards] for name, rewards in by_name.items()} == {
        name: [same_bits(r) for r in rewards] for name, rewards in own.items()
    }


def as_bytes(number: float) -> str:
    """As the format has it."""
    return struct.pack("<d", number).hex()


def same_bits(hexed: str | None) -> str | None:
    """NaN has many forms."""
    if hexed is None:
        return None
    return "nan" if math.isnan(struct.unpack("<d", bytes.fromhex(hexed))[0]) else hexed


def ask(where: Path, paper: Paper, is_at_rest: bool = True) -> None:
    with keepstep.open(where) as store:
        # What another process made durable shows a moment later.
        for attempt in range(200):
            try:
                ask_views(store, paper)
                break
            except (AssertionError, keepstep.NotFound):
                if attempt == 199:
                    raise
                time.sleep(0.01)
        ask_groups(store, paper)
        ask_tables(store, paper)
    ask_commands(where, paper)
    if is_at_rest:
        ask_second_reader(where, paper)


def play(seed: int, where: Path) -> tuple[Paper, random.Random]:
    dice = random.Random(seed)
    long = "".join(dice.choice("abcdefgh") for _ in range(300))
    run = dice.choice(["run", "r" + long])
    tasks = dice.sample(["short", "t" + long[:255], "u" + long], 2)
    paper = Paper(run, [(task, sample) for task in tasks for sample in range(2)])
    for _ in range(2):
        record(dice, where, paper, lambda paper: ask(where, paper, is_at_rest=False))
        ask(where, paper)
    return paper, dice


@pytest.mark.parametrize("seed", range(SEED, SEED + CASES))
def test_the_same_question_has_the_same_answer(seed, tmp_path):
    where = tmp_path / "runs"
    paper, _ = play(seed, where)
    with keepstep.open(where) as store:
        store.reap()
    paper.reap()
    ask(where, paper)
    command("compact", where, "--grace", "0")
    command("compact", where, "--grace", "0")
    ask(where, paper)


def test_a_wrong_answer_is_caught(tmp_path):
    """On paper a missing reward is 0.0: that must not go unnoticed."""
    where = tmp_path / "runs"
    paper, _ = play(SEED, where)
    assert any(None in it.rewards for it in paper.last().values())
    for attempts in paper.attempts.values():
        for attempt in attempts:
            attempt.rewards = [reward or 0.0 for reward in attempt.rewards]
    with pytest.raises(AssertionError):
        ask(where, paper)
