"""Finds where the results of an environment differ from the recorded ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core


def difference(recorded: Any, now: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first place where they differ, with both values; None if they are the same.

    The recorded value is compared with `now` as that would be read back.
    """
    if _is_array(recorded) or _is_array(now):
        return None if _same_arrays(recorded, now) else (path, recorded, now)
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        return _in_mappings(recorded, now, path)
    if _is_list(recorded) and _is_list(now):
        return _in_lists(recorded, now, path)
    if isinstance(recorded, float) and isinstance(now, float) and math.isnan(recorded):
        return None if math.isnan(now) else (path, recorded, now)
    if recorded is None or now is None or type(recorded) is type(now):
        compares: object = type(now).__eq__
        if compares is object.__eq__ and hasattr(now, "__dict__"):
            # A registered class without an `__eq__`: its fields are compared.
            return difference(vars(recorded), vars(now), path)
        return None if _equal(recorded, now) else (path, recorded, now)
    plain = as_read_back(now)
    if type(plain) is not type(now):
        return difference(recorded, plain, path)
    return None if _equal(recorded, now) else (path, recorded, now)


def as_read_back(value: Any) -> Any:
    """A value as it would be read back if it were recorded."""
    roundtrip = getattr(_core, "_roundtrip", None)
    return value if roundtrip is None else roundtrip(value, _core.Context())


def _in_mappings(
    recorded: Mapping[Any, Any], now: Mapping[Any, Any], path: str
) -> tuple[str, Any, Any] | None:
    for key in [*recorded, *(key for key in now if key not in recorded)]:
        at = f"{path}[{key!r}]"
        if key not in recorded or key not in now:
            return at, recorded.get(key, "nothing"), now.get(key, "nothing")
        found = difference(recorded[key], now[key], at)
        if found is not None:
            return found
    return None


def _in_lists(recorded: Sequence[Any], now: Sequence[Any], path: str) -> tuple[str, Any, Any] | None:
    if len(recorded) != len(now):
        return f"the length of {path}", len(recorded), len(now)
    for index, (before, after) in enumerate(zip(recorded, now, strict=True)):
        found = difference(before, after, f"{path}[{index}]")
        if found is not None:
            return found
    return None


def _is_list(value: Any) -> bool:
    # A named tuple is read back as what its fields are, so it is looked at as it would be read.
    return isinstance(value, list) or type(value) is tuple


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _same_arrays(recorded: Any, now: Any) -> bool:
    import numpy

    before, after = numpy.asarray(recorded), numpy.asarray(now)
    if before.dtype != after.dtype or before.shape != after.shape:
        return False
    # NaN equals NaN here.
    can_be_nan = before.dtype.kind in "fc"
    return bool(numpy.array_equal(before, after, equal_nan=can_be_nan))


def _equal(recorded: Any, now: Any) -> bool:
    try:
        return bool(recorded == now)
    except Exception:
        return False
