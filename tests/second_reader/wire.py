"""Integers, texts and checksums: the letters that everything else is spelled with."""

from __future__ import annotations

import struct

from .errors import Malformed

U64_MAX = 2**64 - 1


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC = _crc_table()


def crc32c(*parts: bytes) -> int:
    """CRC-32C (Castagnoli) of the concatenation."""
    crc = 0xFFFFFFFF
    table = _CRC
    for part in parts:
        for byte in part:
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def varint(n: int) -> bytes:
    if not 0 <= n <= U64_MAX:
        raise ValueError(f"{n} does not fit a varint")
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def zigzag(n: int) -> bytes:
    return varint((n << 1) ^ (n >> 63))


def text(s: str) -> bytes:
    data = s.encode()
    return varint(len(data)) + data


class Cursor:
    """Reads forward through bytes, and never past their end."""

    __slots__ = ("data", "pos", "what")

    def __init__(self, data: bytes, pos: int = 0, *, what: str = "bytes") -> None:
        self.data = data
        self.pos = pos
        self.what = what

    def malformed(self, why: str) -> Malformed:
        return Malformed(f"{self.what}, at byte {self.pos} of {len(self.data)}: {why}")

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.pos:
            raise self.malformed(f"{length} more bytes should follow")
        self.pos += length
        return bytes(self.data[self.pos - length : self.pos])

    def u8(self) -> int:
        return self.take(1)[0]

    def id(self) -> bytes:
        return self.take(16)

    def varint(self) -> int:
        n = 0
        for i in range(10):
            byte = self.u8()
            n |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                if byte == 0 and i > 0:
                    raise self.malformed("a varint is not minimal")
                if n > U64_MAX:
                    raise self.malformed("a varint is over 64 bits")
                return n
        raise self.malformed("a varint is over 10 bytes")

    def zigzag(self) -> int:
        n = self.varint()
        return (n >> 1) ^ -(n & 1)

    def text(self) -> str:
        data = self.take(self.varint())
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"a text is not UTF-8: {error}") from error

    def f64(self) -> float:
        return struct.unpack("<d", self.take(8))[0]

    def finish(self) -> None:
        if self.pos != len(self.data):
            raise self.malformed("the content ends here, but more bytes follow")
