"""The small files (§2): `keepstep.json`, cards and beats."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from .errors import Malformed, NewerFormat
from .values import NoTable, decode_fields
from .wire import Cursor, crc32c

CARD_BODY_MAX = 64 << 20


class Card(IntEnum):
    LOCK = 1
    RUN = 2
    PLAN = 3
    MAIL = 4
    CLAIM = 5
    BASE = 6
    SCAN = 7
    HEAL = 8
    END = 9
    SEAL = 10
    FREEZE = 11
    DROP = 12
    MANIFEST = 13
    ANSWER = 14


@dataclass(frozen=True)
class Identity:
    """What `keepstep.json` says."""

    store: bytes
    created: int


def read_identity(path: Path) -> Identity:
    try:
        found = json.loads((path / "keepstep.json").read_bytes())
        store, created, form = found["store"], found["created"], found["format"]
        kind, check = found["keepstep"], found["check"]
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"{path / 'keepstep.json'} is not the head of a store: {error!r}") from error
    if kind != "store" or type(form) is not int or type(created) is not int:
        raise Malformed(f"{path / 'keepstep.json'} is not the head of a store")
    if form > 1:
        raise NewerFormat("keepstep.json", f"format {form}")
    if check != f"{crc32c(f'{form}:{store}:{created}'.encode()):08x}":
        raise Malformed(f"{path / 'keepstep.json'}: the check does not hold")
    return Identity(bytes.fromhex(store), created)


def read_card(root: Path, relative: str, store_id: bytes, kind: Card) -> dict[int, Any]:
    """The fields of a card; `relative` is its path in the store, which its checksum covers."""
    data = (root / relative).read_bytes()
    if len(data) < 24 or data[:8] != b"KEEPCARD":
        raise Malformed(f"{relative} is not a card")
    version, found, length, body_crc, head_crc = struct.unpack_from("<HHIII", data, 8)
    if crc32c(store_id, relative.encode(), data[:20]) != head_crc:
        raise Malformed(f"{relative}: the head of the card is damaged, or it belongs elsewhere")
    if version > 1:
        raise NewerFormat(relative, f"card version {version}")
    if found != kind:
        raise Malformed(f"{relative} is a card of kind {found}, not {kind.name}")
    body = data[24:]
    if length > CARD_BODY_MAX or len(body) != length or crc32c(body) != body_crc:
        raise Malformed(f"{relative}: the body of the card is damaged")
    at = Cursor(body, what=relative)
    fields = decode_fields(at, NoTable())
    at.finish()
    return fields


@dataclass(frozen=True)
class Beat:
    counter: int
    time: int


def read_beat(data: bytes) -> Beat | None:
    """A beat that does not validate counts as unchanged: None."""
    if len(data) != 32 or data[:8] != b"KEEPBEAT":
        return None
    counter, time, zero, crc = struct.unpack_from("<QqII", data, 8)
    return Beat(counter, time) if zero == 0 and crc == crc32c(data[:28]) else None
