"""How the episodes of a recorded environment end: each ending, in each flavour."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import keepstep
import pytest
from reading_back import ending, read
from toy_envs import FLAVOURS, AsyncCorridor, DmCorridor, Flavour, GymCorridor

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)
blocking_flavour = pytest.mark.parametrize("flavour", FLAVOURS[:2], ids=lambda flavour: flavour.name)


class Trouble(Exception):
    """What environments raise here."""


def trouble() -> None:
    raise Trouble("out of order")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "runs") as store:
        yield store


@pytest.fixture
def run(store: keepstep.Store) -> keepstep.Run:
    return store.run("walk")


@each_flavour
def test_a_normal_end_is_finished(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make(), run, task="t", sample=0)
    assert flavour.reset(env) == 0
    flavour.walk(env, 3)
    # Durable when the step returned: nothing else has to happen.
    assert ending(run.store, "walk/t") == ("finished", None, flavour.said_by)
    record = read(run.store, "walk/t")
    assert [step["kind"] for step in record.steps] == ["FIRST", "MID", "MID", "LAST"]
    assert [step["observation"] for step in record.steps] == [0, 2, 4, 6]
    assert [step.get("action") for step in record.steps] == [None, 2, 2, 2]
    assert [step.get("reward") for step in record.steps] == [None, 1.0, 1.0, 1.0]


def test_a_step_limit_is_truncated_by_steps(run: keepstep.Run) -> None:
    env = keepstep.record(gymnasium.wrappers.TimeLimit(GymCorridor(), 2), run, task="t", sample=0)
    env.reset()
    env.step(1)
    assert env.step(1)[3]
    assert ending(run.store, "walk/t") == ("truncated", "steps", "TimeLimit wrapper")


def test_a_flag_without_a_limit_wrapper_is_truncated(run: keepstep.Run) -> None:
    class OutOfBounds(GymCorridor):
        def step(self, action: int) -> Any:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, True, info

    class OldStyle(OutOfBounds):
        def step(self, action: int) -> Any:
            return (*super().step(action)[:4], {"TimeLimit.truncated": True})

    for env, name, limit, said_by in [
        (OutOfBounds(), "flag", None, "truncated flag"),
        (OldStyle(), "info", "steps", 'info["TimeLimit.truncated"]'),
    ]:
        recorded = keepstep.record(env, run, task=name, sample=0)
        recorded.reset()
        recorded.step(1)
        assert ending(run.store, f"walk/{name}") == ("truncated", limit, said_by)


def test_an_end_at_the_limit_is_an_end(run: keepstep.Run) -> None:
    env = keepstep.record(gymnasium.wrappers.TimeLimit(GymCorridor(), 3), run, task="t", sample=0)
    env.reset()
    for _ in range(3):
        came = env.step(2)
    assert came[2] and came[3]
    assert ending(run.store, "walk/t") == ("finished", None, "terminated flag")


@pytest.mark.parametrize("flavour", FLAVOURS[1:], ids=lambda flavour: flavour.name)
def test_a_last_step_with_a_discount_is_truncated(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make(last_discount=1.0), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 3)
    assert ending(run.store, "walk/t") == ("truncated", None, "discount")


@each_flavour
def test_a_reset_while_active_abandons(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make_kept(), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 1)
    assert flavour.reset(env) == 0, "what the loop gave up begins anew"
    assert ending(run.store, "walk/t~0") == ("abandoned", None, "reset")
    assert keepstep.current(env).attempt == 1
    flavour.walk(env, 3)
    assert ending(run.store, "walk/t~1")[0] == "finished"


@each_flavour
def test_closing_while_active_aborts(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make(), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 1)
    flavour.close(env)
    assert ending(run.store, "walk/t") == ("aborted", None, "close")
    assert inner.corridor.closed == 1
    with pytest.raises(keepstep.Ended, match="has ended"):
        flavour.step(env, 1)


@each_flavour
def test_leaving_while_active_aborts(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make(), run, task="t", sample=0)
    body = env.reset if flavour.name == "async" else lambda: env.reset() and None
    flavour.within(env, body)
    assert ending(run.store, "walk/t") == ("aborted", None, "exit")
    assert inner.corridor.closed == 1


@each_flavour
def test_leaving_by_an_exception_aborts_and_keeps_it(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make(), run, task="t", sample=0)

    def body() -> Any:
        if flavour.name != "async":
            env.reset()
            raise Trouble("of the loop's")

        async def inside() -> None:
            await env.reset()
            raise Trouble("of the loop's")

        return inside()

    with pytest.raises(Trouble):
        flavour.within(env, body)
    end = read(run.store, "walk/t").end
    assert end is not None and (end["why"], end["said_by"]) == ("aborted", "exit")
    assert end["error"]["message"] == "of the loop's"


@each_flavour
def test_close_after_an_ending_adds_nothing(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make(), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 3)
    before = read(run.store, "walk/t")
    flavour.close(env)
    flavour.close(env)
    assert inner.corridor.closed == 2
    assert read(run.store, "walk/t") == before


@each_flavour
def test_a_step_that_raises_is_errored(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make({1: trouble}), run, task="t", sample=0)
    flavour.reset(env)
    flavour.step(env, 1)
    with pytest.raises(Trouble, match="out of order"):
        flavour.step(env, 3)
    record = read(run.store, "walk/t")
    assert record.end is not None and (record.end["why"], record.end["said_by"]) == ("errored", "step")
    assert record.end["error"]["type"].endswith("Trouble")
    assert "out of order" in record.end["error"]["traceback"]
    # What was said stays, with what was raised instead of a result.
    assert record.steps[-1]["action"] == 3 and record.steps[-1]["error"]["message"] == "out of order"
    with pytest.raises(keepstep.Ended, match="errored"):
        flavour.step(env, 1)


@each_flavour
def test_a_reset_that_raises_is_errored(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make({"reset": trouble}), run, task="t", sample=0)
    with pytest.raises(Trouble):
        flavour.reset(env)
    assert ending(run.store, "walk/t~0") == ("errored", None, "reset")
    with pytest.raises(keepstep.Ended):
        flavour.step(env, 1)
    getattr(inner, "troubles", inner.corridor.troubles).clear()
    assert flavour.reset(env) == 0
    assert keepstep.current(env).attempt == 1


@each_flavour
def test_a_reset_that_raises_while_active_leaves_both_endings(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make(), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 1)
    getattr(inner, "troubles", inner.corridor.troubles)["reset"] = trouble
    with pytest.raises(Trouble):
        flavour.reset(env)
    assert ending(run.store, "walk/t~0") == ("abandoned", None, "reset")
    assert ending(run.store, "walk/t~1") == ("errored", None, "reset")


@each_flavour
def test_a_reset_that_raises_before_the_task_is_known_is_kept_unnamed(
    flavour: Flavour, run: keepstep.Run
) -> None:
    env = keepstep.record(flavour.make({"reset": trouble}), run, task=lambda env, result: "never")
    with pytest.raises(Trouble):
        flavour.reset(env)
    assert ending(run.store, keepstep.current(env).id) == ("errored", None, "reset")


@blocking_flavour
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_being_told_to_stop_aborts(flavour: Flavour, stop: type[BaseException], run: keepstep.Run) -> None:
    def told() -> None:
        raise stop

    env = keepstep.record(flavour.make({1: told}), run, task="t", sample=0)
    flavour.reset(env)
    flavour.step(env, 1)
    with pytest.raises(stop):
        flavour.step(env, 1)
    assert ending(run.store, "walk/t") == ("aborted", None, "step")
    assert len(read(run.store, "walk/t").steps) == 2, "what the action did is not known: it is no step"


@blocking_flavour
def test_an_exhausted_iterator_inside_reaches_the_caller(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make({0: lambda: next(iter(()))}), run, task="t", sample=0)
    flavour.reset(env)
    with pytest.raises(StopIteration):
        flavour.step(env, 1)
    end = read(run.store, "walk/t").end
    assert end is not None and (end["why"], end["error"]["type"]) == ("errored", "StopIteration")


def cancelled_after(work: Any) -> Any:
    """Runs something in a task, cancels that when it waits, and gives what came."""

    async def scene() -> Any:
        task = asyncio.ensure_future(work)
        for _ in range(2000):
            await asyncio.sleep(0.001)
            if is_waiting.is_set():
                break
        assert is_waiting.is_set(), "it never came to the place where it waits"
        task.cancel()
        return await task

    is_waiting.clear()
    return asyncio.run(scene())


class Flag:
    """Set when an environment waits for something that never comes."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        self._is_set = True
        await asyncio.sleep(3600)


is_waiting = Flag()


def test_cancellation_during_a_step_is_cancelled(run: keepstep.Run) -> None:
    env = keepstep.record(AsyncCorridor({1: is_waiting.wait}), run, task="t", sample=0)

    async def loop() -> None:
        await env.reset()
        await env.step(1)
        await env.step(2)

    with pytest.raises(asyncio.CancelledError):
        cancelled_after(loop())
    assert ending(run.store, "walk/t") == ("cancelled", None, "step")
    with run.episode("t", sample=0) as episode:
        assert episode.pending is not None and episode.pending.said == {"action": 2}
        episode.end("finished")


def test_cancellation_during_a_reset_is_cancelled(run: keepstep.Run) -> None:
    env = keepstep.record(AsyncCorridor({"reset": is_waiting.wait}), run, task="t", sample=0)
    with pytest.raises(asyncio.CancelledError):
        cancelled_after(env.reset())
    assert ending(run.store, "walk/t") == ("cancelled", None, "reset")


def test_cancellation_that_leaves_the_environment_is_cancelled(run: keepstep.Run) -> None:
    env = keepstep.record(AsyncCorridor(), run, task="t", sample=0)

    async def loop() -> None:
        async with env:
            await env.reset()
            await is_waiting.wait()

    with pytest.raises(asyncio.CancelledError):
        cancelled_after(loop())
    assert ending(run.store, "walk/t") == ("cancelled", None, "exit")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 cannot tell whose cancellation it is")
@pytest.mark.parametrize("where", ["reset", 1])
def test_an_environment_that_cancels_its_own_inner_task_is_errored(where: Any, run: keepstep.Run) -> None:
    async def cancels_itself() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(3600))
        inner.cancel()
        await inner

    env = keepstep.record(AsyncCorridor({where: cancels_itself}), run, task="t", sample=0)

    async def loop() -> None:
        await env.reset()
        await env.step(1)
        await env.step(1)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(loop())
    why, _, said_by = ending(run.store, "walk/t")
    assert (why, said_by) == ("errored", "reset" if where == "reset" else "step")


KILLED = """
import asyncio, os, signal, sys
from toy_envs import FLAVOURS
import keepstep
flavour = FLAVOURS[int(sys.argv[2])]
env = keepstep.record(flavour.make({1: lambda: os.kill(os.getpid(), signal.SIGKILL)}),
                      keepstep.open(sys.argv[1]).run("walk"), task="t", sample=0)
flavour.reset(env)
flavour.walk(env, 2)
"""


@each_flavour
def test_a_process_that_is_killed_has_crashed(flavour: Flavour, store: keepstep.Store) -> None:
    where = os.path.dirname(__file__)
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(store.where), str(FLAVOURS.index(flavour))]
    done = subprocess.run(command, cwd=where, check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.reap() == 1
    assert ending(store, "walk/t") == ("crashed", None, "whoever found it")
    with store.run("walk").episode("t", sample=0) as episode:
        assert episode.turns == 1 and episode.pending is not None and episode.pending.said == {"action": 2}
        episode.end("finished")


@each_flavour
def test_what_the_loop_says_beats_what_is_inferred(flavour: Flavour, run: keepstep.Run) -> None:
    names = iter("abcd")
    for leave in (flavour.close, flavour.reset):
        env = keepstep.record(flavour.make(), run, task=lambda env, result: next(names), sample=0)
        flavour.reset(env)
        flavour.walk(env, 1)
        episode = keepstep.current(env)
        episode.end("truncated", limit="tokens")
        with pytest.raises(keepstep.Ended, match="truncated"):
            flavour.step(env, 2)
        leave(env)
        assert ending(run.store, episode.ref) == ("truncated", "tokens", "loop")


@each_flavour
def test_saying_again_what_the_environment_said_is_fine(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make(), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 3)
    keepstep.current(env).end("finished").wait()
    with pytest.raises(keepstep.Ended, match="ending="):
        keepstep.current(env).end("truncated", limit="tokens")
    assert ending(run.store, "walk/t") == ("finished", None, flavour.said_by)


@each_flavour
def test_ending_beats_what_the_environment_says(flavour: Flavour, run: keepstep.Run) -> None:
    """TwentyQuestions of ARES ends at its limit as if it were done: only its user knows."""

    def at_the_goal(env: Any, result: Any) -> keepstep.Ending | None:
        return keepstep.Ending("truncated", limit="questions") if env.corridor.position >= 6 else None

    env = keepstep.record(flavour.make(), run, task="t", sample=0, ending=at_the_goal)
    flavour.reset(env)
    flavour.walk(env, 3)
    assert ending(run.store, "walk/t") == ("truncated", "questions", "ending=")


@each_flavour
def test_ending_ends_environments_that_never_say(flavour: Flavour, run: keepstep.Run) -> None:
    def at_two(env: Any, result: Any) -> keepstep.Ending | None:
        return keepstep.Ending("finished", said_by="the STOP action") if env.corridor.taken == 2 else None

    env = keepstep.record(flavour.make(goal=10**6), run, task="t", sample=0, ending=at_two)
    flavour.reset(env)
    flavour.walk(env, 2)
    assert ending(run.store, "walk/t") == ("finished", None, "the STOP action")
    with pytest.raises(keepstep.Ended):
        flavour.step(env, 1)


@pytest.mark.parametrize("flavour", [FLAVOURS[0], FLAVOURS[2]], ids=lambda flavour: flavour.name)
def test_after_an_ending_step_raises_until_reset(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(
        inner := flavour.make(), run, task=lambda env, result: f"t{env.corridor.resets}", sample=0
    )
    with pytest.raises(keepstep.Ended, match="reset"):
        flavour.step(env, 1)
    flavour.reset(env)
    flavour.walk(env, 3)
    for _ in range(2):
        with pytest.raises(keepstep.Ended, match="call reset"):
            flavour.step(env, 1)
    assert inner.corridor.taken == 3, "the environment was not asked"
    flavour.reset(env)
    flavour.walk(env, 3)
    assert ending(run.store, "walk/t2")[0] == "finished"


def test_a_dm_env_environment_begins_again_by_a_step_as_its_contract_says(run: keepstep.Run) -> None:
    env = keepstep.record(DmCorridor(), run, task=lambda env, result: f"t{env.corridor.resets}", sample=0)
    assert env.step(2).first()
    for _ in range(3):
        last = env.step(2)
    assert last.last()
    assert env.step(2).first()
    assert ending(run.store, "walk/t1")[0] == "finished"
    assert keepstep.current(env).ref == "walk/t2#0.0~0"
    keepstep.current(env).end("truncated", limit="turns")
    with pytest.raises(keepstep.Ended):
        env.step(2)


@each_flavour
def test_the_original_exception_reaches_the_caller_when_recording_fails(
    flavour: Flavour, run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    raised = Trouble("mine")

    def fails_with_the_store() -> None:
        run.store.close()
        raise raised

    env = keepstep.record(flavour.make({1: fails_with_the_store}), run, task="t", sample=0)
    flavour.reset(env)
    flavour.step(env, 1)
    with caplog.at_level(logging.ERROR, "keepstep"), pytest.raises(Trouble) as caught:
        flavour.step(env, 1)
    assert caught.value is raised
    assert "could not be recorded" in caplog.text


class Strange:
    """What a strict store does not record."""

    def __int__(self) -> int:
        return 2


@pytest.fixture
def strict_run(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "strict", strict=True) as store:
        yield store.run("walk")


@each_flavour
def test_a_recording_that_fails_is_raised(flavour: Flavour, strict_run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make(), strict_run, task="t", sample=0)
    flavour.reset(env)
    with pytest.raises(keepstep.BadInput, match="action"):
        flavour.step(env, Strange())
    assert inner.corridor.taken == 0, "what could not be said was not done"
    assert ending(strict_run.store, "walk/t") == ("errored", None, "recording")
    with pytest.raises(keepstep.Ended, match="reset"):
        flavour.step(env, 1)
    assert flavour.reset(env) == 0


@each_flavour
def test_a_recording_that_fails_only_warns_if_that_is_wanted(
    flavour: Flavour, strict_run: keepstep.Run
) -> None:
    env = keepstep.record(flavour.make(), strict_run, task="t", sample=0, on_record_error="warn")
    flavour.reset(env)
    flavour.walk(env, 1)
    with pytest.warns(RuntimeWarning, match="not recorded until the next reset"):
        assert flavour.step(env, Strange()) == 4
    assert keepstep.current(env).turns == 2, "the loop still knows where it is"
    assert flavour.step(env, 2) == 6
    assert len(read(strict_run.store, "walk/t").steps) == 2
    if flavour.name != "dm_env":
        with pytest.raises(keepstep.Ended):
            flavour.step(env, 2)
    assert flavour.reset(env) == 0
    flavour.walk(env, 3)
    assert ending(strict_run.store, "walk/t~1")[0] == "finished", "recorded again from the reset on"


@each_flavour
def test_a_store_that_is_closed_under_an_environment_says_so(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(inner := flavour.make(), run, task="t", sample=0)
    flavour.reset(env)
    run.store.close()
    with pytest.raises(keepstep.Closed, match="store was closed"):
        flavour.step(env, 1)
    assert inner.corridor.taken == 0
    with pytest.raises(keepstep.Closed):
        flavour.reset(env)
    flavour.close(env)
    assert inner.corridor.closed == 1


@each_flavour
def test_a_store_that_is_closed_under_an_environment_only_warns_if_that_is_wanted(
    flavour: Flavour, run: keepstep.Run
) -> None:
    env = keepstep.record(flavour.make(), run, task="t", sample=0, on_record_error="warn")
    flavour.reset(env)
    run.store.close()
    with pytest.warns(RuntimeWarning, match="not recorded until the next reset"):
        flavour.walk(env, 3)
    with pytest.warns(RuntimeWarning, match="not recorded until the next reset"):
        assert flavour.reset(env) == 0


@each_flavour
def test_a_result_that_cannot_be_recorded_is_raised_after_the_step(
    flavour: Flavour, strict_run: keepstep.Run
) -> None:
    inner = flavour.make()
    env = keepstep.record(inner, strict_run, task="t", sample=0)
    flavour.reset(env)
    inner.corridor.walk = lambda action: (Strange(), 0.0, False)
    with pytest.raises(keepstep.BadInput, match="observation"):
        flavour.step(env, 1)
    record = read(strict_run.store, "walk/t")
    assert record.end is not None and (record.end["why"], record.end["said_by"]) == ("errored", "recording")
    assert record.steps[-1]["action"] == 1 and "observation" not in record.steps[-1]
