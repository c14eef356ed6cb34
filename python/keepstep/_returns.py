"""The type of a recorded result when it is read back: the class that the caller named, or plain data.

The class is decided before the call, by what the caller wrote: `returns=`, or the function's own annotation. No class is
ever looked up by a recorded name. A call that was just made gets its result in the same way as a recorded one.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ._foreign import message_of, repr_of
from ._values import is_recorded_as_itself
from .errors import BadInput


class Misfit(Exception):
    """The data does not fit the class."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")


class CannotName(Exception):
    """A class that cannot be made from data."""


class Back:
    """How data becomes an object of the named class. This one leaves the data as it is."""

    # True if it makes objects of a class that plain data does not have.
    makes_classes = False

    def fits(self, data: Any) -> bool:
        """True if the data may be of this class: asked if there is a choice."""
        return True

    def make(self, data: Any, path: str) -> Any:
        """The object. Raises Misfit."""
        return data


PLAIN = Back()


class Instance(Back):
    """A class whose objects are read back as themselves."""

    def __init__(self, cls: type) -> None:
        self._cls = (cls, int) if cls is float else cls

    def fits(self, data: Any) -> bool:
        return isinstance(data, self._cls)

    def make(self, data: Any, path: str) -> Any:
        if not self.fits(data):
            cls = self._cls[0] if isinstance(self._cls, tuple) else self._cls
            raise Misfit(path, f"is {_kind(data)}, not {cls.__qualname__}")
        return data


class OneOf(Back):
    """One of some values."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values

    def fits(self, data: Any) -> bool:
        return any(type(data) is type(value) and data == value for value in self._values)

    def make(self, data: Any, path: str) -> Any:
        if not self.fits(data):
            raise Misfit(path, f"is {_kind(data)}, not one of {', '.join(map(repr, self._values))}")
        return data


class Member(Back):
    """A member of an enum."""

    makes_classes = True

    def __init__(self, cls: type[enum.Enum]) -> None:
        self._cls = cls

    def fits(self, data: Any) -> bool:
        with contextlib.suppress(ValueError, TypeError):
            self._cls(data)
            return True
        return False

    def make(self, data: Any, path: str) -> Any:
        try:
            return self._cls(data)
        except (ValueError, TypeError):
            raise Misfit(path, f"is {_kind(data)}, which is no value of {self._cls.__qualname__}") from None


class Choice(Back):
    """The first of several that fits; one that knows all fields is preferred."""

    def __init__(self, options: list[Back]) -> None:
        self._options = options
        self.makes_classes = any(option.makes_classes for option in options)

    def fits(self, data: Any) -> bool:
        return any(option.fits(data) for option in self._options)

    def make(self, data: Any, path: str) -> Any:
        fitting = [option for option in self._options if option.fits(data)]
        if not fitting and isinstance(data, Mapping):
            # Data that fits none of the classes becomes the first one, as in SDKs.
            fitting = [option for option in self._options if isinstance(option, Structure)]
        if not fitting:
            raise Misfit(path, f"is {_kind(data)}, which fits none of the named classes")
        whole = [option for option in fitting if not isinstance(option, Structure) or option.knows_all(data)]
        return (whole or fitting)[0].make(data, path)


class Items(Back):
    """A list, a set or a tuple of things of one kind; or a tuple, each of its own."""

    def __init__(self, cls: type, item: Back, each: list[Back] | None = None) -> None:
        self._cls, self._item, self._each = cls, item, each
        self.makes_classes = any(back.makes_classes for back in (each or [item]))

    def fits(self, data: Any) -> bool:
        is_some = isinstance(data, (list, tuple, set, frozenset, collections.abc.Set))
        return is_some and (self._each is None or len(data) == len(self._each))

    def make(self, data: Any, path: str) -> Any:
        if not self.fits(data):
            length = "" if self._each is None else f" of {len(self._each)} items"
            raise Misfit(path, f"is {_kind(data)}, not a {self._cls.__name__}{length}")
        backs = self._each if self._each is not None else [self._item] * len(data)
        made = (back.make(it, f"{path}[{at}]") for at, (back, it) in enumerate(zip(backs, data, strict=True)))
        # If any sequence is allowed, a tuple stays a tuple.
        keeps = self._cls is list and isinstance(data, tuple)
        return tuple(made) if keeps else self._cls(made)


class Entries(Back):
    """A mapping."""

    def __init__(self, key: Back, value: Back) -> None:
        self._key, self._value = key, value
        self.makes_classes = key.makes_classes or value.makes_classes

    def fits(self, data: Any) -> bool:
        return isinstance(data, Mapping)

    def make(self, data: Any, path: str) -> Any:
        if not isinstance(data, Mapping):
            raise Misfit(path, f"is {_kind(data)}, not a mapping")
        return {
            self._key.make(key, f"{path}[{key!r}]"): self._value.make(value, f"{path}[{key!r}]")
            for key, value in data.items()
        }


class Structure(Back):
    """A class with named fields. A value that does not fit the annotation of its field is left as it is: a later
    comparison shows whether everything was read back."""

    makes_classes = True

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    @functools.cached_property
    def _fields(self) -> dict[str, Back]:
        """Computed on first use: classes refer to one another."""
        return {name: _back_in_class(hint) for name, hint in self._hints().items()}

    def _hints(self) -> dict[str, Any]:
        hints = _hints_of(self._cls)
        return {name: hints.get(name, Any) for name in self._names()}

    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(self._cls))

    def _is_needed(self, name: str) -> bool:
        return False

    def fits(self, data: Any) -> bool:
        if not isinstance(data, Mapping):
            return False
        for name, back in self._fields.items():
            if name not in data:
                if self._is_needed(name):
                    return False
            elif isinstance(back, OneOf) and not back.fits(data[name]):
                return False
        return True

    def knows_all(self, data: Any) -> bool:
        """True if it has a field for everything in the data."""
        return isinstance(data, Mapping) and data.keys() <= self._fields.keys()

    def make(self, data: Any, path: str) -> Any:
        if isinstance(data, self._cls):
            return data
        if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
            raise Misfit(path, f"is {_kind(data)}, which cannot become a {self._cls.__qualname__}")
        values = {name: self._value(name, value, f"{path}.{name}") for name, value in data.items()}
        try:
            return self._made(values)
        except Exception as raised:
            raise Misfit(
                path, f"cannot become a {self._cls.__qualname__} again: {message_of(raised)}"
            ) from raised

    def _value(self, name: str, value: Any, path: str) -> Any:
        try:
            return self._fields.get(name, PLAIN).make(value, path)
        except Misfit:
            return value

    def _made(self, values: dict[str, Any]) -> Any:
        """A dataclass."""
        fields = {field.name: field for field in dataclasses.fields(self._cls)}
        made = self._cls(
            **{name: it for name, it in values.items() if name not in fields or fields[name].init}
        )
        for name, value in values.items():
            if name in fields and not fields[name].init:
                object.__setattr__(made, name, value)
        return made


class NamedItems(Structure):
    """A named tuple. It may be made of a tuple, too."""

    def _names(self) -> tuple[str, ...]:
        return tuple(self._cls._fields)

    def _is_needed(self, name: str) -> bool:
        return name not in self._cls._field_defaults

    def make(self, data: Any, path: str) -> Any:
        if type(data) in (list, tuple) and len(data) == len(self._names()):
            data = dict(zip(self._names(), data, strict=True))
        return super().make(data, path)

    def _made(self, values: dict[str, Any]) -> Any:
        return self._cls(**values)


class TypedEntries(Structure):
    """A dictionary whose keys have types."""

    def __init__(self, cls: Any) -> None:
        super().__init__(cls)
        self._is_asked = False

    @property
    def makes_classes(self) -> bool:  # type: ignore[override]
        # It may contain itself, which adds nothing.
        if self._is_asked:
            return False
        self._is_asked = True
        try:
            return any(back.makes_classes for back in self._fields.values())
        finally:
            self._is_asked = False

    def _names(self) -> tuple[str, ...]:
        return tuple(_hints_of(self._cls))

    def make(self, data: Any, path: str) -> Any:
        if not isinstance(data, Mapping):
            raise Misfit(path, f"is {_kind(data)}, not a mapping")
        return {name: self._value(name, value, f"{path}.{name}") for name, value in data.items()}


class Model(Structure):
    """A pydantic model, such as those of the SDKs. Made without validation: SDKs do not validate a server's answer either."""

    def _hints(self) -> dict[str, Any]:
        return {name: field.annotation for name, field in self._cls.model_fields.items()}

    def _is_needed(self, name: str) -> bool:
        return bool(self._cls.model_fields[name].is_required())

    def _made(self, values: dict[str, Any]) -> Any:
        # Which fields were set is not recorded. None that is the default counts as not set, so that it is not sent back to a
        # server that never gave it. All else counts as set: a server that gave `type` wants it back, default or not.
        is_set = {
            name for name, value in values.items() if value is not None or not self._is_none_by_default(name)
        }
        construct = sys.modules["pydantic"].BaseModel.model_construct.__func__
        return construct(self._cls, is_set, **values)

    def _is_none_by_default(self, name: str) -> bool:
        field = self._cls.model_fields.get(name)
        return field is not None and not field.is_required() and field.default is None


# Annotations that mean any sequence, or any mapping.
_SEQUENCES = {
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
    list,
}
_MAPPINGS = {collections.abc.Mapping, collections.abc.MutableMapping, dict}
_SETS = {set: set, frozenset: frozenset, collections.abc.Set: set, collections.abc.MutableSet: set}
_AWAITABLES = {collections.abc.Awaitable, collections.abc.Coroutine}


def back_of(fn: Callable[..., Any], returns: Any) -> Back | None:
    """How the result of a function is read back; None if as plain data."""
    if returns is not None:
        try:
            return _back(returns)
        except CannotName as cannot:
            raise BadInput(
                f"returns is {returns!r}, but {cannot} cannot be made from recorded data: give a pydantic model, "
                "a dataclass, a named tuple, an enum, or a list or dict of such; or register it with keepstep.register"
            ) from None
    try:
        back = _back(_annotation_of(fn))
    except CannotName:
        return None
    return back if back.makes_classes else None


def _annotation_of(fn: Callable[..., Any]) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn):
        # A class returns its own objects when it is called; other callables have a `__call__` method.
        if isinstance(fn, type):
            return fn
        fn = type(fn).__call__
    hint = _hints_of(fn).get("return", Any)
    if typing.get_origin(hint) in _AWAITABLES:
        hint = typing.get_args(hint)[-1]
    return hint


def _hints_of(what: Any) -> dict[str, Any]:
    """Annotations, or none of them if one cannot be resolved."""
    try:
        return typing.get_type_hints(what)
    except Exception:
        return {}


def _back_in_class(hint: Any) -> Back:
    try:
        return _back(hint)
    except CannotName:
        return PLAIN


def _back(hint: Any) -> Back:
    """How data becomes the type that a hint names. Raises CannotName."""
    if hint is None:
        hint = type(None)
    if isinstance(hint, typing.TypeVar) or hint in (Any, object):
        return PLAIN
    if isinstance(hint, typing.NewType):
        return _back(hint.__supertype__)
    if type(hint).__name__ == "TypeAliasType":
        return _back(hint.__value__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        return _back_of_class(hint)
    # By name: those of typing_extensions are other objects.
    if getattr(origin, "_name", None) in ("Required", "NotRequired") or origin is typing.Annotated:
        return _back(args[0])
    if getattr(origin, "_name", None) == "Literal":
        return OneOf(args)
    if origin in (typing.Union, types.UnionType):
        return Choice([_back(arg) for arg in args])
    return _back_of_generic(hint, origin, args)


def _back_of_generic(hint: Any, origin: Any, args: tuple[Any, ...]) -> Back:
    if origin in _SEQUENCES:
        return Items(list, _back(args[0]))
    if origin in _SETS:
        return Items(_SETS[origin], _back(args[0]))
    if origin in _MAPPINGS:
        return Entries(_back(args[0]), _back(args[1]))
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return Items(tuple, _back(args[0]))
        return Items(tuple, PLAIN, [_back(arg) for arg in args])
    return _back_of_class(origin)


def _back_of_class(cls: Any) -> Back:
    if not isinstance(cls, type):
        raise CannotName(repr(cls))
    if is_recorded_as_itself(cls):
        return Instance(cls)
    made = _made_again(cls)
    if made is None:
        raise CannotName(f"{cls.__module__}.{cls.__qualname__}")
    return made


# The classes of an SDK's answer have hundreds of fields: each class is looked at once.
@functools.lru_cache(maxsize=512)
def _made_again(cls: Any) -> Back | None:
    """How to make an object of a class that names its fields."""
    if issubclass(cls, dict) and hasattr(cls, "__total__"):
        return TypedEntries(cls)
    if issubclass(cls, enum.Enum):
        return Member(cls)
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    if model is not None and issubclass(cls, model):
        return Model(cls)
    if dataclasses.is_dataclass(cls):
        return Structure(cls)
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return NamedItems(cls)
    return None


def _kind(data: Any) -> str:
    text = repr_of(data)
    return f"the {type(data).__name__} {text if len(text) <= 60 else text[:60] + '…'}"
