"""Checks that a reset asks for the episode that is resumed: else one rollout could be recorded twice, and another never."""

from __future__ import annotations

import contextlib
from typing import Any

from .. import _core
from .._loops import warn_caller
from ..errors import Diverged, KeepstepError
from ._callers import Caller
from ._differences import difference
from ._options import RecordOptions
from ._resuming import RESET, shortened

_WAY_OUT = "give each seed a sample of its own, keepstep.record(..., sample=seed), so that a program that is run again finds it"


async def check_reset(options: RecordOptions, caller: Caller, native: Any, given: dict[str, Any]) -> None:
    """Raises `Diverged` if a resumed episode was reset with other arguments than are given now.

    An argument that was given only once is no contradiction: loops give a seed to their first reset, and none to the others.
    """
    if not given:
        return
    found = await caller.read(lambda: native.state(RESET))
    reset: dict[str, Any] = {} if found is None else found[0]
    if "unknown" in reset:
        return
    other = _other(options, reset, given)
    if other is not None:
        raise Diverged(
            f"{native.ref} is resumed, but {other}: {_WAY_OUT}, or reset with the recorded arguments first"
        )
    lacking = [name for name in given if name not in reset.get("given", {})]
    if lacking:
        warn_caller(
            f"{native.ref} is resumed, but was reset without {' and '.join(lacking)}: what reset() gets now is not used",
            RuntimeWarning,
        )


async def warn_of_other_reset(
    options: RecordOptions, caller: Caller, native: Any, given: dict[str, Any]
) -> None:
    """Warns if an episode begins again in place of an interrupted one that was reset with other arguments.

    Not if the caller named the sample by its number.
    """
    if not given or native.attempt == 0 or options.sample is not None:
        return
    before = f"{native.ref.rpartition('~')[0]}~{native.attempt - 1}"
    other = _other(options, await caller.read(lambda: _reset_of(options, before)), given)
    if other is not None:
        warn_caller(
            f"{native.ref} begins again in place of {before}, but {other}: {_WAY_OUT}", RuntimeWarning
        )


def _reset_of(options: RecordOptions, ref: str) -> dict[str, Any]:
    """How an earlier attempt was reset, if that can be read: it is needed only for a warning."""
    with contextlib.suppress(KeepstepError):
        steps = options.run.store.find(ref).steps
        return dict((steps[0].state or {}).get(RESET, {})) if steps else {}
    return {}


def _other(options: RecordOptions, reset: dict[str, Any], given: dict[str, Any]) -> str | None:
    """The first argument that was recorded with another value than it is given with now."""
    recorded = reset.get("given", {})
    store = options.run.store._options
    # As it would be recorded: a redacted value is not a different one.
    now = _core._roundtrip(given, _core.Context(redact=store.redact), f"state.{RESET}")
    for name in recorded:
        if name in now and (found := difference(recorded[name], now[name], name)) is not None:
            path, before, after = found
            return f"it was reset with {path}={shortened(before)}, now with {path}={shortened(after)}"
    return None
