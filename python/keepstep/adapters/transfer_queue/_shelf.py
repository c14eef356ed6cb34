"""Values by key in a run of a store: put, fetched and cleared by many processes at once, durable when a call returns.

Each process writes two episodes of its own: one has the values, the other is the ledger, which says which key has which value.
A put exists when its line is in the ledger. That line is written after the values, so a put is there completely or not at all.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keepstep
from keepstep.adapting import place_of, put_waiting

from ._ledger import Ledger, Place, Record
from ._values import decode, encode, size_of

_LEDGER, _VALUES = 0, 1
# Small values share a step up to this size; reading one of them reads its neighbours.
_STEP_BYTES = 256 * 1024
# How long an acknowledged record may take until another process sees it; mostly it takes microseconds.
_SEEN_WITHIN_S = 10.0


class Absent:
    """Marks a key that has no value: None may be a value."""


ABSENT = Absent()


class Shelf:
    """Values by key. Threads may share it; every process opens its own."""

    def __init__(self, where: str, run: str, *, log_bytes_max: int = 1 << 30) -> None:
        self.where = place_of(where)
        self.run = run
        self._log_bytes_max = log_bytes_max
        self._lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._writer: _Writer | None = None
        self._reader = _Reader(self.where, self.run)
        self._given_version = 0

    def put(self, keys: Sequence[str], values: Sequence[Any]) -> str | None:
        """Puts values, all of them or none. Give the word that it returns to `fetch` elsewhere, so that it sees them."""
        encoded = [encode(value, f"the value of {key!r}") for key, value in zip(keys, values, strict=True)]
        if not encoded:
            return None
        writer, line, _ = self._write(lambda writer, version: writer.put(version, list(keys), encoded))
        return f"{writer}#{line}"

    def clear(self, keys: Iterable[str], words: Iterable[str | None] = ()) -> None:
        """Removes the values of keys; keys without a value are skipped."""
        keys = list(keys)
        if keys:
            self._look(words)
            writer, _, version = self._write(lambda writer, version: writer.say(version, {"clear": keys}))
            self._reader.add(Record(version, writer, clears=tuple(keys)))

    def fetch(self, keys: Sequence[str], words: Sequence[str | None] = ()) -> list[Any]:
        """The newest value of each key, or `ABSENT`. Sees at least the puts that the words name; without words, all puts."""
        self._look(words)
        return self._reader.values(keys)

    def keys(self) -> list[str]:
        """All keys that have a value now."""
        self._look(())
        return list(self._reader.ledger.live())

    def mark(self) -> int:
        """The version as of now, for `go_back`."""
        self._look(())
        with self._lock:
            return self._next_version()

    def go_back(self, mark: int) -> None:
        """Brings back everything as of a mark, for all processes: later puts and clears do not count any more."""
        self._write(lambda writer, version: writer.say(version, {"back_to": mark}))

    def spent(self) -> list[str]:
        """The refs of episodes that have no value in use, and that no process writes any more."""
        self._look(())
        return self._reader.spent()

    def close(self) -> None:
        """Ends what this process records here."""
        if self._pid != os.getpid():
            # Everything belongs to the parent, and a thread of the parent may have held the lock.
            return
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._reader.store.close()

    def _look(self, words: Iterable[str | None]) -> None:
        self._come_back_after_fork()
        self._reader.look(words)

    def _write(self, say: Callable[[_Writer, int], list[keepstep.Receipt]]) -> tuple[str, int, int]:
        """Writes a line of the ledger and its values. Returns the writer, the number of the line and its version."""
        self._come_back_after_fork()
        with self._lock:
            if self._writer is None:
                self._writer = _Writer(self.where, self.run)
            writer, version = self._writer, self._next_version()
            writer.users += 1
        try:
            with writer.lock:
                receipts = say(writer, version)
            writer.settle(receipts)
        except BaseException:
            # Half of it may be written: without its line in the ledger it does not count.
            writer.is_broken = True
            raise
        finally:
            self._leave(writer)
        line = receipts[-1].step
        assert line is not None
        return writer.name, line, version

    def _leave(self, writer: _Writer) -> None:
        """Releases a writer that is full or broken; its last user closes it."""
        with self._lock:
            writer.users -= 1
            is_done = writer.is_broken or writer.bytes_written >= self._log_bytes_max
            if is_done and self._writer is writer:
                self._writer = None
            is_last = is_done and writer.users == 0
        if is_last:
            # Only the log of a closed writer can be compacted.
            writer.close()

    def _next_version(self) -> int:
        """Higher than all versions that were seen. Between processes that have not seen each other, the clock decides."""
        version = max(time.time_ns(), self._given_version + 1, self._reader.ledger.version + 1)
        self._given_version = version
        return version

    def _come_back_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._open()


class _Writer:
    """What one process writes: its values and its ledger, in a log of its own."""

    def __init__(self, where: str, run: str) -> None:
        # At level "kill" other processes would see records late: they read what is synced.
        self._store = keepstep.open(where, level="power", strict=True)
        self.name = uuid.uuid4().hex
        opened = self._store.run(run)
        self._ledger = opened.episode(self.name, sample=_LEDGER, meta={"part": "ledger"})
        self._values = opened.episode(self.name, sample=_VALUES, meta={"part": "values"})
        self.lock = threading.Lock()
        self.users = 0
        self.bytes_written = 0
        self.is_broken = False

    def put(self, version: int, keys: list[str], encoded: list[Any]) -> list[keepstep.Receipt]:
        """Writes the values, then the line that makes them count."""
        counts, receipts = list[int](), list[keepstep.Receipt]()
        for first, after, size in _parts(encoded):
            counts.append(after - first)
            put, values = {"put": keys[first:after]}, encoded[first:after]
            receipts.append(put_waiting(self._values.submit, action=put, observation=values))
            self.bytes_written += size
        line = {"put": keys, "first_step": receipts[0].step, "counts": counts}
        return [receipts[-1], *self.say(version, line)]

    def say(self, version: int, said: dict[str, Any]) -> list[keepstep.Receipt]:
        """Writes a line of the ledger."""
        return [put_waiting(self._ledger.submit, action={**said, "version": version})]

    def settle(self, receipts: list[keepstep.Receipt]) -> None:
        """Waits until all is durable, and visible to every reader from now on."""
        for receipt in receipts:
            receipt.wait()
        # Others read up to what a later write marks as synced. This write need not be durable itself.
        self._ledger.note("seen", receipts[-1].step, source="keepstep").wait(level="kill")

    def close(self) -> None:
        """Ends both episodes, and writes what is in flight. Failures were raised in the calls that wrote."""
        with contextlib.suppress(keepstep.KeepstepError) if self.is_broken else contextlib.nullcontext():
            if not self.is_broken:
                self._values.end("finished")
                self._ledger.end("finished")
            self._store.close()


def _parts(encoded: list[Any]) -> Iterable[tuple[int, int, int]]:
    """Cuts values into steps: from, to, and how many bytes."""
    first, size = 0, 0
    for index, data in enumerate(encoded):
        size += size_of(data)
        if size >= _STEP_BYTES or index + 1 == len(encoded):
            yield first, index + 1, size
            first, size = index + 1, 0


class _Reader:
    """What all processes wrote, as far as it was read."""

    def __init__(self, where: str, run: str) -> None:
        self.store = keepstep.open(where)
        self.ledger = Ledger()
        self._run = self.store.run(run)
        self._lock = threading.RLock()
        self._seen: dict[str, int] = {}
        self._views: dict[tuple[str, int], keepstep.View] = {}

    def look(self, words: Iterable[str | None]) -> None:
        """Reads what is new, unless words were given and all puts that they name were seen."""
        wanted, is_all_known = dict[str, int](), False
        for word in words:
            is_all_known = word is not None
            if word is None:
                break
            writer, _, line = word.rpartition("#")
            wanted[writer] = max(wanted.get(writer, 0), int(line) + 1)
        with self._lock:
            if is_all_known and self._has_seen(wanted):
                return
            until = time.monotonic() + _SEEN_WITHIN_S
            self._refresh()
            # The puts exist: they may just not be visible yet.
            while not self._has_seen(wanted):
                if time.monotonic() > until:
                    raise keepstep.NotFound(
                        f"{self.store} lacks lines of these writers: {wanted}; is it the store that they were put to?"
                    )
                time.sleep(0.001)
                self._refresh()

    def _has_seen(self, wanted: dict[str, int]) -> bool:
        return all(self._seen.get(writer, 0) >= lines for writer, lines in wanted.items())

    def add(self, record: Record) -> None:
        """Adds what this process wrote itself."""
        with self._lock:
            if not self.ledger.add(record):
                self._refresh()

    def _refresh(self) -> None:
        self._views.update({(view.task, view.sample): view for view in self._run.episodes()})
        fresh = list[Record]()
        for (writer, part), view in self._views.items():
            if part == _LEDGER:
                fresh += self._lines(writer, view, self._seen.get(writer, 0))
        if not all([self.ledger.add(record) for record in fresh]):
            ledgers = [(writer, view) for (writer, part), view in self._views.items() if part == _LEDGER]
            self.ledger = Ledger.of(record for it in ledgers for record in self._lines(*it, 0))

    def _lines(self, writer: str, view: keepstep.View, first: int) -> Iterable[Record]:
        for index in range(first, len(view.steps)):
            yield Record.read(writer, _whole(view.steps[index], view).action)
            self._seen[writer] = index + 1

    def values(self, keys: Sequence[str]) -> list[Any]:
        """The values of the keys, or `ABSENT`."""
        with self._lock:
            places = [self.ledger.place(key) for key in keys]
            writers = {place.writer for place in places if place}
            views = {writer: self._views[writer, _VALUES] for writer in writers}
        steps: dict[tuple[str, int], Any] = {}

        def value(place: Place | None) -> Any:
            if place is None:
                return ABSENT
            at = place.writer, place.step
            if at not in steps:
                view = views[place.writer]
                steps[at] = _whole(view.steps[place.step], view).observation
            return decode(steps[at][place.position])

        return [value(place) for place in places]

    def spent(self) -> list[str]:
        """The refs of value episodes that have no value in use."""
        with self._lock:
            used = {place.writer for place in self.ledger.live().values()}
            spent = [
                view for (writer, part), view in self._views.items() if part == _VALUES and writer not in used
            ]
        # An episode is pruned as a whole, so its ref names no attempt.
        return sorted(
            view.ref.rpartition("~")[0] for view in spent if view.state not in ("running", "silent")
        )


def _whole(step: keepstep.Step, view: keepstep.View) -> keepstep.Step:
    if step.damaged:
        raise keepstep.Damaged(f"step {step.index} of {view.ref} is damaged: {', '.join(step.damaged)}")
    return step
