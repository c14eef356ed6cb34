"""The small parts: values, hashes, identities, frames and beats, each against bytes that are spelled out."""

from __future__ import annotations

import struct

import pytest
from blake3 import blake3

from .build import Body, SegmentBuilder
from .cards import Beat, read_beat
from .errors import Malformed
from .frames import Flag, Kind
from .hashes import Hasher, episode_id, group_id, run_id, stream_id, unnamed_episode_id
from .values import STRING, Array, Media, NoTable, Pairs, Repr, Typed, decode, encode, shuffle
from .wire import Cursor, crc32c, varint

F32, C64 = 11, 14


def test_checksums_and_varints_are_the_known_ones():
    assert crc32c(b"123456789") == crc32c(b"1234", b"56789") == 0xE3069283
    assert varint(300) == bytes([0xAC, 0x02])
    assert Cursor(varint(2**64 - 1)).varint() == 2**64 - 1
    for bad in (b"\x80\x00", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\x80"):
        with pytest.raises(Malformed):
            Cursor(bad).varint()


VALUES = [
    None,
    True,
    False,
    *(
        sign * n
        for n in (0, 1, 63, 64, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**40)
        for sign in (1, -1)
    ),
    *(0.0, -0.0, 1.5, float("inf")),
    *("", "Grüße ☃ \u2028 \x7f \x1f \n", b"", b"\0\xff"),
    [],
    [1, [2, [None]], {"a": [1]}],
    {},
    {"b": 1, "a": {"c": []}},
    Pairs([[1, "one"], ["1", "text"], [None, 0], [[1, 2], b"list"]]),
    Array(F32, (2, 3), struct.pack("<6f", *range(6))),
    Array(C64, (), struct.pack("<2f", 1, 2)),
    Array(1, (3, 0), b""),
    Media("image/png", b"\x89PNG"),
    Typed("app.Point", {"x": 1}),
    Repr("socket", "<socket fd=3>"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_comes_back(value):
    at = Cursor(encode(value))
    found = decode(at, NoTable())
    at.finish()
    assert found == value
    assert type(found) is type(value)
    assert encode(found) == encode(value)


def test_the_payload_of_a_nan_survives():
    stored = bytes([5]) + bytes.fromhex("010203040506f47f")
    assert encode(decode(Cursor(stored), NoTable())) == stored


def test_arrays_are_stored_byte_by_byte_lowest_first():
    assert shuffle(bytes.fromhex("0102 1112 2122"), 2).hex() == "011121021222"
    assert encode(Array(3, (3,), bytes.fromhex("010211122122"))).hex() == "0a030103011121021222"


@pytest.mark.parametrize(
    "stored",
    [
        "0400" + "01" + "05",  # a big int that would fit
        "0400" + "09" + "00" * 9,  # a big int with a leading zero
        "0601ff",  # not UTF-8
        "0902" + "0302" + "00" + "0302" + "00",  # a key twice
        "0901" + "20" + "00",  # a reference as a key
        "0a1201" + "00",  # an unknown dtype
        "0a0621" + "00" * 33,  # 33 dimensions
        "0801" * 129 + "00",  # too deep
        "0e",  # an unknown tag
        "0705",  # short
    ],
)
def test_values_that_break_a_rule_are_refused(stored):
    with pytest.raises(Malformed):
        decode(Cursor(bytes.fromhex(stored)), NoTable())


def test_the_depth_of_a_value_may_be_128():
    assert decode(Cursor(bytes.fromhex("0801" * 128 + "00")), NoTable())


def test_hashes_of_prefixes_chain():
    hasher = Hasher(bytes(range(16)))
    items = ["a", "b" * 300, {"c": 1}]
    assert hasher.hash_prefix(8, items[:2], None) == hasher.hash(items[:2])
    assert hasher.hash(items) != hasher.hash(items[:2])
    text = "x" * 4096
    assert hasher.hash_prefix(STRING, text.encode(), None) != hasher.hash(text)
    assert hasher.hash(text) != hasher.hash(text.encode())
    assert hasher.hash(0) != hasher.hash(False)
    assert Hasher(bytes(16)).hash("x") != hasher.hash("x")


def test_identities_are_as_the_page_says():
    birth = bytes(range(16))
    spelled = (
        b"keepstep episode 1"
        + birth
        + b"s\4\0\0\0\0\0\0\0taski\xff\xff\xff\xff\xff\xff\xff\xffn\2"
        + bytes(7)
    )
    assert episode_id(birth, task="task", iteration=-1, sample=2) == blake3(spelled).digest(16)
    assert run_id("r") == blake3(b"keepstep run 1\1\0\0\0\0\0\0\0r").digest(16)
    everything = {run_id("a"), group_id(birth, task="a", iteration=0), stream_id(birth, "a")}
    assert len(everything | {unnamed_episode_id(birth, birth)}) == 4


def test_a_beat_that_does_not_validate_is_none():
    beat = b"KEEPBEAT" + struct.pack("<QqI", 3, -1, 0)
    beat += struct.pack("<I", crc32c(beat))
    assert read_beat(beat) == Beat(3, -1)
    assert read_beat(beat[:-1] + b"\0") is None


def test_flags_and_bodies_of_the_builder_are_those_of_the_page():
    """The builder shares constants with the reader; this frame is spelled out by hand."""
    segment = SegmentBuilder(bytes(16), bytes(16), 0, salt=0x0102030405060708)
    offset = segment.frame(Kind.STEP, 5, 6, b"\0", flags=Flag.MORE, synced_to=128, head=b"\0")
    frame = bytes(segment.data[offset:])
    assert frame[:16].hex() == "12070000" + "01000000" + "05000000" + "06000000"
    assert frame[16:20] == struct.pack("<I", crc32c(b"\0"))
    assert frame[24:].hex() == "8000000000000000" + "01000000" + "00" + "00" + "0000"
    seed = bytes.fromhex("0807060504030201") + bytes.fromhex("8000000000000000")
    assert frame[20:24] == struct.pack("<I", crc32c(seed, frame[:20], frame[24:37]))
    assert Body().fields({2: 1}).out.hex() == "01" + "02" + "0302"
