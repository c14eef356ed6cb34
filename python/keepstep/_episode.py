"""An episode that is being recorded."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from . import _checks
from ._calls import Calling, check_function, settled
from ._endings import Why, error_of, why_of
from ._flights import Flights
from ._log import counted, logger, shown, tell_unheard
from ._loops import submit_in_thread, warn_caller, warn_if_on_loop
from ._scope import Scope
from ._steps import Both
from ._turn import Turn, check_on_error
from .errors import BadInput, Busy, Closed, Ended, Forked

if TYPE_CHECKING:
    from . import _core
    from ._views import Step

# The longest pause before an event loop tries again to open an episode that another process owns. The loop sleeps itself: a
# waiting thread could not be cancelled, and would keep the process from exiting.
_PAUSE_MAX_S = 0.2

_has_warned_of_unread = False


class Episode(Scope):
    """One attempt at an episode. It is opened when it is entered, or when it is first used."""

    __slots__ = (
        "__weakref__",
        "_flights",
        "_is_silent",
        "_is_told",
        "_is_unread",
        "_last",
        "_native_episode",
        "_on_error",
        "_open",
        "_open_at_once",
        "_ref",
        "_trajectory",
    )

    def __init__(
        self,
        ref: str,
        open: Callable[[], _core.Episode],
        open_at_once: Callable[[], _core.Episode] | None = None,
        on_error: str = "fail",
        is_told: bool = False,
    ) -> None:
        """`open` may wait for the owner; `open_at_once`, if there is one, raises Busy instead.

        `is_told`: the caller has said what to do with recorded steps.
        """
        self._on_error = check_on_error(on_error)
        self._ref = ref
        self._open = open
        self._open_at_once = open_at_once
        self._native_episode: _core.Episode | None = None
        self._is_told = is_told
        # True while it has inherited steps that the program has not looked at.
        self._is_unread = False
        # True if it was left without end(), and keepstep ended it.
        self._is_silent = False
        self._last: Any = None
        self._trajectory: list[Any] | None = None
        self._flights = Flights()

    @property
    def ref(self) -> str:
        """How people and commands name it: `run/task#iteration.sample~attempt`."""
        return self._ref if self._native_episode is None else self._native_episode.ref

    @property
    def id(self) -> str:
        """Its id: the same on every machine."""
        return self._native.id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 0."""
        return self._looked_at.attempt

    @property
    def resumed(self) -> bool:
        """True if it resumes an earlier attempt."""
        return self._looked_at.resumed is not None

    @property
    def turns(self) -> int:
        """How many turns are complete. The first observation does not count, nor does a failed turn."""
        return self._looked_at.turns

    @property
    def ended(self) -> str | None:
        """How it ended; None if it has not."""
        return self._native.ended

    @property
    def pending(self) -> Turn | None:
        """A turn with an intent and no result: the attempt was interrupted, or the last try was kept."""
        pending = self._looked_at.pending
        if pending is None:
            return None
        said, number = pending
        return Turn(self, said, self._on_error, index=self._native.steps, number=number)

    @property
    def history(self) -> Sequence[Step]:
        """The inherited steps. Each is read when it is used."""
        return History(self._looked_at)

    def state(self, name: str, default: Any = None) -> Any:
        """A named value as of the last step, or the default if there is none."""
        found = self._looked_at.state(_checks.text("name", name))
        return default if found is None else found[0]

    def first(self, observation: Any, *, info: Any = None, state: Mapping[str, Any] | None = None) -> Any:
        """Records the first observation, before any step. A resumed attempt that has steps has it already. Returns at once."""
        given = {"observation": observation}
        if info is not None:
            given["info"] = info
        if state is not None:
            given["state"] = state
        return self._keep(self._native.first(given))

    def turn(self, *, on_error: str | None = None, **said: Any) -> Turn:
        """A turn, to be entered with `with`. Its intent is durable then, and the action may be taken.

        Parameters:
            on_error: what an exception in the turn does. With `"fail"` it becomes a failed step, and the next turn
                has an intent of its own. With `"keep"` its intent is kept for the next try. The default is what the
                episode was opened with.
            **said: the intent.
        """
        return Turn(self, said, self._on_error if on_error is None else check_on_error(on_error))

    def step(self, **both: Any) -> Any:
        """Records a turn and its result. Durable when it returns."""
        warn_if_on_loop("use `await episode.submit(...)`")
        if not both:
            raise _nothing_given("step")
        native = self._native
        if self._is_unread:
            self._warn_of_unread()
        return native.step(both)

    def submit(self, **both: Any) -> Any:
        """Records a turn and its result. Returns at once: await the receipt, or call its `wait()`."""
        if not both:
            raise _nothing_given("submit")
        native = self._native_episode
        if native is None:
            native = self._opened()
        if self._is_unread:
            self._warn_of_unread()
        receipt = self._last = native.submit(both)
        return receipt

    def call(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        returns: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Calls a function and records what it returns. A resumed attempt gets the recorded result.

        The result has the same type both times: the class that `returns` or the annotation of the function names, or
        plain data.

        Parameters:
            name: the name of the call in the record.
            fn: the function. If it returns an awaitable, so does `call`.
            *args: its arguments. If they differ from the recorded ones, the call is `Diverged`.
            key: tells calls of one name apart. Without it, their order in the turn does, so calls that several tasks
                or threads make at once need one. Calls behind one that may fail should have one too: if it succeeds
                on resume, and their functions cannot be told apart, they are `Diverged`.
            returns: the class of the result, or a type such as `list[Reply]`.
            **kwargs: its keyword arguments. To pass one that is named `key` or `returns`, wrap the function in a
                lambda.
        """
        _checks.own_name("name", name)
        if key is not None:
            _checks.text("key", key, empty=False)
        check_function(name, fn)
        calling = Calling(self, name, fn, args, kwargs, key, returns)
        if _is_async(fn):
            return calling.awaited()
        was_awaited, came = calling.made()
        return settled(came) if was_awaited else came

    def note(self, name: str, value: Any, *, source: str, step: int | None = None) -> Any:
        """Adds a note to this attempt, or to one of its steps. Returns at once."""
        _checks.own_name("name", name)
        _checks.text("source", source, empty=False)
        return self._keep(self._native.note(name, value, source, _checks.whole_or_none("step", step)))

    def end(
        self,
        why: Why,
        *,
        limit: str | None = None,
        error: BaseException | str | None = None,
        said_by: str = "loop",
    ) -> Any:
        """Records how the episode ended, once. Returns at once.

        Parameters:
            why: the reason that really applied.
            limit: which limit, if it was truncated: `"turns"`, `"time"`, `"tokens"`, …
            error: what went wrong, if something did.
            said_by: who gives the reason.
        """
        _checks.text("why", why)
        _checks.text_or_none("limit", limit)
        _checks.text("said_by", said_by)
        kept = error_of(error) if isinstance(error, BaseException) else error
        return self._keep(self._native.end(why, limit, kept, said_by))

    def trajectory(self) -> list[Any]:
        """A list whose items are durable when `append` or `extend` returns. In a resumed attempt it has the earlier items."""
        if self._trajectory is None:
            from ._trajectory import RecordingList

            self._trajectory = RecordingList(self)
        return self._trajectory

    @property
    def _native(self) -> _core.Episode:
        native = self._native_episode
        return self._opened() if native is None else native

    @property
    def _looked_at(self) -> _core.Episode:
        """The same, and notes that the program has looked at what was recorded."""
        native = self._native
        self._is_unread = False
        return native

    def _opened(self) -> _core.Episode:
        if self._native_episode is None:
            warn_if_on_loop("enter the episode with `async with`")
            try:
                return self._took(self._open())
            except Ended as over:
                raise _with_advice(over) from None
        return self._native_episode

    def _took(self, native: _core.Episode) -> _core.Episode:
        self._native_episode = native
        self._is_unread = not self._is_told and native.resumed is not None and native.inherited > 0
        return native

    async def _aopened(self) -> _core.Episode:
        if self._native_episode is not None:
            return self._native_episode
        pause_s = 0.01
        while True:
            try:
                return self._took(await _opened_in_thread(self._open_at_once or self._open))
            except Busy:
                if self._open_at_once is None:
                    raise
            except Ended as over:
                raise _with_advice(over) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _enter(self) -> None:
        self._opened()

    async def _aenter(self) -> None:
        await self._aopened()

    def _keep(self, receipt: Any) -> Any:
        self._last = receipt
        return receipt

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._waits_for_calls(raised):
            super().__exit__(kind, raised, trace)
            return
        try:
            self._flights.leave()
        except BaseException as stopped:
            self._say_what_left(raised)
            super().__exit__(type(stopped), stopped, trace)
            raise
        super().__exit__(kind, raised, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._waits_for_calls(raised):
            await super().__aexit__(kind, raised, trace)
            return
        try:
            await self._flights.leave_on_loop()
        except BaseException as stopped:
            self._say_what_left(raised)
            await super().__aexit__(type(stopped), stopped, trace)
            raise
        await super().__aexit__(kind, raised, trace)

    def _waits_for_calls(self, raised: BaseException | None) -> bool:
        """True if leaving waits for running calls, to record their results: not if it is over, or told to stop."""
        native = self._native_episode
        if native is None or (raised is not None and why_of(raised) != "errored"):
            return False
        with contextlib.suppress(Forked, Closed):
            return native.ended is None and not native.is_fenced
        return False

    def _say_what_left(self, raised: BaseException | None) -> None:
        """The wait after an error was interrupted: the error is the ending, not the interruption."""
        if raised is not None:
            self._leave(raised, "errored")

    def _leave(self, raised: BaseException | None, why: Why | None = None) -> Any:
        native = self._native_episode
        if native is None:
            return None
        try:
            if native.ended is not None:
                return self._last
            if raised is None:
                # If another attempt has the episode, this raises Fenced, and there is nothing to warn of.
                self._is_silent = True
                return native.end("aborted", None, None, "left without end()")
            # This episode is fenced: nothing more can be recorded. `Fenced` of another episode is an error like any other.
            if native.is_fenced:
                return None
            return self.end(why or why_of(raised), error=raised, said_by="exception")
        except Exception:
            if raised is None:
                raise
            self._note_failure()
            return None

    def _told(self, raised: BaseException | None) -> None:
        lost = self._unheard_failure()
        if self._is_silent and raised is None:
            self._warn_of_silence()
            if lost is not None:
                raise lost
        elif lost is not None:
            tell_unheard([(self.ref, str(lost))])

    def _unheard_failure(self) -> Exception | None:
        """Why an entry is missing, if the program has not heard of it: leaving is the last chance to say so."""
        if self._native_episode is not None:
            try:
                self._native_episode.hear_failure()
            except (Forked, Closed):
                pass
            except Exception as failure:
                return failure
        return None

    def _left(self) -> None:
        # A forked child has nothing to release, and a closed store has released everything.
        if self._native_episode is not None:
            with contextlib.suppress(Forked, Closed):
                self._native_episode.leave()

    def _said(self, was_adopted: bool) -> None:
        """A turn was entered. A program that adopts the pending turn knows where it stands."""
        if was_adopted:
            self._is_unread = False
        elif self._is_unread:
            self._warn_of_unread()

    def _warn_of_unread(self) -> None:
        """Warns once that a program seems to begin from scratch, after steps that it inherited."""
        global _has_warned_of_unread
        self._is_unread = False
        if _has_warned_of_unread or self._native_episode is None:
            return
        _has_warned_of_unread = True
        warn_caller(
            f"{self.ref} was resumed at step {self._native_episode.inherited}, but the program did not read what was recorded "
            "before: read episode.state(...), episode.turns or episode.history first, or open the episode with "
            'resume="restart" to begin again from step 0; if this is intended, give resume="continue"',
            RuntimeWarning,
        )

    def _warn_of_silence(self) -> None:
        warn_caller(
            f"{self.ref} was left without end(): it is recorded as aborted, and resumes when it is opened again; "
            'call episode.end("finished") when it is done',
            RuntimeWarning,
        )

    def __repr__(self) -> str:
        native = self._native_episode
        if native is None:
            return f"<Episode {self._ref}: not opened yet>"
        try:
            return f"<Episode {native.ref}: {counted(native.steps, 'step')}, {native.ended or 'running'}>"
        except Forked:
            return f"<Episode {native.ref}: belongs to the process that this one was forked from>"


def _nothing_given(verb: str) -> BadInput:
    """An empty step would count as a turn, and say nothing."""
    fields = ", ".join(sorted(typing.get_type_hints(Both)))
    return BadInput(f"{verb} has no fields: give some of {fields}")


def _with_advice(over: Ended) -> Ended:
    """Says what to do if an episode is over when it is opened, such as by running a program again."""
    return Ended(
        f"{over}; use another sample=, start a new run with new=True, or make a plan and loop over run.remaining()"
    )


def _is_async(fn: Callable[..., Any]) -> bool:
    """True if a function returns an awaitable. It is not called for this, since a recorded call is not made again."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = inspect.unwrap(fn)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)


async def _opened_in_thread(open: Callable[[], _core.Episode]) -> _core.Episode:
    opening = submit_in_thread(open)
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        # A thread that has started cannot be stopped: the episode that it opens is released before the cancellation
        # continues. A second cancellation does not wait for that.
        if not opening.cancel():
            given_back = submit_in_thread(functools.partial(_give_back, opening))
            await asyncio.wait([asyncio.wrap_future(given_back)])
        raise


def _give_back(opening: Future[_core.Episode]) -> None:
    """Ends and releases an episode whose opening was cancelled. Nobody waits for this, so failures are logged."""
    if opening.exception() is not None:
        return
    native = opening.result()
    try:
        native.end("cancelled", None, None, "cancelled while it was opened").wait()
    except (Ended, Closed):
        # A store that was closed meanwhile has recorded its end.
        pass
    except Exception:
        logger.exception(
            "%s was cancelled while it was opened, and its end could not be recorded", shown(native.ref)
        )
    finally:
        with contextlib.suppress(Forked, Closed):
            native.leave()


class History(Sequence["Step"]):
    """The steps that an attempt inherited. Each is read when it is used."""

    __slots__ = ("_native",)

    def __init__(self, native: Any) -> None:
        self._native = native

    def __len__(self) -> int:
        return int(self._native.inherited)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> list[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | list[Step]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(f"there is no inherited step {at}: there are {len(self)}")
        return self._read(index)

    def __iter__(self) -> Iterator[Step]:
        return (self._read(index) for index in range(len(self)))

    def _read(self, index: int) -> Step:
        from ._views import step_of

        return step_of(self._native.history(index))

    def __repr__(self) -> str:
        return f"<History of {self._native.ref}: {counted(len(self), 'step')}>"
