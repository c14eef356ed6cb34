"""The null store: the same API, records nothing, costs nothing that can be measured.

These classes take the place of the native ones; the public classes over them are the same.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .errors import BadInput, Diverged


class NullReceipt:
    """A receipt for something that was not recorded."""

    __slots__ = ()
    level: str | None = None
    ref = ""
    step: int | None = None

    def wait(self, timeout: float | None = None, *, level: str | None = None) -> NullReceipt:
        return self

    def __await__(self) -> Generator[Any, None, NullReceipt]:
        return self
        yield

    def __repr__(self) -> str:
        return "<Receipt of the null store>"


RECEIPT = NullReceipt()


class NullRecorded:
    """A value that would be recorded. It is read back as from a store, so that a loop gets the same with and without one."""

    __slots__ = ("_given",)

    def __init__(self, given: Any) -> None:
        self._given = given

    def back(self) -> Any:
        from . import _core

        return _core._roundtrip(self._given, _core.Context())

    def difference(self, made: Any) -> None:
        return None

    def shown(self, name: str) -> str:
        """One of its fields, as data."""
        from . import _core

        back = self.back()
        return _core._shown(back[name], _core.Context()) if name in back else "nothing"


class NullResult(NullRecorded):
    """The same for the result of a call, which is refused if it could not be read back."""

    __slots__ = ()

    def back(self) -> Any:
        from . import _core

        return _core._roundtrip(self._given, _core.Context(strict=True), "result")


class NullCall:
    """A call that is made, and would be recorded."""

    __slots__ = ("_arguments",)

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments

    def is_same(self, other: NullCall) -> bool:
        try:
            return bool(self._arguments == other._arguments)
        except Exception:
            # Comparing arrays gives an array, not one answer.
            return False


class NullEpisode:
    """An episode that remembers how many steps it has, and its state."""

    __slots__ = (
        "_failed",
        "_has_first",
        "_kept",
        "_number",
        "_said",
        "_state",
        "_tried",
        "ended",
        "is_fenced",
        "ref",
        "steps",
    )
    attempt = 0
    resumed: int | None = None
    inherited = 0
    id = "0" * 32

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.steps = 0
        self.ended: str | None = None
        self.is_fenced = False
        self._has_first = False
        self._failed = 0
        self._said: dict[str, Any] | None = None
        # True if the intent is kept for the next try, since this one failed.
        self._kept = False
        # As in the engine: rises when a turn is said, adopted, left or settled.
        self._number = 0
        # Likewise: rises when calls are numbered from the first on again.
        self._tried = 0
        self._state: dict[str, Any] = {}

    def hear_failure(self) -> None:
        """Nothing can fail that is not recorded."""

    @property
    def turns(self) -> int:
        return self.steps - self._has_first - self._failed

    @property
    def is_pending(self) -> bool:
        return self._said is not None

    @property
    def pending(self) -> tuple[dict[str, Any], int] | None:
        return (NullRecorded(self._said).back(), self._number) if self._kept else None

    def state(self, name: str) -> tuple[Any] | None:
        return (self._state[name],) if name in self._state else None

    def history(self, index: int) -> dict[str, Any]:
        raise IndexError(index)

    def first(self, given: dict[str, Any]) -> NullReceipt:
        self._has_first = True
        return self.submit(given)

    def submit(self, given: dict[str, Any]) -> NullReceipt:
        self.steps += 1
        self._tried += 1
        if "state" in given:
            self._state.update(given["state"])
        return RECEIPT

    step = submit

    def say(self, given: dict[str, Any], waits: bool) -> tuple[int, bool, NullRecorded, None, int]:
        if self._kept:
            self._check_same(given)
        was_kept, self._kept = self._kept, False
        if self._said is None or not was_kept:
            self._said = given
        self._number += 1
        return self.steps, was_kept, NullRecorded(self._said), None, self._number

    def result(self, given: dict[str, Any], waits: bool, number: int | None = None) -> NullReceipt:
        self._settle(number)
        self._failed += "error" in given
        return self.submit(given)

    def discard(self, reason: str, number: int | None = None) -> NullReceipt:
        self._settle(number)
        return RECEIPT

    def _check_same(self, given: dict[str, Any]) -> None:
        """As in a store: a pending turn is adopted with the intent that it was said with."""
        said, now = NullRecorded(self._said), NullRecorded(given)
        for name in given:
            before, after = said.shown(name), now.shown(name)
            if before != after:
                raise Diverged(
                    f"turn {self.steps} diverged in {name}: {before} was recorded, and now it is {after}; discard it with "
                    "episode.pending.discard(reason)"
                )

    def _settle(self, number: int | None) -> None:
        self._check_number(number)
        self._said, self._kept = None, False
        self._number += 1
        self._tried += 1

    def _check_number(self, number: int | None) -> None:
        if number not in (None, self._number):
            raise BadInput("turn is not under way: it was left, has its result, or was discarded")

    def keep(self, error: Any, number: int) -> NullReceipt:
        self.leave_turn(number)
        return RECEIPT

    def leave_turn(self, number: int) -> None:
        if number == self._number:
            self._kept = self._said is not None
            self._number += 1
            self._tried += 1

    def adopt(self, number: int) -> int:
        self._check_number(number)
        self._kept = False
        self._number += 1
        return self._number

    def item(self, value: Any) -> NullReceipt:
        self.steps += 1
        return RECEIPT

    def known(
        self, name: str, key: str | None, arguments: Any, function: tuple[str, bool] | None
    ) -> tuple[None, NullCall]:
        return None, NullCall(arguments)

    def known_again(self, call: NullCall) -> tuple[None, NullCall]:
        return None, call

    def call_failed(self, call: NullCall) -> None:
        pass

    def turn_try(self) -> tuple[int, int]:
        return self.steps, self._tried

    def is_called_so(self, call: NullCall, arguments: Any) -> bool:
        return False

    def came(self, call: NullCall, value: Any) -> NullResult:
        return NullResult(value)

    def record_call(self, call: NullCall, came: Any, awaited: bool, waits: bool) -> NullReceipt:
        return RECEIPT

    def record_failed_call(self, call: NullCall, error: Any) -> NullReceipt:
        return RECEIPT

    def note(self, name: str, value: Any, source: str, step: int | None) -> NullReceipt:
        return RECEIPT

    def leave(self) -> None:
        pass

    def end(self, why: str, limit: str | None, error: Any, said_by: str | None) -> NullReceipt:
        self.ended = why
        return RECEIPT


class NullJob:
    """A job of a plan that is not recorded."""

    attempts = 0
    why = "new"

    def __init__(self, ref: str, task: str, iteration: int, sample: int) -> None:
        self.ref, self.task, self.iteration, self.sample = ref, task, iteration, sample

    def open(self, options: dict[str, Any]) -> NullEpisode:
        return NullEpisode(self.ref)


class NullRemaining:
    """Yields each job of a plan that is not recorded, once; none of them needs a score."""

    def __init__(self, run: NullRun, scores: bool) -> None:
        self._run, self._scores = run, scores

    def take(self) -> NullJob | None:
        return None if self._scores else self._run.next_job()

    def given_up(self, errors_max: int) -> list[Any]:
        return []

    def returned(self) -> list[Any]:
        return []

    def left(self) -> list[Any]:
        return []

    def scored_in_vain(self) -> list[Any]:
        return []

    def unread_notes(self) -> list[str]:
        return []

    def held_here(self) -> list[str]:
        return []


class NullGroup:
    """A group whose seal is not recorded."""

    id = "0" * 32

    def __init__(self, run: NullRun, task: str, iteration: int, size: int) -> None:
        self.ref = f"{run.name}/{task}#{iteration}"
        self._refs = [run.ref_of(task, iteration, sample) for sample in range(size)]
        self._claimed = 0

    def members(self) -> list[tuple[str, str]]:
        return [(ref, f"{sample:032x}") for sample, ref in enumerate(self._refs)]

    def claim(self, options: dict[str, Any]) -> NullEpisode | None:
        if self._claimed == len(self._refs):
            return None
        self._claimed += 1
        return NullEpisode(self._refs[self._claimed - 1])

    def warn_of_nan(self, reward: float) -> None:
        pass

    def seal(self, rewards: Any, source: str, least: int | None) -> dict[int, str]:
        return {}


class NullStream:
    """A stream that keeps nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._entries: dict[str, Any] = {}

    def put(self, id: str, value: Any) -> NullReceipt:
        return RECEIPT

    def read(self, partial: bool) -> tuple[dict[str, Any], list[str]]:
        return {}, []

    freeze = read

    def conflicts(self) -> dict[str, list[Any]]:
        return {}

    def drop(self) -> None:
        pass

    def reader(self) -> NullStreamReader:
        return NullStreamReader()


class NullStreamReader:
    """A reader of a stream that keeps nothing."""

    def look(self, partial: bool) -> tuple[dict[str, Any], bool, list[str], int]:
        return {}, False, [], 0

    def value(self, id: str) -> tuple[bool, Any]:
        return False, None

    def forget(self) -> None:
        pass


class NullRun:
    """A run of the null store."""

    generation_id = "0" * 32
    generation = 0

    def __init__(self, name: str, config: Any, links: dict[str, str]) -> None:
        self.name, self.config, self.links = name, config, links
        self._planned: list[tuple[str, int, int]] = []
        self._given = 0

    def ref_of(self, task: str, iteration: int, sample: int) -> str:
        return f"{self.name}/{task}#{iteration}.{sample}"

    def open(self, task: str | None, iteration: int, sample: int, options: dict[str, Any]) -> NullEpisode:
        return NullEpisode(self.ref_of(task or "", iteration, sample))

    def group(self, task: str, iteration: int, size: int) -> NullGroup:
        return NullGroup(self, task, iteration, size)

    def stream(self, name: str) -> NullStream:
        return NullStream(name)

    def plan(self, tasks: list[str], samples: int, iteration: int, needs: list[str]) -> None:
        self._planned += [(task, iteration, sample) for task in tasks for sample in range(samples)]

    def remaining(self, retry: list[str], max_attempts: int, pause_s: float, scores: bool) -> NullRemaining:
        return NullRemaining(self, scores)

    def next_job(self) -> NullJob | None:
        if not self._planned:
            return None
        task, iteration, sample = self._planned.pop(0)
        self._given += 1
        return NullJob(self.ref_of(task, iteration, sample), task, iteration, sample)

    def progress(self, max_attempts: int) -> dict[str, Any]:
        # How the jobs ended is not recorded: each job that was given counts as done.
        given, left = self._given, len(self._planned)
        ended = {"finished": given} if given else {}
        return {
            "planned": given + left,
            "not_begun": left,
            "ended": ended,
            "given_up": [],
            "done": given,
            "left": left,
        }

    def episode_id(self, reference: str) -> str:
        return "0" * 32

    def annotate(self, *args: Any) -> NullReceipt:
        return RECEIPT


class NullCloser:
    """There is nothing to close."""

    is_gone = True

    def close(self) -> None:
        pass


class NullStore:
    """Takes the place of a native store."""

    level: str | None = None
    id = "0" * 32
    warnings: tuple[str, ...] = ()

    def reach(self, level: str) -> None:
        return None

    def run(
        self, name: str, *, config: Any, links: dict[str, str], new: bool, generation: int | None = None
    ) -> NullRun:
        return NullRun(name, config, links)

    def runs(self) -> list[NullRun]:
        return []

    def reap(self) -> int:
        return 0

    def stats(self) -> dict[str, int]:
        return {}

    def closer(self) -> NullCloser:
        return NullCloser()

    def close(self) -> None:
        pass
