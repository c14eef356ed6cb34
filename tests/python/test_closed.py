"""After `close` nothing is written by this handle: every verb that writes raises `Closed`, and the files stay as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest


class World:
    """One of everything, made before the store is closed."""

    def __init__(self, store: keepstep.Store) -> None:
        self.store, self.run = store, store.run("shop")
        self.run.plan(["a", "b"], needs=["score"])
        self.jobs, self.unscored = self.run.remaining(), self.run.unscored()
        self.job = next(self.jobs)
        with self.run.episode("done") as episode:
            episode.step(action=1)
            episode.end("finished")
        self.episode = self.run.episode("open").__enter__()
        self.episode.step(action=1)
        self.list = self.episode.trajectory()
        self.list.append(1)
        self.in_turn = self.run.episode("turn").__enter__()
        self.turn = self.in_turn.turn(action=1)
        self.turn.__enter__()
        self.group, self.slots = self.run.group("done", size=1), self.run.group("slots", size=2)
        self.stream = self.run.stream("old")
        self.stream.put("1", 1).wait()
        self.others = self.run.stream("new")


# Every public verb that writes.
WRITES: dict[str, Callable[[World], Any]] = {
    "Store.run": lambda it: it.store.run("new"),
    "Store.run new": lambda it: it.store.run("shop", new=True),
    "Store.reap": lambda it: it.store.reap(),
    "Run.plan": lambda it: it.run.plan(["c"]),
    "Run.plan again": lambda it: it.run.plan(["a"]),
    "Run.plan more": lambda it: it.run.plan(["a"], samples=3),
    "Run.episode": lambda it: it.run.episode("new").__enter__(),
    "Run.episode again": lambda it: it.run.episode("turn").__enter__(),
    "Run.episode unnamed": lambda it: it.run.episode().__enter__(),
    "Run.claim": lambda it: it.run.claim(),
    "Run.remaining": lambda it: next(it.run.remaining()),
    "Run.unscored": lambda it: next(it.run.unscored()),
    "Run.annotate": lambda it: it.run.annotate("shop/done#0.0", "score", 1, source="me"),
    "Jobs": lambda it: next(it.jobs),
    "Jobs unscored": lambda it: next(it.unscored),
    "Job.episode": lambda it: it.job.episode().__enter__(),
    "Group.claim": lambda it: it.slots.claim(),
    "Group.seal": lambda it: it.group.seal(source="me").wait(),
    "Stream.put": lambda it: it.stream.put("2", 2),
    "Stream.put again": lambda it: it.stream.put("1", 1),
    "Stream.put first": lambda it: it.others.put("1", 1),
    "Stream.freeze": lambda it: it.stream.freeze(),
    "Stream.freeze empty": lambda it: it.others.freeze(),
    "Stream.drop": lambda it: it.stream.drop(),
    "Stream.drop empty": lambda it: it.others.drop(),
    "Episode.first": lambda it: it.in_turn.first("begin"),
    "Episode.step": lambda it: it.episode.step(action=2),
    "Episode.submit": lambda it: it.episode.submit(action=2),
    "Episode.turn": lambda it: it.episode.turn(action=2).__enter__(),
    "Episode.call": lambda it: it.episode.call("llm", lambda: 1),
    "Episode.note": lambda it: it.episode.note("score", 1, source="me"),
    "Episode.end": lambda it: it.episode.end("finished"),
    "Episode.trajectory": lambda it: it.list.append(2),
    "Turn.result": lambda it: it.turn.result(observation=1),
    "Turn.discard": lambda it: it.turn.discard("again"),
}


def files(where: Path) -> dict[str, str]:
    """Every file of the store, with a hash of its bytes."""
    there = (it for it in where.rglob("*") if it.is_file())
    return {str(it.relative_to(where)): hashlib.sha256(it.read_bytes()).hexdigest() for it in there}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("verb", WRITES)
def test_nothing_is_written_after_close(tmp_path: Path, verb: str) -> None:
    """`run.plan` and `store.run` still wrote; so did the first `put`, `freeze` and `drop` of a stream before they were refused."""
    where = tmp_path / "runs"
    world = World(keepstep.open(where))
    world.store.close()
    before = files(where)
    for _ in range(2):
        with pytest.raises(keepstep.Closed):
            WRITES[verb](world)
        assert files(where) == before


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_all_of_them_write_while_it_is_open(tmp_path: Path) -> None:
    """The negative control: none of them is Closed then."""
    for number, (verb, write) in enumerate(WRITES.items()):
        store = keepstep.open(tmp_path / str(number))
        try:
            write(World(store))
        except keepstep.Closed as raised:
            raise AssertionError(verb) from raised
        except (keepstep.KeepstepError, StopIteration):
            pass
        store.close()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_reads_still_reads_after_close(tmp_path: Path) -> None:
    """A closed store can be looked at."""
    world = World(keepstep.open(tmp_path / "runs"))
    world.store.close()
    assert world.store.find("shop/done").state == "finished"
    assert world.store.run("shop").progress().planned == 2
    assert world.stream.read() == {"1": 1}
    assert len(list(world.run.episodes())) == 3
