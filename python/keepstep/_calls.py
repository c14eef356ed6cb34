"""Calls whose results are recorded: made once, and given again to whoever comes to the same place."""

from __future__ import annotations

import asyncio
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _checks
from ._endings import error_of
from ._flights import Flight, Place, Written, caller, inside
from ._log import logger, shown
from ._loops import is_on_loop, warn_of_blocking_call
from ._returns import Misfit, back_of
from .errors import BadInput, Closed, Diverged, Ended, Fenced, KeepstepError

if TYPE_CHECKING:
    from ._episode import Episode


class Calling:
    """One call on its way."""

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
        self._turn = self._native.steps
        self._name, self._fn, self._args, self._kwargs, self._key = name, fn, args, kwargs, key
        self._place = Place(episode, self._turn, name, key)
        self._written: Written | None = None
        # Before the call: what it comes back as depends on nothing that it gives.
        self._back, self._returns = back_of(fn, returns), returns

    def made(self) -> tuple[bool, Any]:
        """Makes the call, or finds it: whether its result is to be awaited, and the result or what gives it.

        With a key it waits for another thread that is making the same call.
        """
        flights, flight = self._episode._flights, Flight(self._place, None)
        while (other := flights.begin(flight)) is not None:
            if other.loop is not None and is_on_loop():
                # Waiting here would stop the loop: what is to be awaited waits when it is.
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
            # Nothing tells from outside that this function gives an awaitable: so the record does.
            return True, self._one_at_a_time(found, lambda: came, awaited=True)
        warn_of_blocking_call(self._name)
        came, given = self._came(found, came)
        try:
            self._native.record_call(found, came, False, True)
        except (Ended, Closed) as over:
            self._tell_late(over)
        return False, given

    def awaited(self) -> Any:
        """The same for a function that is known to give an awaitable: it is called when that is awaited.

        Which call of the turn it is, is said now: those of a `gather` are told apart by the order in which they are written.
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
        """Makes the call, when the same one is not on its way: a key is one call, live as in the record.

        Whoever had to wait looks again, and is given what was recorded, or told that it asked for something else.
        """
        flights, flight = self._episode._flights, Flight(self._place, asyncio.get_running_loop())
        is_made = False
        try:
            while (other := flights.begin(flight)) is not None:
                await flights.wait_on_loop(flight, other)
            # Another may have been recorded since this one was written, or while it was waited for.
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
                flights.fail(self._place, call, self._fn)
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
        was_awaited: bool | None = None
        if self._key is not None or (found := flights.again(self._place, self._fn, is_called_so)) is None:
            was_awaited, found = self._native.known(self._name, self._key, arguments)
        if was_awaited is not None:
            self._episode._is_unread = False
            self._answered()
        # With arguments, only what is made now can be compared: of what is given again there is nothing to compare.
        if self._key is None and (was_awaited is None or not arguments):
            self._written = Written(found if arguments else None, self._fn, weakref.ref(caller()))
            flights.write(self._place, self._written)
        return was_awaited, found

    def _is_called_so(self, arguments: Any, call: Any) -> bool:
        return bool(self._native.is_called_so(call, arguments))

    def _answered(self) -> None:
        """Arguments are compared by the engine; where there are none, only the functions tell calls of one key apart."""
        if not self._args and not self._kwargs:
            self._episode._flights.answer(self._place, self._fn)

    def _make(self, call: Any) -> Any:
        try:
            return self._fn(*self._args, **self._kwargs)
        except BaseException as raised:
            self._failed(call, raised)
            raise

    def _failed(self, call: Any, raised: BaseException) -> None:
        """An error is recorded; of what was cancelled nobody knows what came of it. Either may be tried again."""
        self._episode._flights.fail(self._place, call, self._fn)
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
        return given

    def _came(self, call: Any, value: Any) -> tuple[Any, Any]:
        """What is recorded of a result, and what is given to the caller: the same as a resumed attempt is given."""
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
        return f"name the class that it really is by {named}, or register it with keepstep.register"

    def _given_again(self, found: Any) -> Any:
        if self._back is None:
            return found
        try:
            return self._back.make(found, "result")
        except Misfit as misfit:
            raise Diverged(
                f"call {self._name!r}: what was recorded is not what is asked for now: {misfit}; name the class that it was "
                f"recorded as, give the call another key=, resume before it with at={self._turn}, or begin again with "
                'resume="restart"'
            ) from None

    def _record_failed(self, call: Any, raised: Exception) -> None:
        try:
            self._episode._keep(self._native.record_failed_call(call, error_of(raised)))
        except (Ended, Closed, Fenced) as over:
            self._tell_late(over)
        except Exception:
            self._episode._note_failure()

    def _tell_late(self, over: KeepstepError) -> None:
        """A call that began before the episode was over, such as one of several at once of which another failed."""
        logger.warning(
            "%s of %s came to its end too late to be recorded: %s",
            shown(str(self._place)),
            shown(self._episode.ref),
            shown(str(over)),
        )


def check_function(name: str, given: Any) -> None:
    """Refuses what a function gave in place of the function: a recorded call has to be found before it is made."""
    if callable(given):
        return
    # A coroutine has the name of its function.
    function = getattr(given, "__name__", "")
    function = function if function.isidentifier() else "ask"
    fix = f"give the function itself, and its arguments behind it: episode.call({name!r}, {function}, ...)"
    _close(given)
    raise _checks.wrong("fn", given, fix)


def _close(came: Any) -> None:
    """Gives up what was made for nothing, and never begun: Python would warn that nobody awaits it."""
    if inspect.iscoroutine(came) and inspect.getcoroutinestate(came) == inspect.CORO_CREATED:
        came.close()


async def _failing(failed: Exception) -> Any:
    raise failed


async def settled(came: Any) -> Any:
    """An awaitable of what is there, or will be."""
    return (await came) if inspect.isawaitable(came) else came
