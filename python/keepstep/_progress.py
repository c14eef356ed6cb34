"""How far a plan is, and which of its episodes were given up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ._log import logger, shown, warn_of_troubles

if TYPE_CHECKING:
    from ._run import Run

T = TypeVar("T")

SHOWN_MAX = 20
"""How many episodes are logged by name: more would hide the rest of the log."""
CHARS_MAX = 300
"""How many characters of an error are logged; `progress` has more of it."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An episode that was `errored` as often in a row as is allowed."""

    ref: str
    """How people and commands name the episode."""
    attempts: int
    """How many attempts at it were claimed."""
    errors: int
    """How often in a row it was `errored` without progress."""
    error: str | None = None
    """Type and message of the last error."""

    def __str__(self) -> str:
        error = self.error or "no error was recorded"
        if len(error) > CHARS_MAX:
            error = error[:CHARS_MAX] + "…"
        times = "once" if self.errors == 1 else f"{self.errors} times"
        return (
            f"{self.ref} is given up: it errored {times}, the last time with {error} "
            f"(`max_attempts={self.errors + 1}` tries it again)"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Progress:
    """How far a plan is. Each planned episode is not begun, running, interrupted, ended, absent, pruned or damaged."""

    planned: int = 0
    """How many episodes the plan has."""
    not_begun: int = 0
    """No process has begun them."""
    running: int = 0
    """A process has them now, or is not proven dead."""
    interrupted: int = 0
    """Their process left them or died; `remaining` yields them."""
    ended: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How the others ended: how many `finished`, `truncated`, `errored`."""
    unscored: int = 0
    """Of those that ended: they are over and lack a note that the plan needs. `Run.unscored` yields them."""
    given_up: Sequence[GivenUp] = ()
    """Of those that ended: they were `errored` as often in a row as is allowed. `remaining` yields the other `errored` ones."""
    absent: Sequence[str] = ()
    """Their groups were sealed without them, so they could not join any more. `remaining` does not yield them."""
    pruned: int = 0
    """They were deleted."""
    damaged: int = 0
    """What is recorded of them cannot be read: `keepstep verify` says more."""
    done: int = 0
    """How many are over and scored. Those that were given up, are absent or were pruned are not done, but nothing remains to do for them."""
    left: int = 0
    """How many still have something to do."""

    def __repr__(self) -> str:
        counts = [
            (self.not_begun, "not begun"),
            (self.running, "running"),
            (self.interrupted, "interrupted"),
            *((count, why) for why, count in sorted(self.ended.items())),
            (self.unscored, "unscored"),
            (self.damaged, "damaged"),
        ]
        told = ", ".join(f"{count} {what}" for count, what in counts if count)
        # Nothing remains to do for these, but they are not done.
        rest = [(len(self.given_up), "given up"), (len(self.absent), "absent"), (self.pruned, "pruned")]
        done = f"{self.done} of {self.planned} done"
        done += "".join(f", {count} {what}" for count, what in rest if count)
        return f"<Progress {done}{': ' if told else ''}{told}>"


def progress_of(told: Mapping[str, Any]) -> Progress:
    """From what the engine returns."""
    given_up = tuple(GivenUp(*each) for each in told["given_up"])
    ended = MappingProxyType(dict(told["ended"]))
    # The engine's `done` counts all episodes for which nothing remains to do.
    absent = tuple(told.get("absent", ()))
    done = told["planned"] - told["left"] - len(given_up) - len(absent) - told.get("pruned", 0)
    return Progress(**{**told, "ended": ended, "given_up": given_up, "absent": absent, "done": done})


# What this process has logged about jobs: the store, the run, the kind of trouble, and the episode.
_told: set[tuple[Any, ...]] = set()
_TOLD_MAX = 10_000


def log_held(run: Run, remaining: Any) -> None:
    """Logs, once each, the episodes that need a score and were not given, and where notes may have been lost."""
    warn_of_troubles(_untold(run, "unread", remaining.unread_notes()))
    for ref in _untold(run, "held", remaining.held_here()):
        logger.warning(
            "%s lacks a note and is not given again: this process still has its job; annotate it, or release the job, "
            "then call `unscored` again",
            shown(ref),
        )
    in_vain = [(ref, ", ".join(needs)) for ref, needs in remaining.scored_in_vain()]
    for ref, needs in _untold(run, "in vain", in_vain):
        logger.warning(
            "%s is not given again by this process: it was annotated three times, and still lacks a note that the "
            "plan needs: %s",
            shown(ref),
            shown(needs),
        )


def _untold(run: Run, kind: str, found: Iterable[T]) -> list[T]:
    """What was not logged yet, as much as is logged at once: the rest is logged the next time."""
    # A copy of a store has runs of the same generation_id.
    place = (run.store.where, run._core.generation_id, kind)
    new = [each for each in found if (*place, each) not in _told]
    if len(new) > SHOWN_MAX:
        logger.warning(
            "%d episodes of run %s have the same problem: %d are named now, the others the next time that nothing is left",
            len(new),
            shown(run.name),
            SHOWN_MAX,
        )
    if len(_told) < _TOLD_MAX:
        _told.update((*place, each) for each in new[:SHOWN_MAX])
    return new[:SHOWN_MAX]


def log_given_up(run: Run, remaining: Any) -> None:
    """Logs the episodes that were given up, and those that are not given again: each once in this process."""
    for ref, times in _untold(run, "returned", remaining.returned()):
        logger.warning(
            "%s is not given again by this process: its job was released %d times before its episode was opened, so what "
            "failed was not recorded; other processes get it when this one has exited",
            shown(ref),
            times,
        )
    for ref, times in _untold(run, "left", remaining.left()):
        logger.warning(
            "%s is not given again by this process: it was left %d times without an end and without a new step; end it "
            "with `episode.end(...)` or an exception; other processes get it when this one has exited",
            shown(ref),
            times,
        )
    given_up = [GivenUp(*each) for each in remaining.given_up(SHOWN_MAX)]
    for each in given_up[:SHOWN_MAX]:
        logger.warning("%s", shown(str(each)))
    if len(given_up) > SHOWN_MAX:
        logger.warning(
            "and %d more are given up: `run.progress().given_up` names all", len(given_up) - SHOWN_MAX
        )
