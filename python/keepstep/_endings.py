"""How an exception ends an episode, and what is kept of it."""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from . import _core
from ._foreign import message_of
from .errors import BadInput

Why = Literal[
    "finished", "truncated", "abandoned", "aborted", "errored", "cancelled", "crashed", "superseded"
]
# The engine defines what each ending means. Type checkers need the literal `Why`; a test compares the two.
WHYS: tuple[str, ...] = tuple(name for name, *_ in _core.ENDINGS)
FINAL: frozenset[str] = frozenset(name for name, is_final, _, _ in _core.ENDINGS if is_final)
"""The endings after which an episode is over: `view.state in FINAL`."""
RETRIED: tuple[str, ...] = tuple(name for name, _, is_resumable, _ in _core.ENDINGS if is_resumable)
SAID = frozenset(name for name, _, _, is_said in _core.ENDINGS if is_said)


class Ending(NamedTuple):
    """How an attempt ended, and who said so."""

    why: Why
    limit: str | None = None
    error: str | None = None
    said_by: str = ""


def why_of(raised: BaseException) -> Why:
    """The ending of an episode that is left by this exception."""
    if isinstance(raised, asyncio.CancelledError):
        return "cancelled" if is_own_cancellation() else "errored"
    if isinstance(raised, Exception):
        return "errored"
    # KeyboardInterrupt, SystemExit, GeneratorExit: the program is asked to stop, nothing failed.
    return "aborted"


def why_left(raised: BaseException | None) -> Why:
    """The ending of an episode that is active when its environment is closed or left."""
    return "cancelled" if raised is not None and why_of(raised) == "cancelled" else "aborted"


def ending_by(ask: Callable[[Any, Any], Ending | None] | None, env: Any, result: Any) -> Ending | None:
    """How the episode ended with this step, if the function that was given as `ending=` says so."""
    said = None if ask is None else ask(env, result)
    if said is None:
        return None
    if not isinstance(said, Ending):
        raise BadInput(f"ending returned {said!r}: return a keepstep.Ending, or None")
    return said if said.said_by else said._replace(said_by="ending=")


def is_own_cancellation() -> bool:
    """True if the running task itself was cancelled, not an inner task of an environment.

    Python 3.10 cannot tell them apart: there every cancellation counts as the task's own.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    cancelling = getattr(task, "cancelling", None)
    return task is not None and (cancelling is None or cancelling() > 0)


def error_of(raised: BaseException) -> dict[str, Any]:
    """What is kept of an exception: its type, message and traceback."""
    kind = type(raised)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        trace = "".join(traceback.format_exception(raised))
    except Exception:
        trace = ""
    return {"type": name, "message": message_of(raised), "traceback": trace}


def text_of(raised: BaseException) -> str:
    """What is kept of an exception, as the text that readers get."""
    kept = error_of(raised)
    return f"{kept['type']}: {kept['message']}\n{kept['traceback']}"
