"""Values of TransferQueue as plain data and back: tensors of any dtype, nested ones, arrays, images, plain values.

Nothing is pickled. A value whose class has no exact counterpart is refused when it is put: no value is read back as another type.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import importlib
import pathlib
import sys
import uuid
from collections.abc import Callable
from typing import Any

import keepstep

# These are read back as themselves, and so is everything in them.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_OWN = frozenset(
    {
        bytearray,
        complex,
        range,
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
        type(pathlib.Path()),
        pathlib.PurePosixPath,
    }
)
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_SEQUENCES_BACK: dict[str, Callable[[Any], Any]] = {name: cls for cls, name in _SEQUENCES.items()}

# torch's integers of the same size, for dtypes that only torch has.
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
# Dtypes of torch that keepstep's arrays have, too.
_KNOWN = frozenset(
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bfloat16".split()
)


def encode(value: Any, where: str) -> Any:
    """The value as plain data: scalars stay as they are, all else is a map whose first key says what it is."""
    cls = type(value)
    if cls in _PLAIN:
        return value
    if cls in _SEQUENCES:
        return {_SEQUENCES[cls]: [encode(item, where) for item in value]}
    if cls is dict:
        return _encode_dict(value, where)
    if cls in _OWN:
        return {"value": value}
    for is_one, made in ((_is_tensor, _encode_tensor), (_is_array, _encode_array)):
        if is_one(value):
            return made(value, where)
    wrapped = _of("tensordict", "NonTensorData")
    if wrapped is not None and isinstance(value, wrapped):
        return encode(value.data, where)
    several = _of("tensordict", "TensorDictBase")
    if several is not None and isinstance(value, several):
        fields = {name: encode(field, where) for name, field in value.items()}
        return {"tensordict": fields, "batch_size": list(value.batch_size)}
    image = _of("PIL.Image", "Image")
    if image is not None and isinstance(value, image):
        return {"image": value}
    raise TypeError(
        f"{where} has a {cls.__module__}.{cls.__qualname__}, which could only be recorded by pickling it: "
        "give tensors, arrays, images or plain data"
    )


def decode(data: Any) -> Any:
    """The value that `encode` was given."""
    if not isinstance(data, dict):
        return data
    kind, content = next(iter(data.items()))
    if kind == "tensor":
        return _decode_tensor(content, data["dtype"])
    if kind == "nested":
        torch = importlib.import_module("torch")
        parts = [decode(part) for part in content]
        return torch.nested.as_nested_tensor(parts, layout=getattr(torch, data["layout"]))
    if kind in _SEQUENCES_BACK:
        return _SEQUENCES_BACK[kind]([decode(item) for item in content])
    if kind == "dict":
        return {name: decode(item) for name, item in content.items()}
    if kind == "items":
        return {decode(key): decode(item) for key, item in content}
    if kind == "objects":
        return _decode_objects(content, data["shape"])
    if kind == "tensordict":
        fields = {name: decode(field) for name, field in content.items()}
        return importlib.import_module("tensordict").TensorDict(fields, batch_size=data["batch_size"])
    if kind == "image" and isinstance(content, keepstep.Media):
        return content.image()
    return content


def size_of(data: Any) -> int:
    """About how many bytes encoded data takes."""
    if isinstance(data, dict):
        return 32 + sum(size_of(item) for item in data.values())
    if isinstance(data, list):
        return 8 + sum(size_of(item) for item in data)
    if isinstance(data, (str, bytes)):
        return 8 + len(data)
    size = getattr(data, "nbytes", None)
    return size if isinstance(size, int) else 8


def _of(module: str, name: str) -> Any:
    """A class of a library, if the program has imported it: without that, no object of it exists."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _encode_dict(value: dict[Any, Any], where: str) -> dict[str, Any]:
    if all(type(key) is str for key in value):
        return {"dict": {key: encode(item, where) for key, item in value.items()}}
    return {"items": [[encode(key, where), encode(item, where)] for key, item in value.items()]}


def _is_tensor(value: Any) -> bool:
    tensor = _of("torch", "Tensor")
    return tensor is not None and isinstance(value, tensor)


def _encode_tensor(value: Any, where: str) -> dict[str, Any]:
    torch = sys.modules["torch"]
    if value.is_nested:
        layout = str(value.layout).removeprefix("torch.")
        return {"nested": [_encode_tensor(part, where) for part in value.unbind()], "layout": layout}
    if value.layout is not torch.strided or value.is_quantized:
        raise TypeError(f"{where} is a tensor of layout {value.layout}, {value.dtype}: give a dense one")
    dtype = str(value.dtype).removeprefix("torch.")
    value = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if dtype not in _KNOWN:
        value = value.view(getattr(torch, _BITS[value.element_size()]))
    return {"tensor": value, "dtype": dtype}


def _decode_tensor(array: Any, dtype: str) -> Any:
    torch = importlib.import_module("torch")
    wanted = getattr(torch, dtype)
    if isinstance(array, keepstep.Array):
        if not array.data:
            return torch.empty(array.shape, dtype=wanted)
        return torch.frombuffer(bytearray(array.data), dtype=wanted).reshape(array.shape)
    if dtype == "bfloat16":
        # In numpy it is a type of ml_dtypes, which torch does not know.
        array = array.view("int16")
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype is wanted else tensor.view(wanted)


def _is_array(value: Any) -> bool:
    arrays = _of("numpy", "ndarray"), _of("numpy", "generic")
    return any(cls is not None and isinstance(value, cls) for cls in arrays)


def _encode_array(value: Any, where: str) -> dict[str, Any]:
    numpy = sys.modules["numpy"]
    if type(value) is numpy.ndarray and value.dtype == object:
        items = [encode(item, where) for item in value.reshape(-1)]
        return {"objects": items, "shape": list(value.shape)}
    if value.dtype.hasobject or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        raise TypeError(f"{where} is a {type(value).__name__} of {value.dtype}: give a plain array")
    return {"array": value}


def _decode_objects(items: list[Any], shape: list[int]) -> Any:
    array = importlib.import_module("numpy").empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = decode(item)
    return array.reshape(shape)
