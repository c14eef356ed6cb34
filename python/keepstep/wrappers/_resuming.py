"""How an environment is brought back to where its record stops: its state is restored, or its actions are taken again.

Either way it is in the state before the pending turn, if there is one. If the next step takes the same action, it completes
that turn. If it takes another one, the pending turn is discarded, on record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .. import _core
from .._foreign import repr_of
from .._loops import warn_caller
from ..errors import BadInput, Diverged
from ._callers import Caller
from ._differences import difference
from ._options import Flavour, RecordOptions

# Names of state that a recorded step has: the environment's own, what its wrappers count, how it was reset, how it ended.
STATE = "environment"
COUNTERS = "wrappers"
RESET = "reset"
ENDING = "ending"
"""The name of the state in which the last step keeps how the episode ended, in case of a crash before its end is recorded."""

_TEXT_MAX = 120


class CannotResume(Exception):
    """The record lacks what is needed to resume."""


def reset_said(flavour: Flavour, env: Any, options: RecordOptions, given: dict[str, Any]) -> dict[str, Any]:
    """What is needed to reset it in the same way again. Called before the reset."""
    said: dict[str, Any] = {"given": given} if given else {}
    if given and (refused := _refusal(given)) is not None:
        warn_caller(
            f"reset: an argument cannot be recorded ({refused}): if the episode is interrupted, it cannot resume, and begins "
            "again from step 0",
            RuntimeWarning,
        )
        return {RESET: {"unknown": True}}
    if options.mode == "replay" and given.get("seed") is None:
        random = flavour.randomness(env)
        if random is not None:
            said["random"] = random
    return {RESET: said} if said else {}


async def restore(
    env: Any,
    options: RecordOptions,
    flavour: Flavour,
    caller: Caller,
    native: Any,
    call: Callable[..., Any],
    fresh: Any,
) -> Any:
    """Sets the state of the last step, and returns what `reset` is to return."""
    found = await caller.read(lambda: native.state(STATE))
    if found is None or options.keeper is None:
        raise CannotResume("no state of the environment was recorded")
    last = await caller.read(lambda: _last_observed(native))
    if fresh is None:
        # It must be reset before its state can be set.
        reset = await _recorded_reset(caller, native)
        fresh = await caller.ask(lambda: call(**reset.get("given", {})))
    put = options.keeper.set
    await caller.ask(lambda: put(env, found[0]))
    counters = await caller.read(lambda: native.state(COUNTERS))
    if counters is not None:
        flavour.set_counters(env, counters[0])
    return flavour.as_reset(fresh, last)


def _last_observed(native: Any) -> dict[str, Any]:
    """The newest step with an observation: one that raised has none."""
    for index in reversed(range(native.inherited)):
        step: dict[str, Any] = native.history(index)
        if "observation" in step:
            return step
    raise CannotResume("no observation was recorded")


async def _recorded_reset(caller: Caller, native: Any) -> dict[str, Any]:
    found = await caller.read(lambda: native.state(RESET))
    reset: dict[str, Any] = {} if found is None else found[0]
    if "unknown" in reset:
        raise CannotResume("the arguments of reset() could not be recorded")
    return reset


async def replay(
    env: Any,
    options: RecordOptions,
    flavour: Flavour,
    caller: Caller,
    native: Any,
    call: Callable[..., Any],
    fresh: Any,
) -> Any:
    """Takes the recorded actions in a fresh environment, and compares the results."""
    reset = await _recorded_reset(caller, native)
    if "random" in reset:
        flavour.set_randomness(env, reset["random"])
    fresh = await caller.ask(lambda: call(**reset.get("given", {})))
    fields = flavour.first_of(fresh)
    for index in range(native.inherited):
        step = await caller.read(partial(native.history, index))
        if "error" in step:
            # A failed step has no result to compare, and nobody knows what it did to the environment.
            continue
        if step["kind"] != "FIRST":
            fields = await _again(env, flavour, caller, index, step)
        check_same(index, step, fields)
    return flavour.as_reset(fresh, fields)


async def _again(
    env: Any, flavour: Flavour, caller: Caller, index: int, step: dict[str, Any]
) -> dict[str, Any]:
    """Takes a recorded action again."""
    if "action" not in step:
        raise CannotResume(f"the action of step {index} was not recorded")
    result = await caller.ask(lambda: env.step(step["action"]))
    ending = flavour.ending_of(env, result)
    if ending is not None:
        raise diverged(f"step {index}, its end: the recorded episode continued, now it is {ending.why}")
    return flavour.result_of(result)


def check_same(index: int, step: dict[str, Any], fields: dict[str, Any]) -> None:
    """Raises `Diverged` if a step is not what was recorded, naming the first field that differs."""
    for name in ("observation", "reward", "discount"):
        if name not in step:
            continue
        now = fields.get(name)
        if name != "observation" and now is not None:
            now = float(now)
        found = difference(step[name], now, name)
        if found is not None:
            path, before, after = found
            raise diverged(f"step {index}, {path}: recorded {shortened(before)}, now {shortened(after)}")


def diverged(what: str) -> Diverged:
    """The error to raise if a replay differs from the record: it says what differs, and what to do."""
    return Diverged(f'{what}; begin the episode again with environment="restart"')


def shortened(value: Any) -> str:
    """A value, short enough for a message."""
    text = repr_of(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def check_recordable(state: Any) -> None:
    """Refuses a state that would not be read back as it is."""
    refused = _refusal(state)
    if refused is not None:
        raise BadInput(
            f"state: the state of the environment cannot be restored from a record ({refused}): "
            'give state=(get, set) with functions that use plain data, or environment="restart"'
        )


def _refusal(value: Any) -> BadInput | None:
    """Why a value would not be read back as it is; None if it would."""
    try:
        _core._roundtrip(value, _core.Context(strict=True))
    except BadInput as refused:
        return refused
    return None
