"""Recorded environments: one line around an environment, and the rest of the loop stays as it is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import BadInput
from ._transparent import Transparent
from .async_dm_env import RecordedAsyncDmEnv
from .dm_env import RecordedDmEnv
from .gymnasium import RecordedGymnasium

if TYPE_CHECKING:
    from .._endings import Ending
    from .._episode import Episode
    from .._run import Run

E = TypeVar("E")

__all__ = ["RecordedAsyncDmEnv", "RecordedDmEnv", "RecordedGymnasium", "current", "record"]


def record(
    env: E,
    run: Run,
    *,
    task: str | Callable[[E, Any], str],
    iteration: int = 0,
    sample: int | None = None,
    environment: Literal["restart", "restore", "replay"] | None = None,
    state: tuple[Callable[[E], Any], Callable[[E, Any], None]] | None = None,
    ending: Callable[[E, Any], Ending | None] | None = None,
    on_record_error: Literal["raise", "warn"] = "raise",
    skip: Collection[str] = (),
) -> E:
    """The same environment, recorded: each reset is an episode, each step is durable when it returns.

    `task` is a name, or a function of the environment and of what `reset` returned. Without a `sample`, each reset
    resumes a sample that an earlier process left interrupted, or else takes the next number. `environment` says how
    an interrupted episode resumes: `restore` sets the recorded state (with `state`, a pair of functions (get, set),
    or with methods of the environment), `restart` begins again at step 0, `replay` takes the recorded actions again.
    The default is `restore` if the environment supports it, else `restart`. `ending` is called after each step and
    returns how the episode ended, for environments that do not say it.
    """
    recorded: Any = flavour_of(env)(
        env,
        run,
        task=task,
        iteration=iteration,
        sample=sample,
        environment=environment,
        state=state,
        ending=ending,
        on_record_error=on_record_error,
        skip=skip,
    )
    return recorded  # type: ignore[no-any-return]


def current(env: object) -> Episode:
    """The episode that a recorded environment records now, or recorded last."""
    inner: Any = env
    while inner is not None and not isinstance(inner, Transparent):
        # It may be inside other wrappers.
        inner = getattr(inner, "__dict__", {}).get("env")
    if inner is None:
        raise BadInput(f"env: {env!r} is not recorded: use what keepstep.record(env, ...) returned")
    return inner._keepstep.current


def flavour_of(env: Any) -> type[Transparent]:
    """The class that records environments of this shape."""
    _refuse_vector(env)
    step, reset = getattr(env, "step", None), getattr(env, "reset", None)
    if not callable(step) or not callable(reset):
        raise BadInput(f"env: {env!r} has no step() and reset(): give an environment")
    if inspect.iscoroutinefunction(step) or inspect.iscoroutinefunction(reset):
        return RecordedAsyncDmEnv
    if hasattr(env, "action_space") or _is_of(env, "gymnasium", "Env"):
        return RecordedGymnasium
    if hasattr(env, "action_spec") or _is_of(env, "dm_env", "Environment"):
        return RecordedDmEnv
    raise BadInput(
        f"env: {env!r} is of no known shape: it has neither an action_space (Gymnasium) nor an action_spec (dm_env), "
        "and its step() is not async; use RecordedGymnasium or RecordedDmEnv of keepstep.wrappers, "
        "or a loop of your own with run.episode(...)"
    )


def _refuse_vector(env: Any) -> None:
    if _is_of(env, "gymnasium", "vector.VectorEnv") or hasattr(env, "single_action_space"):
        raise BadInput(
            f"env is a vector environment of {getattr(env, 'num_envs', 'several')} environments, "
            "whose episodes begin and end at different steps: record each one before they are put together, "
            "as in SyncVectorEnv([lambda: keepstep.record(make(), run, task=...) for make in ...])"
        )


def _is_of(env: object, module: str, name: str) -> bool:
    """True if it is an instance of a class of a module. A module that is not imported has no instances."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(env, found)
