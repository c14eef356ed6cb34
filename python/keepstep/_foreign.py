"""Texts of objects that others wrote, whose `__str__` and `__repr__` may fail: making one never raises."""

from __future__ import annotations

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
