"""A recorded environment behaves and looks like the one inside."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar

import dm_env
import gymnasium
import keepstep
import pytest
from absl.testing import absltest
from dm_env import test_utils
from gymnasium.utils.env_checker import check_env
from keepstep.wrappers import RecordedAsyncDmEnv, RecordedDmEnv, RecordedGymnasium
from reading_back import read
from toy_envs import FLAVOURS, AsyncCorridor, DmCorridor, Flavour, GymCorridor, KeptAsyncCorridor

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "runs") as store:
        yield store.run("walk")


@pytest.mark.parametrize("where", ["a store", None])
def test_gymnasium_finds_nothing_wrong(where: str | None, tmp_path: Path) -> None:
    with keepstep.open(where and tmp_path / where) as store:
        env = keepstep.record(GymCorridor(), store.run("checked"), task="t", sample=0, environment="restart")
        with warnings.catch_warnings():
            # It would rather look at what is inside.
            warnings.filterwarnings("ignore", ".*is different from the unwrapped version")
            check_env(env, skip_render_check=True)


class DmEnvFindsNothingWrong(test_utils.EnvironmentTestMixin, absltest.TestCase):  # type: ignore[misc]
    """The tests that dm_env has for environments, on a recorded one."""

    where: str | None = None

    def make_object_under_test(self) -> Any:
        where = None if self.where is None else tempfile.mkdtemp()
        if where is not None:
            self.addCleanup(shutil.rmtree, where)
        self.store = keepstep.open(where)
        self.addCleanup(self.store.close)
        count = iter(range(1000))
        return keepstep.record(
            DmCorridor(), self.store.run("checked"), task=lambda *_: f"t{next(count)}", sample=0
        )

    def make_action_sequence(self) -> Any:
        return iter([2] * 20)


class DmEnvFindsNothingWrongInAStore(DmEnvFindsNothingWrong):
    where = "a store"


@each_flavour
def test_it_is_what_it_was(flavour: Flavour, run: keepstep.Run) -> None:
    inner = flavour.make()
    env = keepstep.record(inner, run, task="t", sample=0)
    classes = {
        "gymnasium": (RecordedGymnasium, gymnasium.Env, gymnasium.Wrapper),
        "dm_env": (RecordedDmEnv, dm_env.Environment),
        "async": (RecordedAsyncDmEnv,),
    }
    for kind in classes[flavour.name]:
        assert isinstance(env, kind)
    for name in ("reset", "step"):
        assert inspect.signature(getattr(env, name)) == inspect.signature(getattr(inner, name))
        assert getattr(env, name).__doc__ == getattr(inner, name).__doc__
        is_async = flavour.name == "async"
        assert inspect.iscoroutinefunction(getattr(env, name)) is is_async


@each_flavour
def test_attributes_pass_through(flavour: Flavour, run: keepstep.Run) -> None:
    inner = flavour.make()
    env = keepstep.record(inner, run, task="t", sample=0)
    assert env.page == "a page" and env.corridor is inner.corridor
    env.page = "another page"
    assert inner.page == "another page"
    del env.page
    assert not hasattr(inner, "page") and not hasattr(env, "page")
    assert "corridor" in dir(env)
    with pytest.raises(AttributeError, match="missing"):
        env.missing  # noqa: B018


def test_what_gymnasium_says_of_an_environment_stays(run: keepstep.Run) -> None:
    inner = gymnasium.make("FrozenLake-v1")
    env = keepstep.record(inner, run, task="t", sample=0)
    assert env.unwrapped is inner.unwrapped and env.spec == inner.spec
    assert env.action_space is inner.action_space and env.observation_space is inner.observation_space
    assert env.metadata is inner.metadata and env.render_mode is inner.render_mode
    assert env.get_wrapper_attr("desc") is inner.unwrapped.desc  # type: ignore[attr-defined]
    assert env.np_random is inner.np_random
    assert "FrozenLake" in str(env) and "FrozenLake" in repr(env)


@each_flavour
def test_explicit_classes_take_the_same_arguments(flavour: Flavour, run: keepstep.Run) -> None:
    explicit: Any = {"gymnasium": RecordedGymnasium, "dm_env": RecordedDmEnv, "async": RecordedAsyncDmEnv}
    env = explicit[flavour.name](flavour.make(), run, task="t", sample=0)
    assert flavour.reset(env) == 0
    assert keepstep.current(env).ref == "walk/t#0.0~0"


def test_results_are_passed_on_as_they_are(run: keepstep.Run) -> None:
    came: list[Any] = []

    class Listening(GymCorridor):
        def step(self, action: int) -> Any:
            came.append(super().step(action))
            return came[-1]

        def reset(self, **given: Any) -> Any:
            came.append(super().reset(**given))
            return came[-1]

    env = keepstep.record(Listening(), run, task="t", sample=0)
    assert env.reset(seed=1) is came[-1] and came[-1][1] == {"options": None}
    assert env.step(1) is came[-1]


def test_odd_signatures_are_kept_and_their_arguments_recorded(run: keepstep.Run) -> None:
    class Odd(GymCorridor):
        def reset(self, level: int = 1, *, seed: int | None = None, options: Any = None) -> Any:
            self.level = level
            return super().reset(seed=seed)

        def step(self, move: int, times: int = 1) -> Any:
            return super().step(move * times)

    env: Any = keepstep.record(Odd(), run, task="t", sample=0)
    assert list(inspect.signature(env.step).parameters) == ["move", "times"]
    env.reset(3)
    assert env.level == 3
    env.step(1)
    env.step(move=1)
    env.step(1, times=2)
    steps = read(run.store, "walk/t").steps
    assert steps[0]["state"] == {"reset": {"given": {"level": 3}}}
    assert [step["action"] for step in steps[1:]] == [1, 1, {"move": 1, "times": 2}]
    with pytest.raises(TypeError):
        env.step()


def test_a_method_that_was_set_on_the_instance_is_used(run: keepstep.Run) -> None:
    inner = GymCorridor()
    original = inner.step
    inner.step = lambda action, more=0: original(action + more)  # type: ignore[method-assign,misc]
    env: Any = keepstep.record(inner, run, task="t", sample=0)
    assert list(inspect.signature(env.step).parameters) == ["action", "more"]
    env.reset()
    assert env.step(1)[0] == 1
    other: Any = keepstep.record(GymCorridor(), run, task="u", sample=0)
    assert list(inspect.signature(other.step).parameters) == ["action"]


@each_flavour
def test_the_task_may_be_told_from_the_reset(flavour: Flavour, run: keepstep.Run) -> None:
    told: list[Any] = []

    def task(env: Any, result: Any) -> str:
        told.append((env, result))
        return f"task-{env.corridor.resets}"

    inner = flavour.make()
    env = keepstep.record(inner, run, task=task, sample=0)
    flavour.reset(env)
    assert keepstep.current(env).ref == "walk/task-1#0.0~0"
    assert told[0][0] is inner and flavour._observation(told[0][1]) == 0
    assert inner.corridor.resets == 1


def test_a_vector_environment_is_refused_with_advice(run: keepstep.Run) -> None:
    vector = gymnasium.vector.SyncVectorEnv([GymCorridor, GymCorridor])
    with pytest.raises(keepstep.BadInput, match=r"vector environment of 2 .* record each one before"):
        keepstep.record(vector, run, task="t")
    vector.close()


def test_recorded_ones_can_be_put_together_as_the_advice_says(run: keepstep.Run) -> None:
    def make(sample: int) -> Any:
        return lambda: keepstep.record(GymCorridor(), run, task=f"t{sample}", sample=0)

    vector = gymnasium.vector.SyncVectorEnv([make(0), make(1)])
    vector.reset()
    vector.step([1, 2])
    vector.close()
    assert [len(read(run.store, f"walk/t{sample}").steps) for sample in (0, 1)] == [2, 2]


@pytest.mark.parametrize("env", [object(), GymCorridor.step, None])
def test_what_is_no_environment_is_refused(env: Any, run: keepstep.Run) -> None:
    with pytest.raises(keepstep.BadInput, match="env"):
        keepstep.record(env, run, task="t")


def test_an_environment_of_no_known_shape_is_refused(run: keepstep.Run) -> None:
    class Shapeless:
        def reset(self) -> None: ...
        def step(self, action: int) -> None: ...

    with pytest.raises(keepstep.BadInput, match=r"no known shape.*run.episode"):
        keepstep.record(Shapeless(), run, task="t")


def test_the_shape_is_enough(run: keepstep.Run) -> None:
    class Duck:
        action_space = None

        def __init__(self) -> None:
            self.inner = GymCorridor()

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.inner.reset(seed=seed, options=options)

        def step(self, action: int) -> Any:
            return self.inner.step(action)

    env = keepstep.record(Duck(), run, task="t", sample=0)
    env.reset(seed=1)
    assert env.step(2)[0] == 2
    assert len(read(run.store, "walk/t").steps) == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"task": 3}, "task"),
        ({"environment": "rewind"}, "environment"),
        ({"environment": "restore"}, r"state=\(get, set\)"),
        ({"state": (1, 2)}, "state"),
        ({"state": len}, "state"),
        ({"on_record_error": "ignore"}, "on_record_error"),
        ({"skip": "info"}, "skip"),
        ({"skip": ["observations"]}, "observations"),
        ({"skip": ["observation"], "environment": "replay"}, "observation"),
    ],
)
def test_wrong_arguments_are_told(wrong: dict[str, Any], says: str, run: keepstep.Run) -> None:
    given: dict[str, Any] = {"task": "t", **wrong}
    with pytest.raises(keepstep.BadInput, match=says):
        keepstep.record(GymCorridor(), run, **given)


def test_fields_can_be_left_out(run: keepstep.Run) -> None:
    env = keepstep.record(GymCorridor(), run, task="t", sample=0, skip=["info", "observation"])
    env.reset(seed=1)
    env.step(1)
    assert read(run.store, "walk/t").steps == [
        {"kind": "FIRST", "state": {"reset": {"given": {"seed": 1}}}},
        {"kind": "MID", "action": 1, "reward": 0.5},
    ]


@each_flavour
def test_current_is_the_episode(flavour: Flavour, run: keepstep.Run) -> None:
    inner = flavour.make()
    env = keepstep.record(inner, run, task="t", sample=0)
    with pytest.raises(keepstep.BadInput, match="not recorded"):
        keepstep.current(inner)
    with pytest.raises(keepstep.BadInput, match="first reset"):
        keepstep.current(env)
    flavour.reset(env)
    flavour.walk(env, 2)
    assert keepstep.current(env).turns == 2
    flavour.walk(env, 1)
    assert keepstep.current(env).ended == "finished"


def test_current_is_found_inside_of_other_wrappers(run: keepstep.Run) -> None:
    recorded = keepstep.record(GymCorridor(), run, task="t", sample=0)
    env = gymnasium.wrappers.TimeLimit(recorded, 10)
    env.reset()
    assert keepstep.current(env) is keepstep.current(recorded)


@each_flavour
def test_the_null_store_behaves_the_same(flavour: Flavour) -> None:
    run = keepstep.open(None).run("walk")
    env = keepstep.record(flavour.make(), run, task="t")
    flavour.reset(env)
    flavour.walk(env, 2)
    assert keepstep.current(env).turns == 2
    flavour.walk(env, 1)
    assert keepstep.current(env).ended == "finished"
    if flavour.name != "dm_env":
        with pytest.raises(keepstep.Ended, match="reset"):
            flavour.step(env, 2)
    flavour.reset(env)
    keepstep.current(env).end("truncated", limit="turns")
    with pytest.raises(keepstep.Ended, match="truncated"):
        flavour.step(env, 2)
    flavour.close(env)


@each_flavour
def test_the_null_store_knows_of_exceptions(flavour: Flavour) -> None:
    def trouble() -> None:
        raise OSError("out of order")

    env = keepstep.record(flavour.make({1: trouble}), keepstep.open(None).run("walk"), task="t")
    flavour.reset(env)
    flavour.walk(env, 1)
    with pytest.raises(OSError, match="out of order"):
        flavour.step(env, 1)
    assert keepstep.current(env).ended == "errored"
    with pytest.raises(keepstep.Ended):
        flavour.step(env, 1)


def test_it_does_not_travel(run: keepstep.Run) -> None:
    env = keepstep.record(GymCorridor(), run, task="t", sample=0)
    with pytest.raises(TypeError, match="record it where it runs"):
        pickle.dumps(env)


class Watched:
    """A native object that tells which of its calls waited for the disk on the thread of an event loop."""

    _waits: ClassVar[dict[str, Any]] = {
        "open": lambda args: True,
        "state": lambda args: True,
        "history": lambda args: True,
        "wait": lambda args: True,
        "say": lambda args: args[1],
        "result": lambda args: args[1],
    }

    def __init__(self, native: Any, blamed: list[str], seen: set[str]) -> None:
        self._native, self._blamed, self._seen = native, blamed, seen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._native, name)
        return self._watching(name, found) if callable(found) else found

    def _watching(self, name: str, method: Any) -> Any:
        def call(*args: Any) -> Any:
            self._seen.add(name)
            if keepstep._loops.is_on_loop() and self._waits.get(name, lambda args: False)(args):
                self._blamed.append(name)
            return self._within(method(*args))

        return call

    def _within(self, came: Any) -> Any:
        if isinstance(came, tuple):
            return tuple(map(self._within, came))
        is_native = type(came).__module__.startswith("keepstep")
        return Watched(came, self._blamed, self._seen) if is_native else came

    def __await__(self) -> Any:
        return self._native.__await__()


@pytest.mark.parametrize("mode", ["restore", "replay"])
def test_an_async_environment_never_blocks_its_loop(mode: Any, run: keepstep.Run) -> None:
    blamed: list[str] = []
    seen: set[str] = set()
    run._core = Watched(run._core, blamed, seen)

    async def loop() -> None:
        env = keepstep.record(KeptAsyncCorridor(), run, task="t", sample=0, environment=mode)
        async with env:
            await env.reset()
            await env.step(1)
        assert (await env.reset()).observation == 1
        while (await env.step(1)).step_type != "LAST":
            pass

    asyncio.run(loop())
    assert blamed == []
    assert {"open", "first", "say", "result", "end", "state", "history"} <= seen, "it was watched at all"


def test_many_async_environments_go_on_together(run: keepstep.Run) -> None:
    async def one(sample: int) -> None:
        env = keepstep.record(AsyncCorridor(), run, task="t", sample=sample)
        await env.reset()
        for _ in range(3):
            await env.step(2)

    async def all_of_them() -> None:
        await asyncio.gather(*(one(sample) for sample in range(50)))

    asyncio.run(all_of_them())
    assert all(read(run.store, f"walk/t#0.{sample}").end for sample in (0, 17, 49))
