"""Groups of the real cookbook: its loop, its strategies, its message environments, its executor, its capture."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keepstep
import pytest
import tinker
import tinker_toys as toys
from keepstep.adapters.tinker import (
    KeepingExporter,
    RecordedBuilder,
    RecordedDataset,
    RecordedStrategy,
    StreamSink,
    install,
)
from tinker_cookbook.capture import CaptureExporter
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.renderers.base import ParseTermination
from tinker_cookbook.rl import rollouts
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.rollout_limits import RolloutLimits, TerminationRewardPolicy
from tinker_cookbook.rl.rollout_runner import RolloutHooks, run_rollout
from tinker_cookbook.rl.rollout_strategy import FailFast, MinViableGroup, RetryOnFailure, RolloutResult
from tinker_cookbook.rl.types import EnvGroupBuilder


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


def roll_out(builder: Any, strategy: Any = RETRY, policy: Any = None, **more: Any) -> Any:
    return asyncio.run(rollouts.do_group_rollout(builder, policy or toys.Model(), strategy, **more))


PLACES = [(member, turn) for member in range(toys.SIZE) for turn in range(toys.turns_of(member))]


@pytest.mark.parametrize("seed", range(25))
def test_members_fail_at_random_turns_and_rewards_reach_the_right_sibling(
    run: Any, trouble: toys.Trouble, seed: int
) -> None:
    dice = random.Random(seed)
    trouble.env_fails = set(dice.sample(PLACES, dice.randint(0, 12)))
    trouble.policy_fails = set(dice.sample(PLACES, dice.randint(0, 12)))
    fails, again = len(trouble.env_fails) + len(trouble.policy_fails), set(trouble.env_fails)
    group = roll_out(RecordedBuilder(toys.Talks(), run, "talk"))
    toys.check_group(group)
    toys.check_record(run, "talk")
    assert len(group.rollout_errors) == fails
    assert sorted(trouble.stepped) == PLACES, "each turn is taken once"
    assert sorted(trouble.sampled) == sorted([*PLACES, *again])


@pytest.mark.parametrize("strategy", [FailFast(), RetryOnFailure(), MinViableGroup()])
def test_what_trainers_get_is_what_they_got(run: Any, strategy: Any) -> None:
    """The same as without a record, in the order of the samples; and once more from the record."""
    plain = roll_out(toys.Talks(), FailFast())
    for builder in (RecordedBuilder(toys.Talks(), run, "talk"), RecordedBuilder(toys.Talks(), run, "talk")):
        assert roll_out(builder, RecordedStrategy(strategy)) == plain


@pytest.mark.parametrize("seed", range(5))
def test_strategies_that_know_nothing(run: Any, trouble: toys.Trouble, seed: int) -> None:
    """The builder alone: retries take index 0, results come as they end."""
    dice = random.Random(seed)
    trouble.env_fails = set(dice.sample(PLACES, 5))
    trouble.policy_fails = set(dice.sample(PLACES, 5))
    group = roll_out(RecordedBuilder(toys.Talks(), run, "talk"), RetryOnFailure(max_retries=10))
    members = [trajectory.transitions[0].ob.to_ints()[1] - 50 for trajectory in group.trajectories_G]
    assert sorted(members) == list(range(toys.SIZE))
    toys.check_group(group, members)
    (sealed,) = run.groups()
    assert sealed.rewards == tuple(map(toys.total_of, range(toys.SIZE)))


# Limits


class Limited(toys.Talks):
    """Each environment advertises its limits, as those that are built from a RolloutConfig do."""

    limits = RolloutLimits(max_turns=3, max_sampled_tokens=11)

    async def make_envs(self) -> Any:
        envs = await super().make_envs()
        for env in envs:
            env.rollout_limits = self.limits  # type: ignore[attr-defined]
        return envs


@pytest.mark.parametrize("seed", range(5))
def test_limits_count_what_was_inherited_and_the_seal_is_after_clamping(
    run: Any, trouble: toys.Trouble, seed: int
) -> None:
    dice = random.Random(seed)
    termination = TerminationRewardPolicy(zero_reward_on_limit=True)
    plain = roll_out(Limited(), FailFast(), termination=termination)
    trouble.policy_fails = set(dice.sample(PLACES, 8))
    group = roll_out(RecordedBuilder(Limited(), run, "talk"), termination=termination)
    again = roll_out(RecordedBuilder(Limited(), run, "talk"), termination=termination)
    for one in (group, again):
        assert (one.trajectories_G, one.final_rewards_G, one.metrics_G) == (
            plain.trajectories_G,
            plain.final_rewards_G,
            plain.metrics_G,
        )
    assert any("zero_reward_on_limit" in metrics for metrics in plain.metrics_G)
    (sealed,) = run.groups()
    assert sealed.rewards == tuple(plain.get_total_rewards())
    limits = {"max_turns": "turns", "max_sampled_tokens": "sampled tokens"}
    for view, trajectory in zip(sealed.members, plain.trajectories_G, strict=True):
        limit = limits.get(trajectory.stop_reason)
        assert (view.ending.why, view.ending.limit) == ("truncated" if limit else "finished", limit)
    assert any(view.ending.limit for view in sealed.members)


@dataclass(frozen=True)
class Hanging(toys.Talks):
    """Member 4 hangs in its third turn, in the environment or in the policy."""

    timeout_s: float = 1.5

    async def make_envs(self) -> Any:
        envs = await super().make_envs()
        env: Any = envs[4]
        env.rollout_limits = RolloutLimits(rollout_timeout_seconds=self.timeout_s)
        step = env.step

        async def hang(action: list[int], *, extra: Any = None) -> Any:
            if env.turn == 2:
                await asyncio.sleep(600)
            return await step(action, extra=extra)

        env.step = hang
        return envs


class HangingModel(toys.Model):
    """It answers all but one prompt."""

    def __init__(self, times: int = 10**9) -> None:
        self.times = times

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        prompt = model_input.to_ints()
        if prompt[1] == 54 and len(prompt) > 2 and prompt[-2] == 1 and self.times > 0:
            self.times -= 1
            await asyncio.sleep(600)
        return await super().__call__(model_input, stop, max_tokens=max_tokens)


@pytest.mark.parametrize("where", ["environment", "policy"])
def test_a_rollout_timeout_is_truncated_and_its_turns_stay(run: Any, where: str) -> None:
    talks: Any = Hanging(asks_env=False)
    policy = None
    if where == "policy":
        policy, talks = HangingModel(), Limited(asks_env=False)
        talks.__class__.limits = RolloutLimits(rollout_timeout_seconds=1.5)
    group = roll_out(RecordedBuilder(talks, run, "talk"), policy=policy)
    assert group.trajectories_G[4].stop_reason == "rollout_timeout"
    view = run.store.find("training/talk#0.4")
    assert (view.ending.why, view.ending.limit) == ("truncated", "time")
    assert len(view.steps) == 3 == 1 + len(group.trajectories_G[4].transitions)
    assert (view.pending is not None) == (where == "environment")
    again = roll_out(RecordedBuilder(talks, run, "talk"), policy=policy)
    assert again.trajectories_G == group.trajectories_G


def test_a_sampling_timeout_is_an_error_and_the_next_attempt_goes_on(run: Any, trouble: toys.Trouble) -> None:
    talks = Limited()
    Limited.limits = RolloutLimits(sampling_turn_timeout_seconds=1.0)
    toys.check_group(roll_out(RecordedBuilder(talks, run, "talk"), policy=HangingModel(times=1)))
    toys.check_record(run, "talk")
    failed, _ = run.store.find("training/talk#0.4").attempts()
    assert failed.state == "errored" and "SamplingTurnTimeoutError" in failed.ending.error
    assert trouble.sampled.count((4, 1)) == 1


def test_a_timeout_of_the_strategy_is_tried_again_from_the_last_turn(run: Any, trouble: toys.Trouble) -> None:
    strategy = RecordedStrategy(RetryOnFailure(max_retries=9, per_rollout_timeout=2.0))
    toys.check_group(
        roll_out(RecordedBuilder(toys.Talks(), run, "talk"), strategy, policy=HangingModel(times=1))
    )
    toys.check_record(run, "talk")
    failed, _ = run.store.find("training/talk#0.4").attempts()
    assert failed.state == "errored" and "TimeoutError" in failed.ending.error
    assert trouble.sampled.count((4, 1)) == 1


# Message environments: parse errors, overflows, texts


class Letters:
    """A renderer whose tokens are letters. A message ends with a full stop."""

    class tokenizer:
        @staticmethod
        def decode(tokens: list[int]) -> str:
            return "".join(map(chr, tokens))

    def get_stop_sequences(self) -> list[str]:
        return ["."]

    def build_generation_prompt(self, messages: list[Any], **_: Any) -> tinker.ModelInput:
        text = "".join(f"{message['role'][0]}:{message['content']}|" for message in messages)
        return tinker.ModelInput.from_ints(list(map(ord, text)))

    def parse_response(self, response: list[int]) -> tuple[dict[str, str], ParseTermination]:
        text = self.tokenizer.decode(response)
        is_whole = text.endswith(".")
        return {"role": "assistant", "content": text}, (
            ParseTermination.STOP_SEQUENCE if is_whole else ParseTermination.MALFORMED
        )


class Chat(MessageEnv):
    """It says something to whatever it is told, in a list that it goes on changing, and can be brought back."""

    def __init__(self, member: int) -> None:
        self.member = member
        self.messages: list[Any] = [{"role": "user", "content": f"hello {member}"}]

    async def initial_observation(self) -> list[Any]:
        return self.messages

    async def step(self, message: Any) -> MessageStepResult:
        TOLD.append((self.member, message["content"]))
        self.messages += [message, {"role": "user", "content": "more"}]
        return MessageStepResult(
            0.25,
            len(self.messages) > 6,
            self.messages,
            {"stop/completed": 1.0} if len(self.messages) > 6 else {},
        )

    def snapshot(self) -> list[Any]:
        return self.messages

    def restore(self, state: list[Any]) -> None:
        self.messages = state


TOLD: list[tuple[int, str]] = []


@dataclass(frozen=True)
class Chats(EnvGroupBuilder):
    async def make_envs(self) -> Sequence[Any]:
        limits = {2: {"max_trajectory_tokens": 40}, 3: {"max_trajectory_tokens": 5}}
        return [EnvFromMessageEnv(Letters(), Chat(member), **limits.get(member, {})) for member in range(5)]  # type: ignore


class Speaker(TokenCompleter):
    """Member 1 forgets the full stop in its second turn; member 4 talks too long in its second."""

    def __init__(self, fails: Sequence[int] = ()) -> None:
        # Members for which the model is away once, in their second turn.
        self.fails = set(fails)

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        text = Letters.tokenizer.decode(model_input.to_ints())
        turn, member = text.count("|") // 2, int(text[8])
        if turn == 1 and member in self.fails:
            self.fails.remove(member)
            raise toys.Flake(f"member {member}")
        said = f"turn {turn}" + ("" if (member, turn) == (1, 1) else ".")
        reason: Any = "length" if (member, turn) == (4, 1) else "stop"
        return TokensWithLogprobs(list(map(ord, said)), [-0.5] * len(said), reason)


def test_parse_errors_and_overflows_are_traced_too(run: Any) -> None:
    """And texts stand beside tokens; prompts are as they were, though the environment goes on changing its list."""
    TOLD.clear()
    plain = roll_out(Chats(), FailFast(), Speaker())
    told = sorted(TOLD)
    TOLD.clear()
    group = roll_out(RecordedBuilder(Chats(), run, "chat"), RETRY, Speaker(fails=range(5)))
    second = [trajectory for trajectory in plain.trajectories_G if len(trajectory.transitions) > 1]
    assert len(group.rollout_errors) == len(second) == 4
    group.rollout_errors.clear()
    assert group == plain and sorted(TOLD) == told
    (sealed,) = run.groups()
    endings = [(view.ending.why, view.ending.limit) for view in sealed.members]
    assert endings == [
        ("finished", None),
        ("finished", None),
        ("truncated", "context"),
        ("truncated", "tokens"),
        ("truncated", "tokens"),
    ]
    reasons = [view.notes["rollout"]["stop_reason"] for view in sealed.members]
    assert reasons == ["completed", "parse_error", "context_overflow", "max_tokens", "max_tokens"]
    whole, broken, overflown, too_long, talkative = sealed.members
    assert [step.response for step in whole.steps[1:]] == ["turn 0.", "turn 1.", "turn 2."]
    assert ["".join(step.prompt) for step in whole.steps[1:]] == [
        "u:hello 0|",
        "u:hello 0|a:turn 0.|u:more|",
        "u:hello 0|a:turn 0.|u:more|a:turn 1.|u:more|",
    ]
    assert (broken.steps[2].response, broken.steps[2].reward) == ("turn 1", -1.0)
    assert broken.steps[2].info["metrics"] == {"parse_error": 1.0, "stop/parse_error": 1.0}
    assert overflown.steps[-1].info["metrics"]["context_overflow"] == 1.0
    assert (len(too_long.steps), too_long.steps[0].reward) == (1, -0.1)
    assert talkative.steps[-1].action["stop_reason"] == "length"
    assert roll_out(RecordedBuilder(Chats(), run, "chat"), RETRY, Speaker()) == plain


class Injecting(Chat):
    async def add_messages(self, messages: list[Any]) -> list[Any]:
        self.messages += messages
        return self.messages


class Nudge(RolloutHooks):
    async def on_turn_begin(self, state: Any) -> Any:
        return [{"role": "user", "content": "go"}] if state.turn_index == 1 else None


@dataclass(frozen=True)
class Injections(EnvGroupBuilder):
    async def make_envs(self) -> Sequence[Any]:
        return [EnvFromMessageEnv(Letters(), Injecting(0))]  # type: ignore[arg-type]


@dataclass(frozen=True)
class WithHooks(FailFast):
    async def execute(self, env_group_builder: Any, policy: Any) -> Any:
        envs = await env_group_builder.make_envs()
        trajectories = [await run_rollout(policy, env, hooks=Nudge()) for env in envs]
        return RolloutResult(trajectories, envs, [])


class FailsAt(Speaker):
    def __init__(self, prompts: int) -> None:
        self.left = prompts

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        if self.left == 0:
            raise toys.Flake("away")
        self.left -= 1
        text = Letters.tokenizer.decode(model_input.to_ints())
        said = f"{len(text)}."
        return TokensWithLogprobs(list(map(ord, said)), [-0.5] * len(said))


@pytest.mark.parametrize("prompts", [1, 2])
def test_messages_of_hooks_come_back_too(run: Any, prompts: int) -> None:
    """Also with a strategy that runs its rollouts in one task, with hooks."""
    plain = roll_out(Injections(), WithHooks(), FailsAt(99))
    assert "u:go" in Letters.tokenizer.decode(plain.trajectories_G[0].transitions[1].ob.to_ints())
    with pytest.raises(toys.Flake):
        roll_out(RecordedBuilder(Injections(), run, "chat"), RecordedStrategy(WithHooks()), FailsAt(prompts))
    assert run.store.find("training/chat#0.0").state == "errored"
    builder = RecordedBuilder(Injections(), run, "chat")
    assert roll_out(builder, RecordedStrategy(WithHooks()), FailsAt(99)) == plain


# Other processes, and capture


class Client:
    """Stands where a SamplingClient stands, in a process of its own."""

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        ids, logprobs = toys.answer_to(prompt.to_ints())
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=ids, logprobs=logprobs, stop_reason="stop")])


class Batches:
    def get_batch(self, index: int) -> list[Any]:
        return [toys.Talks(), toys.Talks()]

    def __len__(self) -> int:
        return 1


def test_groups_in_a_pool_of_processes(run: Any) -> None:
    """As the training loop dispatches them: the pair is pickled, and the groups are sealed over there."""

    async def train() -> list[Any]:
        builders = RecordedDataset(Batches(), run).get_batch(0)  # type: ignore[arg-type]
        return await asyncio.gather(
            *[
                rollouts.do_group_rollout_and_filter_constant_reward(
                    Client(),  # type: ignore[arg-type]
                    builder,
                    max_tokens=16,
                    temperature=1.0,
                    do_remove_constant_reward_groups=True,
                    strategy=RETRY,
                )
                for builder in builders
            ]
        )

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        rollouts.set_rollout_executor(pool)
        try:
            groups = asyncio.run(train())
        finally:
            rollouts.set_rollout_executor(None)
    for group in groups:
        toys.check_group(group)
    toys.check_record(run, "group-0")
    toys.check_record(run, "group-1")


class SlowSink(StreamSink):
    def export(self, records: Any, timeout: float | None = None) -> None:
        time.sleep(0.02)
        super().export(records, timeout)


@pytest.mark.parametrize("kind", [CaptureExporter, KeepingExporter])
def test_a_full_queue_of_capture_drops_nothing_with_ours(run: Any, kind: Any) -> None:
    """The control: the cookbook's own exporter drops."""
    exporter = kind(SlowSink(run), max_queue_size=8, max_batch_size=8, flush_interval_sec=0.01)
    for number in range(300):
        exporter.enqueue({"kind": "sample", "number": number, "logprobs": [-0.25], "scope": {"traj_idx": 1}})
    assert exporter.force_flush(30)
    exporter.shutdown()
    kept = run.stream("capture").read()
    numbers = [kept[name]["number"] for name in sorted(kept)]
    if kind is CaptureExporter:
        assert exporter.dropped > 0 and len(numbers) < 300
        return
    assert (numbers, exporter.dropped, exporter.export_failures) == (list(range(300)), 0, 0)
