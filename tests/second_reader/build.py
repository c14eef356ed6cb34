"""Lays out stores from the page, for tests only: so the reader is tested without a writer of the real kind.

It writes what it is told to, also what a real writer would not. Nothing is synced.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from .cards import Card
from .frames import BODY_MAX, NONE, Flag, Kind
from .hashes import Hasher
from .segment import Log
from .values import (
    ARRAY,
    BYTES,
    LIST,
    MAP,
    STRING,
    TYPED,
    Array,
    Pairs,
    Typed,
    array_head,
    encode,
    item_bytes,
    shuffle,
)
from .wire import crc32c, text, varint

MORE_TAGS = {LIST: 0x21, STRING: 0x22, BYTES: 0x23, ARRAY: 0x24}


@dataclass(frozen=True)
class Place:
    """A record that was written. `values` says for each path in it: where, behind how many references, and what."""

    number: int
    offset: int
    values: dict[tuple, tuple[int, int, Any]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Ref:
    """Stands for a value that was written before: what is at `path` of a place, or its first `take` units."""

    place: Place
    path: tuple = ()
    take: int = 0

    @property
    def target(self) -> Any:
        return self.place.values[self.path][2]

    def hash(self, hasher: Hasher) -> bytes:
        if self.take == 0:
            return hasher.hash(self.target)
        tag, units, width, dtype = _units(self.target)
        return hasher.hash_prefix(tag, units[: self.take * width], dtype)


@dataclass(frozen=True)
class More:
    """Spans as (skip, ref), then the rest: a list, str, bytes, or an Array of the whole shape with the remaining data."""

    spans: list[tuple[int, Ref]]
    rest: Any
    tag: int | None = None


def _units(value: Any) -> tuple[int, Any, int, int | None]:
    """tag, units, bytes per unit, dtype"""
    match value:
        case str():
            return STRING, value.encode(), 1, None
        case bytes():
            return BYTES, value, 1, None
        case Array(dtype, _, data):
            return ARRAY, data, item_bytes(dtype), dtype
        case list():
            return LIST, value, 1, None
    raise TypeError(f"{value!r} has no units")


def plain(value: Any) -> Any:
    """The value with all references resolved."""
    match value:
        case Ref(take=0):
            return value.target
        case Ref(take=take):
            tag, units, width, dtype = _units(value.target)
            return _whole(tag, units[: take * width], dtype, (take,))
        case More(spans, rest):
            tag, units, width, dtype = _units(rest)
            cut = [_units(ref.target)[1][skip * width : ref.take * width] for skip, ref in spans]
            joined = units[:0]
            for each in [*cut, units]:
                joined = joined + each
            return _whole(value.tag or tag, joined, dtype, rest.shape if isinstance(rest, Array) else ())
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case Pairs():
            return Pairs([key, plain(each)] for key, each in value)
        case list():
            return [plain(each) for each in value]
        case Typed(name, inner):
            return Typed(name, plain(inner))
    return value


def _whole(tag: int, units: Any, dtype: int | None, shape: tuple[int, ...]) -> Any:
    if tag == STRING:
        return units.decode()
    return Array(dtype, shape, units) if tag == ARRAY else units


class Body:
    """A body in the making, with its references in the order in which they are used up."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.references: list[Ref] = []
        self.values: dict[tuple, tuple[int, int, Any]] = {}

    def fields(self, fields: dict[int, Any]) -> Body:
        self.out += varint(len(fields))
        for number, value in sorted(fields.items()):
            self.out += varint(number)
            self.put(value, (number,))
        return self

    def put(self, value: Any, path: tuple = ()) -> Body:
        self.values[path] = (len(self.out), len(self.references), plain(value))
        match value:
            case Ref():
                self.out.append(0x20)
                self.references.append(value)
            case More():
                self._put_more(value, path)
            case dict() | Pairs():
                pairs = list(value.items()) if isinstance(value, dict) else value
                self.out += bytes([MAP]) + varint(len(pairs))
                for key, each in pairs:
                    self.out += encode(key)
                    self.put(each, (*path, key if isinstance(key, str) else encode(key)))
            case list():
                self.out += bytes([LIST]) + varint(len(value))
                for i, each in enumerate(value):
                    self.put(each, (*path, i))
            case Typed(name, inner):
                self.out += bytes([TYPED]) + text(name)
                self.put(inner, (*path, "value"))
            case _:
                self.out += encode(value)
        return self

    def _put_more(self, more: More, path: tuple) -> None:
        tag, units, width, _ = _units(more.rest)
        self.out.append(MORE_TAGS[more.tag or tag])
        if tag == ARRAY:
            self.out += array_head(more.rest)
        self.out += varint(len(more.spans)) + b"".join(varint(skip) for skip, _ in more.spans)
        self.references += [ref for _, ref in more.spans]
        if tag == ARRAY:
            self.out += shuffle(units, width)
            return
        self.out += varint(len(units))
        if tag != LIST:
            self.out += units
            return
        for i, each in enumerate(units):
            self.put(each, (*path, i))


class SegmentBuilder:
    """One segment. Frames are written as they come; `data` is the file so far."""

    def __init__(
        self,
        store: bytes,
        writer: bytes,
        number: int,
        *,
        salt: int,
        voids: tuple[int, int] = (NONE, 0),
        sealed: tuple[int, int] = (NONE, 0),
    ) -> None:
        self.number = number
        self.salt = salt
        self.hasher = Hasher(store)
        head = b"KEEPSEG1" + struct.pack("<HHI", 1, 128, 0) + store + writer
        head += (
            struct.pack("<QQqQQ", number, salt, 0, *voids) + struct.pack("<QQQ", *sealed, salt) + bytes(12)
        )
        self.data = bytearray(head + struct.pack("<I", crc32c(head)))
        self.logs: dict[int, Log] = {}
        self.written: list[tuple[int, int, int, int]] = []
        self.backs: set[int] = set()
        self.content_ends: list[int] = []
        self._committed = 0

    def frame(
        self,
        kind: int,
        slot: int = 0,
        sequence: int = 0,
        body: bytes = b"",
        *,
        flags: int = 0,
        synced_to: int | None = None,
        head: bytes | None = None,
    ) -> int:
        """Any frame; gives its offset."""
        offset = len(self.data)
        flags |= (Flag.COMMITS if synced_to is not None else 0) | (Flag.HEAD if head is not None else 0)
        start = struct.pack("<BBHIIII", kind, flags, 0, len(body), slot, sequence, crc32c(body))
        parts = b"" if synced_to is None else struct.pack("<Q", synced_to)
        parts += b"" if head is None else struct.pack("<I", len(head)) + head
        crc = crc32c(struct.pack("<QQ", self.salt, offset), start, parts)
        self.data += start + struct.pack("<I", crc) + parts + body
        self.content_ends.append(len(self.data))
        self.data += bytes(-len(self.data) % 8)
        if kind not in (Kind.CHUNK, Kind.COMMIT, Kind.LISTS, Kind.FOOTER):
            self.written.append((offset, kind, slot, sequence))
        if synced_to is not None:
            self._committed = len(self.written)
        return offset

    def bind(self, slot: int, log: Log) -> int:
        self.logs[slot] = log
        body = bytes([log.what]) + log.id + varint(log.attempt) + (log.origin or b"") + (log.writer or b"")
        return self.frame(Kind.BIND, slot, 0, body)

    def commit(self, synced_to: int = 128) -> int:
        pending = self.written[self._committed :]
        offset = self.frame(Kind.COMMIT, body=_listing(pending), synced_to=synced_to)
        return offset

    def record(self, kind: int, slot: int, sequence: int, fields: dict[int, Any], **how: Any) -> Place:
        return self._write(kind, slot, sequence, Body().fields(fields), **how)

    def value(self, value: Any, **how: Any) -> Place:
        return self._write(Kind.VALUE, 0, 0, Body().put(value), **how)

    def block(self, slot: int, first_sequence: int, records: list[tuple[int, Body]]) -> list[Place]:
        """A block as `compact` makes it (§11). A record may refer to those before it by `block_place`."""
        offset = len(self.data)
        table, references, bodies, places = varint(len(records)), b"", b"", []
        base = 0
        for kind, made in records:
            table += bytes([kind]) + varint(len(made.out)) + varint(len(made.references))
            for ref in made.references:
                inner, ref_base, _ = ref.place.values[ref.path]
                numbers = ((offset - ref.place.offset) // 8, inner, ref_base, ref.take)
                references += b"".join(map(varint, numbers)) + ref.hash(self.hasher)
            places.append(block_place(self.number, offset, made, len(bodies), base))
            bodies += bytes(made.out)
            base += len(made.references)
        body = table + references + bodies
        packed = varint(len(body)) + zstandard.ZstdCompressor().compress(body)
        self.frame(Kind.BLOCK, slot, first_sequence, packed, flags=Flag.ZSTD)
        return places

    def dictionary(self, content: bytes) -> Place:
        return Place(self.number, self.frame(Kind.DICT, body=content), {(): (0, 0, content)})

    def _write(
        self,
        kind: int,
        slot: int,
        sequence: int,
        made: Body,
        *,
        zstd: bool = False,
        dictionary: Place | None = None,
        synced_to: int | None = None,
        piece_bytes: int = BODY_MAX,
    ) -> Place:
        body, flags, head = bytes(made.out), 0, b""
        if zstd or dictionary:
            content = dictionary and zstandard.ZstdCompressionDict(dictionary.values[()][2])
            body = varint(len(body)) + zstandard.ZstdCompressor(dict_data=content or None).compress(body)
            flags |= Flag.ZSTD
        if dictionary:
            flags |= Flag.DICT
            self.backs.add(self.number - dictionary.number)
            head += varint(self.number - dictionary.number) + varint(dictionary.offset // 8)
        head += varint(len(made.references)) + b"".join(map(self._reference, made.references))
        pieces = [body[i : i + piece_bytes] for i in range(0, len(body), piece_bytes)] or [b""]
        more = Flag.MORE if len(pieces) > 1 else 0
        has_head = head if dictionary or made.references else None
        offset = self.frame(
            kind, slot, sequence, pieces[0], flags=flags | more, head=has_head, synced_to=synced_to
        )
        for i, piece in enumerate(pieces[1:], 2):
            self.frame(Kind.CHUNK, slot, sequence, piece, flags=Flag.MORE if i < len(pieces) else 0)
        return Place(self.number, offset, made.values)

    def _reference(self, ref: Ref) -> bytes:
        inner, base, _ = ref.place.values[ref.path]
        back = self.number - ref.place.number
        self.backs.add(back)
        numbers = (back, ref.place.offset // 8, inner, base, ref.take)
        return b"".join(map(varint, numbers)) + ref.hash(self.hasher)

    def seal(self, summaries: dict[Log, dict[int, Any]] | None = None) -> None:
        lists, entries = bytearray(), []
        for log, slot, first, offsets in self._runs():
            entry = bytes([log.what]) + log.id + varint(log.attempt) + (log.origin or b"")
            entry += varint(slot) + varint(first) + varint(len(offsets)) + varint(len(lists))
            summary = bytes(Body().fields((summaries or {}).get(log, {})).out)
            entries.append(entry + varint(len(summary)) + summary)
            before = 0
            for offset, kind in offsets:
                lists += varint((offset - before) // 8) + bytes([kind])
                before = offset
        backs = sorted(self.backs - {0})
        footer = varint(len(entries)) + b"".join(entries) + varint(len(backs)) + b"".join(map(varint, backs))
        lists_at = self.frame(Kind.LISTS, body=bytes(lists))
        footer_at = self.frame(Kind.FOOTER, body=footer)
        trailer = b"KEEPEND1" + struct.pack("<QQQI", footer_at, lists_at, 0, 0)
        self.data += trailer + struct.pack("<I", crc32c(struct.pack("<Q", self.salt), trailer))

    def _runs(self) -> list[tuple[Log, int, int, list[tuple[int, int]]]]:
        """(log, slot, first sequence, [(offset, kind)]), a new one behind each gap."""
        own = [(offset, kind) for offset, kind, _, _ in self.written if kind < Kind.BEGIN]
        runs = [(Log(0, bytes(16), 0), 0, 0, own)]
        for slot, log in self.logs.items():
            next_sequence = None
            for offset, kind, written_slot, sequence in self.written:
                if written_slot != slot or kind == Kind.BIND:
                    continue
                if sequence != next_sequence:
                    runs.append((log, slot, sequence, []))
                runs[-1][3].append((offset, kind))
                next_sequence = sequence + 1
        return sorted(runs, key=lambda run: (run[0].id, run[0].attempt, run[0].what))


def block_place(number: int, offset: int, made: Body, start: int, base: int) -> Place:
    """Where the values of a record stand, if it is in a block behind `start` bytes and `base` references."""
    values = {path: (inner + start, at + base, value) for path, (inner, at, value) in made.values.items()}
    return Place(number, offset, values)


def _listing(frames: list[tuple[int, int, int, int]]) -> bytes:
    out, before = bytearray(), 0
    for offset, kind, slot, sequence in frames:
        out += varint((offset - before) // 8) + bytes([kind]) + varint(slot) + varint(sequence)
        before = offset
    return varint(len(frames)) + bytes(out) if frames else b""


class StoreBuilder:
    """A store in a folder."""

    def __init__(self, path: Path, store: bytes = bytes(range(16))) -> None:
        self.path = path
        self.id = store
        path.mkdir(parents=True, exist_ok=True)
        check = crc32c(f"1:{store.hex()}:0".encode())
        head = f'{{"keepstep":"store","format":1,"store":"{store.hex()}","created":0,"check":"{check:08x}"}}'
        (path / "keepstep.json").write_text(head)

    def segment(self, writer: bytes, number: int, **how: Any) -> SegmentBuilder:
        how.setdefault("salt", 0x5EED + number)
        return SegmentBuilder(self.id, writer, number, **how)

    def save(self, writer: bytes, segment: SegmentBuilder, data: bytes | None = None) -> Path:
        """Writes the segment, or other bytes in its place."""
        folder = self.path / ("writers/" + writer.hex() if any(writer) else "grouped")
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{segment.number}.seg"
        file.write_bytes(segment.data if data is None else data)
        return file

    def card(self, relative: str, kind: Card, fields: dict[int, Any]) -> Path:
        body = bytes(Body().fields(fields).out)
        head = b"KEEPCARD" + struct.pack("<HHII", 1, kind, len(body), crc32c(body))
        file = self.path / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(head + struct.pack("<I", crc32c(self.id, relative.encode(), head)) + body)
        return file
