"""Objects that others wrote. Their `__str__` and `__repr__` may fail: making a text never raises. And they may give their value
only later: such an object is no value.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect

NO_TEXT = "(its text could not be made)"


def message_of(raised: BaseException) -> str:
    """What an exception says."""
    try:
        return str(raised)
    except Exception:
        return NO_TEXT


def repr_of(value: object) -> str:
    """What a value calls itself, or else its type."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__qualname__} {NO_TEXT}>"


def gives_later(cls: type) -> str | None:
    """What to do with an object of a class whose objects give their value later; None for other classes."""
    if hasattr(cls, "__await__"):
        return "did you forget `await`?"
    # What has everything is a mock.
    if hasattr(cls, "__anext__") and not hasattr(cls, "__next__"):
        return "collect what it gives first: [one async for one in …]"
    if issubclass(cls, concurrent.futures.Future):
        return "did you forget `.result()`?"
    return None


def close(came: object) -> None:
    """Closes a coroutine that never started: Python would warn that nobody awaits it."""
    with contextlib.suppress(Exception):
        if inspect.iscoroutine(came) and inspect.getcoroutinestate(came) == inspect.CORO_CREATED:
            came.close()
