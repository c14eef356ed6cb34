"""Environments of ARES that tell a collector of their episodes: what is told, how they end, what is durable when."""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
from ares.environments import base
from keepstep.adapters import ares as adapter
from keepstep.adapters.ares import (
    EpisodeTrajectory,
    JsonTrajectoryCollector,
    KeepstepTrajectoryCollector,
    NullTrajectoryCollector,
    StepRecord,
    TrajectoryCollectingEnvironment,
    TrajectoryCollector,
)
from reading_back import ending
from toy_ares import Met, Talk, answer, collecting, talk, to_the_end


class Trouble(Exception):
    """What environments raise here."""


def trouble() -> None:
    raise Trouble("out of order")


class Listener:
    """A collector as PR 86 describes it: plain methods, and no word of endings."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin_episode(self, *, task_name: str) -> None:
        self.told.append(("begin", task_name))

    def record_step(self, record: StepRecord) -> None:
        self.told.append(record)

    def end_episode(self, *, truncated: bool = False) -> EpisodeTrajectory:
        self.told.append(("end", truncated))
        return EpisodeTrajectory("told", "", (), 0.0)


class Hearer(Listener):
    """One that is told endings."""

    def end_episode(self, *, truncated: bool = False, ending: Any = None) -> EpisodeTrajectory:
        self.told.append((truncated, ending))
        return EpisodeTrajectory("told", "", (), 0.0)

    @property
    def endings(self) -> list[tuple[str, str]]:
        return [(it[1].why, it[1].said_by) for it in self.told if isinstance(it, tuple) and it[0] != "begin"]


# What is told


def test_a_collector_of_pr_86_is_told_each_step() -> None:
    listener = Listener()
    env, _ = collecting(listener, turns=2)

    async def loop() -> None:
        async with env:
            await env.reset()
            await talk(env)

    asyncio.run(loop())
    begin, first, mid, last, end = listener.told
    assert (begin, end) == (("begin", "greet"), ("end", False))
    assert [(step.step_index, step.step_type) for step in (first, mid, last)] == [
        (0, "FIRST"),
        (1, "MID"),
        (2, "LAST"),
    ]
    # As dm_env means it, whatever the environment says of a first step.
    assert (first.action, first.reward, first.discount) == (None, None, None)
    assert mid.action["data"] == [{"content": "word 0"}] and mid.action["usage"]["generated_tokens"] == 2
    assert (last.observation, last.reward, last.discount) == (None, 1.0, 0.0)
    assert env.last_trajectory is not None and env.last_trajectory.episode_id == "told"


def test_what_is_told_is_a_snapshot() -> None:
    """The agent goes on writing to the list of messages that it sent: each step keeps what was there then."""
    listener = Listener()
    env, _ = collecting(listener)

    async def loop() -> None:
        await env.reset()
        await talk(env)

    asyncio.run(loop())
    lengths = [len(it.observation["messages"]) for it in listener.told[1:-2]]
    assert lengths == [1, 3, 5]


def test_without_ares_the_error_names_the_package() -> None:
    code = "import sys; sys.modules['ares'] = None; import keepstep.adapters.ares"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=outside.environment(), text=True, capture_output=True)
    assert "ImportError: keepstep.adapters.ares needs ARES: pip install martian-ares" in done.stderr


def test_records_are_frozen() -> None:
    step = StepRecord(0, "FIRST", {}, None, None, None, 0.0)
    with pytest.raises(AttributeError):
        step.step_index = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        EpisodeTrajectory("id", "task", (step,), 0.0).truncated = True  # type: ignore[misc]
    assert StepRecord.from_dict(step.to_dict()) == step


def test_the_environment_looks_like_the_one_inside() -> None:
    env, inner = collecting(NullTrajectoryCollector())
    assert env.tasks == ("greet",)
    with pytest.raises(AttributeError):
        _ = env.nothing_of_that_name
    for method in ("reset", "step", "close"):
        ours, theirs = (inspect.signature(getattr(it, method)).parameters for it in (env, inner))
        assert list(ours) == list(theirs)

    async def loop() -> None:
        async with env as entered:
            assert entered is env
            first = await env.reset()
            assert first == base.TimeStep("FIRST", 0.0, 1.0, inner._request())
        assert inner.closed == 1

    asyncio.run(loop())


def test_collectors_follow_the_protocol(tmp_path: Path, run: keepstep.Run) -> None:
    collectors = [
        NullTrajectoryCollector(),
        JsonTrajectoryCollector(tmp_path),
        KeepstepTrajectoryCollector(run),
    ]
    for collector in collectors:
        assert isinstance(collector, TrajectoryCollector)


@pytest.mark.parametrize("named", [None, "mine", lambda env: f"number {env.resets}"])
def test_the_task_is_named_after_the_reset(named: Any) -> None:
    listener = Listener()
    inner = Talk(("greet", "leave"), turns=1)
    env = TrajectoryCollectingEnvironment(inner, listener, task_name=named)

    async def loop() -> None:
        for _ in range(2):
            await env.reset()
            await talk(env)

    asyncio.run(loop())
    names = [it[1] for it in listener.told if isinstance(it, tuple) and it[0] == "begin"]
    assert names == {None: ["greet", "leave"], "mine": ["mine"] * 2}.get(named, ["number 1", "number 2"])


def test_names_are_found_in_what_ares_has() -> None:
    class Game:
        _hidden_object = None

        def __init__(self) -> None:
            self._hidden_object = "Piano"

    class Inside:
        def __init__(self, env: Any) -> None:
            self._env = env

    assert adapter.task_name_of(Game()) == "Piano"
    assert adapter.task_name_of(Inside(Inside(Game()))) == "Piano"
    assert adapter.task_name_of(Inside(object())) == "object"


def test_a_step_after_the_last_is_the_environments_business() -> None:
    """By the contract of dm_env it may begin the next episode; ARES' own refuse. Both reach the loop as they are."""

    class Again(Talk):
        async def step(self, action: Any) -> Any:
            return await self.reset() if len(self.taken) == self.turns else await super().step(action)

    listener = Listener()
    env = TrajectoryCollectingEnvironment(Again(turns=1), listener)
    refusing = TrajectoryCollectingEnvironment(Talk(turns=1, troubles={1: trouble}), hearer := Hearer())

    async def loop() -> None:
        await env.reset()
        assert (await env.step(answer("a"))).last()
        assert (await env.step(answer("ignored"))).first()
        assert (await env.step(answer("b"))).last()
        await refusing.reset()
        await refusing.step(answer("a"))
        with pytest.raises(Trouble):
            await refusing.step(answer("b"))

    asyncio.run(loop())
    kinds = [it.step_type if isinstance(it, StepRecord) else it[0] for it in listener.told]
    assert kinds == ["begin", "FIRST", "LAST", "end"] * 2
    assert hearer.endings == [("finished", "discount")]


def test_two_environments_do_not_share_a_collector() -> None:
    """It could not tell their steps apart: the second is refused, the first goes on."""
    listener = Hearer()
    one, _ = collecting(listener, turns=1)
    two, _ = collecting(listener, turns=1)
    nobody = NullTrajectoryCollector()
    three, _ = collecting(nobody)
    four, _ = collecting(nobody)

    async def loop() -> None:
        await one.reset()
        with pytest.raises(keepstep.BadInput, match="a collector of its own"):
            await two.reset()
        await talk(one)
        await two.reset()
        await talk(two)
        await three.reset()
        await four.reset()

    asyncio.run(loop())
    assert listener.endings == [("finished", "discount")] * 2


# How episodes end


async def _cancelled_step(env: Any, inner: Talk) -> None:
    await env.reset()
    inner.troubles[0] = (met := Met()).wait
    await met.cancel(asyncio.ensure_future(env.step(answer("a"))))


async def _failed_step(env: Any, inner: Talk) -> None:
    await env.reset()
    inner.troubles[0] = trouble
    with pytest.raises(Trouble):
        await env.step(answer("a"))
    with pytest.raises(keepstep.Ended, match=r"errored.*reset"):
        await env.step(answer("a"))


async def _cancelled_inside(env: Any, inner: Talk) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    await env.reset()
    inner.troubles[0] = cancelled
    with pytest.raises(asyncio.CancelledError):
        await env.step(answer("a"))


async def _failed_reset(env: Any, inner: Talk) -> None:
    inner.troubles["reset"] = trouble
    with pytest.raises(Trouble):
        await env.reset()


async def _reset_while_active(env: Any, inner: Talk) -> None:
    await env.reset()
    await env.step(answer("a"))
    await env.reset()
    await talk(env)


async def _closed_while_active(env: Any, inner: Talk) -> None:
    await env.reset()
    await env.close()
    assert inner.closed == 1


async def _left_while_active(env: Any, inner: Talk) -> None:
    async with env:
        await env.reset()
    assert inner.closed == 1


async def _left_by_an_exception(env: Any, inner: Talk) -> None:
    with pytest.raises(Trouble):
        async with env:
            await env.reset()
            trouble()


async def _left_by_cancellation(env: Any, inner: Talk) -> None:
    met = Met()

    async def body() -> None:
        async with env:
            await env.reset()
            await met.wait()

    await met.cancel(asyncio.ensure_future(body()))


async def _to_the_limit(env: Any, inner: Talk) -> None:
    inner.last = (0.0, 1.0)
    await to_the_end(env, inner)


ENDINGS = [
    (to_the_end, [("finished", "discount")]),
    (_to_the_limit, [("truncated", "discount")]),
    (_reset_while_active, [("abandoned", "reset"), ("finished", "discount")]),
    (_closed_while_active, [("aborted", "close")]),
    (_left_while_active, [("aborted", "exit")]),
    (_left_by_an_exception, [("aborted", "exit")]),
    (_left_by_cancellation, [("cancelled", "exit")]),
    (_failed_step, [("errored", "step")]),
    (_failed_reset, [("errored", "reset")]),
    (_cancelled_step, [("cancelled", "step")]),
    (_cancelled_inside, [("errored", "step")]),
]
each_ending = pytest.mark.parametrize(
    ("scene", "endings"), ENDINGS, ids=lambda it: getattr(it, "__name__", "")
)


def _skip_what_310_cannot_tell(scene: Any) -> None:
    if scene is _cancelled_inside and not hasattr(asyncio.Task, "cancelling"):
        pytest.skip("Python 3.10 cannot tell whose cancellation it is")


@each_ending
def test_each_ending_is_told(scene: Any, endings: Any) -> None:
    _skip_what_310_cannot_tell(scene)
    hearer = Hearer()
    asyncio.run(scene(*collecting(hearer)))
    assert hearer.endings == endings
    truncated = [it[0] for it in hearer.told if isinstance(it, tuple) and it[0] != "begin"]
    assert truncated == [why == "truncated" for why, _ in endings]


@each_ending
def test_each_ending_is_recorded(scene: Any, endings: Any, run: keepstep.Run) -> None:
    _skip_what_310_cannot_tell(scene)
    asyncio.run(scene(*collecting(KeepstepTrajectoryCollector(run))))
    views = sorted(run.episodes(), key=lambda view: view.sample)
    assert [(view.ending.why, view.ending.said_by) for view in views if view.ending] == endings
    assert {view.task for view in views} == {"greet"}


def test_what_was_raised_is_kept(run: keepstep.Run) -> None:
    async def loop() -> None:
        await _failed_step(*collecting(KeepstepTrajectoryCollector(run)))
        await _cancelled_step(*collecting(KeepstepTrajectoryCollector(run)))

    asyncio.run(loop())
    failed, cancelled = sorted(run.episodes(), key=lambda view: view.sample)
    assert failed.ending is not None and failed.ending.error is not None
    assert failed.ending.error.startswith("test_ares.Trouble: out of order\nTraceback")
    # What was answered is kept with the error; after a cancellation nobody knows what came of it.
    assert failed.steps[1].action["data"] == [{"content": "a"}]
    assert failed.steps[1].error is not None and "out of order" in failed.steps[1].error
    assert len(cancelled.steps) == 1
    assert cancelled.pending is not None and cancelled.pending.action["data"] == [{"content": "a"}]


@pytest.mark.skipif(not hasattr(asyncio.Task, "cancelling"), reason="Python 3.10 cannot tell")
def test_a_cancellation_inside_is_an_error_of_that_step(run: keepstep.Run) -> None:
    asyncio.run(_cancelled_inside(*collecting(KeepstepTrajectoryCollector(run))))
    (view,) = run.episodes()
    assert view.pending is None
    assert view.steps[1].error is not None and "CancelledError" in view.steps[1].error


def test_a_reset_that_failed_before_it_chose_a_task_has_no_name(run: keepstep.Run) -> None:
    """What it was reset to before is not what it failed with."""
    env, inner = collecting(KeepstepTrajectoryCollector(run), turns=1)

    async def loop() -> None:
        await env.reset()
        await talk(env)
        inner.troubles["select"] = trouble
        with pytest.raises(Trouble):
            await env.reset()

    asyncio.run(loop())
    assert sorted((view.task, view.state) for view in run.episodes()) == [
        ("", "errored"),
        ("greet", "finished"),
    ]


def test_who_is_asked_says_what_the_step_does_not(run: keepstep.Run) -> None:
    """As for TwentyQuestions, whose limit looks like a normal end."""
    inner = Talk(last=(-1.0, 0.0))

    def out_of_questions(env: Any, time_step: Any) -> keepstep.Ending | None:
        assert env is inner
        return keepstep.Ending("truncated", limit="questions") if time_step.last() else None

    env = TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run), ending=out_of_questions)
    asyncio.run(to_the_end(env, inner))
    assert ending(run.store, "shop/greet") == ("truncated", "questions", "ending=")
    assert env.last_trajectory is not None and env.last_trajectory.truncated


def test_an_answer_that_is_no_ending_is_refused(run: keepstep.Run) -> None:
    env = TrajectoryCollectingEnvironment(
        Talk(),
        KeepstepTrajectoryCollector(run),
        ending=lambda env, step: "done",  # type: ignore[arg-type, return-value]
    )

    async def loop() -> None:
        await env.reset()
        with pytest.raises(keepstep.BadInput, match="return a keepstep"):
            await env.step(answer("a"))

    asyncio.run(loop())
    assert ending(run.store, "shop/greet") == ("errored", None, "recording")


def test_a_collector_that_fails_does_not_hide_what_the_environment_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Listener):
        def end_episode(self, *, truncated: bool = False) -> EpisodeTrajectory:
            raise ValueError("no room")

    for scene in (_failed_step, _left_by_an_exception):
        caplog.clear()
        with caplog.at_level(logging.ERROR, logger="keepstep"):
            asyncio.run(scene(*collecting(Broken())))
        assert "no room" in caplog.text


def test_a_collector_that_fails_is_heard_of() -> None:
    class Broken(Hearer):
        def record_step(self, record: StepRecord) -> None:
            if record.step_index == 1:
                raise ValueError("no room")

    env, _ = collecting(broken := Broken())

    async def loop() -> None:
        await env.reset()
        with pytest.raises(ValueError, match="no room"):
            await env.step(answer("a"))
        await env.reset()

    asyncio.run(loop())
    assert broken.endings == [("errored", "recording")]


def test_wrong_input_is_told_before_anything_is_recorded(run: keepstep.Run) -> None:
    """A path where a run belongs, and a mode that there is not."""
    with pytest.raises(keepstep.BadInput, match=r"run is 'runs'.*keepstep\.open\('runs'\)\.run"):
        KeepstepTrajectoryCollector("runs")  # type: ignore[arg-type]
    with pytest.raises(keepstep.BadInput, match="environment is 'sideways'"):
        KeepstepTrajectoryCollector(run, environment="sideways")  # type: ignore[arg-type]
