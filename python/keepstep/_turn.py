"""A turn: its intent is durable before the action is taken, its result when the turn is left."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _checks
from ._endings import error_of, why_of
from ._foreign import message_of
from ._loops import warn_caller
from ._scope import Scope
from ._steps import Said
from ._tokens import Tokens
from .errors import BadInput, Closed, Forked

if TYPE_CHECKING:
    from ._episode import Episode

SAID = tuple(Said.__annotations__)
ON_ERROR = ("fail", "keep")


def check_on_error(given: str) -> str:
    """Refuses an unknown value of `on_error`."""
    if given not in ON_ERROR:
        raise BadInput(f"on_error is {given!r}: give " + " or ".join(f'"{it}"' for it in ON_ERROR))
    return given


class Turn(Scope):
    """A step in the making: its intent is recorded first, its result when the turn is left."""

    __slots__ = (
        "_end",
        "_entered",
        "_episode",
        "_index",
        "_left_by",
        "_number",
        "_on_error",
        "_recorded",
        "_said",
        "_settled",
        "adopted",
        "error",
    )

    def __init__(
        self,
        episode: Episode,
        said: dict[str, Any],
        on_error: str = "fail",
        *,
        index: int | None = None,
        number: int = -1,
    ) -> None:
        self._episode = episode
        self._said = said
        self._on_error = on_error
        # The recorded intent: read back when it is used.
        self._recorded: Any = None
        self._index = index
        # Which turn of the episode it is, once there is one: nothing is recorded for another by this handle.
        self._number = number
        # How it was left, if it was: then it stays pending, and another handle makes it again.
        self._left_by: str | None = None
        self._entered = False
        self._settled: Any = None
        self._end = "has its result"
        self.adopted = index is not None
        self.error: str | None = None

    def __del__(self) -> None:
        # The handle of a pending turn may be looked at alone; a new turn that is never entered is a forgotten `with`.
        if not getattr(self, "_entered", True) and self._index is None:
            warn_caller(
                f"a turn of {self._episode.ref} was made and never entered, so nothing of it was recorded: write "
                "`with episode.turn(...) as turn:`",
                RuntimeWarning,
            )

    @property
    def index(self) -> int:
        """The index of the step that the turn becomes."""
        if self._index is None:
            raise BadInput("turn has no index before it is entered: use `with episode.turn(...) as turn`")
        return self._index

    @property
    def said(self) -> dict[str, Any]:
        """The recorded intent as plain data, also in the turn that records it."""
        if self._recorded is not None:
            self._said, self._recorded = self._recorded.back(), None
        elif self._index is None:
            return self._said
        said = {name: self._said[name] for name in SAID if name in self._said}
        if isinstance(tokens := said.get("tokens"), Mapping):
            said["tokens"] = Tokens(**tokens)
        return said

    def result(self, **result: Any) -> None:
        """Records the result of the action. It is encoded now, and durable when the turn is left."""
        self._check_open("result")
        self._settled = self._episode._native.result(result, False, self._number)

    def discard(self, reason: str) -> None:
        """Discards the turn, on record: it becomes no step. The next turn gets its index. Calls with a key keep their results; calls without one are made anew."""
        self._check_open("discard")
        self._settled = self._episode._native.discard(_checks.text("reason", reason), self._number)
        self._end = "was discarded"

    def _check_open(self, what: str) -> None:
        if self._settled is not None:
            raise BadInput(f"{what}: turn {self._index} {self._end} already: enter the next turn first")
        if self._left_by is not None:
            raise BadInput(
                f"{what}: turn {self._index} was left {self._left_by}, and may have been made again since: take "
                "episode.pending, if it is still pending"
            )
        if not self._entered and not self.adopted:
            raise BadInput(f"{what}: the turn has not been entered: use `with episode.turn(...) as turn`")

    def _enter(self) -> None:
        if self._may_enter():
            self._take(self._episode._opened().say(self._said, True))

    async def _aenter(self) -> None:
        if not self._may_enter():
            return
        native = await self._episode._aopened()
        said = native.say(self._said, False)
        self._take(said)
        if said[3] is not None:
            try:
                await said[3]
            except BaseException:
                self._leave_pending("while it was entered")
                raise

    def _may_enter(self) -> bool:
        """True if its intent must be recorded first; that of a pending turn is on record."""
        if self._entered:
            raise BadInput("turn was entered before: make a new one with `episode.turn(...)`")
        self._entered = True
        if self._index is None:
            return True
        self._number = self._episode._native.adopt(self._number)
        return False

    def _take(self, said: tuple[int, bool, Any, Any, int]) -> None:
        self._index, self.adopted, self._recorded, _, self._number = said
        try:
            self._episode._said(self.adopted)
        except BaseException:
            # A warning that is an error, or Ctrl-C.
            self._leave_pending("while it was entered")
            raise

    def _leave_pending(self, how: str) -> None:
        """Leaves the turn to whoever makes it next. Nobody else leaves what was not entered, so entering does it too."""
        self._left_by = how
        # In a forked child, and after the store was closed, there is nothing to leave.
        with contextlib.suppress(Forked, Closed):
            self._episode._native.leave_turn(self._number)

    def _leave(self, raised: BaseException | None) -> Any:
        if self._settled is not None:
            return self._settled
        native = self._episode._native
        if raised is None or why_of(raised) != "errored":
            self._leave_pending("without a result" if raised is None else f"by {type(raised).__name__}")
        if raised is None:
            raise BadInput(
                f"turn: turn {self._index} was left without a result, and stays pending: "
                "call turn.result(...), or turn.discard(reason)"
            )
        if why_of(raised) != "errored":
            # Cancelled or told to stop: nobody knows what the action did, so the turn stays pending.
            return None
        self.error = f"{type(raised).__name__}: {message_of(raised)}"
        try:
            if self._on_error == "keep":
                self._settled = native.keep(error_of(raised), self._number)
                self._end = "was kept for the next try"
            else:
                self._settled = native.result({"error": error_of(raised)}, False, self._number)
        except Exception:
            self._note_failure()
        return self._settled

    def __repr__(self) -> str:
        if self._settled is not None:
            state = self._end
        else:
            state = "pending" if self._entered or self.adopted else "not entered yet"
        index = "?" if self._index is None else self._index
        return f"<Turn {index} of {self._episode.ref}: {state}>"
