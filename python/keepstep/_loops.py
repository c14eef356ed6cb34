"""Event loops: how receipts wake them, and what must not block them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from . import _core
from ._log import shown

T = TypeVar("T")

_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _core.LoopBell] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_has_warned = False
_has_warned_of_calls = False

# Opening an episode waits for the disk; many that are opened at once share their syncs.
_THREADS_MAX = 32


def bell_of(loop: asyncio.AbstractEventLoop) -> _core.LoopBell:
    """The bell of an event loop: made, and watched by the loop, on first use."""
    bell = _bells.get(loop)
    if bell is None:
        bell = _core.LoopBell()
        loop.add_reader(bell.fileno(), bell.on_ring)
        _bells[loop] = bell
    return bell


def is_on_loop() -> bool:
    """True on a thread whose event loop is running."""
    return asyncio._get_running_loop() is not None


def warn_if_on_loop(instead: str = "`await` the receipt", *, waits_for: str = "the disk") -> None:
    """Warns once that a blocking call stops all tasks of this event loop, and says what to use. Receipts call it too."""
    global _has_warned
    if _has_warned or not is_on_loop():
        return
    _has_warned = True
    warn_caller(
        f"a blocking keepstep call waits for {waits_for} on the thread of a running event loop, so all tasks of the loop "
        f"wait too: {instead}",
        RuntimeWarning,
    )


def warn_of_blocking_call(name: str) -> None:
    """Warns once that a function that is not async stops all tasks of this event loop while it runs."""
    global _has_warned_of_calls
    if _has_warned_of_calls or not is_on_loop():
        return
    _has_warned_of_calls = True
    warn_caller(
        f"call {name!r} runs a function that is not async on the thread of a running event loop: all tasks of the loop wait "
        "until the function has returned and its result is recorded: give an async function, or "
        f"`await asyncio.to_thread(episode.call, {name!r}, ...)`",
        RuntimeWarning,
    )


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warns at the line that called this package, with text that is safe on a terminal. The engine calls it too."""
    warnings.warn(shown(message), category, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """How many frames up the first one outside this package is."""
    here = os.path.dirname(__file__)
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename).startswith(here):
        level, frame = level + 1, frame.f_back
    return level


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs something that waits for the disk in a thread, to not block the event loop. The thread cannot be cancelled."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), work, *args)


def submit_in_thread(work: Callable[[], T]) -> Future[T]:
    """Starts something that waits for the disk in a thread. Returns at once."""
    return _threads().submit(work)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="keepstep")
        return _pool


def _after_fork() -> None:
    """The threads exist only in the parent, and its lock may have been held."""
    global _pool, _lock
    _pool = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
