"""A toy group for tinker-cookbook, and what must come of it, told without the cookbook and without keepstep.

Everything is a function of the member and of what was said before, so a rollout that was interrupted has one right end.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tinker
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, StepResult, Trajectory

SIZE = 8
STOP = [0]


class Flake(Exception):
    """A sandbox that went away."""


@dataclass
class Trouble:
    """What goes wrong, once each, in this process."""

    # Turns of members whose environment or policy fails.
    env_fails: set[tuple[int, int]] = field(default_factory=set)
    policy_fails: set[tuple[int, int]] = field(default_factory=set)
    # After how many events the process kills itself.
    kill_at: int | None = None
    events: int = 0
    # What was really done, for whoever counts it.
    sampled: list[tuple[int, int]] = field(default_factory=list)
    stepped: list[tuple[int, int]] = field(default_factory=list)

    def event(self) -> None:
        self.events += 1
        if self.events == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def check(self, fails: set[tuple[int, int]], place: tuple[int, int]) -> None:
        if place in fails:
            fails.remove(place)
            raise Flake(f"member {place[0]}, turn {place[1]}")


TROUBLE = Trouble()


def answer_to(prompt: Sequence[int]) -> tuple[list[int], list[float]]:
    """What the model says to a prompt."""
    dice = random.Random(str(list(prompt)))
    ids = [dice.randint(100, 999) for _ in range(dice.randint(1, 5))]
    return ids, [-dice.random() for _ in ids]


def turns_of(member: int) -> int:
    """How many turns a member takes."""
    return 2 + member % 5


def reply_to(member: int, turn: int, ids: Sequence[int]) -> tuple[list[int], float]:
    """What the environment says to an answer, and its reward."""
    return [7, member, turn, sum(ids) % 90], sum(ids) / 1000 - 0.1 * member


def prompt_of(member: int) -> list[int]:
    """What a member begins with: no two are alike."""
    return [1, 50 + member]


@dataclass
class Told:
    """A turn as it must have been."""

    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    reward: float
    after: list[int]


def rollout_of(member: int, turns: int | None = None) -> list[Told]:
    """The one right rollout of a member."""
    prompt, told = prompt_of(member), []
    for turn in range(turns_of(member) if turns is None else turns):
        ids, logprobs = answer_to(prompt)
        reply, reward = reply_to(member, turn, ids)
        told.append(Told(prompt, ids, logprobs, reward, prompt + ids + reply))
        prompt = told[-1].after
    return told


def group_reward_of(member: int) -> float:
    """What the group gives a member: by its last observation, so a sibling's would be another."""
    return float(rollout_of(member)[-1].after[-1]) + member / 10


def total_of(member: int) -> float:
    """The whole reward, added up in the order in which the cookbook does."""
    return sum(turn.reward for turn in rollout_of(member)) + group_reward_of(member)


class Model(TokenCompleter):
    """A fake completer; siblings overtake one another."""

    async def __call__(
        self, model_input: tinker.ModelInput, stop: Any, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        prompt = model_input.to_ints()
        # Of a reply: its member and turn.
        place = (prompt[1] - 50, 0 if len(prompt) == 2 else prompt[-2] + 1)
        TROUBLE.event()
        await asyncio.sleep(random.random() * 0.003)
        TROUBLE.check(TROUBLE.policy_fails, place)
        TROUBLE.sampled.append(place)
        ids, logprobs = answer_to(prompt)
        return TokensWithLogprobs(ids, logprobs)


class Talk(Env):
    """A conversation that remembers, in a list that it goes on changing."""

    def __init__(self, member: int) -> None:
        self.member = member
        self.turn = 0
        self.history = prompt_of(member)

    async def initial_observation(self) -> tuple[tinker.ModelInput, list[int]]:
        return tinker.ModelInput.from_ints(self.history), STOP

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        TROUBLE.event()
        assert extra == {"stop_reason": "stop"}
        TROUBLE.check(TROUBLE.env_fails, (self.member, self.turn))
        reply, reward = reply_to(self.member, self.turn, action)
        TROUBLE.stepped.append((self.member, self.turn))
        self.history = [*self.history, *action, *reply]
        self.turn += 1
        await asyncio.sleep(0)
        TROUBLE.event()
        is_done = self.turn == turns_of(self.member)
        metrics: dict[str, float | int] = {"turn": self.turn, "exact": 0.1 + 0.2}
        if is_done:
            metrics["stop/completed"] = 1.0
        observation = tinker.ModelInput.from_ints(self.history)
        return StepResult(reward, is_done, observation, STOP, metrics, {"said": f"turn {self.turn}"})


class RestorableTalk(Talk):
    """One that can be brought back to any of its turns."""

    def snapshot(self) -> dict[str, Any]:
        return {"turn": self.turn, "history": self.history}

    async def restore(self, state: dict[str, Any]) -> None:
        self.turn, self.history = state["turn"], state["history"]


@dataclass(frozen=True)
class Talks(EnvGroupBuilder):
    """A group of them. By `asks_env` its rewards need the environments as they stood at the end."""

    is_restorable: bool = True
    asks_env: bool = True

    async def make_envs(self) -> Sequence[Env]:
        return [(RestorableTalk if self.is_restorable else Talk)(member) for member in range(SIZE)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, dict[str, float | int]]]:
        TROUBLE.event()
        rewards: list[tuple[float, dict[str, float | int]]] = []
        for trajectory, env in zip(trajectory_group, env_group, strict=True):
            last = env.history if self.asks_env else trajectory.final_ob.to_ints()  # type: ignore[attr-defined]
            member = trajectory.final_ob.to_ints()[1] - 50
            rewards.append((last[-1] + member / 10, {"last": last[-1]}))
        return rewards


def check_group(group: Any, members: Sequence[int] = tuple(range(SIZE))) -> None:
    """A finished group is the one right group, each reward on its own member."""
    assert len(group.trajectories_G) == len(members)
    for member, trajectory in zip(members, group.trajectories_G, strict=True):
        check_trajectory(trajectory, member)
    assert group.final_rewards_G == [group_reward_of(member) for member in members]
    assert group.get_total_rewards() == [total_of(member) for member in members]


def check_trajectory(trajectory: Trajectory, member: int) -> None:
    """All transitions are there, once each, with what was really sampled."""
    told = rollout_of(member)
    assert len(trajectory.transitions) == len(told), f"member {member}"
    for turn, (transition, right) in enumerate(zip(trajectory.transitions, told, strict=True), start=1):
        assert transition.ob.to_ints() == right.prompt
        assert (transition.ac.tokens, transition.ac.maybe_logprobs) == (right.ids, right.logprobs)
        assert transition.ac.stop_reason == "stop"
        assert transition.reward == right.reward
        assert transition.episode_done == (turn == len(told))
        mark = {"stop/completed": 1.0} if turn == len(told) else {}
        assert transition.metrics == {"turn": turn, "exact": 0.1 + 0.2, **mark}
        assert transition.logs == {"said": f"turn {turn}"}
    assert trajectory.final_ob.to_ints() == told[-1].after
    assert trajectory.stop_reason == "completed"


def shown(step: Any) -> list[int]:
    """The tokens of an observation."""
    (chunk,) = step.observation
    assert chunk["type"] == "encoded_text"
    return list(chunk["tokens"])


def check_record(
    run: Any, task: str, iteration: int = 0, members: Sequence[int] = tuple(range(SIZE))
) -> None:
    """The record says the same, read by nothing of the adapter."""
    (sealed,) = [group for group in run.groups() if group.ref == f"{run.name}/{task}#{iteration}"]
    assert [view.sample for view in sealed.members] == list(members)
    assert sealed.rewards == tuple(total_of(member) for member in members)
    for member, view in zip(members, sealed.members, strict=True):
        told = rollout_of(member)
        first, *steps = view.steps
        assert shown(first) == prompt_of(member)
        assert len(steps) == len(told), view.ref
        for turn, (step, right) in enumerate(zip(steps, told, strict=True), start=1):
            assert step.error is None
            assert list(step.tokens.prompt) == right.prompt
            assert list(step.tokens.ids) == right.ids == list(step.action["tokens"])
            assert list(step.tokens.logprobs) == right.logprobs
            assert step.reward == right.reward
            assert step.info["metrics"]["exact"] == 0.1 + 0.2 and step.info["metrics"]["turn"] == turn
            assert shown(step) == right.after
        assert (steps[-1].kind, view.state, view.pending) == ("LAST", "finished", None), (
            f"{view.ref} {steps[-1].kind} {view.state} {view.pending}"
        )
        assert view.notes["group"]["reward"] == group_reward_of(member)
        assert view.notes["rollout"]["stop_reason"] == "completed"
