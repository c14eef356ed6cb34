"""tinker-cookbook's groups on stand-ins: slots, retries, endings, the seal. The real one is tested in tests/outside/tinker."""

from __future__ import annotations

import asyncio
import logging
import pickle
import random
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
import tinker_toys as toys

pytest.importorskip("pydantic")

from keepstep.adapters.tinker import (
    EnvironmentGone,
    KeepingExporter,
    RecordedBuilder,
    RecordedDataset,
    RecordedStrategy,
    StreamSink,
    install,
)
from tinker_cookbook.rl import rollouts
from tinker_cookbook.rl.rollout_limits import RolloutLimits, TerminationRewardPolicy
from tinker_cookbook.rl.rollout_strategy import FailFast, MinViableGroup, RetryOnFailure


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "do_group_rollout", rollouts.do_group_rollout)
    install()


@pytest.fixture(autouse=True)
def trouble(monkeypatch: pytest.MonkeyPatch) -> toys.Trouble:
    fresh = toys.Trouble()
    monkeypatch.setattr(toys, "TROUBLE", fresh)
    return fresh


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "runs") as store:
        yield store.run("training")


RETRY = RecordedStrategy(RetryOnFailure(max_retries=100))


def roll_out(builder: Any, strategy: Any = RETRY, **more: Any) -> Any:
    return asyncio.run(rollouts.do_group_rollout(builder, toys.Model(), strategy, **more))


def somewhere(dice: random.Random) -> tuple[int, int]:
    member = dice.randrange(toys.SIZE)
    return member, dice.randrange(toys.turns_of(member))


@pytest.mark.parametrize("seed", range(4))
def test_members_that_fail_go_on_from_their_last_turn(run: Any, trouble: toys.Trouble, seed: int) -> None:
    """Every turn is taken once, whatever fails: a turn that failed is all that is done again."""
    dice = random.Random(seed)
    trouble.env_fails = {somewhere(dice) for _ in range(5)}
    trouble.policy_fails = {somewhere(dice) for _ in range(5)}
    fails = len(trouble.env_fails) + len(trouble.policy_fails)
    again = set(trouble.env_fails)
    group = roll_out(RecordedBuilder(toys.Talks(), run, "talk"))
    toys.check_group(group)
    toys.check_record(run, "talk")
    assert len(group.rollout_errors) == fails
    turns = [(member, turn) for member in range(toys.SIZE) for turn in range(toys.turns_of(member))]
    assert sorted(trouble.stepped) == turns
    assert sorted(trouble.sampled) == sorted([*turns, *again])


def test_without_snapshots_a_member_begins_again_and_the_failed_attempt_stays(
    run: Any, trouble: toys.Trouble
) -> None:
    trouble.env_fails = {(4, 3)}
    toys.check_group(roll_out(RecordedBuilder(toys.Talks(is_restorable=False), run, "talk")))
    toys.check_record(run, "talk")
    failed, _ = run.store.find("training/talk#0.4").attempts()
    assert failed.state == "errored" and "Flake: member 4, turn 3" in (failed.ending.error or "")
    assert [len(failed.steps), failed.steps[-1].error is not None] == [5, True]
    assert trouble.stepped.count((4, 0)) == 2


def test_a_fresh_environment_can_be_driven_back_with_the_recorded_actions(
    run: Any, trouble: toys.Trouble
) -> None:
    trouble.policy_fails = {(4, 3)}
    builder = RecordedBuilder(toys.Talks(is_restorable=False), run, "talk", environment="replay")
    toys.check_group(roll_out(builder))
    toys.check_record(run, "talk")
    assert trouble.stepped.count((4, 0)) == 2 and trouble.sampled.count((4, 0)) == 1


def test_a_replay_that_differs_is_told(
    run: Any, trouble: toys.Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble.policy_fails = {(4, 3)}
    builder = RecordedBuilder(toys.Talks(is_restorable=False), run, "talk", environment="replay")
    with pytest.raises(toys.Flake):
        roll_out(builder, RecordedStrategy(FailFast()))
    monkeypatch.setattr(toys, "reply_to", lambda member, turn, ids: ([7, member, turn, 0], 5.0))
    with pytest.raises(keepstep.Diverged, match="step 1, reward"):
        roll_out(builder, RecordedStrategy(FailFast()))


@pytest.mark.parametrize("strategy", [FailFast(), RetryOnFailure(), MinViableGroup()])
def test_a_group_that_is_done_comes_from_the_record(run: Any, trouble: toys.Trouble, strategy: Any) -> None:
    roll_out(RecordedBuilder(toys.Talks(), run, "talk"))
    trouble.sampled.clear()
    trouble.stepped.clear()
    group = roll_out(RecordedBuilder(toys.Talks(), run, "talk"), RecordedStrategy(strategy))
    toys.check_group(group)
    toys.check_record(run, "talk")
    assert (trouble.sampled, trouble.stepped) == ([], [])


def test_whoever_asks_twice_gets_another_group(run: Any, trouble: toys.Trouble) -> None:
    """Trainers send a builder round again when its samples are too old, and evaluations at every step."""
    builder = RecordedBuilder(toys.Talks(), run, "talk")
    roll_out(builder)
    trouble.sampled.clear()
    toys.check_group(roll_out(builder))
    toys.check_record(run, "talk+1")
    assert trouble.sampled


@pytest.mark.parametrize("is_restorable", [True, False])
def test_members_that_were_over_before_the_group_was_rewarded(
    run: Any, trouble: toys.Trouble, is_restorable: bool
) -> None:
    """Their environments come back for the rewards if they can; otherwise nobody is given a wrong one."""
    trouble.policy_fails = {(5, 0)}
    talks = toys.Talks(is_restorable)

    async def interrupted() -> None:
        with pytest.raises(toys.Flake):
            await rollouts.do_group_rollout(
                RecordedBuilder(talks, run, "talk"), toys.Model(), RecordedStrategy(FailFast())
            )
        # The siblings of a group that failed fast go on until the loop is closed.
        await asyncio.sleep(0.3)

    asyncio.run(interrupted())
    assert [run.store.find(f"training/talk#0.{member}").state for member in (4, 5)] == ["finished", "errored"]
    trouble.sampled.clear()
    if is_restorable:
        toys.check_group(roll_out(RecordedBuilder(talks, run, "talk")))
        assert {member for member, _ in trouble.sampled} == {5}
        return
    with pytest.raises(EnvironmentGone, match="'history'"):
        roll_out(RecordedBuilder(talks, run, "talk"))
    by_trajectory = toys.Talks(is_restorable, asks_env=False)
    toys.check_group(roll_out(RecordedBuilder(by_trajectory, run, "talk")))
    toys.check_record(run, "talk")


def test_a_group_may_be_sealed_with_fewer_and_stays_so(run: Any, trouble: toys.Trouble) -> None:
    trouble.env_fails = {(3, 1)}
    strategy = RecordedStrategy(MinViableGroup(min_successful=6, max_retries=0))
    members = [member for member in range(toys.SIZE) if member != 3]
    toys.check_group(roll_out(RecordedBuilder(toys.Talks(), run, "talk"), strategy), members)
    toys.check_record(run, "talk", members=members)
    assert next(iter(run.groups())).missing == {3: "errored"}
    toys.check_group(roll_out(RecordedBuilder(toys.Talks(), run, "talk"), strategy), members)


class Limited(toys.Talks):
    """Rollouts that the loop stops."""

    limits = RolloutLimits(max_turns=3)

    async def make_envs(self) -> Any:
        envs = await super().make_envs()
        for env in envs:
            env.rollout_limits = self.limits  # type: ignore[attr-defined]
        return envs


def test_the_seal_has_the_rewards_after_clamping(run: Any, trouble: toys.Trouble) -> None:
    termination = TerminationRewardPolicy(zero_reward_on_limit=True)
    plain = roll_out(Limited(), FailFast(), termination=termination)
    trouble.policy_fails = {(3, 2), (4, 1)}
    group = roll_out(RecordedBuilder(Limited(), run, "talk"), termination=termination)
    assert (group.trajectories_G, group.metrics_G) == (plain.trajectories_G, plain.metrics_G)
    assert any(metrics.get("zero_reward_on_limit") for metrics in group.metrics_G)
    (sealed,) = run.groups()
    assert sealed.rewards == tuple(plain.get_total_rewards())
    for member, view in enumerate(sealed.members):
        over = toys.turns_of(member) > 3
        assert (view.ending.why, view.ending.limit) == (
            ("truncated", "turns") if over else ("finished", None)
        )
    again = roll_out(RecordedBuilder(Limited(), run, "talk"), termination=termination)
    assert (again.trajectories_G, again.final_rewards_G, again.metrics_G) == (
        plain.trajectories_G,
        plain.final_rewards_G,
        plain.metrics_G,
    )


class Slow(toys.Talks):
    """A member hangs in its environment until somebody has had enough."""

    hangs = 2
    limits: RolloutLimits | None = None
    hung: asyncio.Event | None = None

    async def make_envs(self) -> Any:
        envs = await super().make_envs()
        hanging: Any = envs[4]
        hanging.rollout_limits = self.limits
        step = hanging.step

        async def hang(action: list[int], *, extra: Any = None) -> Any:
            if hanging.turn == self.hangs:
                if self.hung is not None:
                    self.hung.set()
                await asyncio.sleep(600)
            return await step(action, extra=extra)

        hanging.step = hang
        return envs


@pytest.mark.parametrize("hangs", [0, 2])
def test_a_rollout_timeout_is_truncated_not_cancelled(
    run: Any, hangs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slow, "hangs", hangs)
    monkeypatch.setattr(Slow, "limits", RolloutLimits(rollout_timeout_seconds=0.5))
    group = roll_out(RecordedBuilder(Slow(asks_env=False), run, "talk"))
    stopped = group.trajectories_G[4]
    assert stopped.stop_reason == "rollout_timeout"
    view = run.store.find("training/talk#0.4")
    assert (view.ending.why, view.ending.limit) == ("truncated", "time")
    # A slow machine may not come to where it hangs.
    turns = view.notes["rollout"]["transitions"]
    assert turns <= hangs and len(stopped.transitions) == max(1, turns)
    again = roll_out(RecordedBuilder(Slow(asks_env=False), run, "talk"))
    assert again.trajectories_G == group.trajectories_G
    assert again.get_total_rewards() == group.get_total_rewards()


def test_a_cancelled_group_is_cancelled_and_its_pending_turn_is_taken_up(
    run: Any, trouble: toys.Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sampled before the cancellation is not sampled again: the environment is given it."""

    async def cancelled() -> None:
        monkeypatch.setattr(Slow, "hung", asyncio.Event())
        builder = RecordedBuilder(Slow(), run, "talk")
        group = asyncio.create_task(rollouts.do_group_rollout(builder, toys.Model(), RecordedStrategy()))
        assert Slow.hung is not None
        await Slow.hung.wait()
        group.cancel()
        with pytest.raises(asyncio.CancelledError):
            await group

    asyncio.run(cancelled())
    view = run.store.find("training/talk#0.4")
    assert view.ending.why == "cancelled" and view.pending is not None
    trouble.sampled.clear()
    toys.check_group(roll_out(RecordedBuilder(toys.Talks(), run, "talk")))
    toys.check_record(run, "talk")
    assert (4, 2) not in trouble.sampled and (4, 3) in trouble.sampled


def test_a_step_that_came_too_late_for_the_loop_is_not_in_its_trajectory(run: Any) -> None:
    """It was recorded while the loop was being cancelled: the record has it, the trainer never had."""
    roll_out_unsealed(run)
    note = {
        "stop_reason": "rollout_timeout",
        "transitions": 2,
        "metrics": {"turn": 2, "stop/rollout_timeout": 1.0},
    }
    run.annotate("training/talk#0.4", "rollout", note, source="tinker-cookbook").wait()
    group = roll_out(RecordedBuilder(toys.Talks(), run, "talk"))
    cut = group.trajectories_G[4]
    assert (len(cut.transitions), cut.stop_reason) == (2, "rollout_timeout")
    assert cut.final_ob.to_ints() == toys.rollout_of(4)[1].after
    assert cut.transitions[-1].episode_done and cut.transitions[-1].metrics == note["metrics"]


def roll_out_unsealed(run: Any) -> Any:
    from keepstep.adapters.tinker import _group

    builder = RecordedBuilder(toys.Talks(), run, "talk")
    return builder, asyncio.run(_group._original(builder, toys.Model(), RETRY))


def test_the_builder_alone_claims_slots_under_a_strategy_that_knows_nothing(
    run: Any, trouble: toys.Trouble
) -> None:
    """It takes index 0 for whatever failed, and results come as they end: rewards reach the right sibling all the same.

    Nobody recorded the logprobs, so what failed begins again.
    """
    trouble.env_fails = {(2, 1), (6, 1), (7, 0)}
    builder = RecordedBuilder(toys.Talks(), run, "talk")
    group = roll_out(builder, RetryOnFailure(max_retries=3))
    members = [trajectory.transitions[0].ob.to_ints()[1] - 50 for trajectory in group.trajectories_G]
    assert sorted(members) == list(range(toys.SIZE))
    toys.check_group(group, members)
    (sealed,) = run.groups()
    assert sealed.rewards == tuple(map(toys.total_of, range(toys.SIZE)))
    assert all(step.tokens is None for view in sealed.members for step in view.steps)


def test_the_null_store_is_a_switch(trouble: toys.Trouble) -> None:
    run = keepstep.open(None).run("training")
    trouble.env_fails = {(2, 1)}
    builder = RecordedBuilder(toys.Talks(), run, "talk")
    assert type(asyncio.run(builder.make_envs())[0]) is toys.RestorableTalk  # type: ignore[arg-type]
    group = roll_out(builder)
    assert sorted(group.get_total_rewards()) != [] and len(group.rollout_errors) == 1


def test_fields_are_left_out_and_then_nothing_wrong_is_made_of_it(
    run: Any, trouble: toys.Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    trouble.policy_fails = {(4, 3)}
    builder = RecordedBuilder(toys.Talks(), run, "talk", skip=("info",), text=repr)
    toys.check_group(roll_out(builder))
    assert "begins again from its first turn" in caplog.text
    assert run.store.find("training/talk#0.4").steps[1].info is None
    with pytest.raises(keepstep.BadInput, match="cannot be read from the record"):
        roll_out(RecordedBuilder(toys.Talks(), run, "talk"), RecordedStrategy(FailFast()))
    with pytest.raises(keepstep.BadInput, match="skip"):
        RecordedBuilder(toys.Talks(), run, "talk", skip=("infos",))


def test_texts_grow_by_what_is_new(run: Any) -> None:
    roll_out(RecordedBuilder(toys.Talks(), run, "talk", text=lambda ids: " ".join(map(str, ids))))
    _, *steps = run.store.find("training/talk#0.4").steps
    for step, told in zip(steps, toys.rollout_of(4), strict=True):
        assert " ".join(step.prompt) == " ".join(map(str, told.prompt))
        assert len(step.prompt) == step.index
        assert step.response == " ".join(map(str, told.ids))


def test_tokens_without_a_text_are_recorded_all_the_same(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    toys.check_group(roll_out(RecordedBuilder(toys.Talks(), run, "talk", text=lambda ids: "" + ids[99])))  # type: ignore[operator]
    toys.check_record(run, "talk")
    assert "is recorded without text" in caplog.text


def test_the_pair_pickles(run: Any) -> None:
    builder = RecordedDataset(_Batches(), run, text=repr).get_batch(3)[1]
    asyncio.run(builder.make_envs())
    copy, strategy = pickle.loads(pickle.dumps((builder, RETRY)))
    assert (copy.task, copy.iteration, copy.run.name, strategy) == ("group-1", 3, "training", RETRY)
    toys.check_group(roll_out(copy, strategy))
    toys.check_record(run, "group-1", iteration=3)


class _Batches:
    def get_batch(self, index: int) -> list[toys.Talks]:
        return [toys.Talks(), toys.Talks()]

    def __len__(self) -> int:
        return 5


def test_a_group_that_nobody_seals_is_told(
    run: Any, caplog: pytest.LogCaptureFixture, trouble: toys.Trouble
) -> None:
    with caplog.at_level(logging.WARNING):
        builder, group = roll_out_unsealed(run)
    assert "is not sealed" in caplog.text and list(run.groups()) == []
    asyncio.run(builder.seal(group))
    toys.check_record(run, "talk")


def test_capture_drops_nothing(run: Any) -> None:
    """The cookbook's own exporter with the same small queue would drop most of this."""
    exporter = KeepingExporter(StreamSink(run), max_queue_size=4, max_batch_size=4, flush_interval_sec=0.01)
    for number in range(200):
        exporter.enqueue({"kind": "sample", "number": number, "logprobs": [-0.1]})
    exporter.shutdown()
    exporter.enqueue({"kind": "sample", "number": 200})
    kept = run.stream("capture").read()
    assert [kept[name]["number"] for name in sorted(kept)] == list(range(201))
    assert exporter.dropped == 0


def test_who_has_no_cookbook_is_told_what_to_install() -> None:
    script = """
        import sys
        sys.modules["tinker_cookbook"] = None
        try:
            import keepstep.adapters.tinker
        except ImportError as missing:
            print(missing)
    """
    assert "pip install tinker-cookbook" in outside.run(script)


def test_importing_replaces_nothing_and_a_pickled_builder_brings_the_installation() -> None:
    script = """
        import pickle, sys
        sys.path[:0] = PATHS
        from tinker_cookbook.rl import rollouts
        own = rollouts.do_group_rollout
        import keepstep, tinker_toys
        from keepstep.adapters import tinker
        print(rollouts.do_group_rollout is own, tinker.is_installed())

        builder = tinker.RecordedBuilder(tinker_toys.Talks(), keepstep.open(None).run("r"), "talk")
        plain = pickle.dumps(builder)
        tinker.install()
        print(rollouts.do_group_rollout is tinker.do_group_rollout, tinker.is_installed())
        bringing = pickle.dumps(builder)

        rollouts.do_group_rollout = own
        pickle.loads(plain)
        print(tinker.is_installed())
        print(pickle.loads(bringing).task, tinker.is_installed())
    """
    paths = [str(Path(toys.__file__).parent), str(Path(rollouts.__file__).parents[2])]
    printed = outside.run(script.replace("PATHS", repr(paths)))
    assert printed.split() == ["True", "False", "True", "True", "False", "talk", "True"]
