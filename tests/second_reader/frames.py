"""The bytes of a segment (§3): its header, its frames, and the places where no frame is.

Nothing is judged here: whether a hole is damage or a torn end is the business of `segment`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from .errors import Malformed, NewerFormat
from .values import Reference
from .wire import Cursor, crc32c

HEADER_BYTES = 128
FRAME_BYTES = 24
BODY_MAX = 1 << 20
NONE = 2**64 - 1


class Kind(IntEnum):
    BIND = 0x01
    COMMIT = 0x02
    CHUNK = 0x03
    VALUE = 0x04
    DICT = 0x05
    FOOTER = 0x06
    LISTS = 0x07
    BLOCK = 0x08
    BEGIN = 0x10
    FIRST = 0x11
    STEP = 0x12
    INTENT = 0x13
    RESULT = 0x14
    DISCARD = 0x15
    CALL = 0x16
    NOTE = 0x17
    END = 0x18
    ITEM = 0x19
    PUT = 0x1A


KINDS = frozenset(Kind)
RECORDS = frozenset(kind for kind in Kind if kind >= Kind.BEGIN)
SKIPPABLE = 0x80


class Flag(IntFlag):
    COMMITS = 1
    MORE = 2
    HEAD = 4
    ZSTD = 8
    DICT = 16


FLAGS = 31


def padded(n: int) -> int:
    return (n + 7) & ~7


@dataclass(frozen=True)
class SegmentHeader:
    writer: bytes
    number: int
    salt: int
    created: int
    voided_segment: int | None
    voided_from: int
    sealed_segment: int | None
    sealed_bytes: int


def read_header(data: bytes, where: str, *, store: bytes, writer: bytes, number: int) -> SegmentHeader:
    """Malformed if these are not the first bytes of that segment."""
    if len(data) < HEADER_BYTES or data[:8] != b"KEEPSEG1":
        raise Malformed(f"{where} has no header")
    if crc32c(data[:124]) != struct.unpack_from("<I", data, 124)[0]:
        raise Malformed(f"{where}: the header is damaged")
    version, length, needs = struct.unpack_from("<HHI", data, 8)
    if version > 1 or needs or length != HEADER_BYTES or any(data[112:124]):
        raise NewerFormat(where, f"version {version}, needs {needs:#x}, a header of {length} bytes")
    found_store, found_writer = data[16:32], data[32:48]
    found_number, salt, created, voided, voided_from = struct.unpack_from("<QQqQQ", data, 48)
    sealed, sealed_bytes, salt_again = struct.unpack_from("<QQQ", data, 88)
    if salt_again != salt:
        raise Malformed(f"{where}: the header has two salts")
    if (found_store, found_writer, found_number) != (store, writer, number):
        raise Malformed(
            f"{where} is segment {found_number} of writer {found_writer.hex()} of store {found_store.hex()}"
        )
    if voided != NONE and voided >= number:
        raise Malformed(f"{where} voids segment {voided}, which is not an earlier one")
    return SegmentHeader(
        writer,
        number,
        salt,
        created,
        None if voided == NONE else voided,
        voided_from,
        None if sealed == NONE else sealed,
        sealed_bytes,
    )


@dataclass(frozen=True)
class Frame:
    """A frame that is placed: its head validates. `whole` is whether its body does too."""

    offset: int
    kind: int
    flags: int
    reserved: int
    slot: int
    sequence: int
    synced_to: int | None
    head: bytes | None
    body: bytes
    end: int
    whole: bool

    @property
    def commits(self) -> bool:
        return self.kind == Kind.COMMIT or bool(self.flags & Flag.COMMITS)

    def refuse_newer(self, where: str) -> None:
        if self.kind not in KINDS and self.kind < SKIPPABLE:
            raise NewerFormat(f"{where}, frame at {self.offset}", f"kind {self.kind:#04x}")
        if self.flags & ~FLAGS or self.reserved:
            found = f"flags {self.flags:#x}, reserved {self.reserved:#x}"
            raise NewerFormat(f"{where}, frame at {self.offset}", found)


def read_frame(data: bytes, offset: int, salt: int) -> Frame | None:
    """The frame that is placed here, or None."""
    if offset + FRAME_BYTES > len(data):
        return None
    kind, flags, reserved, length, slot, sequence, body_crc, head_crc = struct.unpack_from(
        "<BBHIIIII", data, offset
    )
    at = offset + FRAME_BYTES
    synced_to = head = None
    if length > BODY_MAX:
        return None
    if flags & Flag.COMMITS:
        if at + 8 > len(data):
            return None
        synced_to = struct.unpack_from("<Q", data, at)[0]
        at += 8
    if flags & Flag.HEAD:
        if at + 4 > len(data):
            return None
        head_length = struct.unpack_from("<I", data, at)[0]
        at += 4
        if head_length > BODY_MAX or at + head_length > len(data):
            return None
        head = data[at : at + head_length]
        at += head_length
    seed = struct.pack("<QQ", salt, offset)
    if crc32c(seed, data[offset : offset + 20], data[offset + FRAME_BYTES : at]) != head_crc:
        return None
    body = data[at : at + length]
    whole = len(body) == length and crc32c(body) == body_crc
    end = padded(at + length)
    return Frame(offset, kind, flags, reserved, slot, sequence, synced_to, head, body, end, whole)


@dataclass(frozen=True)
class Scan:
    """Everything between two offsets: whole frames, frames with a damaged body, and holes as (start, end)."""

    frames: list[Frame]
    broken: list[Frame]
    holes: list[tuple[int, int]]


def scan(data: bytes, salt: int, start: int, stop: int) -> Scan:
    """Looks at every multiple of 8 behind a bad place, too. A placed frame is stepped over, also if it is broken."""
    found = Scan([], [], [])
    data = data[:stop]
    offset = start
    while offset < stop:
        frame = read_frame(data, offset, salt)
        end = min(frame.end, stop) if frame else min(offset + 8, stop)
        if frame and frame.whole:
            found.frames.append(frame)
        else:
            if frame:
                found.broken.append(frame)
            if found.holes and found.holes[-1][1] == offset:
                found.holes[-1] = (found.holes[-1][0], end)
            else:
                found.holes.append((offset, end))
        offset = end
    return found


@dataclass(frozen=True)
class Head:
    """Where a record's dictionary is, as (back, offset), and its table of references."""

    dictionary: tuple[int, int] | None
    references: tuple[Reference, ...]


def read_head(frame: Frame, where: str) -> Head:
    if frame.head is None:
        if frame.flags & Flag.DICT:
            raise Malformed(f"{where}: the frame needs a dictionary, but has no head to name it")
        return Head(None, ())
    at = Cursor(frame.head, what=f"head of {where}")
    dictionary = (at.varint(), at.varint() * 8) if frame.flags & Flag.DICT else None
    references = tuple(
        Reference(at.varint(), at.varint() * 8, at.varint(), at.varint(), at.varint(), at.id())
        for _ in range(at.varint())
    )
    at.finish()
    return Head(dictionary, references)


def read_commit(frame: Frame, where: str) -> list[tuple[int, int, int, int]]:
    """What a COMMIT frame lists, as (offset, kind, slot, sequence)."""
    listed, offset = [], 0
    if not frame.body:
        return listed
    at = Cursor(frame.body, what=f"{where}, commit at {frame.offset}")
    for _ in range(at.varint()):
        offset += at.varint() * 8
        listed.append((offset, at.u8(), at.varint(), at.varint()))
    at.finish()
    return listed
