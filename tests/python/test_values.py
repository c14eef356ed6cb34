"""Values: what goes in comes back, whatever happens to the objects afterwards."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import pickle
import socket
import subprocess
import sys
import types
import typing
import uuid
import warnings

import keepstep._core as core
import pytest
from coming_back import Recording, alike, plain, roundtrip, shown
from hypothesis import given, settings
from keepstep import _values
from keepstep.errors import BadInput


@given(plain)
@settings(max_examples=300, deadline=None)
def test_what_goes_in_comes_back(value):
    assert alike(roundtrip(value, strict=True), value)


@given(plain)
@settings(max_examples=60, deadline=None)
def test_reading_and_recording_again_changes_nothing(value):
    once = roundtrip(value)
    assert shown(once) == shown(value)


@pytest.mark.parametrize(
    "value",
    [
        "\ud800 lone", "a\0b", "Käse 🧀", 2**63, -(2**63) - 1, 2**63 - 1, -(2**63), 10**400, -0.0, math.nan, math.inf,
        {True: 1, 2: 3, None: 4, 1.5: 5, b"x": 6, (1, "a", (2,)): 7}, {"b": 1, "a": 2},
        {datetime.date(2026, 1, 2): 1, "\udfff": 2}, {frozenset({1, 2}): "x"},
        collections.Counter("abca"), collections.deque([1, 2], 5), slice(1, None, 2), ...,
        datetime.datetime(2026, 10, 25, 2, 30, fold=1), datetime.time(2, 30, fold=1), pathlib.PureWindowsPath("c:/x"),
        decimal.Decimal("1.10"), decimal.Decimal("Infinity"), fractions.Fraction(1, 3), uuid.UUID(int=5), (), [], {}, set(),
    ],
    ids=repr,
)  # fmt: skip
def test_odd_values_come_back(value):
    assert alike(roundtrip(value, strict=True), value)


def test_keys_that_are_recorded_alike_are_both_kept():
    """Two NaNs are two keys; a map with one of them lost would be a value that was dropped."""
    back = roundtrip({float("nan"): 1, float("nan"): 2}, strict=True)
    assert sorted(back.values()) == [1, 2]
    # A map of the format has no key twice.
    assert shown({float("nan"): 1, float("nan"): 2}) == "dict([[NaN, 1], [NaN, 2]])"

    class Color(enum.IntEnum):
        RED = 1

    back = roundtrip({Color.RED: "a", 2: "b"}, strict=True)
    assert back == {1: "a", 2: "b"}

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int

    assert roundtrip({Point(1): "a"}, strict=True) == [({"x": 1}, "a")]


class Text(str):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Data(bytes):
    pass


class Items(list):
    pass


class Mapped(dict):
    pass


class Level(enum.Enum):
    LOW = "low"


class Pair(typing.NamedTuple):
    left: int
    right: object


@dataclasses.dataclass
class Message:
    role: str
    content: object = None
    unset: int = dataclasses.field(init=False)


class Slotted:
    __slots__ = ("x",)


HERE = __name__


@pytest.mark.parametrize(
    ("value", "back", "looks"),
    [
        (Text("a"), "a", '{0}.Text("a")'),
        (Number(5), 5, "{0}.Number(5)"),
        (Number(2**70), 2**70, "{0}.Number(big(9 bytes))"),
        (Real(0.5), 0.5, "{0}.Real(0.5)"),
        (Data(b"ab"), b"ab", "{0}.Data(bytes(2))"),
        (Items([1]), [1], "{0}.Items([1])"),
        (Mapped(a=1), {"a": 1}, '{0}.Mapped({{"a": 1}})'),
        (Level.LOW, "low", '{0}.Level("low")'),
        (Pair(1, (2,)), {"left": 1, "right": (2,)}, '{0}.Pair({{"left": 1, "right": tuple([2])}})'),
        (
            Message("user"),
            {"role": "user", "content": None},
            '{0}.Message({{"role": "user", "content": null}})',
        ),
        (collections.defaultdict(list, a=[1]), {"a": [1]}, 'collections.defaultdict({{"a": [1]}})'),
        (types.SimpleNamespace(a=1), {"a": 1}, 'types.SimpleNamespace({{"a": 1}})'),
        (types.MappingProxyType({"a": 1}), {"a": 1}, None),
        (memoryview(b"abc")[::2], b"ac", "memoryview(bytes(2))"),
        (ValueError("no", 3), {"message": "('no', 3)", "args": ["no", 3]}, None),
        (Text, f"{HERE}.Text", f'type("{HERE}.Text")'),
        ({"a": 1}.keys(), ["a"], None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_structures_keep_their_type_names_and_come_back_as_plain_data(value, back, looks):
    assert alike(roundtrip(value, strict=True), back)
    if looks:
        assert shown(value, strict=True) == looks.format(HERE)


def test_pydantic_and_attrs_objects_are_structures():
    pydantic = pytest.importorskip("pydantic")
    attrs = pytest.importorskip("attrs")

    class Tool(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        name: str
        when: datetime.date
        key: pydantic.SecretStr

    @attrs.define
    class Seen:
        a: int
        b: Tool

    tool = Tool(name="n", when=datetime.date(2026, 1, 1), key="hunter2", more=[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", _values.RecordedAsRepr)
        back = roundtrip(Seen(1, tool))
    assert back["a"] == 1 and back["b"]["when"] == datetime.date(2026, 1, 1) and back["b"]["more"] == [1]
    assert "hunter2" not in repr(back) and isinstance(back["b"]["key"], _values.Repr)


# --- register ---------------------------------------------------------------------------------------------------------


class Temperature:
    def __init__(self, kelvin):
        self.kelvin = kelvin


class Fever(Temperature):
    pass


@pytest.fixture
def registered():
    yield
    _values._encoders.clear()
    _values.decoders.clear()
    core._forget_plans()


def test_a_registered_class_comes_back_as_itself_and_its_subclasses_do_not(registered):
    with pytest.warns(_values.RecordedAsRepr):
        assert isinstance(roundtrip(Temperature(3)), _values.Repr)
    _values.register(
        Temperature, encode=lambda it: {"k": it.kelvin}, decode=lambda data: Temperature(data["k"])
    )
    back = roundtrip([Temperature(300)], strict=True)[0]
    assert type(back) is Temperature and back.kelvin == 300
    with pytest.raises(BadInput, match=r"value\[0\] is an object of .*Fever"):
        roundtrip([Fever(3)], strict=True)
    _values.register(Temperature, encode=lambda it: it.kelvin)
    assert roundtrip(Temperature(300)) == 300


def test_register_refuses_what_makes_no_sense(registered):
    for wrong in (
        {"cls": 5, "encode": str}, {"cls": Temperature, "encode": None}, {"cls": dict, "encode": str},
        {"cls": Temperature, "encode": str, "decode": 3}, {"cls": decimal.Decimal, "encode": str},
    ):  # fmt: skip
        with pytest.raises(BadInput):
            _values.register(wrong.pop("cls"), **wrong)


def test_an_encoder_that_raises_tells_the_path_and_not_the_secret(registered):
    def encode(it):
        raise RuntimeError(f"secret {it.kelvin}")

    _values.register(Temperature, encode=encode)
    with pytest.raises(BadInput, match=r"value\.a\[1\] could not be encoded.*RuntimeError") as caught:
        roundtrip({"a": [0, Temperature(123456)]})
    assert "123456" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


# --- the last resort --------------------------------------------------------------------------------------------------


def test_what_cannot_be_recorded_is_a_marked_text_counted_and_warned_about_once():
    context = core.Context()
    with socket.socket() as one, socket.socket() as other, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        back = core._roundtrip({"a": [one, other], "b": len}, context)
        core._roundtrip(one, context)
    assert isinstance(back["a"][0], _values.Repr) and back["a"][0].type == "socket.socket"
    assert "<socket.socket" in back["a"][0]
    assert [w.category for w in caught] == [_values.RecordedAsRepr] * 2
    assert "value.a[0] is an object of socket.socket" in str(caught[0].message)
    assert context.reprs == 4
    again = core._roundtrip(back, context)
    assert again == back and again["a"][0].type == "socket.socket" and context.reprs == 4


def test_a_repr_that_raises_does_not_end_the_recording():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    with pytest.warns(_values.RecordedAsRepr):
        assert "whose repr cannot be had" in roundtrip([Broken()])[0]


def test_strict_names_the_path():
    with pytest.raises(
        BadInput, match=r"info\.tools\[2\]\.handle is an object of builtins\.builtin_function"
    ):
        roundtrip({"tools": [1, 2, {"handle": len}]}, "info", strict=True)


def test_a_generator_is_not_used_up():
    numbers = iter([1, 2])
    with pytest.warns(_values.RecordedAsRepr):
        roundtrip(numbers)
    assert list(numbers) == [1, 2]


# --- depth and cycles -------------------------------------------------------------------------------------------------


def test_cycles_are_refused_by_the_path_that_closes_them():
    node = {"children": []}
    node["children"].append({"parent": node})
    with pytest.raises(
        BadInput, match=r"prompt\[1\]\.children\[0\]\.parent is the same object as prompt\[1\],"
    ):
        roundtrip([0, node], "prompt")
    message = Message("a")
    message.content = message
    with pytest.raises(BadInput, match=r"value\.content is the same object as value,"):
        roundtrip(message)
    endless = []
    endless.append((endless,))
    with pytest.raises(BadInput, match="contains itself"):
        roundtrip(endless)


@pytest.mark.parametrize("nest", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {2**-1: v}, Message, Items,
                                  lambda v: {datetime.date.min: v}])  # fmt: skip
def test_absurd_depth_is_refused_here_and_what_passes_here_passes_the_engine(nest, tmp_path):
    deepest, value = None, 0
    for _ in range(130):
        try:
            roundtrip(value)
            deepest = value
        except BadInput as error:
            assert "nested deeper than 120 levels" in str(error) and len(str(error)) < 400
            break
        value = nest("x") if value == 0 else (nest(value) if nest is not Message else Message("r", value))
        if nest is Items:
            value = Items([value])
    else:
        pytest.fail("any depth was taken")
    with Recording(tmp_path) as episode:
        episode.submit(
            {"state": {"deep": deepest}, "tokens": {"arrays": {"deep": deepest}}, "info": deepest}
        ).wait()


# --- marks ------------------------------------------------------------------------------------------------------------


def test_marks_come_back_compare_and_pickle():
    for mark in (_values.Media("image/png", b"\x89PNG"), _values.Lost(b"h" * 16), _values.Repr("a.B", "<B>"),
                 _values.Array("float8_e4m3", (2, 1), b"ab")):  # fmt: skip
        assert pickle.loads(pickle.dumps(mark)) == mark and hash(mark) == hash(copy.deepcopy(mark))
        back = roundtrip(mark, strict=True)
        if not isinstance(mark, _values.Array):
            assert back == mark and type(back) is type(mark)
    assert "<img" in _values.Media("image/png", b"x")._repr_html_()
    assert _values.Media("text/html", b"<script>")._repr_html_() is None
    with pytest.raises(AttributeError):
        _values.Media("a", b"").kind = "b"


def test_nothing_is_imported_on_behalf_of_the_data():
    code = """
import sys
import keepstep._core as core
for value in ({"a": (1, 2.5)}, {1}, 2**99):
    core._roundtrip(value, core.Context())
heavy = {"numpy", "torch", "PIL", "pydantic", "attrs", "ml_dtypes", "decimal"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
