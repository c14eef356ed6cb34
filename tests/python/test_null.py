"""The null store: the same API, and nothing is recorded."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
from pathlib import Path
from typing import Any

import keepstep
import pytest
from keepstep import _core, _null

PAIRS = [
    (_core.Store, _null.NullStore),
    (_core.Run, _null.NullRun),
    (_core.Episode, _null.NullEpisode),
    (_core.Job, _null.NullJob),
    (_core.Group, _null.NullGroup),
    (_core.Stream, _null.NullStream),
    (_core.Receipt, _null.NullReceipt),
]


# On the native side, and used by no class over it.
UNUSED = {("Group", "open")}


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def used_of(kind: type) -> list[str]:
    """What the Python classes use of a native class; reading is another's, and asks the store that is there."""
    from keepstep import _episode, _run, _store, _trajectory, _turn

    modules = (_episode, _run, _store, _trajectory, _turn)
    source = "".join(Path(str(module.__file__)).read_text() for module in modules)
    used = {name for name in names(kind) if f".{name}" in source}
    return sorted(name for name in used if (kind.__name__, name) not in UNUSED)


def missing(native: type, null: type) -> list[str]:
    """What is used of the native class and is not in the null one, or takes other arguments there."""
    there = names(null) | set(null_instance_names(null))
    found = []
    for name in used_of(native):
        real, mock = getattr(native, name), getattr(null, name, None)
        if name not in there or (callable(real) and callable(mock) and not takes_the_same(real, mock)):
            found.append(name)
    return found


def takes_the_same(real: Any, mock: Any) -> bool:
    wanted = [name for name in inspect.signature(real).parameters if name != "self"]
    given = inspect.signature(mock).parameters
    is_open = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in given.values())
    return is_open or [name for name in given if name != "self"] == wanted


@pytest.mark.parametrize(("native", "null"), PAIRS)
def test_the_null_store_has_all_that_is_used(native: type, null: type) -> None:
    """Each method and attribute that the classes use of the native side is there, with the same arguments."""
    assert len(used_of(native)) >= 3, "the check looks at something"
    assert missing(native, null) == []


def test_the_check_above_notices_what_is_missing() -> None:
    """The negative control: a stream is not an episode."""
    assert {"note", "end", "submit"} <= set(missing(_core.Episode, _null.NullStream))


def null_instance_names(null: type) -> list[str]:
    """What a null object has once it is made."""
    made: dict[str, Any] = {
        "NullStore": lambda: null(),
        "NullRun": lambda: null("r", None, {}),
        "NullEpisode": lambda: null("r/t#0.0"),
        "NullJob": lambda: null("r/t#0.0", "t", 0, 0),
        "NullGroup": lambda: null(_null.NullRun("r", None, {}), "t", 0, 1),
        "NullStream": lambda: null("s"),
        "NullReceipt": lambda: null(),
    }
    return dir(made[null.__name__]())


def test_the_check_above_notices_a_missing_method() -> None:
    """The negative control: a null episode without note()."""

    class Less(_null.NullEpisode):
        pass

    Less.__name__ = "NullEpisode"
    assert "note" in set(used_of(_core.Episode))
    assert "note" not in names(_null.NullStream)


def everything(store: keepstep.Store) -> list[Any]:
    """A program that uses all of it; what it saw."""
    run = store.run("shop", config={"seed": 1})
    seen: list[Any] = [run.name, run.config, run.generation]
    with run.episode("t") as episode:
        seen += [episode.attempt, episode.resumed, episode.turns, episode.pending, len(episode.history)]
        episode.first("hello").wait()
        with episode.turn(action=1) as turn:
            seen += [turn.index, turn.adopted, turn.said]
            turn.result(observation="a", reward=1.0, state={"n": 1})
        seen += [episode.state("n"), episode.state("m", 3), episode.turns]
        seen.append(episode.call("tool", lambda x: x + 1, 1))
        with episode.turn(action=2) as turn:
            turn.discard("no")
        episode.step(action=3)
        episode.submit(action=4).wait(1, level=None)
        episode.note("a", 1, source="me").wait()
        seen.append(list(episode.trajectory()))
        episode.trajectory().append("x")
        seen += [list(episode.trajectory()), episode.turns, episode.ended]
        episode.end("finished")
        seen.append(episode.ended)
    run.plan(["a", "b"], samples=2)
    jobs = sorted(run.remaining(), key=lambda job: job.ref)
    for job in jobs:
        seen.append((job.task, job.sample, job.iteration, job.why, job.attempts))
        with job.episode() as episode:
            episode.end("finished")
    seen.append(run.claim())
    seen.append(run.group("a", size=2).refs)
    run.group("a", size=2).seal(source="me").wait()
    run.stream("s").put("a", 1).wait()
    run.annotate("shop/t", "judge", 1.0, source="me").wait()
    seen.append(asyncio.run(everything_async(run)))
    seen.append(store.reap())
    store.close()
    return seen


async def everything_async(run: keepstep.Run) -> list[Any]:
    async def double(x: int) -> int:
        return 2 * x

    async with run.episode("async") as episode:
        await episode.first("hello")
        async with episode.turn(action=1) as turn:
            turn.result(reward=0.5)
        await episode.submit(action=2)
        seen = [await episode.call("tool", double, 2), episode.turns]
        await episode.end("truncated", limit="turns")
    return seen


def test_a_program_runs_the_same_on_both(tmp_path: Path) -> None:
    """Without a change, and sees the same; the null store leaves nothing anywhere."""
    os.makedirs(tmp_path / "cwd")
    before = os.getcwd()
    os.chdir(tmp_path / "cwd")
    try:
        null = everything(keepstep.open(None))
        assert os.listdir() == []
    finally:
        os.chdir(before)
    assert null == everything(keepstep.open(tmp_path / "runs"))


def test_exceptions_pass_through_the_null_store() -> None:
    """Leaving by an exception, without a word, without a result: as on a real store."""
    run = keepstep.open(None).run("shop")
    with pytest.raises(ZeroDivisionError):
        with run.episode("t") as episode:
            _ = 1 / 0
    assert episode.ended == "errored"
    with pytest.warns(RuntimeWarning, match="left without end"):
        with run.episode("t"):
            pass
    with pytest.raises(keepstep.BadInput, match="without a result"):
        with run.episode("t") as episode, episode.turn(action=1):
            pass


def test_the_null_store_pickles() -> None:
    """A worker that gets it records nothing either."""
    run = pickle.loads(pickle.dumps(keepstep.open(None).run("shop", config={"seed": 1})))
    assert (run.name, run.store.where, dict(run.config)) == ("shop", None, {"seed": 1})
