"""What `compact` made (§11): blocks of many records, regrouped by episode.

A block is opened into one body with one table of references; its records are parts of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .errors import Malformed
from .frames import RECORDS, Flag, Head, Kind
from .references import Opener, RecordTable
from .segment import Segment, Stored
from .values import Reference, decode, decode_fields
from .wire import Cursor


@dataclass(frozen=True)
class Part:
    """One record of a block: its bytes and its references, as (first, behind the last)."""

    kind: int
    sequence: int
    body: tuple[int, int]
    references: tuple[int, int]


def open_blocks(opener: Opener, segment: Segment) -> dict[int, list[Part]]:
    """Uncompresses all blocks of a segment, in place, and gives their records by offset."""
    parts = {}
    for offset, stored in list(segment.records.items()):
        if stored.kind == Kind.BLOCK:
            opened, parts[offset] = _open(opener, segment, stored)
            segment.records[offset] = opened
    return parts


def _open(opener: Opener, segment: Segment, stored: Stored) -> tuple[Stored, list[Part]]:
    at = Cursor(opener.body(segment, stored), what=f"{segment.where}, BLOCK at {stored.offset}")
    if stored.flags & Flag.HEAD:
        raise at.malformed("a block has no head")
    parts: list[Part] = []
    start = base = 0
    for i in range(at.varint()):
        kind, length, count = at.u8(), at.varint(), at.varint()
        parts.append(Part(kind, stored.sequence + i, (start, start + length), (base, base + count)))
        start, base = start + length, base + count
        if kind not in RECORDS if stored.slot else kind != Kind.VALUE:
            raise at.malformed(f"a record of kind {kind:#x} in a block with slot {stored.slot}")
    references = []
    for part in parts:
        for _ in range(part.references[0], part.references[1]):
            target = stored.offset - at.varint() * 8
            reference = Reference(0, target, at.varint(), at.varint(), at.varint(), at.id())
            if target == stored.offset and reference.inner >= part.body[0]:
                raise at.malformed("a reference of a block does not point back")
            references.append(reference)
    body = at.take(start)
    at.finish()
    head = Head(None, tuple(references))
    return replace(stored, flags=stored.flags & ~Flag.ZSTD, head=head, body=body), parts


def records(
    opener: Opener, segment: Segment, parts: dict[int, list[Part]]
) -> Iterator[tuple[Stored, Part, Any]]:
    """Every record of every block, with its fields; a VALUE of a shared block with its value."""
    for offset, block in sorted(parts.items()):
        stored = segment.records[offset]
        for part in block:
            where = f"{segment.where}, record {part.sequence} of the block at {offset}"
            at = Cursor(stored.body[: part.body[1]], part.body[0], what=where)
            table = RecordTable(opener, segment, stored, part.references[0], where)
            content = decode(at, table) if part.kind == Kind.VALUE else decode_fields(at, table)
            at.finish()
            if table.used != part.references[1]:
                raise at.malformed(f"references up to {table.used} are used, not up to {part.references[1]}")
            yield stored, part, content


def check_index(segment: Segment, parts: dict[int, list[Part]]) -> None:
    """That the index lists the records of the blocks, and nothing else."""
    if not segment.index or segment.damage:
        return
    indexed = set()
    for entry in segment.index.entries:
        for i, (offset, kind) in enumerate(entry.records):
            indexed.add((offset, kind, entry.slot, entry.first_sequence + i if entry.what else 0))
    found = set()
    for offset, block in parts.items():
        slot = segment.records[offset].slot
        if slot == 0:
            found.add((offset, Kind.BLOCK, 0, 0))
        else:
            found |= {(offset, part.kind, slot, part.sequence) for part in block}
    listed = {each for each in indexed if each[1] != Kind.BIND}
    if listed != found:
        raise Malformed(f"{segment.where}: the index and the blocks differ by {sorted(listed ^ found)[:3]}")
