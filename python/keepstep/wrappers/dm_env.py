"""Recorded dm_env environments: time steps that say FIRST, MID or LAST, and end by a discount."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._endings import Ending
from .._null import NullEpisode
from ..errors import Ended
from ._callers import BlockingCaller, run_blocking
from ._env_recorder import EnvRecorder
from ._transparent import Blocking, action_of, given_to, tape_of

if TYPE_CHECKING:
    from .._run import Run

_FIELDS = frozenset({"step_type", "reward", "discount", "observation"})


class DmEnvFlavour:
    """How a time step of dm_env is read; its step type is an enum, or a text."""

    def first_of(self, result: Any) -> dict[str, Any]:
        # Only the observation of a first step means something, but some environments add a reward and a discount.
        info = _more_of(result)
        for name in ("reward", "discount"):
            value = getattr(result, name)
            if value is not None:
                info[name] = value
        fields = {"observation": result.observation}
        return {**fields, "info": info} if info else fields

    def result_of(self, result: Any) -> dict[str, Any]:
        fields = {"observation": result.observation, "reward": result.reward, "discount": result.discount}
        more = _more_of(result)
        return {**fields, "info": more} if more else fields

    def ending_of(self, env: Any, result: Any) -> Ending | None:
        if not is_of_type(result, "LAST"):
            return None
        if result.discount is None:
            return Ending("finished", said_by="step type")
        if _is_zero(result.discount):
            return Ending("finished", said_by="discount")
        return Ending("truncated", said_by="discount")

    def as_reset(self, fresh: Any, fields: dict[str, Any]) -> Any:
        # reset() returns a first step, also in the middle of an episode.
        return fresh._replace(observation=fields["observation"])

    def layers(self, env: Any) -> list[Any]:
        return [env]

    def counters(self, env: Any) -> dict[str, Any]:
        return {}

    def set_counters(self, env: Any, counters: dict[str, Any]) -> None:
        pass

    def randomness(self, env: Any) -> Any:
        return None

    def set_randomness(self, env: Any, saved: Any) -> None:
        pass

    def over(self, why: str) -> Exception:
        return Ended(why)


def is_of_type(result: Any, name: str) -> bool:
    """True if a time step is of that type."""
    kind = result.step_type
    return bool(getattr(kind, "name", kind) == name)


def _more_of(result: Any) -> dict[str, Any]:
    """Fields that this environment's time steps have beyond the four."""
    names = getattr(result, "_fields", ())
    return {name: getattr(result, name) for name in names if name not in _FIELDS} if len(names) > 4 else {}


def _is_zero(discount: Any) -> bool:
    try:
        return float(discount) == 0.0
    except (TypeError, ValueError):
        # One discount for each part of the environment: all must be zero.
        return not any(map(float, discount))


FLAVOUR = DmEnvFlavour()
_CALLER = BlockingCaller()


class RecordedDmEnv(Blocking):
    """A dm_env environment that is recorded. It is a dm_env.Environment too, if what it records is one."""

    @classmethod
    def _bases_for(cls, env: Any) -> tuple[type, ...]:
        base: Any = getattr(sys.modules.get("dm_env"), "Environment", None)
        return (base,) if base is not None and isinstance(env, base) else ()

    def _tape_of(self, env: Any, run: Run, options: dict[str, Any]) -> EnvRecorder:
        return tape_of(FLAVOUR, _CALLER, env, run, options)

    @classmethod
    def _methods(cls) -> dict[str, Callable[[], Any]]:
        return {"step": _make_step, "reset": _make_reset}

    def reward_spec(self) -> Any:
        """Describes the reward."""
        return self.env.reward_spec()

    def discount_spec(self) -> Any:
        """Describes the discount."""
        return self.env.discount_spec()

    def observation_spec(self) -> Any:
        """Describes the observation."""
        return self.env.observation_spec()

    def action_spec(self) -> Any:
        """Describes the action."""
        return self.env.action_spec()


def _make_step() -> Any:
    def step(self: Any, *args: Any, **given: Any) -> Any:
        recorder, call = self._keepstep, self.env.step
        if recorder.may_begin_by_step:
            # By its contract a dm_env environment begins the next episode with such a step, and ignores the action.
            return run_blocking(recorder.begin(lambda **_: call(*args, **given), {}))
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
