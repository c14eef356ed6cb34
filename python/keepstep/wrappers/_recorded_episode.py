"""The episode of a recorded environment, as its loop sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._endings import Ending, Why
from .._episode import Episode
from ..errors import Ended


class RecordedEpisode(Episode):
    """An episode that a wrapper records."""

    __slots__ = ("inferred", "is_over")

    def __init__(self, ref: str, open: Callable[[], Any]) -> None:
        # The wrapper brings the environment to where the record stops.
        super().__init__(ref, open, is_told=True)
        # The end that the environment reported, if it did.
        self.inferred: Ending | None = None
        # True if its end was recorded here; not if the store was closed while it was open.
        self.is_over = False

    def end(
        self,
        why: Why,
        *,
        limit: str | None = None,
        error: BaseException | str | None = None,
        said_by: str = "loop",
    ) -> Any:
        """Records how the episode ended, once. Repeating what the environment reported is fine."""
        said = self.inferred
        if said is None:
            receipt = super().end(why, limit=limit, error=error, said_by=said_by)
            self.is_over = True
            return receipt
        if said.why == why and limit in (None, said.limit):
            return self._last
        raise Ended(
            f"{self.ref} was recorded as {said.why} when its last step returned ({said.said_by} said so): "
            "to overrule that, give ending= to keepstep.record(...)"
        )

    def infer(self, ending: Ending) -> Any:
        """Ends the episode as the environment reported. Returns at once."""
        receipt = self.end(ending.why, limit=ending.limit, error=ending.error, said_by=ending.said_by)
        self.inferred = ending
        return receipt
