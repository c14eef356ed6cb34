"""One store per place and process, however many clients NeMo Gym makes of it: each would be a writer of its own."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import keepstep

Where = str | os.PathLike[str] | keepstep.Store


@dataclass
class _Shared:
    store: keepstep.Store
    users: int


_lock = threading.Lock()
_shared: dict[tuple[int, str, str | None], _Shared] = {}


class Borrowed:
    """A store that is closed when the last one who borrowed it gives it back. One that was passed in is left open."""

    def __init__(self, where: Where, level: keepstep.Level | None) -> None:
        self._key: tuple[int, str, str | None] | None = None
        if isinstance(where, keepstep.Store):
            self.store = where
            return
        place = os.fspath(where)
        # In a forked child the parent's handles are no good: it opens the store again.
        self._key = (os.getpid(), place if "://" in place else os.path.realpath(place), level)
        with _lock:
            if self._key not in _shared:
                _shared[self._key] = _Shared(keepstep.open(where, level=level), 0)
            _shared[self._key].users += 1
            self.store = _shared[self._key].store

    def give_back(self) -> None:
        """Once is enough; more does no harm."""
        with _lock:
            key, self._key = self._key, None
            if key is None or key[0] != os.getpid():
                return
            _shared[key].users -= 1
            last = _shared.pop(key) if _shared[key].users == 0 else None
        if last is not None:
            last.store.close()


def _after_fork() -> None:
    """Another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)
