"""Arrays, tensors and images: every kind of element, every layout."""

from __future__ import annotations

import subprocess
import sys
import warnings

import keepstep._core as core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keepstep import _values

numpy = pytest.importorskip("numpy")
from hypothesis.extra import numpy as npst  # noqa: E402


def roundtrip(value, **options):
    return core._roundtrip(value, core.Context(strict=True, **options), "value")


def shown(value):
    return core._shown(value, core.Context(strict=True), "value")


def same(a, b) -> bool:
    return (
        isinstance(b, numpy.ndarray)
        and b.shape == a.shape
        and b.dtype == a.dtype.newbyteorder("=")
        and numpy.ascontiguousarray(a.astype(a.dtype.newbyteorder("="))).tobytes() == b.tobytes()
    )


KNOWN = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
         "float64", "complex64", "complex128"]  # fmt: skip


@given(
    npst.arrays(
        st.sampled_from([numpy.dtype(name) for name in KNOWN]), npst.array_shapes(min_dims=0, min_side=0)
    )
)
@settings(max_examples=150, deadline=None)
def test_arrays_come_back_bit_by_bit(array):
    assert same(array, roundtrip(array))
    assert same(array.T, roundtrip(array.T))
    assert same(
        array[..., ::-1] if array.ndim else array, roundtrip(array[..., ::-1] if array.ndim else array)
    )
    assert same(array, roundtrip(array.astype(array.dtype.newbyteorder(">"))))
    assert roundtrip(array).flags.writeable


@pytest.mark.parametrize("name", KNOWN)
def test_scalars_come_back_as_scalars(name):
    scalar = numpy.dtype(name).type(1)
    back = roundtrip([scalar])[0]
    assert type(back) is type(scalar) and back == scalar
    assert shown(scalar) == f"numpy.generic({name}[])"
    zero_d = roundtrip(numpy.array(scalar))
    assert isinstance(zero_d, numpy.ndarray) and zero_d.shape == ()


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "int4", "float8_e5m2fnuz"]
)
def test_small_floats_come_back(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = numpy.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
    back = roundtrip(array)
    assert back.dtype == array.dtype and back.shape == (2, 3) and back.tobytes() == array.tobytes()
    kinds = {
        "bfloat16": "bfloat16[2, 3]",
        "float8_e4m3fn": "float8_e4m3[2, 3]",
        "float8_e5m2": "float8_e5m2[2, 3]",
    }
    assert shown(array) == kinds.get(name, shown(array))
    assert ("numpy.ndarray(" in shown(array)) == (name not in kinds)
    scalar = roundtrip(array[1, 2])
    assert type(scalar) is type(array[1, 2]) and scalar.tobytes() == array[1, 2].tobytes()


@pytest.mark.parametrize(
    "array",
    [
        numpy.array(["a", "bcd"]),
        numpy.array([b"a", b"bcd"]),
        numpy.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i4"), ("b", ">f8")]),
        numpy.array(["2026-01-01", "NaT"], dtype="M8[ns]"),
        numpy.array([5, 6], dtype="m8[s]"),
        numpy.array([[1, None], ["x", {"a": 2}]], dtype=object),
        numpy.array([1.5, 2.5], dtype=numpy.longdouble),
        numpy.array("text"),
        numpy.zeros((0, 3), dtype="M8[s]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_of_other_elements_come_back_too(array):
    back = roundtrip(array)
    assert back.dtype == array.dtype and back.shape == array.shape
    assert numpy.array_equal(back, array, equal_nan=array.dtype.kind == "M")


def test_scalars_of_other_kinds_come_back():
    for scalar in (
        numpy.datetime64("2026-01-01T00:00:01", "s"),
        numpy.timedelta64(5, "ns"),
        numpy.longdouble("1.25"),
    ):
        back = roundtrip(scalar)
        assert type(back) is type(scalar) and back == scalar and back.dtype == scalar.dtype
    assert roundtrip(numpy.str_("a")) == "a" and roundtrip(numpy.bytes_(b"a")) == b"a"


def test_what_derives_from_an_array_keeps_its_name_and_its_mask():
    masked = numpy.ma.array([1, 2, 3], mask=[0, 1, 0])
    back = roundtrip(masked)
    assert back["mask"].tolist() == [False, True, False] and back["data"].tolist() == [1, 2, 3]
    record = numpy.rec.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    assert roundtrip(record)["b"].tolist() == [2.5] and "recarray" in shown(record)
    assert roundtrip(numpy.zeros((1,) * 40)).shape == (1,) * 40


def test_an_array_that_holds_itself_is_refused_by_its_path():
    array = numpy.empty(1, dtype=object)
    array[0] = [array]
    with pytest.raises(_values.BadInput, match=r"same object|nested deeper"):
        roundtrip(array)


def test_arrays_are_read_without_numpy_as_what_they_are():
    """Where numpy is missing the elements are still there, and can be recorded again."""
    code = """
import sys
sys.modules["numpy"] = None
import keepstep._core as core
from keepstep._values import Array
array = Array("int16", (2,), b"abcd")
assert core._roundtrip(array, core.Context(strict=True)) == array
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- torch ------------------------------------------------------------------------------------------------------------


def test_tensors_come_back_as_arrays():
    torch = pytest.importorskip("torch")
    base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    cases = [base, base.T, base[:, ::2], base.clone().requires_grad_(), base.to(torch.int64), base > 2,
             torch.tensor(5.0), torch.zeros(0, 3), (base + 1j * base).conj(), torch.nn.Parameter(base)]  # fmt: skip
    for tensor in cases:
        back = roundtrip(tensor)
        expected = tensor.detach().resolve_conj().numpy()
        assert same(expected, back), tensor
    assert shown(base) == "torch.Tensor(float32[2, 3])"
    assert "Parameter" in shown(torch.nn.Parameter(base))


def test_small_floats_of_torch_come_back():
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16):
        back = roundtrip(base.to(dtype).T)
        assert (
            back.astype("float32").tolist() == base.T.tolist()
            and back.dtype.itemsize == base.to(dtype).element_size()
        )


def test_tensors_without_bytes_in_a_row_are_marked_and_the_walk_changes_none():
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = torch.eye(3).to_sparse()
        back = core._roundtrip(sparse, core.Context())
    assert isinstance(back, _values.Repr) and back.type == "torch.Tensor"
    weights = torch.ones(3, requires_grad=True)
    roundtrip({"w": weights})
    assert weights.requires_grad and roundtrip(torch.float32) == "torch.float32"


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr", "HSV"]
)
def test_images_come_back_pixel_by_pixel(mode):
    image_module = pytest.importorskip("PIL.Image")
    image = image_module.new("RGB", (5, 3))
    image.putdata([(i * 16 % 256, i * 5, 255 - i) for i in range(15)])
    if mode == "I;16":
        image = image_module.frombytes("I;16", (5, 3), bytes(range(30)))
    elif mode == "HSV" or mode != "RGB":
        image = image.convert("L").convert(mode) if mode in ("LA", "I", "F") else image.convert(mode)
    back = roundtrip(image)
    if isinstance(back, _values.Media):
        assert back.kind == "image/png"
        back = back.image()
    assert back.mode == image.mode and back.size == image.size and back.tobytes() == image.tobytes()
    if mode == "P":
        assert back.convert("RGB").tobytes() == image.convert("RGB").tobytes()
