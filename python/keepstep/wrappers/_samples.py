"""Which sample of a task a reset records, if the caller does not say: an interrupted one, else the next number.

Samples that this process itself left interrupted are not resumed: a loop that resets wants the next episode.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from .._endings import FINAL, WHYS

if TYPE_CHECKING:
    from .._run import Run
    from .._store import Store

# The loop itself gave up an abandoned episode, and an errored one failed: neither was interrupted.
_INTERRUPTED = frozenset({*WHYS, "interrupted"} - FINAL - {"abandoned", "errored"})

_lock = threading.Lock()
_of_stores: weakref.WeakKeyDictionary[Store, dict[tuple[str, str, int], Samples]] = (
    weakref.WeakKeyDictionary()
)


class Samples:
    """The samples of one task and iteration that this process has not opened yet."""

    def __init__(self, run: Run, task: str, iteration: int) -> None:
        interrupted, self._next = _look(run, task, iteration)
        self._interrupted = deque(interrupted)
        self._lock = threading.Lock()

    def take(self) -> int:
        """The next sample to try. Another process may have it: then take another."""
        with self._lock:
            if self._interrupted:
                return self._interrupted.popleft()
            self._next += 1
            return self._next - 1


def samples_of(run: Run, task: str, iteration: int) -> Samples:
    """The samples of a task, shared by all recorded environments of this process. Reads the store the first time."""
    with _lock:
        known = _of_stores.setdefault(run.store, {})
        key = (run._core.generation_id, task, iteration)
        if key not in known:
            known[key] = Samples(run, task, iteration)
        return known[key]


def _after_fork() -> None:
    """Threads of the parent may have held the locks, and its samples are not the child's."""
    global _lock, _of_stores
    _lock = threading.Lock()
    _of_stores = weakref.WeakKeyDictionary()


os.register_at_fork(after_in_child=_after_fork)


def _look(run: Run, task: str, iteration: int) -> tuple[list[int], int]:
    """The samples that were interrupted, and the first unused number."""
    if run.store.where is None:
        return [], 0
    found = sorted((view.sample, view.state) for view in run.episodes(task=task, iteration=iteration))
    interrupted = [sample for sample, state in found if state in _INTERRUPTED]
    return interrupted, found[-1][0] + 1 if found else 0
