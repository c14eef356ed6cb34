"""Stand-ins are worth what their likeness is worth: compares the names they define with the real ones.

A stand-in lies in tests/standins under the real module's name. `differences("ares.environments.base", "TimeStep", …)` loads
both in processes of their own and says where a signature, a field or a base differs; a test asserts that there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

STANDINS = Path(__file__).resolve().parent.parent / "standins"

# Runs in both worlds, so it knows nothing but the standard library.
_LOOK = r"""
import dataclasses, importlib, inspect, json, sys

def parameters(what):
    return [[p.name, p.kind.name, p.default is not inspect.Parameter.empty] for p in inspect.signature(what).parameters.values()]

def describe(what):
    if not inspect.isclass(what):
        return {"async": inspect.iscoroutinefunction(what), "parameters": parameters(what)} if callable(what) else repr(what)
    said = {"bases": [b.__name__ for b in what.__mro__[1:] if b.__module__ not in ("builtins", "typing", "abc")]}
    if dataclasses.is_dataclass(what):
        said["fields"] = [f.name for f in dataclasses.fields(what)]
    elif hasattr(what, "_fields"):
        said["fields"] = list(what._fields)
    elif hasattr(what, "model_fields"):
        said["fields"] = list(what.model_fields)
    said["abstract"] = sorted(getattr(what, "__abstractmethods__", ()))
    said["methods"] = {
        name: describe(inspect.unwrap(getattr(what, name)))
        for name, member in inspect.getmembers_static(what)
        if (not name.startswith("_") or name in ("__call__", "__init__"))
        and isinstance(member, (type(describe), classmethod, staticmethod))
    }
    return said

prelude, module, names = sys.argv[1], sys.argv[2], sys.argv[3:]
exec(prelude)
loaded = importlib.import_module(module)
print(json.dumps({name: describe(getattr(loaded, name)) for name in names}))
"""


def _look(module: str, names: tuple[str, ...], prelude: str, standin: bool) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(STANDINS)} if standin else os.environ
    command = [sys.executable, "-c", _LOOK, "" if standin else prelude, module, *names]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    if done.returncode != 0:
        raise ImportError(f"{'the stand-in' if standin else 'the real'} {module}: {done.stderr[-2000:]}")
    # A framework may print while it is imported.
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def differences(module: str, *names: str, prelude: str = "") -> list[str]:
    """Where the stand-in of `module` is not like the real one. It may have fewer methods, never other ones.

    `prelude` is code that the real one needs before its import.
    """
    real, standin = _look(module, names, prelude, False), _look(module, names, prelude, True)
    return [line for name in names for line in _compare(f"{module}.{name}", real[name], standin[name])]


def _compare(where: str, real: object, standin: object) -> list[str]:
    if isinstance(real, dict) and isinstance(standin, dict):
        lines = [f"{where}: the real one has no {key!r}" for key in standin.keys() - real.keys()]
        # What a stand-in leaves out of a class nobody calls there; all else must be said.
        shared = sorted(standin.keys() & real.keys())
        return lines + [
            line for key in shared for line in _compare(f"{where}.{key}", real[key], standin[key])
        ]
    return [] if real == standin else [f"{where}: the real one has {real}, the stand-in {standin}"]
