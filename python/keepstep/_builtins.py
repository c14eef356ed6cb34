"""Python's own types beyond plain data: how they are recorded, and how they are read back as themselves.

Only modules that are already loaded are looked at: without its module, no object of a class can exist.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

Plan = tuple[str, "str | None", Any]


def _in_order(items: Iterable[Any]) -> list[Any]:
    """The items of a set, in the same order in every process if possible."""
    items = list(items)
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=lambda item: (type(item).__qualname__, _safe_repr(item)))


def _safe_repr(item: object) -> str:
    try:
        return repr(item)
    except Exception:
        return ""


def _datetime(moment: datetime.datetime) -> Any:
    zone = getattr(moment.tzinfo, "key", None)
    if zone is None and moment.fold == 0:
        return moment.isoformat()
    return {"iso": moment.isoformat(), "fold": moment.fold, "zone": zone}


def _datetime_back(data: Any) -> datetime.datetime:
    if isinstance(data, str):
        return datetime.datetime.fromisoformat(data)
    moment = datetime.datetime.fromisoformat(data["iso"])
    if data["zone"] is not None:
        import zoneinfo

        moment = moment.replace(tzinfo=zoneinfo.ZoneInfo(data["zone"]))
    return moment.replace(fold=data["fold"])


def _time(moment: datetime.time) -> Any:
    return moment.isoformat() if moment.fold == 0 else {"iso": moment.isoformat(), "fold": moment.fold}


def _time_back(data: Any) -> datetime.time:
    if isinstance(data, str):
        return datetime.time.fromisoformat(data)
    return datetime.time.fromisoformat(data["iso"]).replace(fold=data["fold"])


def _deque(items: Any) -> Any:
    return list(items) if items.maxlen is None else {"items": list(items), "maxlen": items.maxlen}


def _deque_back(data: Any) -> Any:
    from collections import deque

    return deque(data) if isinstance(data, list) else deque(data["items"], data["maxlen"])


def _ordered_back(data: Any) -> Any:
    from collections import OrderedDict

    return OrderedDict(data)


def _counter_back(data: Any) -> Any:
    from collections import Counter

    return Counter(dict(data))


def _decimal_back(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


def _fraction_back(parts: list[int]) -> Any:
    from fractions import Fraction

    return Fraction(parts[0], parts[1])


def _uuid_back(data: bytes) -> Any:
    from uuid import UUID

    return UUID(bytes=data)


def _array_back(data: dict[str, Any]) -> Any:
    from array import array

    made = array(data["typecode"])
    made.extend(data["items"])
    return made


def _dict_back(pairs: list[Any]) -> Any:
    """A dictionary whose keys were not plain. The pairs instead, if two keys are equal now or one cannot be a key."""
    try:
        made = {key: value for key, value in pairs}
    except TypeError:
        made = {}
    return made if len(made) == len(pairs) else [(key, value) for key, value in pairs]


# By class: the name in the record, how to encode an object, and how to decode it.
_TABLE: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    set: ("set", _in_order, set),
    frozenset: ("frozenset", _in_order, frozenset),
    bytearray: ("bytearray", bytes, bytearray),
    memoryview: ("memoryview", bytes, None),
    complex: ("complex", lambda number: [number.real, number.imag], lambda parts: complex(*parts)),
    range: ("range", lambda it: [it.start, it.stop, it.step], lambda parts: range(*parts)),
    slice: ("slice", lambda it: [it.start, it.stop, it.step], lambda parts: slice(*parts)),
    type(...): ("ellipsis", lambda it: None, lambda it: ...),
    datetime.datetime: ("datetime.datetime", _datetime, _datetime_back),
    datetime.date: ("datetime.date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: ("datetime.time", _time, _time_back),
    datetime.timedelta: (
        "datetime.timedelta",
        lambda it: [it.days, it.seconds, it.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
    type(pathlib.Path()): (f"pathlib.{type(pathlib.Path()).__name__}", os.fspath, pathlib.Path),
    pathlib.PurePosixPath: ("pathlib.PurePosixPath", os.fspath, pathlib.PurePosixPath),
    pathlib.PureWindowsPath: ("pathlib.PureWindowsPath", os.fspath, pathlib.PureWindowsPath),
}

# The same for classes whose module may not be loaded: (module, class).
_TABLE_BY_NAME: dict[tuple[str, str], tuple[Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    ("decimal", "Decimal"): (str, _decimal_back),
    ("fractions", "Fraction"): (lambda it: [it.numerator, it.denominator], _fraction_back),
    ("uuid", "UUID"): (lambda it: it.bytes, _uuid_back),
    ("collections", "deque"): (_deque, _deque_back),
    # In its own order, which the underlying dict does not show.
    ("collections", "OrderedDict"): (lambda it: dict(it.items()), _ordered_back),
    ("collections", "Counter"): (dict, _counter_back),
    ("collections", "defaultdict"): (dict, None),
    ("collections", "UserDict"): (lambda it: dict(it.data), None),
    ("types", "MappingProxyType"): (dict, None),
    ("types", "SimpleNamespace"): (lambda it: dict(it.__dict__), None),
    ("array", "array"): (lambda it: {"typecode": it.typecode, "items": it.tolist()}, _array_back),
}

BUILTIN_DECODERS: dict[str, Callable[[Any], Any]] = {
    # A text with lone surrogates, which UTF-8 does not have.
    "str": lambda data: data.decode("utf-8", "surrogatepass"),
    "dict": _dict_back,
    **{name: decode for name, _, decode in _TABLE.values() if decode is not None},
    **{".".join(key): decode for key, (_, decode) in _TABLE_BY_NAME.items() if decode is not None},
}


def builtin_plan(cls: type) -> Plan | None:
    """How objects of exactly this class are recorded, if it is one of Python's own."""
    found = _TABLE.get(cls)
    if found is not None:
        return "call", found[0], found[1]
    for (module, name), (encode, _) in _TABLE_BY_NAME.items():
        if cls is getattr(sys.modules.get(module), name, None):
            return "call", f"{module}.{name}", encode
    # Other path classes, and classes derived from OrderedDict, keep their own names.
    own = f"{cls.__module__}.{cls.__qualname__}"
    if issubclass(cls, pathlib.PurePath):
        return "call", own, os.fspath
    ordered = getattr(sys.modules.get("collections"), "OrderedDict", None)
    if ordered is not None and issubclass(cls, ordered):
        return "call", own, lambda it: dict(it.items())
    if issubclass(cls, (datetime.date, datetime.time)):
        return "call", own, lambda it: it.isoformat()
    return None
