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
    """Something that is entered and left. Leaving it waits for what is in flight."""

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
        except Exception:
            if raised is None:
                raise
            self._note_failure()
        finally:
            self._left()

    def _settle(self, receipt: Any, raised: BaseException | None) -> None:
        try:
            # Who pressed Ctrl-C does not wait for a full disk; what was handed over goes on being written.
            receipt.wait(INTERRUPTED_S if isinstance(raised, KeyboardInterrupt) else None)
        except Exception:
            # What the caller raised is what the caller hears of.
            if raised is None:
                raise
            self._note_failure()

    def _enter(self) -> None:
        raise NotImplementedError

    async def _aenter(self) -> None:
        raise NotImplementedError

    def _leave(self, raised: BaseException | None) -> Any:
        """Hands over what leaving means, and gives the receipt to wait for. Never waits itself."""
        raise NotImplementedError

    def _left(self) -> None:
        """It was left, whatever became of that: nothing of it may keep others waiting."""

    def _note_failure(self) -> None:
        """Logs an exception of ours that must not hide the caller's."""
        from ._log import logger, shown

        logger.exception("%s could not be recorded to its end", shown(repr(self)))
