"""A recorded environment looks like the one inside: attributes, signatures and classes are those of the inner one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ._callers import run_blocking
from ._env_recorder import EnvRecorder
from ._options import Flavour, checked_options

if TYPE_CHECKING:
    from .._run import Run

_classes: dict[tuple[type, type], type] = {}


class Transparent:
    """Wraps an environment: everything but `reset`, `step`, `close` and leaving a `with` passes through."""

    env: Any
    _keepstep: EnvRecorder

    # What is set on the wrapper itself; all else is set on the environment.
    _own: ClassVar[frozenset[str]] = frozenset({"env", "_keepstep"})

    def __new__(cls, env: Any, run: Run, **options: Any) -> Any:
        """Makes it of a class that has the signatures of this environment."""
        return object.__new__(_class_for(cls, env))

    def __init__(self, env: Any, run: Run, **options: Any) -> None:
        self._init_base(env)
        object.__setattr__(self, "env", env)
        object.__setattr__(self, "_keepstep", self._tape_of(env, run, options))

    def _init_base(self, env: Any) -> None:
        """Initializes the base class of the flavour, if there is one."""

    def _tape_of(self, env: Any, run: Run, options: dict[str, Any]) -> EnvRecorder:
        raise NotImplementedError

    @classmethod
    def _bases_for(cls, env: Any) -> tuple[type, ...]:
        """The base classes that people test for with isinstance."""
        return ()

    @classmethod
    def _methods(cls) -> dict[str, Callable[[], Any]]:
        """Functions that make the recording methods, by name."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name in ("env", "_keepstep"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._own:
            object.__setattr__(self, name, value)
        else:
            setattr(self.env, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.env, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.env)})

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled, since it records in this process: send the environment, and record it where it runs"
        )

    def __str__(self) -> str:
        return f"<Recorded{self.env}>"

    def __repr__(self) -> str:
        return f"<Recorded {self.env!r}>"


class Blocking(Transparent):
    """Wraps an environment that is not async."""

    def close(self) -> Any:
        """Closes the environment. An episode that is active ends as aborted."""
        try:
            run_blocking(self._keepstep.close("close"))
        finally:
            closed = self.env.close()
        return closed

    def __enter__(self) -> Any:
        self.env.__enter__()
        return self

    def __exit__(self, kind: Any, raised: BaseException | None, trace: Any) -> Any:
        try:
            run_blocking(self._keepstep.close("exit", raised))
        finally:
            left = self.env.__exit__(kind, raised, trace)
        return left


def tape_of(flavour: Flavour, caller: Any, env: Any, run: Run, options: dict[str, Any]) -> EnvRecorder:
    """The recorder of an environment, from the arguments of `record`."""
    return EnvRecorder(env, checked_options(flavour, env, run, **options), flavour, caller)


def _class_for(flavour: type[Transparent], env: Any) -> type:
    """The class of recorded environments for such an environment."""
    key = (flavour, type(env))
    found = _classes.get(key)
    is_special = any(name in getattr(env, "__dict__", ()) for name in flavour._methods())
    if found is None or is_special:
        methods = {name: _like(env, name, make) for name, make in flavour._methods().items()}
        methods["__module__"] = flavour.__module__
        found = type(flavour.__name__, (flavour, *flavour._bases_for(env)), methods)
        if not is_special:
            _classes[key] = found
    return found


def _like(env: Any, name: str, make: Callable[[], Any]) -> Any:
    """A method that looks like the environment's own."""
    function = make()
    own = getattr(type(env), name, None)
    if own is None or name in getattr(env, "__dict__", ()):
        bound = getattr(env, name)
        functools.update_wrapper(function, bound)
        del function.__wrapped__
        function.__signature__ = _with_self(bound)
        return function
    return functools.update_wrapper(function, own)


def _with_self(bound: Callable[..., Any]) -> inspect.Signature:
    given = inspect.signature(bound)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = list(given.parameters.values())
    return given.replace(parameters=[self, *parameters])


def action_of(call: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """The action among the arguments of `step`: the first; all of them, by name, if there are more."""
    if len(args) == 1 and not given:
        return args[0]
    named = inspect.signature(call).bind(*args, **given).arguments
    return next(iter(named.values())) if len(named) == 1 else dict(named)


def given_to(call: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `reset` that are not None, by name."""
    named = dict(inspect.signature(call).bind(*args, **given).arguments) if args else given
    return {name: value for name, value in named.items() if value is not None}
