"""How objects are recorded and read back: this is decided once for each class.

Nothing is imported because of the data, nothing is pickled, and no class is ever looked up by a recorded name.
The walk itself is in Rust; it asks `plan_of` once for each class that it does not know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import _arrays
from ._builtins import BUILTIN_DECODERS, builtin_plan
from ._foreign import close, gives_later, message_of
from ._marks import Array, Lost, Media, RecordedAsRepr, Repr
from .errors import BadInput

__all__ = ["Array", "Lost", "Media", "RecordedAsRepr", "Repr", "register"]

# What `register` was given, by class and by the name that the class is recorded under.
_encoders: dict[type, Callable[[Any], Any]] = {}
decoders: dict[str, Callable[[Any], Any]] = {}
builtin_decoders = BUILTIN_DECODERS
close_unstarted = close
array_of = _arrays.array_of
array_parts = _arrays.array_parts
tensor_parts = _arrays.tensor_parts


def register(cls: type, *, encode: Callable[[Any], Any], decode: Callable[[Any], Any] | None = None) -> None:
    """Records objects of exactly this class as what `encode` returns, and reads them back with `decode`.

    Subclasses are not included. Without `decode`, the objects come back as the plain data that `encode` returned.
    """
    from ._core import _forget_plans

    if not isinstance(cls, type):
        raise BadInput(f"cls is {cls!r}: give a class")
    if cls in _PLAIN:
        raise BadInput(
            f"cls is {cls.__name__}: this class is recorded as itself and cannot be registered; register a subclass"
        )
    for name, function in (("encode", encode), ("decode", decode)):
        if not callable(function) and not (name == "decode" and function is None):
            raise BadInput(f"{name} is {function!r}: give a function of one argument")
    named = name_of(cls)
    if named in builtin_decoders:
        raise BadInput(f"cls is {named}: this class is recorded as itself, and needs no registration")
    _encoders[cls] = encode
    if decode is None:
        decoders.pop(named, None)
    else:
        decoders[named] = decode
    _forget_plans()


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple, Media, Repr, Lost, Array})


def is_recorded_as_itself(cls: type) -> bool:
    """True if objects of exactly this class are read back as themselves."""
    if cls in _PLAIN:
        return True
    if cls in _encoders:
        return name_of(cls) in decoders
    plan = builtin_plan(cls)
    return (plan is not None and plan[1] in builtin_decoders) or _is(cls, "numpy", "ndarray")


def name_of(cls: type) -> str:
    """The name that a class is recorded under."""
    return f"{cls.__module__}.{cls.__qualname__}"


def plan_of(cls: type) -> tuple[str, str | None, Any]:
    """How objects of a class are recorded: the kind of plan, the type name to keep, and what the plan needs.

    Kinds: `call` and `registered` (record what a function returns), `fields` (attributes by name), `dict`, `list`, `str`, `int`, `float`, `bytes`
    (as the builtin that it derives from), `array`, `tensor`, `media`, `raw`, `marked`, `later` (refused: it gives its value
    later), and `repr`, the last resort.
    """
    if cls in _encoders:
        return "registered", name_of(cls), _encoders[cls]
    for plan in (_own, builtin_plan, _arrays.array_plan, _image, _structure, _derived):
        found = plan(cls)
        if found is not None:
            return found
    advice = gives_later(cls)
    if advice is None:
        return "repr", name_of(cls), None
    return "later", name_of(cls).removeprefix("builtins."), advice


def _own(cls: type) -> tuple[str, str | None, Any] | None:
    if cls is Media:
        return "media", None, None
    if cls is Repr:
        return "marked", None, None
    if cls is Array:
        return "raw", None, None
    if cls is Lost:
        return "call", "keepstep.Lost", lambda lost: lost.hash
    return None


def _loaded(module: str, name: str) -> type | None:
    """A class of a module, if the program has imported that."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _is(cls: type, module: str, name: str) -> bool:
    parent = _loaded(module, name)
    return parent is not None and issubclass(cls, parent)


# What PNG can hold without changing a pixel.
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})


def _image(cls: type) -> tuple[str, str | None, Any] | None:
    if not _is(cls, "PIL.Image", "Image"):
        return None

    def encode(image: Any) -> Any:
        if image.mode not in _PNG_MODES or 0 in image.size:
            return {"mode": image.mode, "size": list(image.size), "data": image.tobytes()}
        import io

        png = io.BytesIO()
        image.save(png, "PNG", compress_level=1)
        return Media("image/png", png.getvalue())

    return "image", "PIL.Image.Image", encode


def _image_back(data: Any) -> Any:
    image = sys.modules.get("PIL.Image")
    return data if image is None else image.frombytes(data["mode"], tuple(data["size"]), data["data"])


builtin_decoders["PIL.Image.Image"] = _image_back
builtin_decoders["keepstep.Lost"] = Lost


def _structure(cls: type) -> tuple[str, str | None, Any] | None:
    """Classes that name their fields."""
    name = name_of(cls)
    if _is(cls, "enum", "Enum"):
        return "call", name, lambda member: member.value
    if _is(cls, "pydantic", "BaseModel"):
        return "call", name, _model_fields
    fields: Any = None
    if "__dataclass_fields__" in dir(cls):
        import dataclasses

        fields = tuple(field.name for field in dataclasses.fields(cls))
    elif isinstance(attributes := getattr(cls, "__attrs_attrs__", None), tuple):
        fields = tuple(field.name for field in attributes)
    elif issubclass(cls, tuple):
        fields = getattr(cls, "_fields", None)
    else:
        fields = getattr(cls, "__struct_fields__", None)
    return ("fields", name, fields) if isinstance(fields, tuple) else None


def _model_fields(model: Any) -> dict[str, Any]:
    """The fields of a pydantic object as they are, including extra ones."""
    fields = dict(model.__dict__)
    fields.update(getattr(model, "__pydantic_extra__", None) or {})
    return fields


def _derived(cls: type) -> tuple[str, str | None, Any] | None:
    """Classes that derive from a builtin, or behave as a collection."""
    name = name_of(cls)
    if issubclass(cls, BaseException):
        return "call", name, lambda error: {"message": message_of(error), "args": list(error.args)}
    for kind, base in (("str", str), ("int", int), ("float", float), ("bytes", bytes), ("dict", dict)):
        if issubclass(cls, base):
            return kind, name, None
    if issubclass(cls, (list, tuple)):
        return "list", name, None
    if issubclass(cls, (set, frozenset)):
        return "call", name, builtin_plan(set)[2]  # type: ignore[index]
    if issubclass(cls, type):
        return "call", "type", name_of
    import collections.abc

    if issubclass(cls, collections.abc.Mapping):
        return "call", name, lambda mapping: dict(mapping.items())
    if issubclass(cls, collections.abc.Set) or issubclass(cls, collections.abc.Sequence):
        return "call", name, list
    return None
