"""The entries of a thread, and the values of channels, which are spread over them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import keepstep

from ._pieces import Op, Piece, difference, patched, split, weight

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

# When a chain of differences is followed, every so many rows one is kept, so that no chain is followed far.
_MILESTONE = 32
# How many other rows are kept: the newest of some channels, to compare the next ones with.
_RECENT_MAX = 64

SAVED, WRITTEN, REMOVED = "checkpoint", "writes", "removed"


class Channel(NamedTuple):
    """The value of a channel: the entry that it is a difference to (None: it is complete), how many differences lead to
    it, and the difference (None: the value is the same).
    """

    name: str
    base: str | None
    depth: int
    ops: Sequence[Op] | None


class Saved(NamedTuple):
    """A checkpoint. Names of channels are values, not keys, so a store does not redact them by name."""

    kind: str
    number: int
    ns: str
    id: str
    parent: str | None
    rest: Piece
    metadata: Piece
    values: Sequence[Channel]


class Written(NamedTuple):
    """What a task wrote: for each write its place, its channel and its value."""

    kind: str
    number: int
    ns: str
    id: str
    task: str
    path: str
    writes: Sequence[tuple[int, str, list[Piece]]]


class Removed(NamedTuple):
    """Entries that are hidden from now on. Entries that other processes add meanwhile are not among them."""

    kind: str
    number: int
    entries: Sequence[str]


# The number of an entry is higher than those of all entries that its writer had seen.
Entry = Saved | Written | Removed


def encode(entry: Entry) -> list[Any]:
    """An entry as a value of keepstep."""
    if isinstance(entry, Saved):
        return [*entry[:7], [list(channel) for channel in entry.values]]
    if isinstance(entry, Written):
        return [*entry[:6], [list(write) for write in entry.writes]]
    return list(entry)


def decode(id: str, value: Any) -> Entry:
    """The entry that a value of keepstep is."""
    kind = value[0]
    if kind == SAVED:
        return Saved._make([*value[:7], [Channel(*channel) for channel in value[7]]])
    if kind == WRITTEN:
        return Written._make([*value[:6], [(place, name, row) for place, name, row in value[6]]])
    if kind == REMOVED:
        return Removed(*value)
    raise keepstep.NewerFormat(f"entry {id} is of kind {kind!r}: a newer keepstep wrote it; update keepstep")


class Rows(dict[str, list[Piece]]):
    """Values of channels, as rows: serialized when they are first used."""

    def __init__(self, values: Mapping[str, Any], serde: SerializerProtocol) -> None:
        super().__init__()
        self.names = tuple(values)
        self._values = values
        self._serde = serde

    def serialize(self, names: Collection[str]) -> None:
        """Serializes these now, so that later changes by the caller have no effect."""
        self.update({name: self[name] for name in self.names if name in names})

    def __missing__(self, name: str) -> list[Piece]:
        self[name] = row = split(self._values[name], self._serde)
        return row


class Entries(dict[str, Entry]):
    """Entries by id. They are only added and never change, so an entry can be read while others are added."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._recent: dict[tuple[str, str], list[Piece]] = {}
        self._milestones: dict[tuple[str, str], list[Piece]] = {}

    def channel(self, base: str | None, name: str, rows: Rows, is_unchanged: bool) -> Channel:
        """The value of a channel, as a difference to the one in an earlier entry if that is shorter."""
        before = self._origin(base, name)
        if before is not None and is_unchanged:
            return Channel(name, before[0], before[1].depth, None)
        row = rows[name]
        if before is not None:
            ops = difference(self.row(before[0], name), row)
            if weight(ops) < weight(row):
                return Channel(name, before[0], before[1].depth + 1, ops)
        return Channel(name, None, 0, row)

    def _origin(self, id: str | None, name: str) -> tuple[str, Channel] | None:
        """The entry that stores the value that a channel has in this one."""
        while id is not None:
            channel = self._find(id, name)
            if channel is None or channel.ops is not None:
                return channel and (id, channel)
            id = channel.base
        return None

    def _find(self, id: str, name: str) -> Channel | None:
        entry = self.get(id)
        if not isinstance(entry, Saved):
            raise keepstep.Damaged(f"a checkpoint needs entry {id} of its thread, which is missing")
        return next((channel for channel in entry.values if channel.name == name), None)

    def row(self, id: str, name: str) -> list[Piece]:
        """The value of a channel as of an entry, as a complete row."""
        chain: list[tuple[str, Channel]] = []
        at = id
        while True:
            known = self._recent.get((at, name)) or self._milestones.get((at, name))
            if known is not None:
                row = known
                break
            channel = self._find(at, name)
            if channel is None:
                raise keepstep.Damaged(f"a checkpoint needs channel {name!r} of entry {at}, which is missing")
            if channel.base is None:
                row = patched((), channel.ops or ())
                break
            chain.append((at, channel))
            at = channel.base
        for at, channel in reversed(chain):
            if channel.ops is None:
                continue
            row = patched(row, channel.ops)
            if channel.depth % _MILESTONE == 0:
                self._milestones[at, name] = row
        self._remember(id, name, row)
        return row

    def _remember(self, id: str, name: str, row: list[Piece]) -> None:
        with self._lock:
            self._recent.pop((id, name), None)
            self._recent[id, name] = row
            if len(self._recent) > _RECENT_MAX:
                del self._recent[next(iter(self._recent))]
