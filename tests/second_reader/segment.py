"""One segment, judged (§4): which of its records exist, what is damaged, and where it ends.

A torn end is where the writer died: nothing that was promised is missing. Damage is what was promised and is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .errors import Malformed
from .frames import (
    HEADER_BYTES,
    RECORDS,
    Flag,
    Frame,
    Head,
    Kind,
    Scan,
    SegmentHeader,
    read_commit,
    read_head,
    scan,
)
from .index import COPIED, Index, disagreements, read_index, read_trailer
from .wire import Cursor


class Log(NamedTuple):
    """What a slot stands for. `origin` is the writer that a copied attempt was copied from; `writer` is whose it is, in `grouped/`."""

    what: int
    id: bytes
    attempt: int
    origin: bytes | None = None
    writer: bytes | None = None


class Name(NamedTuple):
    """What is known of a lost record; kind and log are None where they were lost with it."""

    kind: int | None
    slot: int
    sequence: int
    log: Log | None


@dataclass
class Damage:
    writer: bytes
    segment: int
    offset: int
    length: int
    why: str
    lost: list[Name] = field(default_factory=list)


@dataclass(frozen=True)
class Torn:
    """The last `length` bytes of a segment do not exist, because of "hole" or "uncommitted"."""

    writer: bytes
    segment: int
    offset: int
    length: int
    why: str


@dataclass(frozen=True)
class Stored:
    """A record as it is stored: the body is put together, but not yet uncompressed."""

    offset: int
    end: int
    kind: int
    flags: int
    slot: int
    sequence: int
    head: Head
    body: bytes


class Segment:
    """A segment with a valid header. `judge` comes before anything is asked of it."""

    def __init__(self, data: bytes, header: SegmentHeader, where: str) -> None:
        self.header = header
        self.where = where
        self.grouped = header.writer == bytes(16)
        self.index: Index | None = read_index(data, header.salt, where, grouped=self.grouped)
        self.file_bytes = len(data)
        trailer = read_trailer(data, header.salt, where)
        self.data_end = trailer[1] if trailer else len(data)
        self.scan: Scan = scan(data, header.salt, HEADER_BYTES, self.data_end)
        lists = [frame.offset for frame in self.scan.frames if frame.kind == Kind.LISTS]
        # Sealing begins after a sync: from the first LISTS on there is no data, and all before it was synced.
        self.was_synced = bool(trailer or lists)
        if lists and not trailer:
            self.data_end = lists[0]
        self.records: dict[int, Stored] = {}
        self.logs: dict[int, Log] = {}
        self.damage: list[Damage] = []
        self.torn: list[Torn] = []
        self._frames: list[Frame] = []

    @property
    def has_frame(self) -> bool:
        return bool(self.scan.frames)

    def judge(self, *, void_from: int | None, superseded: bool) -> None:
        """`superseded`: a later segment has a frame and does not void this one, so all of this one was synced."""
        limit = self.data_end if void_from is None else min(self.data_end, max(void_from, HEADER_BYTES))
        frames = [frame for frame in self.scan.frames if frame.offset < limit]
        if self.was_synced or superseded or void_from is not None:
            synced = limit
        else:
            synced = max([frame.synced_to or 0 for frame in frames], default=0)
            synced = max(min(synced, limit), HEADER_BYTES)
        end = self._judge_holes(synced, limit)
        kept_to = max(
            [frame.end for frame in frames if frame.commits and frame.offset < end], default=HEADER_BYTES
        )
        kept_to = max(kept_to, min(synced, end))
        self._frames = [frame for frame in frames if frame.offset < kept_to]
        self._report_torn(kept_to, end, limit)
        for frame in self._frames:
            frame.refuse_newer(self.where)
        self._read_binds()
        self._assemble(kept_to)
        self._name_lost()

    def _judge_holes(self, synced: int, limit: int) -> int:
        """Where the log ends. A hole across `synced` is damage below it, and the end of the log above."""
        for start, stop in self.scan.holes:
            if start >= limit:
                break
            if start >= synced:
                return start
            stop = min(stop, limit)
            self._add_damage(start, min(stop, synced) - start, "hole")
            if stop > synced:
                return synced
        return limit

    def _add_damage(self, offset: int, length: int, why: str) -> Damage:
        damage = Damage(self.header.writer, self.header.number, offset, length, why)
        self.damage.append(damage)
        return damage

    def _report_torn(self, kept_to: int, end: int, limit: int) -> None:
        def torn(start: int, stop: int, why: str) -> None:
            if start < stop:
                self.torn.append(Torn(self.header.writer, self.header.number, start, stop - start, why))

        torn(kept_to, limit, "hole" if end < limit else "uncommitted")

    def _read_binds(self) -> None:
        for entry in self.index.entries if self.index else []:
            if entry.what:
                self.logs[entry.slot] = Log(entry.what, entry.id, entry.attempt, entry.origin, entry.writer)
        for frame in self._frames:
            if frame.kind != Kind.BIND:
                continue
            at = Cursor(frame.body, what=f"{self.where}, BIND at {frame.offset}")
            what, id, attempt = at.u8(), at.id(), at.varint()
            origin = at.id() if what == COPIED else None
            log = Log(what, id, attempt, origin, at.id() if self.grouped else None)
            at.finish()
            if not 1 <= what <= 4 or frame.slot == 0:
                raise at.malformed(f"slot {frame.slot} is bound to a log of kind {what}")
            if self.logs.setdefault(frame.slot, log) != log:
                raise at.malformed(f"slot {frame.slot} is {self.logs[frame.slot]} and {log}")

    def _assemble(self, kept_to: int) -> None:
        """Puts chunks together. A record with a missing chunk is lost; a CHUNK alone tells whose first frame is lost."""
        frames = {frame.offset: frame for frame in self._frames}
        kinds = {Kind.BLOCK} if self.grouped else RECORDS | {Kind.VALUE, Kind.DICT}
        used = set()
        for first in self._frames:
            if first.kind == Kind.CHUNK or first.kind not in kinds:
                continue
            parts = [first]
            while parts[-1].flags & Flag.MORE:
                part = frames.get(parts[-1].end)
                if not part or not _continues(first, part):
                    break
                parts.append(part)
                used.add(part.offset)
            last = parts[-1]
            if not last.flags & Flag.MORE:
                body = b"".join(part.body for part in parts)
                head = read_head(first, f"{self.where}, record at {first.offset}")
                self.records[first.offset] = Stored(
                    first.offset, last.end, first.kind, first.flags, first.slot, first.sequence, head, body
                )
            elif last.end < kept_to:
                self._lose(last.end, first)
        for frame in self._frames:
            if frame.kind == Kind.CHUNK and frame.offset not in used:
                self._lose(frame.offset, frame)

    def _lose(self, offset: int, frame: Frame) -> None:
        """A whole frame of a record of which other frames are in the damage that is, or ends, at `offset`."""
        for damage in self.damage:
            if damage.offset <= offset <= damage.offset + damage.length:
                damage.lost.append(self._name(frame))
                return
        for damage in reversed(self.damage):
            # More chunks may stand between this one and the damage.
            if damage.offset < offset:
                damage.lost.append(self._name(frame))
                return
        raise Malformed(
            f"{self.where}: the record with the frame at {offset} is not complete, though nothing is damaged"
        )

    def _name(self, frame: Frame) -> Name:
        kind = None if frame.kind == Kind.CHUNK else frame.kind
        return Name(kind, frame.slot, frame.sequence, self.logs.get(frame.slot))

    def _name_lost(self) -> None:
        """By what commits list, by heads that still validate, and by the index."""
        if not self.damage:
            return
        named: dict[tuple[int, int], Name] = {}
        for entry in self.index.entries if self.index else []:
            for i, (offset, kind) in enumerate(entry.records):
                log = self.logs.get(entry.slot)
                sequence = entry.first_sequence + i if entry.what else 0
                named[offset, sequence] = Name(kind, entry.slot, sequence, log)
        for frame in self._frames:
            if frame.kind == Kind.COMMIT:
                for offset, kind, slot, sequence in read_commit(frame, self.where):
                    named[offset, sequence] = Name(kind, slot, sequence, self.logs.get(slot))
        for frame in self.scan.broken:
            named[frame.offset, frame.sequence] = self._name(frame)
        for damage in self.damage:
            names = [
                name
                for (at, _), name in sorted(named.items(), key=lambda each: each[0])
                if 0 <= at - damage.offset < damage.length
            ]
            damage.lost = _without_repeats(names + damage.lost)

    def lose_record(self, stored: Stored, why: str) -> None:
        """The bytes are whole, but what they need is not."""
        damage = self._add_damage(stored.offset, stored.end - stored.offset, why)
        damage.lost.append(Name(stored.kind, stored.slot, stored.sequence, self.logs.get(stored.slot)))

    def is_damaged_at(self, offset: int) -> bool:
        """Whether the record that started here was lost: in damage, or with the end of a file that was cut short."""
        if offset >= self.data_end or any(
            0 <= offset - damage.offset < damage.length for damage in self.damage
        ):
            return True
        # A record with a missing chunk: its first frame is whole.
        return any(frame.offset == offset and frame.flags & Flag.MORE for frame in self._frames)

    def check(self) -> None:
        """That the lists of the commits and the index tell what the frames tell."""
        self._check_commits()
        if self.grouped:
            return
        if self.index and self.data_end == self.index.data_end:
            backs = {ref.back for stored in self.records.values() for ref in stored.head.references}
            backs |= {stored.head.dictionary[0] for stored in self.records.values() if stored.head.dictionary}
            found = disagreements(self.index, self._frames, backs - {0}, holes=bool(self.damage or self.torn))
            if found:
                raise Malformed(f"{self.where}: {'; '.join(found)}")

    def _check_commits(self) -> None:
        if self.damage:
            return
        pending: list[tuple[int, int, int, int]] = []
        synced_to = HEADER_BYTES
        for frame in self._frames:
            if frame.kind == Kind.COMMIT and read_commit(frame, self.where) != pending:
                raise Malformed(f"{self.where}: the commit at {frame.offset} does not list what it commits")
            if frame.commits and frame.synced_to is not None:
                if not synced_to <= frame.synced_to <= frame.offset:
                    raise Malformed(
                        f"{self.where}: synced_to {frame.synced_to} at {frame.offset}, behind {synced_to}"
                    )
                synced_to = frame.synced_to
            if frame.commits:
                pending = []
            elif frame.kind != Kind.CHUNK:
                pending.append((frame.offset, frame.kind, frame.slot, frame.sequence))


def _continues(first: Frame, part: Frame) -> bool:
    return part.kind == Kind.CHUNK and (part.slot, part.sequence) == (first.slot, first.sequence)


def _without_repeats(names: list[Name]) -> list[Name]:
    """One record may be named several times, by some without its kind."""
    best: dict[tuple, Name] = {}
    for i, name in enumerate(names):
        key = (name.slot, name.sequence, name.kind == Kind.BIND) if name.slot else (i,)
        if key not in best or best[key].kind is None:
            best[key] = name
    return list(best.values())
