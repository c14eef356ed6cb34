"""WebArena's own types: found under either name of its package, and recorded so that they are read back as themselves."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from types import ModuleType
from typing import Any

import keepstep

# A checkout of the repository has it at the top, `libwebarena` within a package.
_NAMES = ("browser_env", "webarena.browser_env")


def _find() -> ModuleType:
    # The one that the program uses, if both are installed.
    for name in _NAMES:
        if name in sys.modules:
            return sys.modules[name]
    for name in _NAMES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            # If WebArena itself lacks a package, that is another error.
            if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
                raise
    raise ImportError(
        "keepstep.adapters.webarena needs WebArena: run it in a checkout of its repository, or pip install libwebarena"
    )


_framework = _find()
_ActionTypes: Any = _framework.ActionTypes
_DetachedPage: Any = _framework.DetachedPage


def register_types() -> None:
    """Registers the two classes that states and actions contain. The rest is plain data and arrays."""
    names = [field.name for field in dataclasses.fields(_DetachedPage)]
    keepstep.register(
        _DetachedPage,
        encode=lambda page: {name: getattr(page, name) for name in names},
        decode=lambda data: _DetachedPage(**data),
    )
    keepstep.register(_ActionTypes, encode=int, decode=_ActionTypes)


def is_stop(item: Any) -> bool:
    """True for a stop action."""
    return isinstance(item, dict) and bool(item.get("action_type") == _ActionTypes.STOP)
