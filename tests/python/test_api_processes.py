"""Many processes: what is sent to them, what they inherit, and how they end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest

METHODS = ("fork", "spawn", "forkserver")


def record_in_child(run: keepstep.Run, sample: int) -> int:
    """The work of a worker: the run came by pickle, or was inherited."""
    with run.episode("t", sample=sample) as episode:
        episode.step(action=sample)
        episode.end("finished")
    return os.getpid()


@pytest.mark.parametrize("method", METHODS)
def test_workers_record_with_the_run_they_are_given(
    store: keepstep.Store, run: keepstep.Run, method: str
) -> None:
    """A pool, whichever way its processes begin: each opens the store again, and records with a writer of its own."""
    with run.episode("parent") as episode:
        episode.step(action="parent")
        with multiprocessing.get_context(method).Pool(2) as pool:
            pids = pool.starmap(record_in_child, [(run, sample) for sample in range(6)], chunksize=1)
        assert os.getpid() not in pids
        episode.step(action="still mine")
        episode.end("finished")
    found = {row["sample"]: row for row in outside.listed(store.where, "shop") if row["task"] == "t"}
    assert sorted(found) == list(range(6))
    assert {row["why"] for row in found.values()} == {"finished"}


def test_a_run_pickles_as_itself(store: keepstep.Store) -> None:
    """Name, config, generation: the copy records into the same run, also of an older generation."""
    old = store.run("shop", config={"seed": 1})
    new = store.run("shop", config={"seed": 2}, new=True)
    for run in (old, new):
        copy = pickle.loads(pickle.dumps(run))
        assert (copy.name, copy.generation, copy.config) == (run.name, run.generation, run.config)
        with copy.episode("t") as episode:
            episode.step(action=1)
            episode.end("finished")
        with pytest.raises(keepstep.Ended):
            run.episode("t").__enter__()


def test_a_store_pickles_with_how_it_was_opened(tmp_path: Path) -> None:
    """Level, lease and the rest go with it; two of the same are one in the process that gets them."""
    with keepstep.open(tmp_path / "runs", level="kill", strict=True, skip=["info"]) as store:
        one, two = pickle.loads(pickle.dumps(store)), pickle.loads(pickle.dumps(store))
        assert one is two
        assert (one.where, one.level, one._options) == (store.where, "kill", store._options)


def test_a_run_that_is_gone_is_told(tmp_path: Path) -> None:
    """Sent to a process that finds another store in that place."""
    with keepstep.open(tmp_path / "runs") as store:
        sent = pickle.dumps(store.run("shop"))
    os.rename(tmp_path / "runs", tmp_path / "elsewhere")
    with pytest.raises(keepstep.NotFound, match="shop"):
        pickle.loads(sent)


def test_a_relative_path_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has another working directory records into the same store."""
    monkeypatch.chdir(tmp_path)
    with keepstep.open("runs") as store:
        assert store.where == str(tmp_path / "runs")
        sent = pickle.dumps(store.run("shop"))
        monkeypatch.chdir("/")
        assert pickle.loads(sent).store.where == store.where


INHERITED = """
    import os, sys, keepstep
    store = keepstep.open(sys.argv[1])
    run = store.run("shop")
    episode = run.episode("t").__enter__()
    episode.step(action="parent", state={"n": 1})
    stream = run.stream("s")
    stream.put("a", 1).wait()
    trajectory = run.episode("list").__enter__().trajectory()
    pid = os.fork()
    if pid == 0:
        calls = {
            "step": lambda: episode.step(action="child"),
            "submit": lambda: episode.submit(action="child"),
            "turn": lambda: episode.turn(action="child").__enter__(),
            "call": lambda: episode.call("tool", lambda: 1),
            "note": lambda: episode.note("a", 1, source="child"),
            "end": lambda: episode.end("finished"),
            "open": lambda: run.episode("u").__enter__(),
            "put": lambda: stream.put("b", 1),
            "append": lambda: trajectory.append(1),
            "annotate": lambda: run.annotate("shop/t", "a", 1, source="child"),
            "turns": lambda: episode.turns,
            "ended": lambda: episode.ended,
            "pending": lambda: episode.pending,
            "state": lambda: episode.state("n"),
            "progress": lambda: run.progress(),
        }
        assert "forked" in repr(episode), repr(episode)
        for name, call in calls.items():
            try:
                call()
                print(name, "went through", flush=True)
            except keepstep.Forked as raised:
                print(name, "Forked", flush=True)
            except BaseException as raised:
                print(name, type(raised).__name__, raised, flush=True)
        with keepstep.open(sys.argv[1]).run("shop").episode("child") as own:
            own.step(action="child")
            own.end("finished")
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    episode.step(action="parent again")
    episode.end("finished").wait()
"""


def test_a_forked_child_cannot_use_what_it_inherited(tmp_path: Path) -> None:
    """Every call on an inherited handle raises Forked (of an episode with one turn it read none); the child opens the store
    again; the parent is not disturbed, even by a child that leaves by sys.exit and so cleans up as if all this were its own."""
    out = outside.run(INHERITED, tmp_path / "runs")
    told = [line for line in out.splitlines() if not line.endswith(" Forked")]
    assert told == [], out
    assert len(out.splitlines()) == 15
    steps = outside.events(tmp_path / "runs", "shop/t", "step")
    assert [step["action"] for step in steps] == ["parent", "parent again"]
    assert outside.ending(tmp_path / "runs", "shop/child")["why"] == "finished"


# How a process may end while it records, and what is then said of its episodes.
EXITS = {
    "the main thread returns": "",
    "sys.exit": "sys.exit(0)",
    "an exception": "raise ValueError('out of luck')",
    "daemon threads record on": """
        def record(sample):
            with run.episode("daemon", sample=sample) as one:
                while True:
                    one.step(action=1)
        for sample in range(16):
            threading.Thread(target=record, args=(sample,), daemon=True).start()
        time.sleep(0.3)
    """,
    "daemon threads submit and never wait": """
        def record(sample):
            one = run.episode("daemon", sample=sample).__enter__()
            while True:
                try:
                    one.submit(action=1)
                except keepstep.Busy:
                    pass
        for sample in range(4):
            threading.Thread(target=record, args=(sample,), daemon=True).start()
        time.sleep(0.3)
    """,
    "daemon threads have the episodes, and nobody the store": """
        def record(sample):
            with keepstep.open(sys.argv[1]).run("shop").episode("daemon", sample=sample) as one:
                one.step(action=1)
                begun.release()
                time.sleep(60)
        begun = threading.Semaphore(0)
        for sample in range(4):
            threading.Thread(target=record, args=(sample,), daemon=True).start()
        for sample in range(4):
            begun.acquire()
    """,
    "daemon threads open more and more": """
        def record(thread):
            store = keepstep.open(sys.argv[1])
            for number in range(100_000):
                one = store.run("shop").episode("daemon", sample=100_000 * thread + number).__enter__()
                one.step(action=1)
                keep.append(one)
        keep = []
        for thread in range(4):
            threading.Thread(target=record, args=(thread,), daemon=True).start()
        time.sleep(0.5)
    """,
    "a loop in a daemon thread": """
        async def record(sample):
            async with run.episode("daemon", sample=sample) as one:
                while True:
                    await one.submit(action=1)
        async def main():
            await asyncio.gather(*(record(sample) for sample in range(64)))
        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        time.sleep(0.3)
    """,
    "a loop that is left with tasks": """
        async def record(sample):
            async with run.episode("task", sample=sample) as one:
                while True:
                    await one.submit(action=1)
        async def main():
            for sample in range(64):
                keep.append(asyncio.create_task(record(sample)))
            await asyncio.sleep(0.3)
        keep = []
        asyncio.run(main())
    """,
    "pending receipts": """
        keep = [episode.submit(action=number) for number in range(1000)]
    """,
    "a turn without a result": """
        turn = episode.turn(action=1).__enter__()
    """,
    "garbage in a cycle": """
        class Holder: pass
        holder = Holder()
        holder.holder, holder.episode = holder, run.episode("cycle").__enter__()
        del holder
    """,
    "a thread that is joined at exit": """
        def record():
            with run.episode("late") as one:
                time.sleep(0.5)
                one.step(action=1)
                one.end("finished")
        threading.Thread(target=record).start()
    """,
    "waiting for an episode that another has": """
        async def main():
            async with run.episode("held", busy="wait"):
                pass
        try:
            asyncio.run(asyncio.wait_for(main(), 0.5))
        except asyncio.TimeoutError:
            pass
    """,
}
BEGINNING = """
import asyncio, sys, threading, time
import keepstep
run = keepstep.open(sys.argv[1]).run("shop")
episode = run.episode("t").__enter__()
episode.step(action=0)
"""
HOLD = """
    import sys, keepstep
    episode = keepstep.open(sys.argv[1]).run("shop").episode("held").__enter__()
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", EXITS)
def test_a_process_that_exits_says_aborted(tmp_path: Path, how: str) -> None:
    """No deadlock, no crash, no episode without a word, whatever is under way when the interpreter ends."""
    with outside.start(HOLD, tmp_path / "runs") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        script = BEGINNING + textwrap.dedent(EXITS[how])
        with outside.start(script, tmp_path / "runs") as process:
            try:
                _, err = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"hangs at exit: {process.communicate()[1]}") from None
        holder.kill()
    assert process.returncode == (how == "an exception"), err
    for word in ("panicked", "Fatal", "fatal"):
        assert word not in err, err
    rows: list[Any] = [row for row in outside.listed(tmp_path / "runs", "shop") if row["task"] != "held"]
    endings = {row["task"]: row["why"] for row in rows}
    assert endings.pop("t") == "aborted"
    # A loop whose first task met the closed store cancels the others: either may come first.
    daemon = {"aborted", "cancelled"} if how == "a loop in a daemon thread" else {"aborted"}
    allowed = {"daemon": daemon, "task": {"cancelled"}, "late": {"finished"}, "cycle": {"aborted"}}
    for task, why in endings.items():
        assert why in allowed[task], (task, why, err)


def test_the_dead_are_reaped(tmp_path: Path) -> None:
    """What a killed process left without a word is recorded as crashed by whoever looks, once."""
    script = BEGINNING + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    outside.run(script, tmp_path / "runs", code=outside.KILLED)
    with keepstep.open(tmp_path / "runs") as store:
        assert store.reap() == 1
        assert store.reap() == 0
    (row,) = outside.listed(tmp_path / "runs", "shop")
    assert (row["why"], row["steps"]) == ("crashed", 1)
