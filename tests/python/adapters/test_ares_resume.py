"""Rollouts of ARES whose process was killed: what is left is true, and they go on to the record of one that was not."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from pathlib import Path
from typing import Any

import ares_to_kill
import keepstep
import pytest
from keepstep.adapters.ares import KeepstepTrajectoryCollector, TrajectoryCollectingEnvironment
from reading_back import read
from toy_ares import Met, Talk, answer, talk, to_the_end

KILLED = -signal.SIGKILL
# All of them on the real environment, in `make test-outside`.
POINTS = ["begun", "in 0", "in 2", "after 3", "end"]


def roll(where: Path, mode: str, sample: int | None, point: str) -> tuple[int, str]:
    """A rollout in a process of its own, a forked one to be quick: its exit code, and what it said."""
    said = where / "said"
    said.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            said.write_text(asyncio.run(ares_to_kill.rollout(where / "runs", mode, sample, point)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, said.read_text() if said.exists() else ""


def record_of(where: Path) -> tuple[Any, Any]:
    """What the rollout says, without who recorded it and when."""
    record = read(str(where / "runs"), "talk/greet")
    return record.steps, record.end


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """What a rollout says that nobody killed."""
    where = tmp_path_factory.mktemp("never")
    assert roll(where, "restart", 0, "never") == (0, "0 1")
    return record_of(where)


@pytest.mark.parametrize("mode", ["restart", "replay"])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_rollout_goes_on_to_the_same_record(
    point: str, mode: str, uninterrupted: tuple[Any, Any], tmp_path: Path
) -> None:
    assert roll(tmp_path, mode, 0, point) == (KILLED, "")
    code, said = roll(tmp_path, mode, 0, "never")
    assert (code, record_of(tmp_path)) == (0, uninterrupted)
    if mode == "restart" or point in ("begun", "in 0"):
        assert said == "0 1"
    elif point == "end":
        # Its last step said how it ended, so only the end was missing.
        assert said == "done before"
    else:
        turns = int(point.split()[1]) + point.startswith("after")
        assert said == f"{turns} {1 + 2 * turns}", "it goes on behind the last durable step"


@pytest.mark.parametrize("mode", ["restart", "replay"])
def test_what_a_killed_process_left_is_true(mode: str, tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, the answer that was being taken is known, and it ended as crashed."""
    assert roll(tmp_path, mode, None, "in 2") == (KILLED, "")
    with keepstep.open(tmp_path / "runs") as store:
        assert store.reap() == 1
        view = store.find("talk/greet")
        assert view.ending is not None and view.ending.why == "crashed"
        assert len(view.steps) == 3
        assert view.pending is not None and view.pending.action["data"] == [{"content": "word 2"}]
    assert roll(tmp_path, mode, None, "never")[0] == 0
    with keepstep.open(tmp_path / "runs") as store:
        (view,) = store.run("talk").episodes()
        assert (view.attempt, view.state) == (1, "finished")
        assert store.find("talk/greet~0").state == "crashed", "the first attempt stays readable"


def test_killed_again_and_again(uninterrupted: tuple[Any, Any], tmp_path: Path) -> None:
    for point in ("after 0", "in 2", "after 2"):
        assert roll(tmp_path, "replay", 0, point) == (KILLED, "")
    assert roll(tmp_path, "replay", 0, "never") == (0, "3 7")
    assert record_of(tmp_path) == uninterrupted


# What a replay meets


def interrupt(run: keepstep.Run, *said: str) -> None:
    """Leaves an episode that another one goes on from."""

    async def loop() -> None:
        env = TrajectoryCollectingEnvironment(Talk(), KeepstepTrajectoryCollector(run, sample=0))
        await env.reset()
        for text in said:
            await env.step(answer(text))
        await env.close()

    asyncio.run(loop())


def replaying(run: keepstep.Run, inner: Any) -> Any:
    collector = KeepstepTrajectoryCollector(run, sample=0, environment="replay")
    return TrajectoryCollectingEnvironment(inner, collector)


def test_a_replay_that_differs_says_where(run: keepstep.Run) -> None:
    class Other(Talk):
        async def step(self, action: Any) -> Any:
            time_step = await super().step(action)
            self._messages[-1]["content"] += " at noon"
            return time_step

    interrupt(run, "a")
    env = replaying(run, Other())
    where = r"step 1, observation\['messages'\]\[2\]\['content'\]: recorded 'heard a', now 'heard a at noon'"
    with pytest.raises(keepstep.Diverged, match=where):
        asyncio.run(env.reset())
    end = run.store.find("shop/greet").ending
    assert end is not None and (end.why, end.said_by) == ("errored", "replay")


def test_a_replay_that_ends_early_differs(run: keepstep.Run) -> None:
    interrupt(run, "a", "b")
    with pytest.raises(
        keepstep.Diverged, match="step 2, its end: the recorded episode continued, now it is fin"
    ):
        asyncio.run(replaying(run, Talk(turns=2)).reset())


def test_actions_come_back_as_responses(run: keepstep.Run) -> None:
    """The environment gets what it got before, not the plain data that was recorded of it."""
    got = []

    class Looking(Talk):
        async def step(self, action: Any) -> Any:
            got.append(action)
            return await super().step(action)

    interrupt(run, "a", "b")
    asyncio.run(replaying(run, Looking()).reset())
    assert got == [answer("a"), answer("b")]


def test_steps_are_counted_on(run: keepstep.Run) -> None:
    told = []

    class Told(KeepstepTrajectoryCollector):
        def record_step(self, record: Any, **more: Any) -> Any:
            told.append(record.step_index)
            return super().record_step(record, **more)

    interrupt(run, "a")
    env = TrajectoryCollectingEnvironment(Talk(), Told(run, sample=0, environment="replay"))
    asyncio.run(to_the_end(env, env.env))
    assert told == [2, 3]
    assert env.last_trajectory is not None and env.last_trajectory.num_steps == 4


def test_another_answer_than_the_pending_one_is_taken(run: keepstep.Run) -> None:
    """The environment stands before the turn that was pending: that one is given up, on record."""

    async def interrupted() -> None:
        inner = Talk(troubles={1: (met := Met()).wait})
        env = TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run, sample=0))
        await env.reset()
        await env.step(answer("a"))
        await met.cancel(asyncio.ensure_future(env.step(answer("b"))))

    asyncio.run(interrupted())
    assert run.store.find("shop/greet").pending is not None
    env = replaying(run, Talk())

    async def gone_on() -> None:
        await env.reset()
        await env.step(answer("c"))
        await env.close()

    asyncio.run(gone_on())
    view = run.store.find("shop/greet")
    assert [step.action["data"][0]["content"] for step in view.steps[1:]] == ["a", "c"]


def test_what_the_loop_gave_up_begins_anew(run: keepstep.Run) -> None:
    env = replaying(run, inner := Talk())

    async def loop() -> None:
        await env.reset()
        await env.step(answer("a"))
        assert len((await env.reset()).observation.messages) == 1
        await talk(env)

    asyncio.run(loop())
    assert (inner.resets, run.store.find("shop/greet~1").state) == (2, "finished")


def test_a_wrong_mode_is_refused(run: keepstep.Run) -> None:
    with pytest.raises(keepstep.BadInput, match="'restart' or 'replay'"):
        KeepstepTrajectoryCollector(run, environment="restore")  # type: ignore[arg-type]
