"""How an environment is brought back to where its record stops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from tinker_cookbook.rl.types import ActionExtra, Env, InitialObservationOverflow

from keepstep import BadInput
from keepstep.adapting import diverged

from ._playback import Playback
from ._values import NotRecorded, is_whole

Mode = Literal["restart", "restore", "replay"]
STATE = "environment"

_STATE_METHODS = (
    ("snapshot", "restore"),
    ("get_state", "set_state"),
    ("export_state", "import_state"),
    ("state_dict", "load_state_dict"),
)


@runtime_checkable
class Restorable(Protocol):
    """An environment, or a `MessageEnv`, that can resume after any of its turns. Both methods may be `async`."""

    def snapshot(self) -> Any:
        """Everything that changes during an episode, as plain data."""

    def restore(self, state: Any) -> Any:
        """Sets the state. `initial_observation` was called before."""


class Keeper(NamedTuple):
    """What gets and sets the state of an environment."""

    get: Callable[[Any], Any]
    set: Callable[[Any, Any], Any]


def keeper_of(
    env: Env, given: tuple[Callable[[Any], Any], Callable[[Any, Any], Any]] | None
) -> Keeper | None:
    """The given functions, or methods of the environment or of the message environment in it."""
    if given is not None:
        return Keeper(*given)
    for is_inner, layer in enumerate((env, getattr(env, "message_env", None))):
        for get, set_ in _STATE_METHODS:
            if callable(getattr(layer, get, None)) and callable(getattr(layer, set_, None)):
                return _by_methods(get, set_, bool(is_inner))
    return None


def _by_methods(get: str, set_: str, is_inner: bool) -> Keeper:
    def layer(env: Any) -> Any:
        return env.message_env if is_inner else env

    return Keeper(lambda env: getattr(layer(env), get)(), lambda env, state: getattr(layer(env), set_)(state))


def mode_of(asked: Mode | None, keeper: Keeper | None) -> Mode:
    """How it resumes: as asked for, else by its state if it has one. By replay only if asked for."""
    if asked == "restore" and keeper is None:
        raise BadInput(
            'environment: is "restore", but the environment has no snapshot() and restore(state): '
            "give state=(get, set), or another mode"
        )
    return asked or ("restart" if keeper is None else "restore")


async def settled(came: Any) -> Any:
    """The result of a method that may be async."""
    return (await came) if inspect.isawaitable(came) else came


async def bring_back(env: Env, mode: Mode, keeper: Keeper | None, playback: Playback) -> None:
    """Brings a fresh environment to the end of the playback."""
    if mode == "replay":
        return await _replay(env, playback)
    state = (playback.steps[-1].state or {}).get(STATE, _NOTHING)
    if keeper is None or state is _NOTHING:
        raise NotRecorded("no state of the environment was recorded")
    if not is_whole(state):
        raise NotRecorded("the state of the environment was recorded as text: it is not plain data")
    if playback.overflow is None:
        # It must be begun before its state can be set.
        await env.initial_observation()
    await settled(keeper.set(env, state))


_NOTHING = object()


async def _replay(env: Env, playback: Playback) -> None:
    first = await env.initial_observation()
    if isinstance(first, InitialObservationOverflow):
        if playback.overflow is None:
            raise diverged("step 0: the recorded prompt fitted, now it is too long")
        return
    if playback.initial is None:
        raise diverged("step 0: the recorded prompt was too long, now it fits")
    _same(0, "observation", playback.initial[0], first[0])
    for turn, (answer, before) in enumerate(zip(playback.answers, playback.results, strict=False), start=1):
        now = await env.step(list(answer.tokens), extra=ActionExtra(stop_reason=answer.stop_reason))
        _same(turn, "reward", before.reward, now.reward)
        _same(turn, "episode_done", before.episode_done, now.episode_done)
        _same(turn, "observation", before.next_observation, now.next_observation)


def _same(step: int, field: str, before: Any, after: Any) -> None:
    if before != after and not (before != before and after != after):
        raise diverged(f"step {step}, {field}: recorded {str(before)[:120]}, now {str(after)[:120]}")
