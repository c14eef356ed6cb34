"""A recorded environment goes on where it stopped: by its state, by its actions, or from the beginning."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium
import keepstep
import numpy
import pytest
from reading_back import Record, ending, read
from toy_envs import FLAVOURS, Flavour, GymCorridor, KeptGymCorridor, TimeStep

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)
Mode = Literal["restart", "restore", "replay"]

# The steps that the policy below takes from 0 to the goal: 1, 2, 2, 2.
STEPS = 4

SEED = {"gymnasium": {"seed": 5}}

# Where a process is killed, at some step.
POINTS = ("before the intent", "after the intent", "after the action", "after the result")


def policy(observation: int) -> int:
    return 1 + observation % 2


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(body: Callable[[], Any]) -> int:
    """Does something in a process of its own, and gives how that ended."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def play(where: Path, flavour: Flavour, mode: Mode | None, killed: tuple[int, str] | None = None) -> None:
    """A loop that knows nothing of crashes but where to begin."""
    step, point = killed or (-1, "")
    troubles: dict[Any, Any] = {}
    if point == "after the intent":
        troubles[step] = kill
    elif point == "after the action":
        troubles["done", step] = kill
    with keepstep.open(where) as store:
        make = flavour.make if mode == "replay" else flavour.make_kept
        env = keepstep.record(make(troubles), store.run("walk"), task="t", sample=0, environment=mode)
        try:
            observation = flavour.reset(env, **SEED.get(flavour.name, {}))
        except keepstep.Ended:
            return
        for turn in range(keepstep.current(env).turns, STEPS):
            if (turn, "before the intent") == (step, point):
                kill()
            observation = flavour.step(env, policy(observation))
            if (turn, "after the result") == (step, point):
                kill()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Flavour, Mode | None], Record]:
    """The record of a run that nobody interrupted."""
    known: dict[Any, Record] = {}

    def of(flavour: Flavour, mode: Mode | None) -> Record:
        key = flavour.name, mode
        if key not in known:
            where = tmp_path_factory.mktemp("whole")
            assert in_child(lambda: play(where, flavour, mode)) == 0
            known[key] = read(str(where), "walk/t")
        return known[key]

    return of


@each_flavour
@pytest.mark.parametrize("mode", ["restore", "replay"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", range(STEPS))
def test_wherever_it_is_killed_the_record_becomes_that_of_an_uninterrupted_run(
    flavour: Flavour, mode: Mode, point: str, step: int, tmp_path: Path, whole: Any
) -> None:
    assert in_child(lambda: play(tmp_path, flavour, mode, (step, point))) == -signal.SIGKILL
    assert in_child(lambda: play(tmp_path, flavour, mode)) == 0
    expected, found = whole(flavour, mode), read(str(tmp_path), "walk/t")
    assert len(expected.steps) == STEPS + 1
    assert found.steps == expected.steps
    assert found.end == expected.end and found.end is not None and found.end["why"] == "finished"
    assert not [other for other in found.others if other["what"] == "discarded"], (
        "the pending turn was adopted"
    )


@each_flavour
@pytest.mark.parametrize("mode", ["restore", "replay"])
def test_killed_at_every_step_it_still_becomes_whole(
    flavour: Flavour, mode: Mode, tmp_path: Path, whole: Any
) -> None:
    """Each process gets one step further, and dies after its intent."""
    for step in range(STEPS):
        assert in_child(partial(play, tmp_path, flavour, mode, (step, "after the intent"))) < 0
    assert in_child(lambda: play(tmp_path, flavour, mode)) == 0
    assert read(str(tmp_path), "walk/t").steps == whole(flavour, mode).steps


@each_flavour
@pytest.mark.parametrize("mode", ["restore", "replay"])
def test_killed_before_the_end_is_recorded_it_does_not_go_on(
    flavour: Flavour, mode: Mode, tmp_path: Path, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step says how it ended; whoever opens the episode next has only the end to record."""
    from keepstep.wrappers._recorded_episode import RecordedEpisode

    def die(self: RecordedEpisode, ending: object) -> None:
        # A note that is durable covers the steps before it.
        self._native.note("seen", True, "test", None).wait()
        kill()

    with monkeypatch.context() as patched:
        patched.setattr(RecordedEpisode, "infer", die)
        assert in_child(lambda: play(tmp_path, flavour, mode)) == -signal.SIGKILL
    assert len(read(str(tmp_path), "walk/t").steps) == STEPS + 1
    assert in_child(lambda: play(tmp_path, flavour, mode)) == 0
    found = read(str(tmp_path), "walk/t")
    assert found.steps == whole(flavour, mode).steps and found.end == whole(flavour, mode).end


@each_flavour
@pytest.mark.parametrize("point", POINTS)
def test_restart_begins_a_new_attempt_and_keeps_the_old_one(
    flavour: Flavour, point: str, tmp_path: Path, whole: Any
) -> None:
    assert in_child(lambda: play(tmp_path, flavour, "restart", (1, point))) == -signal.SIGKILL
    assert in_child(lambda: play(tmp_path, flavour, "restart")) == 0
    assert read(str(tmp_path), "walk/t").steps == whole(flavour, "restart").steps
    old = read(str(tmp_path), "walk/t~0")
    assert len(old.steps) == (3 if point == "after the result" else 2)
    new = read(str(tmp_path), "walk/t~1")
    assert [step["kind"] for step in new.steps] == ["FIRST", "MID", "MID", "MID", "LAST"]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "runs") as store:
        yield store.run("walk")


def interrupted(flavour: Flavour, run: keepstep.Run, steps: int, **how: Any) -> Any:
    """An environment that was closed in the middle of its episode."""
    env = keepstep.record(flavour.make_kept(), run, task="t", sample=0, **how)
    observation = flavour.reset(env)
    for _ in range(steps):
        observation = flavour.step(env, policy(observation))
    flavour.close(env)
    return observation


@each_flavour
def test_what_can_be_restored_is_restored_without_being_asked(flavour: Flavour, run: keepstep.Run) -> None:
    assert interrupted(flavour, run, 2) == 3
    env = keepstep.record(inner := flavour.make_kept(), run, task="t", sample=0)
    assert flavour.reset(env) == 3
    assert keepstep.current(env).turns == 2 and keepstep.current(env).resumed
    assert (inner.corridor.position, inner.corridor.taken, inner.corridor.actions) == (3, 2, [])


@each_flavour
def test_what_cannot_be_restored_restarts(flavour: Flavour, run: keepstep.Run) -> None:
    env = keepstep.record(flavour.make(), run, task="t", sample=0)
    flavour.reset(env)
    flavour.walk(env, 1)
    flavour.close(env)
    again = keepstep.record(flavour.make(), run, task="t", sample=0)
    assert flavour.reset(again) == 0
    assert keepstep.current(again).attempt == 1 and keepstep.current(again).turns == 0


@each_flavour
def test_functions_that_are_passed_in_restore(flavour: Flavour, run: keepstep.Run) -> None:
    def put(env: Any, state: int) -> None:
        env.corridor.position = state

    how: Any = {"state": (lambda env: env.corridor.position, put)}
    env = keepstep.record(flavour.make(), run, task="t", sample=0, **how)
    flavour.reset(env)
    flavour.walk(env, 2)
    flavour.close(env)
    again = keepstep.record(inner := flavour.make(), run, task="t", sample=0, **how)
    assert flavour.reset(again) == 4
    assert inner.corridor.position == 4
    flavour.walk(again, 1)
    assert ending(run.store, "walk/t")[0] == "finished"


def test_a_reset_after_a_restore_says_first(run: keepstep.Run) -> None:
    flavour = FLAVOURS[1]
    interrupted(flavour, run, 2)
    env = keepstep.record(flavour.make_kept(), run, task="t", sample=0)
    step = env.reset()
    assert step.first() and step.reward is None and step.observation == 3


@each_flavour
@pytest.mark.parametrize("mode", ["restore", "replay"])
def test_another_action_gives_the_pending_turn_up_on_record(
    flavour: Flavour, mode: Mode, tmp_path: Path
) -> None:
    assert in_child(lambda: play(tmp_path, flavour, mode, (1, "after the intent"))) == -signal.SIGKILL
    with keepstep.open(tmp_path) as store:
        make = flavour.make if mode == "replay" else flavour.make_kept
        env = keepstep.record(make(), store.run("walk"), task="t", sample=0, environment=mode)
        assert flavour.reset(env) == 1
        pending = keepstep.current(env).pending
        assert pending is not None and pending.said == {"action": 2}
        assert flavour.step(env, 3) == 4
        flavour.close(env)
        found = read(store, "walk/t")
    assert [step.get("action") for step in found.steps] == [None, 1, 3]
    assert "another action" in str([other for other in found.others if other["what"] == "discarded"])


@each_flavour
def test_a_step_that_raised_is_gone_on_from(flavour: Flavour, run: keepstep.Run) -> None:
    def trouble() -> None:
        raise OSError("out of order")

    env = keepstep.record(flavour.make_kept({1: trouble}), run, task="t", sample=0)
    flavour.reset(env)
    flavour.step(env, 1)
    with pytest.raises(OSError, match="out of order"):
        flavour.step(env, 2)
    again = keepstep.record(flavour.make_kept(), run, task="t", sample=0)
    assert flavour.reset(again) == 1, "as before the step that raised"
    assert flavour.step(again, 2) == 3
    steps = read(run.store, "walk/t").steps
    assert ["error" in step for step in steps] == [False, False, True, False]
    flavour.close(again)
    replayed = keepstep.record(inner := flavour.make(), run, task="t", sample=0, environment="replay")
    assert flavour.reset(replayed) == 3
    assert inner.corridor.actions == [1, 2]


def differing(flavour: Flavour, change: Callable[[Any], tuple[Any, ...]], at: int) -> Any:
    """An environment that gives something else at one of its steps."""
    inner = flavour.make()
    walk = inner.corridor.walk

    def walk_differently(action: int) -> Any:
        came = walk(action)
        return change(came) if inner.corridor.taken == at else came

    inner.corridor.walk = walk_differently
    return inner


@each_flavour
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda came: (came[0] + 1, came[1], came[2]), r"step 2, observation: recorded 3, now 4"),
        (lambda came: (came[0], 0.25, came[2]), r"step 2, reward: recorded 1.0, now 0.25"),
        (lambda came: (came[0], came[1], True), r"step 2, its end: .* now it is finished"),
    ],
)
def test_a_replay_that_differs_names_step_and_field(
    flavour: Flavour, change: Any, says: str, run: keepstep.Run
) -> None:
    interrupted(flavour, run, 3)
    env = keepstep.record(differing(flavour, change, at=2), run, task="t", sample=0, environment="replay")
    with pytest.raises(keepstep.Diverged, match=says):
        flavour.reset(env)
    assert ending(run.store, "walk/t~1") == ("errored", None, "replay")
    with pytest.raises(keepstep.Ended):
        flavour.step(env, 1)


def test_a_replay_whose_first_observation_differs_says_so(run: keepstep.Run) -> None:
    interrupted(FLAVOURS[0], run, 1)

    class Elsewhere(GymCorridor):
        def reset(self, **given: Any) -> Any:
            return 5, super().reset(**given)[1]

    env = keepstep.record(Elsewhere(), run, task="t", sample=0, environment="replay")
    with pytest.raises(keepstep.Diverged, match="step 0, observation: recorded 0, now 5"):
        env.reset()


def test_nobody_gets_a_replay_by_surprise(run: keepstep.Run) -> None:
    interrupted(FLAVOURS[0], run, 2)
    env = keepstep.record(inner := GymCorridor(), run, task="t", sample=0)
    env.reset()
    assert inner.corridor.actions == []


def test_a_record_without_state_says_that_it_cannot_be_restored(run: keepstep.Run) -> None:
    flavour = FLAVOURS[0]
    interrupted(flavour, run, 2, environment="restart")
    asked = keepstep.record(flavour.make_kept(), run, task="t", sample=0, environment="restore")
    with pytest.raises(keepstep.BadInput, match="cannot restore: no state"):
        asked.reset()
    assert ending(run.store, "walk/t~1")[0] == "aborted"
    by_itself = keepstep.record(flavour.make_kept(), run, task="t", sample=0)
    assert flavour.reset(by_itself) == 0
    assert keepstep.current(by_itself).turns == 0


def test_a_state_that_cannot_be_set_is_an_error_of_the_reset(run: keepstep.Run) -> None:
    class Broken(KeptGymCorridor):
        def set_state(self, state: Any) -> None:
            raise RuntimeError("of another version")

    interrupted(FLAVOURS[0], run, 2)
    env = keepstep.record(Broken(), run, task="t", sample=0)
    with pytest.raises(RuntimeError, match="of another version"):
        env.reset()
    assert ending(run.store, "walk/t~1") == ("errored", None, "reset")


def test_a_step_limit_counts_on(run: keepstep.Run) -> None:
    """A restored environment would have had all of its limit again: the wrapper that counts is not part of its state."""

    def make() -> Any:
        inner = gymnasium.wrappers.TimeLimit(KeptGymCorridor(goal=100), 5)
        return keepstep.record(inner, run, task="t", sample=0)

    env = make()
    env.reset()
    for _ in range(3):
        env.step(1)
    env.close()
    again = make()
    assert again.reset()[0] == 3
    assert [again.step(1)[3] for _ in range(2)] == [False, True]
    assert ending(run.store, "walk/t") == ("truncated", "steps", "TimeLimit wrapper")


def test_a_wrapper_with_a_state_of_its_own_is_not_restored_without_being_asked(run: keepstep.Run) -> None:
    stacked = gymnasium.wrappers.RecordEpisodeStatistics(KeptGymCorridor())
    env = keepstep.record(stacked, run, task="t", sample=0)
    env.reset()
    env.step(1)
    env.close()
    assert "environment" not in read(run.store, "walk/t").steps[-1].get("state", {})


def test_methods_of_another_meaning_are_not_taken_for_state(run: keepstep.Run) -> None:
    class LikeMujoco(GymCorridor):
        def get_state(self) -> int:
            return 1

        def set_state(self, qpos: Any, qvel: Any) -> None:
            raise AssertionError("not meant so")

    with pytest.raises(keepstep.BadInput, match="no methods to restore"):
        keepstep.record(LikeMujoco(), run, task="t", sample=0, environment="restore")


def test_a_replay_resets_as_the_recorded_episode_was_reset(run: keepstep.Run) -> None:
    given: list[Any] = []

    class Listening(GymCorridor):
        def reset(self, **options: Any) -> Any:
            given.append(options)
            return super().reset(**options)

    env = keepstep.record(Listening(), run, task="t", sample=0, environment="replay")
    env.reset(seed=7, options={"level": 2})
    env.step(1)
    env.close()
    again = keepstep.record(Listening(), run, task="t", sample=0, environment="replay")
    again.reset()
    assert given == [{"seed": 7, "options": {"level": 2}}] * 2


@dataclass(frozen=True)
class Request:
    """An observation as those of ARES are."""

    messages: tuple[str, ...]
    temperature: float


@dataclass(frozen=True)
class Response:
    """An action of its own class: it comes back as itself if it was registered."""

    text: str


class Plain:
    """A registered class that does not say when two of it are the same."""

    def __init__(self, number: int) -> None:
        self.number = number


keepstep.register(Response, encode=lambda one: one.text, decode=Response)
keepstep.register(Plain, encode=lambda one: one.number, decode=Plain)


class Chat:
    """An async environment of messages, that can be made to answer otherwise."""

    def __init__(self, answer: str = "more", number: int = 1) -> None:
        self.answer, self.number = answer, number

    async def reset(self) -> TimeStep:
        self.messages: tuple[str, ...] = ("begin",)
        return TimeStep("FIRST", 0.0, 1.0, self._request())

    async def step(self, action: Response) -> TimeStep:
        assert type(action) is Response
        self.messages += (action.text, self.answer)
        return TimeStep("MID", 0.5, 1.0, self._request())

    async def close(self) -> None:
        pass

    def _request(self) -> Any:
        return {
            "request": Request(self.messages, 0.7),
            "weights": numpy.arange(3.0),
            "plain": Plain(self.number),
        }


def test_observations_of_any_class_are_compared_and_registered_actions_taken_again(run: keepstep.Run) -> None:
    async def earlier() -> None:
        env = keepstep.record(Chat(), run, task="t", sample=0, environment="replay")
        await env.reset()
        await env.step(Response("hello"))
        await env.close()

    async def later(**other: Any) -> TimeStep:
        env = keepstep.record(Chat(**other), run, task="t", sample=0, environment="replay")
        try:
            return await env.reset()
        finally:
            # Not left to the garbage collector: the next one would find it held.
            await env.close()

    asyncio.run(earlier())
    step = asyncio.run(later())
    assert step.step_type == "FIRST" and (step.reward, step.discount) == (0.0, 1.0)
    assert step.observation["request"] == Request(("begin", "hello", "more"), 0.7)
    with pytest.raises(keepstep.Diverged, match=r"step 1, observation\['request'\].*'more', now 'less'"):
        asyncio.run(later(answer="less"))
    with pytest.raises(
        keepstep.Diverged, match=r"step 0, observation\['plain'\]\['number'\]: recorded 1, now 2"
    ):
        asyncio.run(later(number=2))


class Unrecordable(KeptGymCorridor):
    """Its state is a handle that only this process has."""

    def get_state(self) -> Any:
        return {"handle": object()}


def test_a_state_that_would_be_recorded_as_text_is_not_kept(run: keepstep.Run) -> None:
    env = keepstep.record(Unrecordable(), run, task="t", sample=0)
    with pytest.warns(RuntimeWarning, match="cannot be restored from a record"):
        env.reset()
    env.step(1)
    env.close()
    again = keepstep.record(Unrecordable(), run, task="t", sample=0)
    with pytest.warns(RuntimeWarning, match="cannot be restored from a record"):
        assert again.reset()[0] == 0
    assert keepstep.current(again).turns == 0


def test_a_state_that_would_be_recorded_as_text_is_refused_if_it_was_asked_for(run: keepstep.Run) -> None:
    env = keepstep.record(Unrecordable(), run, task="t", sample=0, environment="restore")
    with pytest.raises(keepstep.BadInput, match=r"cannot be restored .*handle"):
        env.reset()
    assert ending(run.store, "walk/t") == ("errored", None, "recording")
