"""The index at the end of a sealed segment (§6): where each record of each log is.

It is a convenience: this reader reads the frames, and uses the index to name what is lost and to check that both agree.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from .errors import Malformed, NewerFormat
from .frames import Flag, Frame, Kind, read_frame
from .values import NoTable, decode_fields
from .wire import Cursor, crc32c

TRAILER_BYTES = 40
COPIED = 2


@dataclass(frozen=True)
class Entry:
    """One log in this segment; `records` are (offset, kind), with sequences that rise by one."""

    what: int
    id: bytes
    attempt: int
    origin: bytes | None
    slot: int
    first_sequence: int
    records: list[tuple[int, int]]
    summary: dict[int, Any]
    writer: bytes | None = None


@dataclass(frozen=True)
class Index:
    entries: list[Entry]
    backs: list[int]
    data_end: int


def read_trailer(data: bytes, salt: int, where: str) -> tuple[int, int] | None:
    """The offsets of FOOTER and LISTS, if the segment ends with a valid trailer."""
    trailer = data[-TRAILER_BYTES:]
    if len(trailer) < TRAILER_BYTES or trailer[:8] != b"KEEPEND1":
        return None
    footer_at, lists_at, zero, zero32, crc = struct.unpack_from("<QQQII", trailer, 8)
    if crc32c(struct.pack("<Q", salt), trailer[:36]) != crc:
        return None
    if zero or zero32:
        raise NewerFormat(f"{where}, trailer", f"reserved bytes {zero:#x} {zero32:#x}")
    return footer_at, lists_at


def read_index(data: bytes, salt: int, where: str, *, grouped: bool = False) -> Index | None:
    """None if the segment is not sealed: its trailer, FOOTER or LISTS do not validate."""
    trailer = read_trailer(data, salt, where)
    if not trailer:
        return None
    footer_at, lists_at = trailer
    data = data[:-TRAILER_BYTES]
    lists, lists_end = _read_body(data, lists_at, salt, Kind.LISTS)
    footer, footer_end = _read_body(data, footer_at, salt, Kind.FOOTER)
    if lists is None or footer is None:
        return None
    if lists_end != footer_at or footer_end != len(data):
        raise Malformed(f"{where}: LISTS, FOOTER and trailer do not follow one another")
    return _parse(footer, lists, lists_at, where, grouped)


def _read_body(data: bytes, offset: int, salt: int, kind: Kind) -> tuple[bytes | None, int]:
    """The whole body of the record here, and where it ends; None if a part of it is damaged."""
    frame = read_frame(data, offset, salt)
    if not frame or not frame.whole or frame.kind != kind:
        return None, offset
    if frame.flags & ~(Flag.MORE | Flag.COMMITS):
        raise Malformed(f"{kind.name} at {offset} has flags {frame.flags:#x}")
    body = [frame.body]
    while frame.flags & Flag.MORE:
        frame = read_frame(data, frame.end, salt)
        if not frame or not frame.whole or frame.kind != Kind.CHUNK:
            return None, offset
        body.append(frame.body)
    return b"".join(body), frame.end


def _parse(footer: bytes, lists: bytes, data_end: int, where: str, grouped: bool) -> Index:
    """What `compact` made (§11) depends on no other segment, and its entries name their writers."""
    at = Cursor(footer, what=f"{where}, FOOTER")
    entries = [_entry(at, lists, where, grouped) for _ in range(at.varint())]
    backs = [] if grouped else [at.varint() for _ in range(at.varint())]
    at.finish()
    if backs != sorted(set(backs)):
        raise Malformed(f"{where}: the earlier segments in FOOTER do not rise: {backs}")
    order = [(entry.id, entry.attempt, entry.what) for entry in entries]
    if order != sorted(order):
        raise Malformed(f"{where}: the entries in FOOTER are not sorted")
    return Index(entries, backs, data_end)


def _entry(at: Cursor, lists: bytes, where: str, grouped: bool) -> Entry:
    what, id, attempt = at.u8(), at.id(), at.varint()
    origin = at.id() if what == COPIED else None
    writer = at.id() if grouped else None
    slot, first_sequence, count, position = at.varint(), at.varint(), at.varint(), at.varint()
    summary = _summary(at)
    records, offset = [], 0
    reading = Cursor(lists, position, what=f"{where}, LISTS")
    for _ in range(count):
        offset += reading.varint() * 8
        records.append((offset, reading.u8()))
    return Entry(what, id, attempt, origin, slot, first_sequence, records, summary, writer)


def _summary(at: Cursor) -> dict[int, Any]:
    """A varint length, so that it can be stepped over, and then fields; a length of 0 is no summary."""
    length = at.varint()
    if length == 0:
        return {}
    body = Cursor(at.take(length), what=f"{at.what}, summary")
    fields = decode_fields(body, NoTable())
    body.finish()
    return fields


def disagreements(index: Index, frames: list[Frame], backs: set[int], *, holes: bool) -> list[str]:
    """What the index and the frames before it tell differently. With holes, the index may name more."""
    indexed = {}
    for entry in index.entries:
        for i, (offset, kind) in enumerate(entry.records):
            # The entry of the log itself gives no sequences.
            indexed[offset] = (kind, entry.slot, entry.first_sequence + i if entry.what else None)
    scanned = {
        frame.offset: (
            frame.kind,
            frame.slot,
            frame.sequence if frame.slot and frame.kind != Kind.BIND else None,
        )
        for frame in frames
        if frame.kind not in (Kind.COMMIT, Kind.CHUNK) and frame.kind < 0x80
    }
    for offset, (kind, _slot, _) in list(scanned.items()):
        if kind == Kind.BIND:
            scanned[offset] = (kind, 0, None)
    found = [
        f"frame at {offset} is {scanned.get(offset)}, the index has {indexed.get(offset)}"
        for offset in sorted(scanned.keys() | indexed.keys())
        if scanned.get(offset) != indexed.get(offset) and not (holes and offset not in scanned)
    ]
    if not holes and backs != set(index.backs):
        found.append(f"references go back by {sorted(backs)}, the index has {index.backs}")
    return found
