"""A value as a row of pieces, so that a list that grew by one message is stored as one message.

Lists and dicts are taken apart, and everything in them becomes a piece, made by the framework's own serializer. What a row
has in common with an earlier one is stored as ranges of that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

# Bytes: serialized as msgpack, the usual case. A pair: another type, with its name. Text: `[`, `]`, `{`, `}`, `:key`.
Piece = bytes | str | tuple[str, bytes]
# A piece, or the range [begin, end) of the earlier row.
Op = Piece | list[int]

_USUAL = "msgpack"
# How msgpack begins a list whose length takes four bytes.
_LIST_OF = b"\xdd"
# Lists with fewer items are not worth the look at the serializer.
_MANY = 8
# Dicts within dicts are taken apart down to this depth; what is deeper is one piece.
_DEPTH_MAX = 8
# A range costs about this many bytes: anything shorter is stored again.
_RANGE_BYTES = 8


def one_piece(value: Any, serde: SerializerProtocol) -> Piece:
    """A value as a single piece."""
    kind, data = serde.dumps_typed(value)
    return data if kind == _USUAL else (kind, data)


def whole_of(piece: Piece, serde: SerializerProtocol) -> Any:
    """The value of a single piece."""
    if isinstance(piece, str):
        raise ValueError(f"expected a value, found the mark {piece!r}: the entry is damaged")
    return serde.loads_typed((_USUAL, piece) if isinstance(piece, bytes) else piece)


def split(value: Any, serde: SerializerProtocol) -> list[Piece]:
    """A value as a row of pieces."""
    row: list[Piece] = []
    _split(value, serde, row, 0)
    return row


def _split(value: Any, serde: SerializerProtocol, row: list[Piece], depth: int) -> None:
    # Of exactly these classes: the serializer handles classes that derive from them.
    if type(value) is list:
        row.append("[")
        row.extend(one_piece(item, serde) for item in value)
        row.append("]")
    elif type(value) is dict and depth < _DEPTH_MAX and all(type(key) is str for key in value):
        row.append("{")
        for key, item in value.items():
            row.append(f":{key}")
            _split(item, serde, row, depth + 1)
        row.append("}")
    else:
        row.append(one_piece(value, serde))


def join(row: Sequence[Piece], serde: SerializerProtocol) -> Any:
    """The value that a row was made of."""
    if row[0] == "[":
        # The items of a list are a piece each, so the mark at the end is its own.
        return _items(row[1:-1], serde)
    return _join(iter(row), serde)


def _join(pieces: Iterator[Piece], serde: SerializerProtocol) -> Any:
    first = next(pieces)
    if first == "[":
        return _items(list(iter(pieces.__next__, "]")), serde)
    if first == "{":
        # Every mark but the last is `:key`, and its value follows.
        return {str(mark)[1:]: _join(pieces, serde) for mark in iter(pieces.__next__, "}")}
    return whole_of(first, serde)


def _items(pieces: Sequence[Piece], serde: SerializerProtocol) -> list[Any]:
    """The items of a list. Of LangGraph's own serializer all at once, which costs half as much as one by one."""
    if len(pieces) >= _MANY and _is_plain_msgpack(serde):
        if set(map(type, pieces)) == {bytes}:
            head = _LIST_OF + len(pieces).to_bytes(4, "big")
            whole: list[Any] = serde.loads_typed((_USUAL, b"".join([head, *cast("Sequence[bytes]", pieces)])))
            return whole
    return [whole_of(piece, serde) for piece in pieces]


def _is_plain_msgpack(serde: SerializerProtocol) -> bool:
    """True if a list is made of its items by putting them behind one another."""
    is_own = type(serde).__module__ == "langgraph.checkpoint.serde.jsonplus"
    return is_own and serde.dumps_typed(["a", 1]) == (_USUAL, b"\x92\xa1a\x01")


def difference(old: Sequence[Piece], new: Sequence[Piece]) -> list[Op]:
    """A row as a difference to an earlier one: ranges of that one, and new pieces."""
    head = _common(old, new)
    ops: list[Op] = []
    _add_range(ops, old, 0, head)
    rest = new[head:]
    if not rest:
        return ops
    first_place: dict[Piece, int] = {}
    for place in range(len(old) - 1, -1, -1):
        first_place[old[place]] = place
    at, expected = 0, head
    while at < len(rest):
        piece = rest[at]
        goes_on = expected < len(old) and old[expected] == piece
        begin = expected if goes_on else first_place.get(piece, -1)
        if begin < 0:
            ops.append(piece)
            at += 1
            continue
        length = 1
        while (
            at + length < len(rest) and begin + length < len(old) and rest[at + length] == old[begin + length]
        ):
            length += 1
        _add_range(ops, old, begin, begin + length)
        at, expected = at + length, begin + length
    return ops


def _common(old: Sequence[Piece], new: Sequence[Piece]) -> int:
    for place, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return place
    return min(len(old), len(new))


def _add_range(ops: list[Op], old: Sequence[Piece], begin: int, end: int) -> None:
    if weight(old[begin:end]) < _RANGE_BYTES:
        ops.extend(old[begin:end])
    else:
        ops.append([begin, end])


def patched(old: Sequence[Piece], ops: Sequence[Op]) -> list[Piece]:
    """The row that `difference` described."""
    row: list[Piece] = []
    for op in ops:
        if isinstance(op, list):
            row.extend(old[op[0] : op[1]])
        else:
            row.append(op)
    return row


def weight(ops: Sequence[Op]) -> int:
    """About how many bytes it takes to store this."""
    total = 0
    for op in ops:
        total += _RANGE_BYTES if isinstance(op, list) else len(op[1]) if isinstance(op, tuple) else len(op)
    return total
