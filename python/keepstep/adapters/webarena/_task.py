"""A task as it is recorded: the list that the loop grows, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import keepstep
from keepstep.adapting import GrowingList, warn_caller

from ._mirror import Mirror
from ._replay import Replay
from ._types import is_stop

# How the answer begins if `run.py` made the stop action, not the agent.
_EARLY_STOP = "Early stop: "
_AGENT_ERROR = "ERROR: "
# Its reasons, and the limits that they mean. Any other reason is recorded as the limit itself.
_LIMITS = {"Reach max steps": "steps", "Failed to parse": "parse failures", "Same ": "repeated actions"}
# The one reason that is no limit: the page of MiniWoB returned a reward.
_GOAL = "Get a numeric reward"


class Trajectory(GrowingList):
    """The list that WebArena's agents and evaluators see. What is appended is durable when `append` returns."""

    __slots__ = ("_record",)

    def __init__(self, record: Callable[[int, Any], Any]) -> None:
        super().__init__()
        self._record = record

    def append(self, item: Any) -> None:
        """Appends a state or an action. Durable when it returns."""
        super().append(self._record(len(self), item))


class Task:
    """One task of WebArena while it runs, from `webarena.task`. Leaving it records how it ended, if the score did not."""

    def __init__(
        self,
        episode: Callable[..., keepstep.Episode],
        store: keepstep.Store,
        mirror: Path | None,
        *,
        replay: bool,
        agent: Any,
        ignore: frozenset[str],
        needs_score: bool,
    ) -> None:
        self._make_episode = episode
        self._store = store
        self._mirror_path = mirror
        self._mirror: Mirror | None = None
        self._may_replay = replay
        self._replay: Replay | None = None
        self._agent = agent
        self._agents_own: Any = None
        self._is_leading = False
        self._ignore = ignore
        self._needs_score = needs_score
        self._kept: list[Any] = []
        self._inherited = 0
        self._trajectory = Trajectory(self._record)
        self._refusal: keepstep.KeepstepError | None = keepstep.BadInput(
            "the task was not entered: write `with webarena.task(...) as task:`"
        )
        self.episode = episode()
        """The episode that is recorded: its `ref`, `attempt`, `note(...)`."""

    @property
    def trajectory(self) -> Trajectory:
        """The list to append states and actions to. It is empty at first; in a replay the loop fills it again."""
        if self._refusal is not None:
            raise self._refusal
        return self._trajectory

    @property
    def is_replaying(self) -> bool:
        """True while the loop repeats what is recorded already."""
        return self._replay is not None and len(self._trajectory) < self._replay.length

    def scored(self, score: float) -> float:
        """Records the score, and with it how the task ended. Durable when it returns. Returns the score."""
        if isinstance(score, (str, bytes)):
            raise keepstep.BadInput(f"score is {score!r}: give a number")
        if self._refusal is not None:
            raise self._refusal
        number = float(score)
        receipt = self.episode.note("score", number, source="webarena")
        if self.episode.ended is None:
            receipt = self._end()
        receipt.wait()
        return number

    def __enter__(self) -> Task:
        # If the episode cannot be opened, the error is raised when the list is used: run.py closes its renderer after a
        # failure, and has none yet when it enters this.
        try:
            self.episode = self._make_episode(**self._how_to_open())
            self.episode.__enter__()
        except keepstep.Ended as over:
            hint = "webarena.unfinished(...) leaves out such tasks; to run this one once more, give sample=1"
            self._refusal = keepstep.Ended(f"{over}; {hint}")
            return self
        except keepstep.KeepstepError as refusal:
            self._refusal = refusal
            return self
        self._refusal = None
        try:
            self._kept = self.episode.trajectory()
            self._inherited = len(self._kept)
            if self._mirror_path is not None:
                self._mirror = Mirror(self._mirror_path, self._store, self.episode)
            if self._agent is not None:
                self._lead_agent()
        except BaseException as raised:
            self.episode.__exit__(type(raised), raised, raised.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release_agent()
        if self._refusal is not None:
            return
        try:
            if raised is None and self.episode.ended is None:
                self._end_without_score()
            self.episode.__exit__(kind, raised, trace)
        finally:
            if self._mirror is not None:
                self._mirror.end()

    def _how_to_open(self) -> dict[str, Any]:
        """How to open the episode; in a replay, also reads what is to be repeated."""
        if not self._may_replay:
            return {"resume": "restart"}
        try:
            view = self._store.find(self.episode.ref)
        except keepstep.NotFound:
            return {}
        steps = view.steps
        if view.state in ("running", "silent") or len(steps) == 0:
            return {}
        last = steps[-1].value
        # If the agent failed, it must think again, not fail again.
        is_failure = _answer(last).startswith(_AGENT_ERROR)
        length = len(steps) - 1 if is_failure else len(steps)
        self._replay = Replay(view.ref, steps, length, self._ignore)
        # The last state is recorded again: the next action names its elements by today's numbers.
        return {"at": len(steps) - 1} if is_failure or "observation" in last else {}

    def _record(self, position: int, item: Any) -> Any:
        if self._replay is not None and position < self._replay.length:
            self._replay.compare(position, item)
        if position >= self._inherited:
            self._kept.append(item)
            if self._mirror is not None:
                self._mirror.catch_up()
        return item

    def _lead_agent(self) -> None:
        think = self._agent.next_action
        self._agents_own = vars(self._agent).get("next_action")

        def next_action(*args: Any, **kwargs: Any) -> Any:
            if self._replay is not None and self.is_replaying:
                return self._replay.action(len(self._trajectory))
            return think(*args, **kwargs)

        self._agent.next_action = next_action
        self._is_leading = True

    def _release_agent(self) -> None:
        if self._is_leading:
            del self._agent.next_action
            if self._agents_own is not None:
                self._agent.next_action = self._agents_own
        self._is_leading = False

    def _end(self) -> keepstep.Receipt:
        """Ends the episode as the last action says."""
        last = self._trajectory[-1] if self._trajectory else None
        if not is_stop(last):
            return self.episode.end("finished", said_by="score")
        answer = _answer(last)
        if answer.startswith(_AGENT_ERROR):
            return self.episode.end("errored", error=answer.removeprefix(_AGENT_ERROR), said_by="agent")
        reason = answer.removeprefix(_EARLY_STOP)
        if answer == reason or reason.startswith(_GOAL):
            return self.episode.end("finished", said_by="stop action")
        named = (limit for begins, limit in _LIMITS.items() if reason.startswith(begins))
        return self.episode.end("truncated", limit=next(named, reason), said_by="early stop")

    def _end_without_score(self) -> None:
        is_stopped = len(self._trajectory) > 0 and is_stop(self._trajectory[-1])
        if is_stopped and not self._needs_score:
            self._end()
            return
        what = "a score" if is_stopped else "a stop action"
        self.episode.end("aborted", error=f"left without {what}", said_by="webarena")
        warn_caller(
            f"{self.episode.ref} was left without {what}: it is recorded as aborted, and is unfinished; "
            "call task.scored(score), or give needs_score=False if tasks are not scored",
            RuntimeWarning,
        )

    def __repr__(self) -> str:
        return f"<Task {self.episode.ref}: {len(self._trajectory)} items>"


def _answer(item: Any) -> str:
    return str(item.get("answer", "")) if is_stop(item) else ""
