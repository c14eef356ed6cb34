"""What keepstep keeps of episodes of ARES: each step when it returns, without blocking the event loop."""

from __future__ import annotations

import asyncio
import json

import keepstep
import pytest
import slow_disk
from keepstep.adapters.ares import EpisodeTrajectory, KeepstepTrajectoryCollector, StepRecord
from reading_back import ending, read
from toy_ares import answer, collecting, talk, to_the_end


def test_an_episode_is_kept_and_read_back(run: keepstep.Run) -> None:
    env, _ = collecting(KeepstepTrajectoryCollector(run), turns=2)
    asyncio.run(to_the_end(env, env.env))
    record = read(run.store, "shop/greet")
    assert [step["kind"] for step in record.steps] == ["FIRST", "MID", "LAST"]
    assert [len((step.get("observation") or {}).get("messages", ())) for step in record.steps] == [1, 3, 0]
    trajectory = env.last_trajectory
    assert trajectory is not None
    assert (trajectory.task_name, trajectory.num_steps, trajectory.total_reward) == ("greet", 3, 1.0)
    assert run.store.find(trajectory.episode_id).state == "finished"
    assert [step.step_type for step in trajectory.steps] == ["FIRST", "MID", "LAST"]
    assert trajectory.steps[-1].action == {
        "data": [{"content": "word 1"}],
        "cost": 0.25,
        "usage": {"prompt_tokens": 6, "generated_tokens": 2},
    }
    assert len(trajectory.steps[1:]) == 2
    assert json.loads(json.dumps(trajectory.to_dict()))["ending"]["said_by"] == "discount"


def test_what_is_answered_is_durable_before_it_is_taken(run: keepstep.Run) -> None:
    env, inner = collecting(KeepstepTrajectoryCollector(run))
    seen = []

    def look() -> None:
        view = run.store.find("shop/greet")
        seen.append(view.pending.action["data"] if view.pending else None)

    inner.troubles[0] = look

    async def loop() -> None:
        await env.reset()
        await env.step(answer("a"))
        await env.close()

    asyncio.run(loop())
    assert seen == [[{"content": "a"}]]


def test_a_step_returns_when_it_is_durable_and_the_loop_goes_on(run: keepstep.Run) -> None:
    """While the disk takes nothing, the step does not return, and other tasks run."""
    env, inner = collecting(KeepstepTrajectoryCollector(run))
    ticks = 0

    async def loop() -> None:
        nonlocal ticks
        await env.reset()
        with slow_disk.stopped_later() as stop:
            inner.troubles[0] = stop
            step = asyncio.ensure_future(env.step(answer("a")))
            while ticks < 20 or not inner.taken:
                await asyncio.sleep(0.01)
                ticks += 1
            assert not step.done(), "it was acknowledged before it was durable"
            slow_disk.go_on()
            await step
        await env.close()

    asyncio.run(loop())
    assert ticks >= 20
    assert len(run.store.find("shop/greet").steps) == 2


def test_many_environments_record_at_once(run: keepstep.Run) -> None:
    async def one(number: int) -> None:
        env, inner = collecting(KeepstepTrajectoryCollector(run), tasks=(f"task-{number % 4}",))
        await to_the_end(env, inner)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, range(16)))

    asyncio.run(all_of_them())
    found = sorted((view.task, view.sample, view.state) for view in run.episodes())
    assert found == [(f"task-{task}", sample, "finished") for task in range(4) for sample in range(4)]


def test_a_sample_that_somebody_else_has_is_left_to_them(run: keepstep.Run) -> None:
    """It was free when this process looked."""
    env, inner = collecting(KeepstepTrajectoryCollector(run))
    asyncio.run(to_the_end(env, inner))
    with keepstep.open(run.store.where) as other:
        with other.run("shop").episode("greet", sample=1) as theirs:
            asyncio.run(to_the_end(env, inner))
            theirs.end("finished")
    assert sorted(view.sample for view in run.episodes()) == [0, 1, 2]
    assert len(run.store.find("shop/greet#0.2").steps) == 4


def test_without_an_event_loop_it_is_durable_when_it_returns(run: keepstep.Run) -> None:
    collector = KeepstepTrajectoryCollector(run)
    assert collector.begin_episode(task_name="t") is None
    collector.record_step(StepRecord(0, "FIRST", {"messages": []}, None, None, None, 0.0))
    assert len(run.store.find("shop/t").steps) == 1
    collector.record_step(StepRecord(1, "LAST", None, {"data": []}, 1.0, 0.0, 0.0))
    trajectory = collector.end_episode()
    assert isinstance(trajectory, EpisodeTrajectory)
    assert ending(run.store, "shop/t") == ("finished", None, "end_episode")
    with pytest.raises(RuntimeError, match="No episode in progress"):
        collector.end_episode()
    collector.begin_episode(task_name="u")
    collector.begin_episode(task_name="v")
    assert ending(run.store, "shop/u") == ("abandoned", None, "begin_episode")
    collector.end_episode(truncated=True)
    assert run.store.find("shop/v").state == "truncated"


def test_the_null_store_takes_it_all() -> None:
    env, _ = collecting(KeepstepTrajectoryCollector(keepstep.open(None).run("shop")))
    asyncio.run(to_the_end(env, env.env))
    assert env.last_trajectory is not None
    assert (env.last_trajectory.num_steps, list(env.last_trajectory.steps)) == (4, [])


@pytest.mark.parametrize("then", ["step", "reset", "close"])
def test_an_episode_that_somebody_took_is_not_ended_by_us(then: str, run: keepstep.Run) -> None:
    """A step is refused; a reset or a close has nothing to say any more, and is done."""
    env, inner = collecting(KeepstepTrajectoryCollector(run, sample=0))

    async def loop() -> None:
        await env.reset()
        inner.tasks = ("leave",)
        with keepstep.open(run.store.where) as other:
            async with other.run("shop").episode("greet", busy="take", resume="restart") as taken:
                if then == "step":
                    with pytest.raises(keepstep.Fenced):
                        await env.step(answer("a"))
                else:
                    await getattr(env, then)()
                assert taken.ended is None
                taken.end("finished")
        await env.reset()
        await talk(env)

    asyncio.run(loop())
    assert run.store.find("shop/greet~1").state == "finished"
    assert run.store.find("shop/leave").state == "finished"


def test_a_store_that_was_closed_first_has_said_how_it_ended(run: keepstep.Run) -> None:
    env, inner = collecting(KeepstepTrajectoryCollector(run))

    async def loop() -> None:
        async with env:
            await env.reset()
            run.store.close()
        assert inner.closed == 1

    asyncio.run(loop())
    with keepstep.open(run.store.where) as store:
        assert store.find("shop/greet").state == "aborted"


def test_a_trajectory_has_the_steps_that_were_told(run: keepstep.Run) -> None:
    """The step that raised is on record, and is not among them."""
    env, inner = collecting(KeepstepTrajectoryCollector(run))
    inner.troubles[0] = lambda: 1 / 0

    async def loop() -> None:
        await env.reset()
        with pytest.raises(ZeroDivisionError):
            await env.step(answer("a"))

    asyncio.run(loop())
    trajectory = env.last_trajectory
    assert trajectory is not None and trajectory.num_steps == len(trajectory.steps) == 1
    assert trajectory.steps[-1].step_type == "FIRST" and len(trajectory.steps[0:9]) == 1
    assert len(run.store.find("shop/greet").steps) == 2
