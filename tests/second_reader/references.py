"""Opens records: uncompresses their bodies and follows their references (§3, §9).

Records are opened in the order of the log, so that long chains of references are short: the link before is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import zstandard

from .errors import HashMismatch, Malformed
from .frames import Flag, Kind
from .hashes import Hasher, has_lost
from .segment import Segment, Stored
from .values import (
    ARRAY,
    BYTES,
    LIST,
    STRING,
    Array,
    Lost,
    Reference,
    as_text,
    decode,
    decode_fields,
    item_bytes,
)
from .wire import Cursor

RECORD_MAX = 2**40
OUT_BYTES = 1 << 16


class DictionaryLost(Exception):
    """The record cannot be uncompressed: its dictionary is in damage."""


class Recent(OrderedDict):
    """The last few things that were asked for."""

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def keep(self, key: Any, value: Any) -> Any:
        self[key] = value
        if len(self) > self._count_max:
            self.popitem(last=False)
        return value


class Opener:
    """Opens the records of one writer, given all its segments by number."""

    def __init__(self, segments: dict[int, Segment], heals: dict[bytes, Any], hasher: Hasher | None) -> None:
        self.segments = segments
        self.heals = heals
        self.hasher = hasher
        self._bodies = Recent(256)
        self._targets = Recent(4096)

    def open(self, segment: Segment, stored: Stored) -> Any:
        """The fields of a record, or the value of a VALUE. Raises `DictionaryLost`."""
        where = f"{segment.where}, record at {stored.offset}"
        at = Cursor(self.body(segment, stored), what=where)
        table = RecordTable(self, segment, stored, 0, where)
        content = decode(at, table) if stored.kind == Kind.VALUE else decode_fields(at, table)
        at.finish()
        if table.used != len(stored.head.references):
            raise at.malformed(f"{table.used} of {len(stored.head.references)} references are used")
        return content

    def body(self, segment: Segment, stored: Stored) -> bytes:
        if not stored.flags & Flag.ZSTD:
            return stored.body
        key = (segment.header.number, stored.offset)
        if key in self._bodies:
            return self._bodies[key]
        return self._bodies.keep(key, self._uncompress(segment, stored))

    def _uncompress(self, segment: Segment, stored: Stored) -> bytes:
        where = f"{segment.where}, record at {stored.offset}"
        at = Cursor(stored.body, what=where)
        length = at.varint()
        if length > RECORD_MAX:
            raise at.malformed(f"the uncompressed length is {length}")
        dictionary = None
        if stored.head.dictionary:
            dictionary = zstandard.ZstdCompressionDict(self._dictionary(segment, stored))
        try:
            reading = zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj(write_size=OUT_BYTES)
            body = reading.decompress(stored.body[at.pos :])
        except zstandard.ZstdError as error:
            raise at.malformed(f"zstd: {error}") from error
        if not reading.eof or reading.unused_data or len(body) != length:
            raise at.malformed(f"one zstd frame of {length} bytes should stand here")
        return body

    def _dictionary(self, segment: Segment, stored: Stored) -> bytes:
        found = self._find(segment, stored, *stored.head.dictionary)
        if found is None:
            raise DictionaryLost
        if found[1].kind != Kind.DICT:
            raise Malformed(
                f"{segment.where}, record at {stored.offset}: the dictionary is of kind {found[1].kind:#x}"
            )
        return self.body(*found)

    def _find(
        self, segment: Segment, stored: Stored, back: int, offset: int
    ) -> tuple[Segment, Stored] | None:
        """The record that a place means; None if it is lost."""
        number = segment.header.number - back
        where = f"{segment.where}, record at {stored.offset}"
        # All records of a block are one body: `grouped` has checked that what is in it points back.
        is_behind = offset > stored.offset if stored.kind == Kind.BLOCK else offset >= stored.offset
        if number < 0 or (back == 0 and is_behind):
            raise Malformed(f"{where}: a reference by {back} segments to {offset} does not go back")
        target = self.segments.get(number)
        if target is None:
            return None
        if offset in target.records:
            return target, target.records[offset]
        if target.is_damaged_at(offset):
            return None
        raise Malformed(f"{where}: no record starts at {offset} of segment {number}")

    def target(self, segment: Segment, stored: Stored, reference: Reference) -> Any:
        """The whole value that a reference leads to, or `Lost`."""
        try:
            found = self._find(segment, stored, reference.back, reference.offset)
            if found is None:
                return Lost(reference.hash)
            key = (found[0].header.number, reference.offset, reference.inner, reference.base)
            if key in self._targets:
                return self._targets[key]
            where = f"{found[0].where}, value at {reference.inner} of the record at {reference.offset}"
            at = Cursor(self.body(*found), reference.inner, what=where)
            return self._targets.keep(key, decode(at, RecordTable(self, *found, reference.base, where)))
        except DictionaryLost:
            return Lost(reference.hash)


class RecordTable:
    """The references of one record, from `used` on."""

    def __init__(self, opener: Opener, segment: Segment, stored: Stored, used: int, where: str) -> None:
        self.opener = opener
        self.segment = segment
        self.stored = stored
        self.used = used
        self.where = where

    def next(self) -> Reference:
        references = self.stored.head.references
        if self.used >= len(references):
            raise Malformed(f"{self.where}: more than {len(references)} references are used")
        self.used += 1
        return references[self.used - 1]

    def value(self, reference: Reference) -> Any:
        target = self.opener.target(self.segment, self.stored, reference)
        if isinstance(target, Lost):
            return self.opener.heals.get(reference.hash, Lost(reference.hash))
        if reference.take == 0:
            self._verify(reference, target, lambda hasher: hasher.hash(target))
            return target
        match target:
            case list():
                return self._prefix(reference, target, LIST, None)
            case str():
                return as_text(self._prefix(reference, target, STRING, None))
            case bytes():
                return self._prefix(reference, target, BYTES, None)
            case Array(dtype, (_,), _):
                return Array(dtype, (reference.take,), self._prefix(reference, target, ARRAY, dtype))
        raise Malformed(
            f"{self.where}: a reference takes {reference.take} units of a {type(target).__name__}"
        )

    def units(self, reference: Reference, tag: int, dtype: int | None) -> list | bytes | Lost:
        target = self.opener.target(self.segment, self.stored, reference)
        if isinstance(target, Lost):
            if reference.hash not in self.opener.heals:
                return Lost(reference.hash)
            target = self.opener.heals[reference.hash]
        return self._prefix(reference, target, tag, dtype)

    def _prefix(self, reference: Reference, target: Any, tag: int, dtype: int | None) -> list | bytes:
        match target:
            case list() if tag == LIST and type(target) is list:
                units, width = target, 1
            case str() if tag == STRING:
                units, width = target.encode(), 1
            case bytes() if tag == BYTES:
                units, width = target, 1
            case Array() if tag == ARRAY and target.dtype == dtype:
                units, width = target.data, item_bytes(dtype)
            case _:
                raise Malformed(f"{self.where}: a span of tag {tag:#04x} leads to a {type(target).__name__}")
        if reference.take * width > len(units):
            raise Malformed(f"{self.where}: {reference.take} units are taken of {len(units) // width}")
        prefix = units[: reference.take * width]
        self._verify(reference, prefix, lambda hasher: hasher.hash_prefix(tag, prefix, dtype))
        return prefix

    def _verify(self, reference: Reference, meant: Any, hash_with: Any) -> None:
        hasher = self.opener.hasher
        if hasher is None or has_lost(meant):
            return
        found = hash_with(hasher)
        if found != reference.hash:
            raise HashMismatch(
                f"{self.where}: a reference names {reference.hash.hex()} and leads to {found.hex()}"
            )
