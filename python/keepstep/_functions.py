"""The name of a function, by which a resumed attempt knows whether a recorded call was one of the same function.

A name is of one function alone (it is *certain*) if all that the function sees besides its arguments is plain data or such
functions. Two methods of one class, or two closures over objects, have the same name, and may be of two objects.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

# Data whose text is the same in each process.
_PLAIN = (type(None), bool, int, float, str, bytes)
# How deep wrappers of wrappers are looked into.
_DEPTH_MAX = 8


def name_of(fn: Any, depth: int = 0) -> tuple[str, bool]:
    """The name of a function, and whether it is certain. Modules are left out: the main one has another name elsewhere."""
    if depth > _DEPTH_MAX:
        return type(fn).__qualname__, False
    name, is_certain = _own_name(fn)
    seen = list(_seen_by(fn, depth))
    if seen:
        told = hashlib.blake2b("\0".join(text for text, _ in seen).encode(errors="replace"), digest_size=8)
        name = f"{name} {told.hexdigest()}"
    return name, is_certain and all(it for _, it in seen)


def _own_name(fn: Any) -> tuple[str, bool]:
    if isinstance(fn, functools.partial):
        return "partial", True
    if isinstance(fn, types.FunctionType | type):
        return fn.__qualname__, True
    if isinstance(fn, types.MethodType | types.BuiltinFunctionType):
        owner = fn.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            return fn.__qualname__, True
        # A method of a class is one function; that of an object may be one of many.
        of = owner if isinstance(owner, type) else type(owner)
        return f"{of.__qualname__}.{fn.__name__}", of is owner
    return type(fn).__qualname__, False


def _seen_by(fn: Any, depth: int) -> Iterator[tuple[str, bool]]:
    """What a function sees besides its arguments, as text, and whether the text is certain."""
    if isinstance(fn, functools.partial):
        yield name_of(fn.func, depth + 1)
        for at, it in (*enumerate(fn.args), *sorted(fn.keywords.items())):
            yield _shown(f"{at}=", it, depth)
    if isinstance(fn, types.FunctionType):
        if fn.__name__ == "<lambda>":
            # All lambdas of a function have one name.
            code = fn.__code__
            plain = [it for it in code.co_consts if isinstance(it, _PLAIN)]
            names = (code.co_names, code.co_varnames, code.co_freevars)
            yield f"{code.co_code!r}{plain!r}{names!r}", len(plain) == len(code.co_consts)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            yield _shown(f"{name}=", getattr(cell, "cell_contents", None), depth)
        defaults = (*enumerate(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items()))
        for at, it in defaults:
            yield _shown(f"{at}=", it, depth)


def _shown(before: str, value: Any, depth: int) -> tuple[str, bool]:
    if type(value) in _PLAIN:
        return f"{before}{value!r}", True
    if callable(value):
        name, is_certain = name_of(value, depth + 1)
        return f"{before}{name}", is_certain
    return f"{before}a {type(value).__qualname__}", False
