"""One thread of a graph as a stream of keepstep: checkpoints and writes are entries that any process may add.

An entry never changes and never replaces another, so processes that work on the same thread lose nothing. An entry may refer
to earlier ones for what they have in common. What must stay true: it refers only to entries that are durable.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import keepstep
from keepstep.adapting import StreamReader, logger, put_waiting, shown

from ._entries import (
    REMOVED,
    Channel,
    Entries,
    Entry,
    Removed,
    Rows,
    Saved,
    Written,
    decode,
    encode,
)
from ._pieces import Piece


class Write(NamedTuple):
    """A pending write, as it is read. Writes sort in the order in which a graph applies them."""

    path: str
    task: str
    place: int
    channel: str
    row: list[Piece]


class Found(NamedTuple):
    """A checkpoint as it was when it was read."""

    key: str
    saved: Saved
    writes: Sequence[Write]
    entries: Entries

    def rows(self) -> Mapping[str, list[Piece]]:
        """The values of its channels."""
        return {channel.name: self.entries.row(self.key, channel.name) for channel in self.saved.values}


class Placed(NamedTuple):
    """An entry that is queued and may not be durable yet."""

    key: str
    entry: Entry
    generation: int
    receipts: Sequence[keepstep.Receipt]


def _listing(run: keepstep.Run) -> keepstep.Stream:
    """The stream with the names of all threads of a run: they are listed nowhere else."""
    return run.stream("threads")


# The id of a LangGraph thread may be empty, that of an entry of a stream may not.
_ESCAPE = "\0"


def _put_name(run: keepstep.Run, name: str) -> keepstep.Receipt:
    id = _ESCAPE + name if not name or name.startswith(_ESCAPE) else name
    return put_waiting(_listing(run).put, id, True)


def names_of(run: keepstep.Run) -> Iterator[str]:
    """The names of all threads of a run."""
    for id in _listing(run).read():
        yield id.removeprefix(_ESCAPE)


class Thread:
    """What this process knows of a thread. All but `arrive` may wait for the disk."""

    def __init__(self, run: keepstep.Run, name: str) -> None:
        self.name = name
        self._run = run
        # Numbers of the generations that followed a deleted one.
        self._deletions = run.stream(f"deletions {name}")
        # Guards all that follows, except the queue of arrived entries.
        self._lock = threading.RLock()
        self._arrived: deque[Placed] = deque()
        self._is_listed = False
        self._begin(0)

    def _begin(self, generation: int) -> None:
        self._generation = generation
        self._stream = self._run.stream(f"thread {generation} {self.name}")
        self._reader = StreamReader(self._stream)
        self._is_loaded = False
        # What cannot be read of it.
        self._left_out: Sequence[str] = ()
        # The highest number of an entry that was placed here, and of one that is shown.
        self._number = self._shown_to = 0
        self._entries = Entries()
        self._durable: set[str] = set()
        self._index()

    def place(self, make: Callable[[int], Entry]) -> Placed:
        """Queues the entry that `make` returns for a number. When its receipts are durable, call `arrive`."""
        while True:
            with self._lock:
                if not self._is_loaded:
                    self.refresh()
                self._take_in()
                self._number += 1
                entry, generation, stream = make(self._number), self._generation, self._stream
            key = secrets.token_urlsafe(9)
            try:
                receipts = [put_waiting(stream.put, key, encode(entry))]
            except keepstep.Fenced as fenced:
                self.leave(generation, fenced)
                continue
            if not self._is_listed:
                receipts.append(_put_name(self._run, self.name))
            return Placed(key, entry, generation, receipts)

    def arrive(self, placed: Placed) -> None:
        """Notes that an entry is durable: readers in this process see it from now on. Does not wait."""
        self._is_listed = True
        self._arrived.append(placed)

    def leave(self, generation: int, fenced: keepstep.Fenced) -> None:
        """Continues in the next generation of the thread, since this one was deleted."""
        with self._lock:
            if self._generation == generation:
                self.refresh()
            if self._generation == generation:
                raise fenced

    def add(self, make: Callable[[int], Entry]) -> None:
        """Adds an entry, and waits until it is durable."""
        while True:
            placed = self.place(make)
            try:
                for receipt in placed.receipts:
                    receipt.wait()
            except keepstep.Fenced as fenced:
                self.leave(placed.generation, fenced)
                continue
            return self.arrive(placed)

    def channels(self, ns: str, parent: str | None, rows: Rows, unchanged: Collection[str]) -> list[Channel]:
        """The values of a checkpoint, as differences to those of its parent."""
        base = None if parent is None else self._checkpoints.get(ns, {}).get(parent)
        if base is not None and not self._make_durable(base):
            base = None
        return [self._entries.channel(base, name, rows, name in unchanged) for name in rows.names]

    def _make_durable(self, key: str) -> bool:
        """Makes sure that an entry, and all entries that it refers to, are durable at the level of this store.

        An entry of another process can be read before it is synced. Putting it again costs nothing if it is durable, and
        copies it if it is not.
        """
        needed: dict[str, Saved] = {}
        to_look_at: list[str | None] = [key]
        while to_look_at:
            looked_at = to_look_at.pop()
            if looked_at is None or looked_at in self._durable or looked_at in needed:
                continue
            entry = self._entries.get(looked_at)
            if not isinstance(entry, Saved):
                return False
            needed[looked_at] = entry
            to_look_at.extend(channel.base for channel in entry.values)
        try:
            for receipt in [
                put_waiting(self._stream.put, key, encode(entry)) for key, entry in needed.items()
            ]:
                receipt.wait()
        except (keepstep.BadInput, keepstep.Fenced):
            # The store redacts other fields now, or the thread was deleted: refer to nothing there.
            return False
        self._durable.update(needed)
        return True

    def refresh(self) -> None:
        """Reads what is new, of all processes."""
        with self._lock:
            self._take_in()
            news = self._reader.look(partial=True)
            # A generation with a successor had entries: if it has none now, it was dropped.
            while not news.total and str(self._generation + 1) in self._deletions.read():
                self._begin(self._generation + 1)
                news = self._reader.look(partial=True)
            if not news.total and self._entries and not news.left_out:
                self._begin(self._generation)
            self._is_loaded = True
            self._note_left_out(news.left_out)
            if news.is_from_start and not news.left_out:
                # An entry that its process had not acknowledged is gone.
                self._entries = Entries()
            try:
                self._add({id: decode(id, it) for id, it in news.entries.items() if id not in self._entries})
            except BaseException:
                # It was not taken in: it must be new again at the next look.
                self._reader.forget()
                raise

    def _note_left_out(self, left_out: Sequence[str]) -> None:
        for told in left_out:
            if told not in self._left_out:
                logger.warning("thread %s: left out: %s", shown(self.name), shown(told))
        self._left_out = left_out

    def check_whole(self) -> None:
        """Raises if entries of the thread cannot be read, and it matters which: the newest may be among them."""
        if self._left_out:
            raise keepstep.Damaged(
                f"thread {self.name!r}: {'; '.join(self._left_out)}. The newest checkpoint may be among them: "
                "`list` gives the checkpoints that are left; name one of them (checkpoint_id) to go on from it"
            )

    def _add(self, new: Mapping[str, Entry]) -> None:
        """Adds entries that were read."""
        in_order = sorted((entry.number, key) for key, entry in new.items())
        self._entries.update(new)
        is_later = bool(in_order) and in_order[0][0] > self._shown_to
        if not is_later or any(isinstance(entry, Removed) for entry in new.values()):
            if new:
                self._index()
            return
        for number, key in in_order:
            self._note_number(number)
            if key not in self._hidden:
                self._show(key, self._entries[key])

    def _note_number(self, number: int) -> None:
        self._number = max(self._number, number)
        self._shown_to = max(self._shown_to, number)

    def _take_in(self) -> None:
        while self._arrived:
            placed = self._arrived.popleft()
            if placed.generation != self._generation:
                continue
            self._durable.add(placed.key)
            if placed.key in self._entries:
                continue
            self._entries[placed.key] = placed.entry
            if isinstance(placed.entry, Removed):
                self._index()
            else:
                self._note_number(placed.entry.number)
                self._show(placed.key, placed.entry)

    def _index(self) -> None:
        self._checkpoints: dict[str, dict[str, str]] = {}
        self._writes: dict[tuple[str, str], dict[tuple[str, int], Write]] = {}
        self._writers: dict[tuple[str, str], list[str]] = {}
        self._hidden = {
            key for entry in self._entries.values() if isinstance(entry, Removed) for key in entry.entries
        }
        for number, key in sorted((entry.number, key) for key, entry in self._entries.items()):
            self._note_number(number)
            if key not in self._hidden:
                self._show(key, self._entries[key])

    def _show(self, key: str, entry: Entry) -> None:
        if isinstance(entry, Saved):
            self._checkpoints.setdefault(entry.ns, {})[entry.id] = key
        elif isinstance(entry, Written):
            self._writers.setdefault((entry.ns, entry.id), []).append(key)
            writes = self._writes.setdefault((entry.ns, entry.id), {})
            for place, channel, row in entry.writes:
                # The first write of a place counts, except for errors and interrupts, whose places are negative.
                if place < 0 or (entry.task, place) not in writes:
                    writes[entry.task, place] = Write(entry.path, entry.task, place, channel, row)

    def newest_first(self, ns: str | None = None) -> list[Found]:
        """The checkpoints as of the last refresh: of one namespace, or of all."""
        with self._lock:
            self._take_in()
            spaces = self._checkpoints.values() if ns is None else [self._checkpoints.get(ns, {})]
            ids = sorted(((id, key) for space in spaces for id, key in space.items()), reverse=True)
            return [self._found(key) for _, key in ids]

    def find(self, ns: str, id: str | None = None) -> Found | None:
        """A checkpoint as of the last refresh, by its id; the newest without one. Raises if it may be one that is lost."""
        with self._lock:
            found = None if id is None and self._left_out else self.known(ns, id)
            if found is None:
                self.check_whole()
            return found

    def known(self, ns: str, id: str | None = None) -> Found | None:
        """As `find`, among those that can be read."""
        with self._lock:
            self._take_in()
            space = self._checkpoints.get(ns)
            if not space:
                return None
            key = space.get(max(space) if id is None else id)
            return None if key is None else self._found(key)

    def _found(self, key: str) -> Found:
        saved = self._entries[key]
        assert isinstance(saved, Saved)
        writes = sorted(self._writes.get((saved.ns, saved.id), {}).values(), key=lambda write: write[:3])
        return Found(key, saved, writes, self._entries)

    def remove(self, gone: Sequence[Found]) -> None:
        """Hides checkpoints and their writes."""
        with self._lock:
            keys = [found.key for found in gone]
            for found in gone:
                keys += self._writers.get((found.saved.ns, found.saved.id), ())
        if keys:
            self.add(lambda number: Removed(REMOVED, number, keys))

    def delete(self) -> None:
        """Hides the whole thread. A later put begins its next generation."""
        with self._lock:
            self.refresh()
            if not self._entries and not self._left_out:
                return
            # Before the drop: otherwise a dropped generation would look like one that never existed.
            put_waiting(self._deletions.put, str(self._generation + 1), True).wait()
            self._stream.drop()
            self.refresh()

    def copy_to(self, target: Thread) -> None:
        """Copies all entries of this thread to another. If that is interrupted, the other has a part of them."""
        with self._lock:
            self.refresh()
            self.check_whole()
            entries = sorted(self._entries.items(), key=lambda item: (item[1].number, item[0]))
        # New keys, so that entries that were copied before and removed there do not interfere.
        keys = {key: secrets.token_urlsafe(9) for key, _ in entries}
        with target._lock:
            target.refresh()
            placed = [_put_name(target._run, target.name)] if entries else []
            for key, entry in entries:
                moved = encode(_moved(entry, target._number, keys))
                placed.append(put_waiting(target._stream.put, keys[key], moved))
            for receipt in placed:
                receipt.wait()


def _moved(entry: Entry, by: int, keys: Mapping[str, str]) -> Entry:
    number = entry.number + by
    if isinstance(entry, Saved):
        values = [
            channel._replace(base=None if channel.base is None else keys[channel.base])
            for channel in entry.values
        ]
        return entry._replace(number=number, values=values)
    if isinstance(entry, Removed):
        return entry._replace(number=number, entries=[keys[key] for key in entry.entries if key in keys])
    return entry._replace(number=number)
