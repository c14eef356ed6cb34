"""Entries that come at once are packed and encoded in two threads, and the event loop goes on meanwhile.

Encoding leaves the interpreter to others, so one thread packs while the other encodes. A few entries are put where they
are: handing them to a thread would cost more than it gains.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import keepstep

from ._entries import packed, size_of

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.records import TokenEntry

_THREADS = 2
_FEW = 4
# Packing that many numbers takes some milliseconds: too long for the loop's own thread.
_LARGE = 50_000

_Put = tuple[keepstep.Stream, str, "TokenEntry", "asyncio.Future[keepstep.Receipt]"]
_Came = keepstep.Receipt | Exception


class Bursts:
    """What was put in one turn of an event loop goes to the store together."""

    def __init__(self) -> None:
        # By loop: each touches what is its own.
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Put]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="keepstep-sink")

    async def put(self, stream: keepstep.Stream, id: str, entry: TokenEntry) -> keepstep.Receipt:
        """Puts an entry into a stream that is claimed. What `Stream.put` raises comes out here."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[keepstep.Receipt] = loop.create_future()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = []
            # Behind all tasks that run in this turn.
            loop.call_soon(self._begin, loop)
        waiting.append((stream, id, entry, told))
        return await told

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        burst = self._waiting.pop(loop)
        if len(burst) <= _FEW and sum(size_of(entry) for _, _, entry, _ in burst) < _LARGE:
            _tell(burst, _put_all(burst))
            return
        share = -(-len(burst) // _THREADS)
        for at in range(0, len(burst), share):
            part = burst[at : at + share]
            done = loop.run_in_executor(self._threads, _put_all, part)
            done.add_done_callback(functools.partial(_tell_when_done, part))

    def close(self) -> None:
        """Lets the threads go. Nothing waits in them: who put something waits for it."""
        self._threads.shutdown(wait=False)


def _put_all(burst: Sequence[_Put]) -> list[_Came]:
    return [_put(stream, id, entry) for stream, id, entry, _ in burst]


def _put(stream: keepstep.Stream, id: str, entry: TokenEntry) -> _Came:
    try:
        return stream.put(id, packed(entry))
    except Exception as raised:
        # For the one who put it: the others go on.
        return raised


def _tell(burst: Sequence[_Put], came: Sequence[_Came]) -> None:
    for (_, _, _, told), one in zip(burst, came, strict=True):
        # Who was cancelled does not wait any more.
        if told.done():
            continue
        if isinstance(one, Exception):
            told.set_exception(one)
        else:
            told.set_result(one)


def _tell_when_done(burst: Sequence[_Put], done: asyncio.Future[list[_Came]]) -> None:
    if not done.cancelled():
        _tell(burst, done.result())
