"""What a value is called by references: its hash (§9); and the names of runs, episodes, groups and streams (§8).

A hash is of the value with all references resolved, so two ways to write the same thing have one name.
"""

from __future__ import annotations

import struct
from typing import Any

from blake3 import blake3

from .errors import Malformed
from .values import ARRAY, BYTES, STRING, Array, Lost, Media, Pairs, Typed, dimensions, encode, item_bytes
from .wire import text, varint

PIECE_BYTES = 4096
PART_BYTES = 256


class Hasher:
    """Hashes of one store: the key comes from its id."""

    def __init__(self, store_id: bytes) -> None:
        self._key = blake3(store_id, derive_key_context="keepstep 1 content").digest()
        self._data_key = blake3(store_id, derive_key_context="keepstep 1 data").digest()

    def _h(self, *parts: bytes) -> bytes:
        return blake3(b"".join(parts), key=self._key).digest(16)

    def _d(self, *parts: bytes) -> bytes:
        return blake3(b"".join(parts), key=self._data_key).digest(16)

    def hash(self, value: Any) -> bytes:
        match value:
            case str():
                return self._hash_data(STRING, value.encode())
            case bytes():
                return self._hash_data(BYTES, value)
            case Array():
                return self._hash_data(ARRAY, value.data, value.dtype, dimensions(value.shape))
            case dict() | Pairs():
                pairs = list(value.items()) if isinstance(value, dict) else value
                parts = [self.part(k) + self.part(v) for k, v in pairs]
                return self._h(b"\6", varint(len(pairs)), *parts)
            case list():
                return self.hash_list(value)
            case Typed():
                return self._h(b"\7", text(value.name), self.part(value.value))
            case Media():
                return self._h(b"\x08", text(value.type), value.data)
        return self._h(b"\x09", encode(value))

    def hash_prefix(self, tag: int, units: list | bytes, dtype: int | None) -> bytes:
        """What a reference with a `take` carries; `units` are the first ones, up to `take`.

        The page names the hash of a prefix of whole pieces only. For others this takes the hash that the prefix has
        as a value of its own, an array as one of one dimension.
        """
        if isinstance(units, list):
            return self.hash_list(units)
        if len(units) % PIECE_BYTES == 0:
            return self._chain(tag, units, dtype)[0]
        shape = dimensions((len(units) // item_bytes(dtype),)) if dtype else b""
        return self._hash_data(tag, units, dtype, shape)

    def hash_list(self, items: list) -> bytes:
        c = self._h(b"\4")
        for item in items:
            c = self._h(b"\5", c, self.part(item))
        return c

    def part(self, value: Any) -> bytes:
        full = encode(value)
        return b"\0" + full if len(full) < PART_BYTES else b"\1" + self.hash(value)

    def _hash_data(self, tag: int, data: bytes, dtype: int | None = None, shape: bytes = b"") -> bytes:
        c, rest = self._chain(tag, data, dtype)
        return self._d(rest, shape, struct.pack("<H", len(shape)), c, b"\3")

    def _chain(self, tag: int, data: bytes, dtype: int | None) -> tuple[bytes, bytes]:
        """C of the last whole piece, and the rest. Every element size divides 4096, so pieces of arrays are no less."""
        c = self._h(b"\1", bytes([tag]), bytes([dtype]) if dtype else b"")
        whole = len(data) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, whole, PIECE_BYTES):
            c = self._d(data[start : start + PIECE_BYTES], c, b"\2")
        return c, data[whole:]


def has_lost(value: Any) -> bool:
    match value:
        case Lost():
            return True
        case dict():
            return any(map(has_lost, value.values()))
        case list():
            return any(map(has_lost, value))
        case Typed():
            return has_lost(value.value)
    return False


# Identities (§8).


def _s(s: str) -> bytes:
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def _n(n: int) -> bytes:
    return struct.pack("<q", n)


def _identity(*parts: bytes) -> bytes:
    return blake3(b"".join(parts)).digest(16)


def run_id(name: str) -> bytes:
    return _identity(b"keepstep run 1", _s(name))


def episode_id(birth: bytes, *, task: str, iteration: int, sample: int) -> bytes:
    return _identity(b"keepstep episode 1", birth, b"s", _s(task), b"i", _n(iteration), b"n", _n(sample))


def unnamed_episode_id(birth: bytes, unnamed: bytes) -> bytes:
    if len(unnamed) != 16:
        raise Malformed(f"an unnamed episode has 16 random bytes, not {len(unnamed)}")
    return _identity(b"keepstep episode 1", birth, b"u", unnamed)


def group_id(birth: bytes, *, task: str, iteration: int) -> bytes:
    return _identity(b"keepstep group 1", birth, b"s", _s(task), b"i", _n(iteration))


def stream_id(birth: bytes, name: str) -> bytes:
    return _identity(b"keepstep stream 1", birth, b"s", _s(name))
