"""Checks of arguments: an error names the argument, its value, and what to give instead."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ._foreign import close, gives_later, repr_of
from .errors import BadInput

_SHOWN = 60

MOST = (1 << 63) - 1
"""The largest whole number that is accepted."""
SAMPLES_MAX = 1 << 20
"""How many samples one task may have."""
TIMES_MAX = (1 << 32) - 1
"""The largest number of tries."""


def wrong(name: str, given: object, fix: str, *, may_await: bool = True) -> BadInput:
    """The error for an argument of a wrong type or value. An awaitable is told so, unless awaiting it would not help."""
    shown = repr_of(given)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    close(given)
    fix = (gives_later(type(given)) if may_await else None) or fix
    # The quotes of a string say what it is.
    kind = "" if given is None or isinstance(given, str) else f"the {type(given).__name__} "
    return BadInput(f"{name} is {kind}{shown}: {fix}")


def text(name: str, given: Any, *, empty: bool = True) -> str:
    """A text."""
    if not isinstance(given, str):
        raise wrong(name, given, "give a string")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        fix = f"give a string that UTF-8 can encode: character {error.start} is half of a surrogate pair"
        raise wrong(name, given, fix) from None
    if not given and not empty:
        raise BadInput(f"{name} is empty: give a string")
    return given


def own_name(name: str, given: Any) -> str:
    """A name of a note or a call: a text that is not empty, and not reserved. The engine has the rule."""
    from . import _core

    _core.check_name(name, text(name, given))
    return str(given)


def text_or_none(name: str, given: Any) -> str | None:
    """A text, or nothing."""
    return None if given is None else text(name, given)


def whole(name: str, given: Any, least: int = 0, most: int = MOST) -> int:
    """A whole number. Those of numpy are accepted, True is not."""
    fix = f"give a whole number, {least} or more"
    if isinstance(given, bool):
        raise wrong(name, given, fix)
    try:
        number = operator.index(given)
    except TypeError:
        raise wrong(name, given, fix) from None
    if number > most:
        raise wrong(name, number, f"give a whole number from {least} to {most}")
    if number < least:
        raise wrong(name, number, fix)
    return number


def whole_or_none(name: str, given: Any, least: int = 0) -> int | None:
    """A whole number, or nothing."""
    return None if given is None else whole(name, given, least)


def number_or_none(name: str, given: Any, fix: str = "give a number") -> float | None:
    """A float, or nothing."""
    if given is None:
        return None
    if isinstance(given, (str, bytes, bool)):
        raise wrong(name, given, fix)
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise wrong(name, given, fix) from None
    except OverflowError:
        raise wrong(name, given, f"a float cannot hold it: {fix}") from None
    # Those of NumPy would be rounded to be compared.
    exact = int(given) if isinstance(given, numbers.Integral) else given
    if number == number and _differs(exact, number):
        raise wrong(name, given, f"a float cannot hold it exactly: {fix}")
    return number


def _differs(exact: Any, number: float) -> bool:
    try:
        return bool(exact != number)
    except Exception:
        # It cannot be compared with a number, though it is one.
        return False


def bound_or_none(name: str, given: Any, fix: str) -> float | None:
    """A number that others are compared with, or nothing. NaN is refused: every comparison with it is false."""
    number = number_or_none(name, given, fix)
    if number is not None and number != number:
        raise wrong(name, given, fix)
    return number


def seconds(name: str, given: Any, *, zero: bool = True) -> float:
    """A number of seconds."""
    fix = "give a number of seconds, 0 or more" if zero else "give a number of seconds above 0"
    number = number_or_none(name, given, fix)
    # NaN is refused too.
    if number is None or not (number > 0 or (zero and number == 0)):
        raise wrong(name, given, fix)
    return number


def pair_or_none(name: str, given: Any) -> tuple[float, float] | None:
    """Two numbers, or nothing."""
    fix = "give the least and the most, such as (0.5, 1.0)"
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Collection) or len(given) != 2:
        raise wrong(name, given, fix)
    least, most = (bound_or_none(name, one, fix) for one in given)
    if least is None or most is None:
        raise wrong(name, given, fix)
    return least, most


def flag(name: str, given: Any) -> bool:
    """True or False. Other values are refused: they are mostly mistakes."""
    if not isinstance(given, bool):
        raise wrong(name, given, "give True or False")
    return given


def texts(name: str, given: Any, *, empty: bool = True) -> list[str]:
    """Several texts. A single one is refused: it would be read letter by letter."""
    if isinstance(given, (str, bytes)):
        raise BadInput(f"{name} is {given!r}: give a collection, such as [{given!r}]")
    if not isinstance(given, Iterable):
        raise wrong(name, given, "give a list of strings")
    return [text(f"{name}[{at}]", one, empty=empty) for at, one in enumerate(given)]


def one_of(name: str, given: Any, known: Collection[str]) -> str:
    """One of these words."""
    if not isinstance(given, str) or given not in known:
        raise wrong(name, given, "give " + " or ".join(f'"{word}"' for word in known))
    return given


def some_of(name: str, given: Any, known: Collection[str]) -> list[str]:
    """Some of these words."""
    words = texts(name, given)
    for word in words:
        if word not in known:
            raise BadInput(f"{name} has {word!r}: give some of {', '.join(sorted(known))}")
    return words


def mapping_or_none(name: str, given: Any) -> Mapping[str, Any] | None:
    """A mapping from names to values, or nothing."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise wrong(name, given, "give a mapping from names to values")
    for key in given:
        text(f"{name}: the key", key)
    return given
