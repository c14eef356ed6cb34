"""A turn: what was said is durable before the action is taken, its result when the turn is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._endings import error_of, why_of
from ._scope import Scope
from .errors import BadInput

if TYPE_CHECKING:
    from ._episode import Episode

SAID = ("action", "prompt", "response", "tokens", "policy", "agent")


class Turn(Scope):
    """A step in the making."""

    __slots__ = ("_discarded", "_entered", "_episode", "_index", "_said", "_settled", "adopted", "error")

    def __init__(self, episode: Episode, said: dict[str, Any], *, index: int | None = None) -> None:
        self._episode = episode
        self._said = said
        self._index = index
        self._entered = False
        self._settled: Any = None
        self._discarded = False
        self.adopted = index is not None
        self.error: str | None = None

    @property
    def index(self) -> int:
        """The index of the step that it becomes."""
        if self._index is None:
            raise BadInput("turn: has no index before it is entered: use `with episode.turn(...) as turn`")
        return self._index

    @property
    def said(self) -> dict[str, Any]:
        """What was said: the recording, if the turn was adopted."""
        return self._said

    def result(self, **result: Any) -> None:
        """Says what came of it. Encoded now; durable when the turn is left."""
        self._check_open("result")
        self._settled = self._episode._native.result(result, False)

    def discard(self, reason: str) -> None:
        """Gives the turn up, on record: it becomes no step, and the next turn has its index."""
        self._check_open("discard")
        self._settled = self._episode._native.discard(reason)
        self._discarded = True

    def _check_open(self, what: str) -> None:
        if self._settled is not None:
            did = "was given up" if self._discarded else "has its result"
            raise BadInput(f"{what}: turn {self._index} {did} already: say the next turn first")
        if not self._entered and not self.adopted:
            raise BadInput(f"{what}: the turn has not been said: use `with episode.turn(...) as turn`")

    def _enter(self) -> None:
        if self._may_enter():
            self._take(self._episode._opened().say(self._said, True))

    async def _aenter(self) -> None:
        if not self._may_enter():
            return
        native = await self._episode._aopened()
        said = native.say(self._said, False)
        self._take(said)
        if said[2] is not None:
            await said[2]

    def _may_enter(self) -> bool:
        """True if it must be said first; a pending one was said before."""
        if self._entered:
            raise BadInput("turn: was entered before: say a new one with `episode.turn(...)`")
        self._entered = True
        return self._index is None

    def _take(self, said: tuple[int, dict[str, Any] | None, Any]) -> None:
        self._index, adopted, _ = said
        if adopted is not None:
            self.adopted = True
            self._said = {name: adopted[name] for name in SAID if name in adopted}

    def _leave(self, raised: BaseException | None) -> Any:
        if self._settled is not None:
            return self._settled
        if raised is None:
            raise BadInput(
                f"turn: turn {self._index} was left without a result, and stays pending: "
                "call turn.result(...), or turn.discard(reason)"
            )
        if why_of(raised) != "errored":
            # Cancelled or told to stop: what the action did is not known, so it stays pending.
            return None
        self.error = f"{type(raised).__name__}: {raised}"
        try:
            self._settled = self._episode._native.result({"error": error_of(raised)}, False)
        except Exception:
            self._note_failure()
        return self._settled

    def __repr__(self) -> str:
        if self._discarded:
            state = "given up"
        elif self._settled is not None:
            state = "has its result"
        else:
            state = "pending" if self._entered or self.adopted else "not said yet"
        index = "?" if self._index is None else self._index
        return f"<Turn {index} of {self._episode.ref}: {state}>"
