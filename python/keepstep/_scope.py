"""Things that are entered and left, by `with` and by `async with`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._loops import warn_if_on_loop

if TYPE_CHECKING:
    from typing_extensions import Self


# How long leaving a scope by Ctrl-C waits for the disk.
INTERRUPTED_S = 1.0


class Scope:
    """Something to enter and leave with `with` or `async with`. Leaving it waits for what is in flight."""

    __slots__ = ()

    def __enter__(self) -> Self:
        warn_if_on_loop("use `async with`")
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            receipt = self._leave(raised)
            if receipt is not None:
                self._settle(receipt, raised)
            self._told(raised)
        finally:
            self._left()

    async def __aenter__(self) -> Self:
        await self._aenter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            receipt = self._leave(raised)
            if receipt is not None:
                await receipt
            self._told(raised)
        except Exception:
            if raised is None:
                raise
            self._note_failure()
        finally:
            self._left()

    def _settle(self, receipt: Any, raised: BaseException | None) -> None:
        try:
            # After Ctrl-C, do not wait for a full disk; what is queued is still written.
            receipt.wait(INTERRUPTED_S if isinstance(raised, KeyboardInterrupt) else None)
        except Exception:
            # The caller's own exception must reach the caller.
            if raised is None:
                raise
            self._note_failure()

    def _enter(self) -> None:
        raise NotImplementedError

    async def _aenter(self) -> None:
        raise NotImplementedError

    def _leave(self, raised: BaseException | None) -> Any:
        """Queues what leaving records, and returns the receipt to wait for. Never waits itself."""
        raise NotImplementedError

    def _told(self, raised: BaseException | None) -> None:
        """Called when what leaving recorded is durable: only now may anything be said of it."""

    def _left(self) -> None:
        """Called after leaving, even if that failed: releases what others may wait for."""

    def _note_failure(self) -> None:
        """Logs an exception of keepstep that must not hide the caller's."""
        from ._log import logger, shown

        logger.exception("%s could not be recorded completely", shown(repr(self)))
