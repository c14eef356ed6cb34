"""The environments that come with Gymnasium, recorded and then driven again step for step."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import keepstep
import numpy
import pytest
from gymnasium.utils.env_checker import data_equivalence

TOY_TEXT = ["Blackjack-v1", "CliffWalking-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4"]
CLASSIC_CONTROL = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]

STEPS = 25


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "runs", strict=True) as store:
        yield store.run("gymnasium")


def walk(env: Any, actions: Any, steps: int) -> list[Any]:
    """Takes so many steps, or as many as there are before the last one."""
    came = []
    for _ in range(steps):
        came.append(env.step(actions()))
        if came[-1][2] or came[-1][3]:
            break
    return came


def actions_of(env: Any, seed: int) -> Any:
    env.action_space.seed(seed)
    return env.action_space.sample


def same(one: Any, other: Any) -> bool:
    return bool(data_equivalence(one, other, exact=True))


def steps_before_the_end(name: str, reset: Any, seed: int) -> int:
    """How many steps of the seeded policy can be taken without an end."""
    env = gymnasium.make(name)
    reset(env)
    came = walk(env, actions_of(env, seed), STEPS)
    return len(came) - 1 if came[-1][2] or came[-1][3] else len(came)


@pytest.mark.parametrize("name", TOY_TEXT + CLASSIC_CONTROL)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_replayed_step_for_step_and_goes_on(name: str, seed: int, run: keepstep.Run) -> None:
    def reset(env: Any) -> Any:
        return env.reset(seed=seed)

    whole = gymnasium.make(name)
    sample = actions_of(whole, seed)
    first = reset(whole)
    steps = steps_before_the_end(name, reset, seed)
    expected = walk(whole, sample, steps)

    env = keepstep.record(gymnasium.make(name), run, task=name, sample=seed, environment="replay")
    sample_again = actions_of(env, seed)
    assert same(reset(env), first)
    assert same(walk(env, sample_again, steps), expected)
    env.close()

    again = keepstep.record(gymnasium.make(name), run, task=name, sample=seed, environment="replay")
    observation, info = again.reset()
    last = (expected[-1][0], expected[-1][4]) if expected else first
    assert same(observation, last[0]) and same(info, last[1])
    assert keepstep.current(again).turns == steps
    assert same(walk(again, sample_again, 5), walk(whole, sample, 5)), "it stands where the other one stands"
    again.close()


@pytest.mark.parametrize("name", TOY_TEXT + CLASSIC_CONTROL)
def test_it_is_replayed_without_a_seed(name: str, run: keepstep.Run) -> None:
    """The second episode of a process goes on with the random numbers of the first: no seed could bring it back."""
    count = itertools.count()
    env = keepstep.record(
        gymnasium.make(name), run, task=lambda env, result: f"t{next(count)}", sample=0, environment="replay"
    )
    for task in range(100):
        env.reset()
        came = env.step(actions_of(env, task)())
        if task > 0 and not came[2] and not came[3]:
            break
    env.close()
    again = keepstep.record(gymnasium.make(name), run, task=f"t{task}", sample=0, environment="replay")
    assert same(again.reset()[0], came[0])
    assert keepstep.current(again).turns == 1


def test_another_seed_diverges(run: keepstep.Run) -> None:
    class Forgetful(gymnasium.Wrapper):
        def reset(self, **given: Any) -> Any:
            return self.env.reset(seed=99)

    env = keepstep.record(gymnasium.make("CartPole-v1"), run, task="t", sample=0, environment="replay")
    env.reset(seed=1)
    env.step(0)
    env.close()
    again = keepstep.record(
        Forgetful(gymnasium.make("CartPole-v1")), run, task="t", sample=0, environment="replay"
    )
    with pytest.raises(keepstep.Diverged, match="step 0, observation: recorded array"):
        again.reset()


def test_arrays_are_restored_as_arrays(run: keepstep.Run) -> None:
    def get(env: Any) -> Any:
        inner = env.unwrapped
        return {"state": inner.state, "steps_beyond": inner.steps_beyond_terminated}

    def put(env: Any, saved: Any) -> None:
        env.unwrapped.state, env.unwrapped.steps_beyond_terminated = saved["state"], saved["steps_beyond"]

    def make() -> Any:
        return keepstep.record(gymnasium.make("CartPole-v1"), run, task="t", sample=0, state=(get, put))

    whole = gymnasium.make("CartPole-v1")
    whole.reset(seed=3)
    env = make()
    env.reset(seed=3)
    for action in (0, 1, 1):
        whole.step(action)
        env.step(action)
    env.close()
    again = make()
    observation, _ = again.reset(seed=3)
    assert isinstance(observation, numpy.ndarray) and observation.dtype == numpy.float32
    assert same([again.step(action) for action in (0, 1, 0)], [whole.step(action) for action in (0, 1, 0)])
