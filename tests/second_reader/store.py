"""A whole store, read at rest: every record that exists, log by log.

Everything is read when a `Store` is made. Nothing is ever written.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from .cards import Card, read_card, read_identity
from .errors import Malformed
from .frames import RECORDS, Kind, read_header
from .grouped import check_index, open_blocks
from .grouped import records as blocks
from .hashes import Hasher
from .references import DictionaryLost, Opener
from .segment import Damage, Segment, Stored, Torn

GROUPED = bytes(16)

# Values are at most 128 deep, each level takes a few calls, and references lead from one into the next.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))

_ID = re.compile(r"[0-9a-f]{32}")
_NUMBER = r"(0|[1-9][0-9]*)"


class Key(NamedTuple):
    """One log: the records of an attempt (or stream, or run) by one writer."""

    what: int
    id: bytes
    attempt: int
    writer: bytes


class Record(NamedTuple):
    seq: int
    kind: int
    fields: dict[int, Any]


class Store:
    """Reads the store at `path`. With `verify` also checks every hash, commit list and index, and raises if one is wrong."""

    def __init__(self, path: str | Path, *, verify: bool = False) -> None:
        self.path = Path(path)
        self.id = read_identity(self.path).store
        self.damage: list[Damage] = []
        self.torn: list[Torn] = []
        self.segments: dict[bytes, dict[int, Segment]] = {}
        self._verify = verify
        self._logs: dict[Key, list[Record]] = {}
        self._heals = self._read_heals()
        self._retired: set[str] = set()
        self._closed: set[bytes] = set()
        self._pruned: set[bytes] = set()
        self._read_grouped()
        for folder in _listed(self.path / "writers"):
            if _ID.fullmatch(folder.name):
                self._read_writer(folder, bytes.fromhex(folder.name))

    def __repr__(self) -> str:
        count = sum(map(len, self._logs.values()))
        return f"<Store {self.path}: {count} records in {len(self._logs)} logs, {len(self.damage)} damages>"

    def records(self) -> dict[Key, list[Record]]:
        """Every log, its records by sequence."""
        return {key: sorted(log, key=lambda record: record.seq) for key, log in sorted(self._logs.items())}

    def gaps(self) -> dict[Key, list[tuple[int, int]]]:
        """For every log that lacks records: the missing sequences, as (first, behind the last)."""
        found = {}
        for key, log in self.records().items():
            have = [-1, *(record.seq for record in log)]
            holes = [(a + 1, b) for a, b in pairwise(have) if b > a + 1]
            if holes:
                found[key] = holes
        return found

    def _read_heals(self) -> dict[bytes, Any]:
        heals = {}
        for file, _ in _numbered(self.path / "heals", ""):
            card = read_card(self.path, f"heals/{file.name}", self.id, Card.HEAL)
            for heal in card.get(88, []):
                heals[heal["hash"]] = heal["value"]
        return heals

    def _read_grouped(self) -> None:
        folder = self.path / "grouped"
        manifests = _numbered(folder, ".manifest")
        if not manifests:
            return
        card = self._read_manifest(manifests[-1][1])
        self._retired = {named["path"] for named in card.get(97, [])}
        self._closed = {closed["writer"] for closed in card.get(69, [])}
        self._pruned = {pruned["episode"] for pruned in card.get(98, [])}
        held = {named["segment"]: named["bytes"] for named in card.get(96, [])}
        segments = self._read_segments([(folder / f"{n}.seg", n) for n in sorted(held)], GROUPED)
        for number, segment in segments.items():
            # Published whole: whatever is not there was there once.
            segment.judge(void_from=None, superseded=True)
            if segment.file_bytes < held[number]:
                cut = held[number] - segment.file_bytes
                self.damage.append(Damage(GROUPED, number, segment.file_bytes, cut, "cut off"))
            self._take_blocks(segment)
        self.segments[GROUPED] = segments

    def _read_manifest(self, number: int) -> dict[int, Any]:
        """The newest manifest, or its copy if it is damaged."""
        try:
            return read_card(self.path, f"grouped/{number}.manifest", self.id, Card.MANIFEST)
        except Malformed as error:
            name = f"grouped/{number}.copy"
            if not (self.path / name).is_file():
                raise
            self.damage.append(Damage(GROUPED, number, 0, 0, str(error)))
            return read_card(self.path, name, self.id, Card.MANIFEST)

    def _take_blocks(self, segment: Segment) -> None:
        opener = Opener({segment.header.number: segment}, self._heals, self._hasher())
        parts = open_blocks(opener, segment)
        for stored, part, content in blocks(opener, segment, parts):
            if part.kind in RECORDS:
                self._add(segment, replace(stored, kind=part.kind, sequence=part.sequence), content)
        if self._verify:
            segment.check()
            check_index(segment, parts)
        self.damage += segment.damage

    def _read_writer(self, folder: Path, writer: bytes) -> None:
        # The log of a closed writer was replaced whole: what else stands in its folder was never acknowledged.
        is_closed = writer in self._closed
        files = [each for each in _numbered(folder, ".seg") if self._counts(each[0]) and not is_closed]
        last, end = self._end_of(writer)
        files = [each for each in files if last is None or each[1] <= last]
        segments = self._read_segments(files, writer)
        for number, segment in segments.items():
            later = [other for n, other in segments.items() if n > number]
            voids = [other.header.voided_from for other in later if other.header.voided_segment == number]
            voids += [end] if number == last else []
            superseded = any(other.has_frame and other.header.voided_segment != number for other in later)
            segment.judge(void_from=min(voids, default=None), superseded=superseded)
            self._check_length(segment, later)
        opener = Opener(segments, self._heals, self._hasher())
        for segment in segments.values():
            self._take(opener, segment)
        self.segments[writer] = segments

    def _end_of(self, writer: bytes) -> tuple[int | None, int]:
        """Where somebody closed a log: the last segment that counts, and its length. The first such answer decides."""
        folder = f"mail/{writer.hex()}"
        for file, _ in _numbered(self.path / folder, ".answer"):
            card = read_card(self.path, f"{folder}/{file.name}", self.id, Card.ANSWER)
            if card[50] == "closed":
                return card[81], card[84]
        return None, 0

    def _counts(self, file: Path) -> bool:
        """What a manifest names for deletion does not exist, also while it is still there."""
        return file.relative_to(self.path).as_posix() not in self._retired

    def _check_length(self, segment: Segment, later: list[Segment]) -> None:
        """A sealed segment that is shorter than a later header, or the card of an orderly close, says was cut."""
        number, writer, have = segment.header.number, segment.header.writer, segment.file_bytes
        was = [other.header.sealed_bytes for other in later if other.header.sealed_segment == number]
        name = f"scans/{writer.hex()}.{number}"
        if (self.path / name).is_file():
            was += [read_card(self.path, name, self.id, Card.SCAN).get(84, 0)]
        if max(was, default=0) > have:
            self.damage.append(Damage(writer, number, have, max(was) - have, "cut off"))

    def _hasher(self) -> Hasher | None:
        return Hasher(self.id) if self._verify else None

    def _read_segments(self, files: list[tuple[Path, int]], writer: bytes) -> dict[int, Segment]:
        segments = {}
        for file, number in files:
            where = str(file.relative_to(self.path))
            data = file.read_bytes()
            try:
                header = read_header(data, where, store=self.id, writer=writer, number=number)
            except Malformed as error:
                # The header was synced before the segment had its name, so this cannot be a torn end.
                self.damage.append(Damage(writer, number, 0, len(data), str(error)))
                continue
            segments[number] = Segment(data, header, where)
        return segments

    def _take(self, opener: Opener, segment: Segment) -> None:
        for stored in segment.records.values():
            try:
                # VALUE is opened as well: so are chains of references remembered, and its bytes checked.
                content = None if stored.kind == Kind.DICT else opener.open(segment, stored)
            except DictionaryLost:
                segment.lose_record(stored, "dictionary lost")
                continue
            if stored.kind in RECORDS:
                self._add(segment, stored, content)
        if self._verify:
            segment.check()
        self.damage += segment.damage
        self.torn += segment.torn

    def _add(self, segment: Segment, stored: Stored, fields: dict[int, Any]) -> None:
        log = segment.logs.get(stored.slot)
        if log and log.what in (1, 2) and log.id in self._pruned:
            return
        if log:
            key = Key(log.what, log.id, log.attempt, log.writer or segment.header.writer)
            self._logs.setdefault(key, []).append(Record(stored.sequence, stored.kind, fields))
        elif segment.damage:
            segment.lose_record(stored, "bind lost")
        else:
            raise Malformed(f"{segment.where}, record at {stored.offset}: slot {stored.slot} is not bound")


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _numbered(folder: Path, suffix: str) -> list[tuple[Path, int]]:
    """The files `<n><suffix>` of a folder, by number. Others, such as `.tmp-…`, are passed over."""
    form = re.compile(_NUMBER + re.escape(suffix))
    found = [(file, int(match[1])) for file in _listed(folder) if (match := form.fullmatch(file.name))]
    return sorted(found, key=lambda each: each[1])
