"""A table, whose rows two threads make ahead and only of the fields that were asked for, has what reading step by step has.

Random histories: live, closed, killed and gone on with, compacted, and with damaged bytes. `KEEPSTEP_SEED` repeats a run,
`KEEPSTEP_CASES` says how many histories.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keepstep
import outside
import pyarrow
import pytest

SEED = int(os.environ.get("KEEPSTEP_SEED", "20261118"))
CASES = int(os.environ.get("KEEPSTEP_CASES", "1"))
JSON_FIELDS = ("observation", "action", "prompt", "response", "info", "state")

# How many it records, first observations counted.
STEPS = 4301 + 4 + 701 + 5
# Records an episode that is longer than a batch, and shorter ones behind it; then waits to be killed, or closes.
RECORDER = r"""
    import random, sys, warnings
    import keepstep
    warnings.simplefilter("ignore")
    where, seed, closes = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "closes"
    dice = random.Random(seed)
    text = lambda: "".join(dice.choices('ab "\\\nä語', k=dice.randrange(90)))
    store = keepstep.open(where, level="kill")
    run = store.run("r")
    held = []
    for name, steps in (("long", 4300), ("short-1", 3), ("other", 700), ("none", 0), ("short-2", 4)):
        episode = run.episode(name).__enter__()
        held.append(episode)
        history = []
        if steps and not episode.turns:
            episode.first(text(), info={"seed": seed})
        for number in range(steps):
            if number % 12 == 0:
                history = []
            history.append({"role": "user", "content": text()})
            step = {"action": number, "prompt": list(history)}
            if dice.random() < 0.5:
                step |= {"observation": {"page": text(), "n": [number, None, 0.5, True]}, "reward": 0.25}
            if dice.random() < 0.1:
                step |= {"state": {"n": number}, "policy": dice.choice([7, "v8"]), "agent": "a", "info": text()}
            if dice.random() < 0.1:
                step |= {"tokens": keepstep.Tokens(ids=[number, 1]), "reward_terms": {"t": 0.5}}
            receipt = episode.submit(**step)
        if steps:
            receipt.wait()
        if closes and name.startswith("short"):
            episode.end("finished")
    if closes:
        for episode in held:
            if episode.ended is None:
                episode.end("aborted")
        store.close()
    print("recorded", flush=True)
    sys.stdin.readline()
"""


def plain(value: Any) -> Any:
    """A value, with each lost part marked."""
    if isinstance(value, keepstep.Lost):
        return "LOST"
    if isinstance(value, dict):
        return "LOST" if "$lost" in value else {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def step_by_step(run: keepstep.Run) -> Iterator[dict[str, Any]]:
    """The slow way: one step after another, whole."""
    for view in run.episodes():
        try:
            steps = list(view.steps)
        except keepstep.Damaged:
            continue
        for step in steps:
            said = {"ref": view.ref, "task": view.task, "index": step.index, "kind": step.kind}
            yield said | {
                **{name: plain(getattr(step, name)) for name in JSON_FIELDS},
                "reward": step.reward,
                "reward_terms": step.reward_terms and dict(step.reward_terms),
                "policy": None if step.policy is None else str(step.policy),
                "agent": step.agent,
                "damaged": sorted(step.damaged),
            }


def told(batches: list[pyarrow.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The same of the rows of a table."""
    for batch in batches:
        assert 0 < batch.num_rows <= 4096
        for row in batch.to_pylist():
            for name in JSON_FIELDS:
                if row[name] is not None:
                    row[name] = plain(json.loads(row[name]))
            terms = row["reward_terms"]
            yield row | {"damaged": sorted(row["damaged"]), "reward_terms": terms and dict(terms)}


def batches_of(run: keepstep.Run, of: Any, columns: list[str] | None = None) -> list[pyarrow.RecordBatch]:
    return list(pyarrow.RecordBatchReader.from_stream(run.table(of, columns)))


def compare(run: keepstep.Run, dice: random.Random) -> int:
    """A table of steps is what reading step by step gives, and each choice of its columns is a part of it."""
    found = batches_of(run, "steps")
    rows, slow = list(told(found)), list(step_by_step(run))
    check(rows, slow)
    whole = pyarrow.Table.from_batches(found, pyarrow.schema(run.table("steps")))
    for _ in range(3):
        columns = dice.sample(run.table("steps").columns, dice.randrange(1, 5))
        part = pyarrow.Table.from_batches(
            batches_of(run, "steps", columns), pyarrow.schema(run.table("steps", columns))
        )
        assert part.equals(whole.select(columns)), columns
    tokens = pyarrow.Table.from_batches(batches_of(run, "tokens"), pyarrow.schema(run.table("tokens")))
    for name in ("ids", "damaged"):
        alone = pyarrow.Table.from_batches(
            batches_of(run, "tokens", [name]), pyarrow.schema(run.table("tokens", [name]))
        )
        assert alone.equals(tokens.select([name]))
    return sum(bool(row["damaged"]) for row in rows)


def check(rows: list[dict[str, Any]], slow: list[dict[str, Any]]) -> None:
    assert len(rows) == len(slow)
    for row, known in zip(rows, slow, strict=True):
        assert {name: row[name] for name in known} == known


def compare_in(where: Path, dice: random.Random) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with keepstep.open(where) as store:
            return compare(store.run("r"), dice)


def wait_for_all(where: Path) -> None:
    """A log that is written says a moment later how far it is synced, and is read as far as that."""
    with keepstep.open(where) as store:
        for _ in range(600):
            if sum(len(view.steps) for view in store.run("r").episodes()) == STEPS:
                return
            time.sleep(0.05)
    raise AssertionError("not all steps can be read")


def recorded(where: Path, seed: int, how: str) -> subprocess.Popen[str]:
    process = outside.start(RECORDER, where, seed, how)
    assert process.stdout is not None and process.stdout.readline() == "recorded\n"
    return process


def leave(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.parametrize("case", range(CASES))
def test_a_table_has_what_reading_step_by_step_has(tmp_path: Path, case: int) -> None:
    dice = random.Random(f"{SEED} {case}")
    print(f"KEEPSTEP_SEED={SEED}, case {case}")
    where = tmp_path / "runs"
    process = recorded(where, dice.randrange(1 << 30), "stays")
    wait_for_all(where)
    assert compare_in(where, dice) == 0, "while it is recorded"
    leave(process)
    assert compare_in(where, dice) == 0, "killed"
    # Another one goes on with all of it, and closes.
    leave(recorded(where, dice.randrange(1 << 30), "closes"))
    assert compare_in(where, dice) == 0, "closed"
    lost = 0
    for stage in ("closed", "compacted"):
        if stage == "compacted":
            subprocess.run(
                [sys.executable, "-m", "keepstep", "compact", str(where)], check=True, capture_output=True
            )
            assert compare_in(where, dice) == 0, stage
        hurt = tmp_path / f"{stage}-hurt"
        shutil.copytree(where, hurt)
        for segment in hurt.glob("**/*.seg"):
            data = bytearray(segment.read_bytes())
            for _ in range(8):
                data[dice.randrange(200, len(data))] ^= 1 << dice.randrange(8)
            segment.write_bytes(data)
        lost += compare_in(hurt, dice)
        shutil.rmtree(hurt)
    assert lost > 0, "no wound cost a part of a step"


def test_a_wrong_table_is_caught(tmp_path: Path) -> None:
    """The negative control: rows in another order, one too many, one changed."""
    leave(recorded(tmp_path, 1, "closes"))
    with keepstep.open(tmp_path) as store:
        run = store.run("r")
        slow = list(step_by_step(run))
        rows = list(told(batches_of(run, "steps")))
        check(rows, slow)
        swapped = [*rows[4096:], *rows[:4096]]
        changed = [*rows[:-1], rows[-1] | {"damaged": ["observation"]}]
        for wrong in (swapped, rows[:-1], [*rows, rows[-1]], changed):
            with pytest.raises(AssertionError):
                check(wrong, slow)


MEASURE = r"""
    import re, sys
    import keepstep, pyarrow

    def now_mb():
        return int(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1]) / 1024

    with keepstep.open(sys.argv[1]) as store:
        run, seen = store.run("r"), []
        for batch in pyarrow.RecordBatchReader.from_stream(run.table("steps")):
            seen.append(batch.num_rows)
            if len(seen) == int(sys.argv[2]):
                break
        print(sum(seen), now_mb())
"""


def test_memory_does_not_grow_with_the_rows_that_are_read(tmp_path: Path) -> None:
    """100 MB of steps, read in batches of some 8 MB: all of them need no more than the first quarter."""
    with keepstep.open(tmp_path, level="kill") as store:
        for number in range(10):
            with store.run("r").episode(f"t{number}") as episode:
                for at in range(1000):
                    episode.submit(action=at, observation=os.urandom(5_000).hex())
                episode.end("finished")
    (few, few_mb), (many, many_mb) = (
        map(float, outside.run(MEASURE, tmp_path, batches).split()) for batches in (4, 0)
    )
    assert many == 10_000 and many > 2.5 * few
    assert many_mb < 1.25 * few_mb, (few_mb, many_mb)


def helpers() -> int:
    return sum(
        Path(f"/proc/self/task/{task}/comm").read_text() == "keepstep-table\n"
        for task in os.listdir("/proc/self/task")
    )


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_table_that_is_let_go_leaves_no_thread(run: keepstep.Run) -> None:
    with run.episode("t") as episode:
        for at in range(20_000):
            receipt = episode.submit(action=at, observation="o")
        receipt.wait()
        episode.end("finished")
    reader = pyarrow.RecordBatchReader.from_stream(run.table("steps"))
    assert helpers() == 0
    assert reader.read_next_batch().num_rows == 4096
    reader.close()
    del reader
    assert helpers() == 0
    assert sum(batch.num_rows for batch in batches_of(run, "steps")) == 20_000
    assert helpers() == 0


def test_two_threads_of_python_read_one_table_each(run: keepstep.Run) -> None:
    with run.episode("t") as episode:
        for at in range(10_000):
            receipt = episode.submit(action=at, observation="o")
        receipt.wait()
        episode.end("finished")
    table, found = run.table("steps", ["index"]), []

    def read() -> None:
        found.append(pyarrow.table(table)["index"].to_pylist())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(10_000))] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_is_refused_and_does_not_wait_for_the_thread_it_has_not(run: keepstep.Run) -> None:
    with run.episode("t") as episode:
        for at in range(20_000):
            receipt = episode.submit(action=at, observation="o")
        receipt.wait()
        episode.end("finished")
    reader = pyarrow.RecordBatchReader.from_stream(run.table("steps"))
    reader.read_next_batch()
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            reader.read_next_batch()
            told = "read"
        except Exception as error:
            told = str(error)
        del reader
        os.write(says, told.encode())
        os._exit(0)
    os.close(says)
    with os.fdopen(said, "rb") as pipe:
        assert re.search("fork", pipe.read().decode())
    assert os.waitpid(child, 0)[1] == 0
    assert sum(batch.num_rows for batch in reader) == 20_000 - 4096
