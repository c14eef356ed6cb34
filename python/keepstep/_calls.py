"""Calls whose results are recorded: each is made once, and a resumed attempt gets the recorded result."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _checks
from ._endings import error_of
from ._flights import Flight, Place, Written, caller, inside
from ._functions import name_of
from ._log import logger, shown
from ._loops import is_on_loop, warn_of_blocking_call
from ._returns import Misfit, back_of
from .errors import BadInput, Closed, Diverged, Ended, Fenced, Forked, KeepstepError

if TYPE_CHECKING:
    from ._episode import Episode


class Calling:
    """One call of `episode.call`."""

    __slots__ = (
        "_args",
        "_back",
        "_episode",
        "_fn",
        "_key",
        "_kwargs",
        "_name",
        "_native",
        "_place",
        "_returns",
        "_tried",
        "_turn",
        "_written",
    )

    def __init__(
        self,
        episode: Episode,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str | None,
        returns: Any,
    ) -> None:
        self._episode, self._native = episode, episode._native
        self._turn, self._tried = self._native.turn_try()
        episode._flights.begin_try(self._tried)
        self._name, self._fn, self._args, self._kwargs, self._key = name, fn, args, kwargs, key
        self._place = Place(episode, self._turn, name, key)
        self._written: Written | None = None
        # Decided before the call: the type of the result does not depend on what the call returns.
        self._back, self._returns = back_of(fn, returns), returns

    def made(self) -> tuple[bool, Any]:
        """Makes the call, or finds its recorded result. Returns whether to await it, and the result or an awaitable of it.

        With a key, it waits for another thread that is making the same call.
        """
        flights, flight = self._episode._flights, Flight(self._place, None)
        while (other := flights.begin(flight)) is not None:
            if other.loop is not None and is_on_loop():
                # Waiting here would stop the loop: the awaitable waits instead.
                return self._made(None)
            flights.wait(flight, other)
        try:
            return self._made(flight)
        finally:
            flights.end(flight)

    def _made(self, flight: Flight | None) -> tuple[bool, Any]:
        was_awaited, found = self._known()
        if was_awaited is not None:
            return was_awaited, self._given_again(found)
        if flight is not None:
            self._tell_apart(flight)
        with inside(flight):
            came = self._make(found)
        if inspect.isawaitable(came):
            # The function itself does not show that it returns an awaitable, so the record says it.
            return True, self._one_at_a_time(found, lambda: came, awaited=True)
        warn_of_blocking_call(self._name)
        came, given = self._came(found, came)
        try:
            self._native.record_call(found, came, False, True)
        except (Ended, Closed) as over:
            self._tell_late(over)
        except BaseException:
            # Made again, it is the same call. If only its wait was interrupted, that finds its result.
            self._note_failed(found)
            raise
        return False, given

    def awaited(self) -> Any:
        """The same for a function that is known to return an awaitable. It is called when the awaitable is awaited.

        The call gets its number in the turn now: the calls of a `gather` are numbered in the order in which they are written.
        """
        try:
            return self._awaited(*self._known())
        except Exception as failed:
            return _failing(failed)

    async def _awaited(self, was_awaited: bool | None, found: Any) -> Any:
        if was_awaited is not None:
            return self._given_again(found)
        return await self._one_at_a_time(found, lambda: self._make(found), awaited=False)

    async def _one_at_a_time(self, call: Any, make: Callable[[], Any], *, awaited: bool) -> Any:
        """Makes the call as soon as no call with the same key is running: a key is one call.

        A caller that had to wait looks again. It gets the recorded result, or an error if its call is a different one.
        """
        flights, flight = self._episode._flights, Flight(self._place, asyncio.get_running_loop())
        is_made = False
        try:
            while (other := flights.begin(flight)) is not None:
                await flights.wait_on_loop(flight, other)
            # Another call may have been recorded since this one got its number, or during the wait.
            if self._key is not None and self._native.steps == self._turn:
                is_known, found = self._known()
                if is_known is not None:
                    return self._given_again(found)
            self._tell_apart(flight)
            is_made = True
            with inside(flight):
                return await self._finish(call, make(), awaited=awaited)
        finally:
            flights.end(flight)
            if not is_made:
                self._note_failed(call)
                if awaited:
                    _close(make())

    def _tell_apart(self, flight: Flight) -> None:
        if self._written is not None:
            self._episode._flights.tell_apart(flight, self._written)

    def _known(self) -> tuple[bool | None, Any]:
        arguments: Any = list(self._args)
        if self._kwargs:
            arguments = {"args": arguments, "kwargs": self._kwargs}
        flights, is_called_so = self._episode._flights, functools.partial(self._is_called_so, arguments)
        failed = None
        if self._key is None:
            failed = flights.again(self._place, self._tried, self._fn, is_called_so)
        if failed is None:
            # A key is the name of a call. Without one, the function shows which call it was, if a program goes another way.
            function = name_of(self._fn) if self._key is None else None
            was_awaited, found = self._native.known(self._name, self._key, arguments, function)
        else:
            was_awaited, found = self._native.known_again(failed)
        if was_awaited is not None:
            self._episode._is_unread = False
            self._answered()
        # With arguments, only calls that are made now can be compared: a recorded call has nothing to compare with.
        if self._key is None and (was_awaited is None or not arguments):
            who = weakref.ref(caller())
            self._written = Written(found if arguments else None, self._fn, who, self._tried)
            flights.write(self._place, self._written)
        return was_awaited, found

    def _is_called_so(self, arguments: Any, call: Any) -> bool:
        return bool(self._native.is_called_so(call, arguments))

    def _answered(self) -> None:
        """The engine compares arguments. Without arguments, only the functions tell calls with one key apart."""
        if not self._args and not self._kwargs:
            self._episode._flights.answer(self._place, self._tried, self._fn)

    def _make(self, call: Any) -> Any:
        try:
            return self._fn(*self._args, **self._kwargs)
        except BaseException as raised:
            self._failed(call, raised)
            raise

    def _note_failed(self, call: Any) -> None:
        """It has its number in the turn and no result: trying it again is the same call, and others may come in its place."""
        self._episode._flights.fail(self._place, self._tried, call, self._fn)
        # In a forked child, and after the store was closed, no call begins any more.
        with contextlib.suppress(Forked, Closed):
            self._native.call_failed(call)

    def _failed(self, call: Any, raised: BaseException) -> None:
        """Records an error. What a cancelled call did is not known, so that is not recorded. Both may be tried again."""
        self._note_failed(call)
        if isinstance(raised, Exception):
            self._record_failed(call, raised)

    async def _finish(self, call: Any, came: Any, *, awaited: bool) -> Any:
        try:
            value = (await came) if inspect.isawaitable(came) else came
        except BaseException as raised:
            self._failed(call, raised)
            raise
        recorded, given = self._came(call, value)
        try:
            await self._native.record_call(call, recorded, awaited, False)
        except (Ended, Closed) as over:
            self._tell_late(over)
        except BaseException:
            self._note_failed(call)
            raise
        return given

    def _came(self, call: Any, value: Any) -> tuple[Any, Any]:
        """What is recorded of a result, and what the caller gets: the same as a resumed attempt would get."""
        try:
            came = self._native.came(call, value)
            given = came.back()
            if self._back is not None:
                given = self._back.make(given, "result")
                self._check_same(came.difference(given))
        except Misfit as misfit:
            refused = BadInput(f"call {self._name!r}: {misfit}: {self._hint()}")
            self._failed(call, refused)
            raise refused from None
        except BadInput as refused:
            self._failed(call, refused)
            raise
        self._answered()
        return came, given

    def _check_same(self, found: tuple[str, str] | None) -> None:
        if found is not None:
            path, how = found
            raise BadInput(f"call {self._name!r}: result{path} {how}: {self._hint()}")

    def _hint(self) -> str:
        named = "the annotation of the function" if self._returns is None else "`returns`"
        return f"name its real class in {named}, or register it with keepstep.register"

    def _given_again(self, found: Any) -> Any:
        if self._back is None:
            return found
        try:
            return self._back.make(found, "result")
        except Misfit as misfit:
            raise Diverged(
                f"call {self._name!r}: the recorded result is not of the class that is named now: {misfit}; name the class "
                f"that it was recorded as, give the call another key=, resume before it with at={self._turn}, or begin "
                'again with resume="restart"'
            ) from None

    def _record_failed(self, call: Any, raised: Exception) -> None:
        try:
            self._episode._keep(self._native.record_failed_call(call, error_of(raised)))
        except (Ended, Closed, Fenced) as over:
            self._tell_late(over)
        except Exception:
            self._episode._note_failure()

    def _tell_late(self, over: KeepstepError) -> None:
        """Logs that a call ended after its episode, such as one of several at once of which another failed."""
        logger.warning(
            "%s of %s ended too late to be recorded: %s",
            shown(str(self._place)),
            shown(self._episode.ref),
            shown(str(over)),
        )


def check_function(name: str, given: Any) -> None:
    """Refuses the result of a function in place of the function: a recorded call must be found before it is made."""
    if callable(given):
        return
    # A coroutine has the name of its function.
    function = getattr(given, "__name__", "")
    function = function if function.isidentifier() else "ask"
    fix = f"give the function itself, and its arguments after it: episode.call({name!r}, {function}, ...)"
    _close(given)
    raise _checks.wrong("fn", given, fix, may_await=False)


def _close(came: Any) -> None:
    """Closes a coroutine that never started: Python would warn that nobody awaits it."""
    if inspect.iscoroutine(came) and inspect.getcoroutinestate(came) == inspect.CORO_CREATED:
        came.close()


async def _failing(failed: Exception) -> Any:
    raise failed


async def settled(came: Any) -> Any:
    """Makes an awaitable of a result, or of an awaitable."""
    return (await came) if inspect.isawaitable(came) else came
