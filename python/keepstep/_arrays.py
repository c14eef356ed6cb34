"""Arrays of numpy and tensors of torch: where their bytes are, and back to numpy.

Neither library is imported to record something: a program that has an array has imported its library.
"""

from __future__ import annotations

import sys
from typing import Any

from ._builtins import BUILTIN_DECODERS
from ._marks import Array

# Names as the format knows them, by what numpy calls them without the byte order.
_NUMPY = {
    "b1": "bool",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
# Names of the format, by what ml_dtypes and torch call them. Only the `fn` kind of e4m3 has the format's meaning.
_SMALL = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3", "float8_e5m2": "float8_e5m2"}
_SMALL_BACK = {ours: theirs for theirs, ours in _SMALL.items()}

_dtype_names: dict[Any, str | None] = {}


def _dtype_name(dtype: Any) -> str | None:
    """The format's name for a dtype of numpy; None if it has none."""
    try:
        return _dtype_names[dtype]
    except KeyError:
        pass
    if dtype.kind in "biufc":
        name = _NUMPY.get(f"{dtype.kind}{dtype.itemsize}")
        # ml_dtypes has integers and floats of its own in these kinds.
        if type(dtype).__module__.partition(".")[0] != "numpy" or dtype.type.__module__ != "numpy":
            name = _SMALL.get(dtype.name)
    else:
        name = _SMALL.get(dtype.name) if dtype.type.__module__.startswith("ml_dtypes") else None
    if len(_dtype_names) < 256:
        _dtype_names[dtype] = name
    return name


def array_plan(cls: type) -> tuple[str, str | None, Any] | None:
    """How a class of numpy's or torch's is recorded."""
    numpy = sys.modules.get("numpy")
    own = f"{cls.__module__}.{cls.__qualname__}"
    if numpy is not None:
        if cls is numpy.ndarray:
            return "array", None, odd_array
        masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
        if masked is not None and issubclass(cls, masked):
            return "call", own, lambda it: {"data": it.data, "mask": numpy.asarray(it.mask)}
        if issubclass(cls, numpy.ndarray):
            return "array", own, odd_array
        if issubclass(cls, numpy.generic) and not issubclass(cls, (str, bytes)):
            return "array", "numpy.generic", odd_array
        if issubclass(cls, numpy.dtype):
            return "call", "numpy.dtype", str
    torch = sys.modules.get("torch")
    if torch is not None:
        tensor = getattr(torch, "Tensor", None)
        if isinstance(tensor, type) and issubclass(cls, tensor):
            return "tensor", own if cls is not tensor else "torch.Tensor", None
        for name in ("dtype", "device"):
            if cls is getattr(torch, name, None):
                return "call", f"torch.{name}", str
    return None


def array_parts(array: Any) -> tuple[str, tuple[int, ...], Any, int, int] | None:
    """dtype, shape, what keeps the bytes alive, their address and how many; None for elements of another kind."""
    numpy = sys.modules["numpy"]
    dtype = array.dtype
    name = _dtype_name(dtype)
    if name is None:
        return None
    shape = array.shape
    if not isinstance(array, numpy.ndarray):
        array = numpy.asarray(array)
    if dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(dtype.newbyteorder("<"))
    if not array.flags.c_contiguous:
        array = numpy.array(array, order="C", copy=True, subok=False)
    return name, shape, array, array.__array_interface__["data"][0], array.nbytes


def odd_array(array: Any) -> dict[str, Any]:
    """An array whose elements have no type in the format: what it takes to make it again."""
    numpy = sys.modules["numpy"]
    array = numpy.asarray(array)
    dtype = array.dtype
    shape = list(array.shape)
    if dtype.hasobject or dtype.kind in "OT":
        return {"dtype": str(dtype), "shape": shape, "items": array.reshape(-1).tolist()}
    if dtype.kind in "mM":
        return {
            "dtype": dtype.newbyteorder("<").str,
            "shape": shape,
            "data": array.astype("<i8").reshape(shape),
        }
    if dtype.type.__module__.startswith("ml_dtypes"):
        return {"dtype": f"ml_dtypes.{dtype.name}", "shape": shape, "data": array.tobytes()}
    described = numpy.lib.format.dtype_to_descr(dtype)
    return {"dtype": described, "shape": shape, "data": array.tobytes()}


def _odd_array_back(data: dict[str, Any]) -> Any:
    if "dtype" not in data or "shape" not in data:
        return data
    import numpy

    dtype, shape = data["dtype"], tuple(data["shape"])
    if "items" in data:
        if dtype.startswith("StringDType"):
            return numpy.array(data["items"], dtype=numpy.dtypes.StringDType()).reshape(shape)
        if dtype != "object":
            return data
        made = numpy.empty(len(data["items"]), dtype=object)
        made[:] = data["items"]
        return made.reshape(shape)
    raw = data["data"]
    if isinstance(dtype, str) and dtype.startswith("ml_dtypes."):
        dtype = getattr(sys.modules.get("ml_dtypes"), dtype.partition(".")[2], None)
        if dtype is None:
            return data
    elif isinstance(dtype, str) and dtype[1:2] in "mM":
        return numpy.asarray(raw).view(dtype).reshape(shape)
    else:
        dtype = numpy.lib.format.descr_to_dtype(dtype)
    return numpy.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)


def _scalar_back(data: Any) -> Any:
    if isinstance(data, dict):
        data = _odd_array_back(data)
    return data if isinstance(data, (dict, Array)) else data[()]


BUILTIN_DECODERS["numpy.ndarray"] = _odd_array_back
BUILTIN_DECODERS["numpy.generic"] = _scalar_back


def tensor_parts(tensor: Any) -> tuple[str, tuple[int, ...], Any, int, int] | None:
    """As `array_parts`, for a tensor of torch. None for tensors without contiguous bytes (sparse, quantized, meta)."""
    torch = sys.modules["torch"]
    theirs = str(tensor.dtype).partition(".")[2]
    name = _SMALL.get(theirs) or (theirs if theirs in _NUMPY.values() else None)
    if name is None or tensor.layout is not torch.strided or tensor.device.type == "meta":
        return None
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return name, tuple(tensor.shape), tensor, tensor.data_ptr(), tensor.numel() * tensor.element_size()


def array_of(name: str, shape: tuple[int, ...], data: bytearray) -> Any:
    """The numpy array of these bytes, or an `Array` if numpy has no such elements."""
    try:
        import numpy

        if name in _SMALL_BACK:
            import ml_dtypes

            dtype = numpy.dtype(getattr(ml_dtypes, _SMALL_BACK[name]))
        else:
            dtype = numpy.dtype(name).newbyteorder("<")
    except ImportError:
        return Array(name, shape, bytes(data))
    return numpy.frombuffer(data, dtype=dtype).reshape(shape)
