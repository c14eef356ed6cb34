"""Helpers for adapters: code that connects a framework to keepstep.

All adapters in `keepstep.adapters` use this module, and nothing else that is not public. Seven groups of helpers:

- **Endings.** `FINAL` has the endings after which an episode is over. `why_of` and `why_left` return the ending for an
  exception, `ending_by` calls the user's own function, `text_of` returns the text that is recorded of an exception.
- **Waiting while the queue to the disk is full** (`Busy`). `put_waiting` blocks, `await_durable` does not block the loop.
- **One store for each path and process.** `SharedStore` opens it once, however many clients a framework makes.
- **Streams, read from where they were read last.** A `StreamReader` gives what is new at each `look`.
- **Blocking and async in one piece of code.** `Caller` and its two kinds, `run_blocking`, `in_thread`, `is_on_loop`.
- **Replays.** `check_same` compares a step with the recorded one; `diverged` makes the error for other differences.
- **Logs and warnings.** `logger` needs recorded text passed through `shown`; `warn_caller` does that by itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, cast

from . import Level, Receipt, Store, Stream, open
from ._core import float32_bytes, int32_bytes
from ._endings import FINAL, ending_by, text_of, why_left, why_of
from ._foreign import message_of
from ._log import logger, shown
from ._loops import in_thread, is_on_loop, warn_caller
from ._store import place_of
from ._trajectory import GrowingList
from .errors import Busy, NotFound
from .wrappers._callers import AsyncCaller, BlockingCaller, Caller, run_blocking
from .wrappers._resuming import ENDING, check_same, diverged
from .wrappers._samples import samples_of

__all__ = [
    "ENDING",
    "FINAL",
    "AsyncCaller",
    "BlockingCaller",
    "Caller",
    "GrowingList",
    "SharedStore",
    "StreamNews",
    "StreamReader",
    "Where",
    "await_durable",
    "check_same",
    "diverged",
    "ending_by",
    "float32_bytes",
    "in_thread",
    "int32_bytes",
    "is_on_loop",
    "logger",
    "message_of",
    "place_of",
    "put_waiting",
    "run_blocking",
    "samples_of",
    "shown",
    "text_of",
    "warn_caller",
    "why_left",
    "why_of",
]

P = ParamSpec("P")
Where = str | os.PathLike[str] | Store
"""Where a store is: its path, or the store itself."""

# About as long as the disk takes for a batch: asking more often would find the queue just as full.
_PAUSE_S = 0.001
_PAUSE_MAX_S = 0.05


def put_waiting(put: Callable[P, Receipt], *args: P.args, **named: P.kwargs) -> Receipt:
    """Calls `put`. While the queue to the disk is full, it waits and tries again, so nothing is dropped."""
    pause_s = _PAUSE_S
    while True:
        try:
            return put(*args, **named)
        except Busy:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)


async def await_durable(put: Callable[P, Awaitable[Receipt]], *args: P.args, **named: P.kwargs) -> Receipt:
    """As `put_waiting`, then waits until the record is durable, without blocking the event loop.

    `put` returns a receipt, or an awaitable of one.
    """
    pause_s = _PAUSE_S
    while True:
        try:
            # Awaiting a receipt returns the receipt, so this waits for both kinds.
            return await (await put(*args, **named))
        except Busy:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)


class StreamNews(NamedTuple):
    """What is new in a stream."""

    entries: Mapping[str, Any]
    """The new entries, by id."""
    is_from_start: bool
    """True if something that was given before is not in the stream any more: then `entries` are all that there are.
    So it is after a drop, a conflict, or if a process lost an entry that it had not acknowledged."""
    left_out: Sequence[str]
    """What cannot be given, new or not: ids with several values, and what was lost to damage."""
    total: int
    """How many entries the stream has, new or not."""


class StreamReader:
    """Reads a stream again and again, each time only what is new. Threads may share it.

    It costs as much as there is new, however long the stream is. What it gave once it does not check again: damage to
    that does not take it away. A stream with a conflict, or in which something is lost, is read from the start at each
    look, as by `Stream.read`. In memory are an id and a hash of each entry, and no values.
    """

    def __init__(self, stream: Stream) -> None:
        self._core = cast(Any, stream)._core.reader()

    def look(self, *, partial: bool = False) -> StreamNews:
        """What is new since the last look.

        If something must be left out, it raises, as `Stream.read` does; with `partial=True` it says so in `left_out`.
        """
        return StreamNews(*self._core.look(partial))

    def value(self, id: str) -> Any:
        """The value of one entry as it is now. Raises `NotFound` if the stream has none, or several.

        The store keeps the values of the streams that were read last, up to a limit, and reads others again.
        """
        is_there, value = self._core.value(id)
        if not is_there:
            raise NotFound(f"the stream has no entry {id!r} that can be read")
        return value

    def forget(self) -> None:
        """Forgets what was given: the next look gives all entries again."""
        self._core.forget()


@dataclass
class _Opened:
    store: Store
    users: int


_lock = threading.Lock()
_opened: dict[tuple[int, str, str | None], _Opened] = {}


class SharedStore:
    """One store for all users of the same path in this process, closed when the last of them calls `close`.

    Each `keepstep.open` is a writer with a log of its own, and frameworks make many clients. A store that was passed in
    belongs to the caller: `close` leaves it open.

    Parameters:
        where: the path of the store, or a store.
        level: what a record must survive. The default is the highest level that the storage supports.
    """

    store: Store
    """The store."""

    def __init__(self, where: Where, level: Level | None = None) -> None:
        self._key: tuple[int, str, str | None] | None = None
        if isinstance(where, Store):
            self.store = where
            return
        # A forked child cannot use the parent's handles: it opens the store again.
        self._key = (os.getpid(), os.path.realpath(place_of(where)), level)
        with _lock:
            if self._key not in _opened:
                _opened[self._key] = _Opened(open(where, level=level), 0)
            _opened[self._key].users += 1
            self.store = _opened[self._key].store

    @property
    def is_own(self) -> bool:
        """True if the store was opened here, by its path, and not closed since."""
        return self._key is not None

    def close(self) -> None:
        """Releases the store. Calling it again does nothing."""
        with _lock:
            key, self._key = self._key, None
            if key is None or key[0] != os.getpid():
                return
            _opened[key].users -= 1
            last = _opened.pop(key) if _opened[key].users == 0 else None
        if last is not None:
            last.store.close()


def _after_fork() -> None:
    """A thread of the parent may have held the lock, and the child cannot use the parent's stores."""
    global _lock
    _lock = threading.Lock()
    _opened.clear()


os.register_at_fork(after_in_child=_after_fork)
