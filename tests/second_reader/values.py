"""Values (§9): their bytes, and what they are in Python.

null, bool, int, float, str, bytes and list are themselves. A map is a dict if all its keys are texts, else `Pairs`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol

from .errors import Malformed
from .wire import Cursor, text, varint, zigzag

DEPTH_MAX = 128
DIMENSIONS_MAX = 32

DTYPES = {
    1: ("bool", 1),
    2: ("i8", 1),
    3: ("i16", 2),
    4: ("i32", 4),
    5: ("i64", 8),
    6: ("u8", 1),
    7: ("u16", 2),
    8: ("u32", 4),
    9: ("u64", 8),
    10: ("f16", 2),
    11: ("f32", 4),
    12: ("f64", 8),
    13: ("bf16", 2),
    14: ("c64", 8),
    15: ("c128", 16),
    16: ("f8e4m3", 1),
    17: ("f8e5m2", 1),
}

NULL, FALSE, TRUE, INT, BIG, FLOAT, STRING, BYTES, LIST, MAP, ARRAY, MEDIA, TYPED, REPR = range(14)
REFERENCE, MORE_LIST, MORE_STRING, MORE_BYTES, MORE_ARRAY = range(0x20, 0x25)
WHOLE = {MORE_LIST: LIST, MORE_STRING: STRING, MORE_BYTES: BYTES, MORE_ARRAY: ARRAY}


class Pairs(list):
    """A map with keys that are not all texts, as [key, value] pairs in the order of the caller."""


@dataclass(frozen=True)
class Array:
    """Elements in C order, little-endian, not shuffled."""

    dtype: int
    shape: tuple[int, ...]
    data: bytes

    def __repr__(self) -> str:
        return f"<Array {DTYPES[self.dtype][0]} {list(self.shape)}: {len(self.data)} bytes>"


@dataclass(frozen=True)
class Media:
    type: str
    data: bytes


@dataclass(frozen=True)
class Typed:
    name: str
    value: Any


@dataclass(frozen=True)
class Repr:
    name: str
    text: str


@dataclass(frozen=True)
class Lost:
    """Stands where a reference leads into damage; the hash is that of the reference."""

    hash: bytes


class Reference(NamedTuple):
    back: int
    offset: int
    inner: int
    base: int
    take: int
    hash: bytes


class Table(Protocol):
    """The references of one record."""

    def next(self) -> Reference:
        """They are used up in order."""

    def value(self, reference: Reference) -> Any:
        """What the reference means, or `Lost`."""

    def units(self, reference: Reference, tag: int, dtype: int | None) -> list | bytes | Lost:
        """The first `take` units of what it leads to, which must have this tag (and dtype)."""


class NoTable:
    """For what has no references: cards, keys of maps."""

    def next(self) -> Reference:
        raise Malformed("a reference stands where none may")


def item_bytes(dtype: int) -> int:
    if dtype not in DTYPES:
        raise Malformed(f"dtype {dtype} is unknown")
    return DTYPES[dtype][1]


def shuffle(data: bytes, width: int) -> bytes:
    return b"".join(data[i::width] for i in range(width))


def unshuffle(data: bytes, width: int) -> bytes:
    count = len(data) // width
    out = bytearray(len(data))
    for i in range(width):
        out[i::width] = data[i * count : (i + 1) * count]
    return bytes(out)


# Writing in full, without references: hashes are of this.


def encode(value: Any) -> bytes:
    match value:
        case None:
            return bytes([NULL])
        case bool():
            return bytes([TRUE if value else FALSE])
        case int():
            return _encode_int(value)
        case float():
            return bytes([FLOAT]) + struct.pack("<d", value)
        case str():
            return bytes([STRING]) + text(value)
        case bytes():
            return bytes([BYTES]) + varint(len(value)) + value
        case dict() | Pairs():
            pairs = list(value.items()) if isinstance(value, dict) else value
            return bytes([MAP]) + varint(len(pairs)) + b"".join(encode(k) + encode(v) for k, v in pairs)
        case list():
            return bytes([LIST]) + varint(len(value)) + b"".join(map(encode, value))
        case Array():
            return bytes([ARRAY]) + array_head(value) + shuffle(value.data, item_bytes(value.dtype))
        case Media():
            return bytes([MEDIA]) + text(value.type) + varint(len(value.data)) + value.data
        case Typed():
            return bytes([TYPED]) + text(value.name) + encode(value.value)
        case Repr():
            return bytes([REPR]) + text(value.name) + text(value.text)
    raise TypeError(f"{type(value).__name__} is not a value")


def _encode_int(n: int) -> bytes:
    if -(2**63) <= n < 2**63:
        return bytes([INT]) + zigzag(n)
    magnitude = abs(n).to_bytes((abs(n).bit_length() + 7) // 8, "little")
    return bytes([BIG, n < 0]) + varint(len(magnitude)) + magnitude


def array_head(array: Array) -> bytes:
    return bytes([array.dtype]) + dimensions(array.shape)


def dimensions(shape: tuple[int, ...]) -> bytes:
    return varint(len(shape)) + b"".join(map(varint, shape))


# Reading.


def decode(at: Cursor, table: Table, depth: int = 0) -> Any:
    """One value; `depth` is how many lists, maps and typed values it stands in."""
    if depth > DEPTH_MAX:
        raise at.malformed(f"a value is nested deeper than {DEPTH_MAX}")
    tag = at.u8()
    match tag:
        case 0x00:
            return None
        case 0x01 | 0x02:
            return tag == TRUE
        case 0x03:
            return at.zigzag()
        case 0x04:
            return _decode_big(at)
        case 0x05:
            return at.f64()
        case 0x06:
            return at.text()
        case 0x07:
            return at.take(at.varint())
        case 0x08:
            return [decode(at, table, depth + 1) for _ in range(at.varint())]
        case 0x09:
            return _decode_map(at, table, depth)
        case 0x0A:
            dtype, shape = _decode_array_head(at)
            return Array(dtype, shape, _decode_elements(at, dtype, prod(shape)))
        case 0x0B:
            return Media(at.text(), at.take(at.varint()))
        case 0x0C:
            return Typed(at.text(), decode(at, table, depth + 1))
        case 0x0D:
            return Repr(at.text(), at.text())
        case 0x20:
            reference = table.next()
            return table.value(reference)
        case 0x21 | 0x22 | 0x23 | 0x24:
            return _decode_more(at, tag, table, depth)
    raise at.malformed(f"tag {tag:#04x} is unknown")


def _decode_big(at: Cursor) -> int:
    sign = at.u8()
    magnitude = at.take(at.varint())
    if sign > 1 or not magnitude or magnitude[-1] == 0:
        raise at.malformed("a big int is not in its one form")
    n = int.from_bytes(magnitude, "little") * (-1 if sign else 1)
    if -(2**63) <= n < 2**63:
        raise at.malformed("a big int would fit an int")
    return n


def _decode_map(at: Cursor, table: Table, depth: int) -> dict[str, Any] | Pairs:
    pairs = Pairs()
    keys = set()
    for _ in range(at.varint()):
        start = at.pos
        key = decode(at, NoTable(), depth + 1)
        encoded = bytes(at.data[start : at.pos])
        if encoded in keys:
            raise at.malformed("a key stands twice in a map")
        keys.add(encoded)
        pairs.append([key, decode(at, table, depth + 1)])
    return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else pairs


def _decode_array_head(at: Cursor) -> tuple[int, tuple[int, ...]]:
    dtype = at.u8()
    item_bytes(dtype)
    count = at.varint()
    if count > DIMENSIONS_MAX:
        raise at.malformed(f"an array has {count} dimensions")
    return dtype, tuple(at.varint() for _ in range(count))


def _decode_elements(at: Cursor, dtype: int, count: int) -> bytes:
    width = item_bytes(dtype)
    return unshuffle(at.take(count * width), width)


def _decode_more(at: Cursor, tag: int, table: Table, depth: int) -> Any:
    """Spans of earlier values, then what is new. All references are used up, also behind one that is lost."""
    dtype, shape = _decode_array_head(at) if tag == MORE_ARRAY else (None, ())
    count = at.varint()
    if count == 0:
        raise at.malformed("no span stands where at least one must")
    skips = [at.varint() for _ in range(count)]
    spans = [_decode_span(at, skip, tag, table, dtype) for skip in skips]
    rest: Any
    match tag:
        case 0x21:
            rest = [decode(at, table, depth + 1) for _ in range(at.varint())]
        case 0x24:
            remaining = prod(shape) - sum(length for length, _ in spans)
            if remaining < 0:
                raise at.malformed("the spans of an array are longer than the array")
            rest = _decode_elements(at, dtype, remaining)
        case _:
            rest = at.take(at.varint())
    lost = next((units for _, units in spans if isinstance(units, Lost)), None)
    if lost:
        return lost
    if tag == MORE_LIST:
        return [item for _, units in spans for item in units] + rest
    data = b"".join(units for _, units in spans) + rest
    if tag == MORE_ARRAY:
        return Array(dtype, shape, data)
    return data if tag == MORE_BYTES else as_text(data)


def _decode_span(at: Cursor, skip: int, tag: int, table: Table, dtype: int | None) -> tuple[int, Any]:
    """How many units the span has, and the units."""
    reference = table.next()
    if reference.take == 0 or skip > reference.take:
        raise at.malformed(f"a span goes from unit {skip} to unit {reference.take}")
    units = table.units(reference, WHOLE[tag], dtype)
    width = item_bytes(dtype) if dtype else 1
    return reference.take - skip, units if isinstance(units, Lost) else units[skip * width :]


def as_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"a string that is put together is not UTF-8: {error}") from error


def decode_fields(at: Cursor, table: Table) -> dict[int, Any]:
    """Fields (§5): numbers rise, so no field stands twice."""
    fields: dict[int, Any] = {}
    last = -1
    for _ in range(at.varint()):
        number = at.varint()
        if number <= last:
            raise at.malformed(f"field {number} stands behind field {last}")
        last = number
        fields[number] = decode(at, table)
    return fields
