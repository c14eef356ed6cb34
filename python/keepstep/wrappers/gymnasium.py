"""Recorded Gymnasium environments: `reset(seed, options)`, and `step(action)` with two flags for its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from .._endings import Ending
from .._null import NullEpisode
from ..errors import Ended
from ._callers import BlockingCaller, run_blocking
from ._env_recorder import EnvRecorder
from ._transparent import Blocking, action_of, given_to, tape_of

if TYPE_CHECKING:
    from .._run import Run

# Wrappers whose only state that matters is what `counters` returns.
_PLAIN_WRAPPERS = frozenset({"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"})


class GymnasiumFlavour:
    """How the return values of Gymnasium are read."""

    def first_of(self, result: Any) -> dict[str, Any]:
        observation, info = result
        return {"observation": observation, "info": info}

    def result_of(self, result: Any) -> dict[str, Any]:
        observation, reward, _, _, info = result
        return {"observation": observation, "reward": reward, "info": info}

    def ending_of(self, env: Any, result: Any) -> Ending | None:
        if result[2]:
            return Ending("finished", said_by="terminated flag")
        if not result[3]:
            return None
        for limit in _time_limits(env):
            if (limit._elapsed_steps or 0) >= limit._max_episode_steps:
                return Ending("truncated", limit="steps", said_by="TimeLimit wrapper")
        info = result[4]
        if isinstance(info, dict) and info.get("TimeLimit.truncated"):
            return Ending("truncated", limit="steps", said_by='info["TimeLimit.truncated"]')
        return Ending("truncated", said_by="truncated flag")

    def as_reset(self, fresh: Any, fields: dict[str, Any]) -> Any:
        return fields["observation"], fields.get("info", {})

    def layers(self, env: Any) -> list[Any]:
        layers = [env]
        while _is_plain_wrapper(layers[-1]):
            layers.append(layers[-1].env)
        return layers

    def counters(self, env: Any) -> dict[str, Any]:
        elapsed = [limit._elapsed_steps for limit in _time_limits(env)]
        return {"TimeLimit": elapsed} if elapsed else {}

    def set_counters(self, env: Any, counters: dict[str, Any]) -> None:
        for limit, elapsed in zip(_time_limits(env), counters.get("TimeLimit", ()), strict=False):
            limit._elapsed_steps = elapsed

    def randomness(self, env: Any) -> Any:
        generator = getattr(env.unwrapped, "np_random", None)
        return getattr(getattr(generator, "bit_generator", None), "state", None)

    def set_randomness(self, env: Any, saved: Any) -> None:
        env.unwrapped.np_random.bit_generator.state = saved

    def over(self, why: str) -> Exception:
        return _reset_needed()(why)


def _is_plain_wrapper(env: Any) -> bool:
    return type(env).__name__ in _PLAIN_WRAPPERS and type(env).__module__.startswith("gymnasium.")


def _time_limits(env: Any) -> list[Any]:
    """The wrappers inside that count steps, outermost first."""
    found = []
    while (inner := getattr(env, "__dict__", {}).get("env")) is not None:
        if type(env).__name__ == "TimeLimit" and hasattr(env, "_elapsed_steps"):
            found.append(env)
        env = inner
    return found


def _reset_needed() -> type[Exception]:
    """The error `Ended`, which is also Gymnasium's own error if that is loaded."""
    error: Any = sys.modules.get("gymnasium.error")
    if error is None:
        return Ended
    found = _errors.get(error.ResetNeeded)
    if found is None:
        found = _errors[error.ResetNeeded] = type(
            "ResetNeeded", (Ended, error.ResetNeeded), {"__module__": __name__}
        )
    return found


_errors: dict[type, type[Exception]] = {}
_FLAVOUR = GymnasiumFlavour()
_CALLER = BlockingCaller()


class RecordedGymnasium(Blocking):
    """A Gymnasium environment that is recorded. It is a gymnasium.Wrapper too, if what it records is a gymnasium.Env."""

    _own: ClassVar[frozenset[str]] = Blocking._own | {
        "_action_space",
        "_observation_space",
        "_metadata",
        "_cached_spec",
    }

    @classmethod
    def _bases_for(cls, env: Any) -> tuple[type, ...]:
        module: Any = sys.modules.get("gymnasium")
        if module is None or not isinstance(env, module.Env):
            return ()
        return (module.Wrapper,)

    def _init_base(self, env: Any) -> None:
        for base in self._bases_for(env):
            base.__init__(self, env)  # type: ignore[misc]

    def _tape_of(self, env: Any, run: Run, options: dict[str, Any]) -> EnvRecorder:
        return tape_of(_FLAVOUR, _CALLER, env, run, options)

    @classmethod
    def _methods(cls) -> dict[str, Callable[[], Any]]:
        return {"step": _make_step, "reset": _make_reset}

    @property
    def spec(self) -> Any:
        """What `gymnasium.make` made it from."""
        return self.env.spec

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped


def _make_step() -> Any:
    def step(self: Any, *args: Any, **given: Any) -> Any:
        recorder, call = self._keepstep, self.env.step
        if recorder.native.__class__ is NullEpisode:
            return recorder.step_unrecorded(call, args, given)
        action = action_of(call, args, given)
        return run_blocking(recorder.step(action, lambda: call(*args, **given)))

    return step


def _make_reset() -> Any:
    def reset(self: Any, *args: Any, **given: Any) -> Any:
        call = self.env.reset
        return run_blocking(self._keepstep.begin(call, given_to(call, args, given)))

    return reset
