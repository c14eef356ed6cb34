"""The receipt of a seal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from ._loops import is_on_loop, submit_in_thread, warn_if_on_loop

if TYPE_CHECKING:
    from ._store import Level, Store


class Sealing:
    """The receipt of a seal. On an event loop the group is sealed in the background, elsewhere before you get the receipt."""

    __slots__ = ("_done", "_level", "_store", "missing", "ref")
    step: int | None = None

    def __init__(self, store: Store, ref: str, seal: Callable[[], Mapping[int, str]]) -> None:
        self.ref = ref
        self.missing: Mapping[int, str] = {}
        self._store = store
        self._level = store.level
        self._done: Future[Mapping[int, str]] | None = None
        if is_on_loop():
            self._done = submit_in_thread(seal)
        else:
            self.missing = seal()

    @property
    def level(self) -> Level | None:
        """What the seal survives; None until it is made."""
        return self._level if self._is_made() else None

    def wait(self, timeout: float | None = None, *, level: Level | None = None) -> Sealing:
        """Waits until the seal is durable at the level of the store, or at `level` if that is higher. Raises TimeoutError."""
        reached = self._level if level is None else self._store._reached(level)
        if self._done is not None:
            if not self._done.done():
                warn_if_on_loop("`await` the seal")
            try:
                self.missing = self._done.result(timeout)
            except FutureTimeout:
                # In Python 3.10 this is not the builtin TimeoutError.
                raise TimeoutError(f"{self.ref} is not sealed yet; it is still being written") from None
        # A seal is always synced, so it has every level that the storage supports.
        self._level = reached
        return self

    def __await__(self) -> Any:
        if self._done is not None:
            # Cancelling the wait does not cancel the seal, which may not have begun.
            self.missing = yield from asyncio.shield(asyncio.wrap_future(self._done)).__await__()
        return self

    def _is_made(self) -> bool:
        return self._done is None or (self._done.done() and self._done.exception() is None)

    def __repr__(self) -> str:
        return f"<Receipt {self.ref}: {'sealed' if self._is_made() else 'on its way'}>"
