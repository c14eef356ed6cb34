"""Calls that are under way: which are the same, which nothing tells apart, and who waits for whom.

A key is one call, however many threads and event loops ask for it. Whoever would wait for itself is told so, and does not hang.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
import types
import warnings
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from ._log import logger
from ._loops import _level_of_caller
from .errors import BadInput, Ended

if TYPE_CHECKING:
    from ._episode import Episode

# After so long whoever leaves an episode is told what it waits for.
TOLD_AFTER_S = 5.0


class Place(NamedTuple):
    """Where a call stands: with a key, calls of the same place are one call."""

    episode: Episode
    turn: int
    name: str
    key: str | None

    def __str__(self) -> str:
        return f"call {self.name!r}" + ("" if self.key is None else f" with key {self.key!r}")


class Flight:
    """One call that is being made, by a thread or by a task of an event loop."""

    __slots__ = ("call", "done", "fn", "loop", "place", "thread", "who")

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop | None) -> None:
        self.place, self.loop = place, loop
        self.thread = threading.get_ident()
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        # Nobody who waits for it can cancel it.
        self.done.set_running_or_notify_cancel()
        # What tells it apart from others without a key.
        self.call: Any = None
        self.fn: Any = None
        self.who: Any = None


# The calls that the running code is part of, outermost first.
_inside: ContextVar[tuple[Flight, ...]] = ContextVar("keepstep_calls", default=())
_lock = threading.Lock()
# For which calls the code inside a call waits.
_waits: dict[Place, list[Place]] = {}
_warned: set[str] = set()


class Flights:
    """The calls of one episode that are under way."""

    __slots__ = ("_is_left", "_keyed", "_last", "_now")

    def __init__(self) -> None:
        self._now: set[Flight] = set()
        self._keyed: dict[Place, Flight] = {}
        # By name: the turn, the caller and the function of the newest call without a key and arguments.
        self._last: dict[str, tuple[int, weakref.ref[Any], Any]] = {}
        self._is_left = False

    def begin(self, flight: Flight) -> Flight | None:
        """None if it is begun now, or the one that is on its way under the same key."""
        place = flight.place
        with _lock:
            if self._is_left and not any(it.place.episode is place.episode for it in _inside.get()):
                raise Ended(f"{place.episode.ref} is being left: {place} is not made any more")
            if place.key is not None and (other := self._keyed.setdefault(place, flight)) is not flight:
                return other
            self._now.add(flight)
            return None

    def end(self, flight: Flight) -> None:
        """It came to its end, or was given up."""
        with _lock:
            self._now.discard(flight)
            if self._keyed.get(flight.place) is flight:
                del self._keyed[flight.place]
        if not flight.done.done():
            flight.done.set_result(None)

    def tell_apart(self, flight: Flight, call: Any, fn: Any, who: Any) -> None:
        """Refuses a call without a key that is made beside another, if nothing says which of the two is which.

        One task or thread begins its calls in the order in which its program has them. Several begin them in any order, and
        another the next time: then a resumed attempt would be given one another's answers. What has other arguments is told
        by these, and the same function with the same arguments may give either answer.
        """
        place = flight.place
        with _lock:
            for other in self._now:
                is_same_place = other.call is not None and other.place == place
                if is_same_place and other.who is not who and not _is_same_function(other.fn, fn):
                    if not call.is_same(other.call):
                        continue
                    raise BadInput(
                        f"key: is missing: {place} is made beside another of that name in the same turn, and nothing "
                        "tells the two apart when the attempt is resumed: give each a key=, such as the id of the "
                        "tool call"
                    )
            flight.call, flight.fn, flight.who = call, fn, who

    def warn_of_order(self, place: Place, fn: Any, who: Any) -> None:
        """Says once for a name that its calls have no key and no arguments, and are made by several tasks or threads."""
        turn, was, other = self._last.get(place.name, (place.turn, None, None))
        self._last[place.name] = (place.turn, weakref.ref(who), fn)
        if was is None or turn != place.turn or was() is who or _is_same_function(other, fn):
            return
        with _lock:
            is_beside = any(it.place == place and it.call is not None for it in self._now)
        if is_beside or place.name in _warned:
            return
        _warned.add(place.name)
        warnings.warn(
            f"{place} is made in one turn by several tasks or threads, without arguments: a resumed attempt is given the "
            "answers in the order in which they ask, which may be another one then: give each a key=",
            RuntimeWarning,
            stacklevel=_level_of_caller(),
        )

    def wait(self, flight: Flight, other: Flight) -> None:
        """Waits on this thread until the other is over."""
        with _waiting(flight.place):
            other.done.result()

    async def wait_on_loop(self, flight: Flight, other: Flight) -> None:
        """The same without stopping the event loop."""
        with _waiting(flight.place):
            # Not awaited itself: whoever is cancelled here does not cancel the other.
            await asyncio.wait([asyncio.wrap_future(other.done)])

    def leave(self) -> None:
        """Waits on this thread for the calls of other threads, so that what they give is recorded. None begins any more."""
        if waited := self._left():
            dones = [flight.done for flight in waited]
            if concurrent.futures.wait(dones, TOLD_AFTER_S).not_done:
                _tell_of_waiting(waited)
                concurrent.futures.wait(dones)

    async def leave_on_loop(self) -> None:
        """The same without stopping the event loop, for those of its tasks too."""
        if waited := self._left(asyncio.get_running_loop()):
            dones = [asyncio.wrap_future(flight.done) for flight in waited]
            _, late = await asyncio.wait(dones, timeout=TOLD_AFTER_S)
            if late:
                _tell_of_waiting(waited)
                await asyncio.wait(dones)

    def _left(self, loop: asyncio.AbstractEventLoop | None = None) -> list[Flight]:
        """Those that come to an end while somebody waits: none that waits itself, or whose event loop does not run."""
        here, inside = threading.get_ident(), _inside.get()
        with _lock:
            self._is_left = True
            return [
                it
                for it in self._now
                if it not in inside
                and (it.thread != here or (it.loop is not None and it.loop is loop))
                and (it.loop is None or it.loop.is_running())
            ]


def caller() -> Any:
    """The task that runs, or the thread: what one of them does, it does in its program's order."""
    if asyncio._get_running_loop() is not None and (task := asyncio.current_task()) is not None:
        return task
    return threading.current_thread()


@contextlib.contextmanager
def inside(flight: Flight | None) -> Iterator[None]:
    """What runs now is part of this call."""
    if flight is None:
        yield
        return
    token = _inside.set((*_inside.get(), flight))
    try:
        yield
    finally:
        # A coroutine that nobody awaits to its end is closed wherever that is found out.
        with contextlib.suppress(ValueError):
            _inside.reset(token)


@contextlib.contextmanager
def _waiting(place: Place) -> Iterator[None]:
    """Somebody waits for the call of that place. Refused if that waits for the one who would wait here."""
    mine = [flight.place for flight in _inside.get() if flight.place.key is not None]
    with _lock:
        circle = next((found for found in (_path(place, it) for it in mine) if found), None)
        if circle is None:
            for it in mine:
                _waits.setdefault(it, []).append(place)
    if circle is not None:
        raise BadInput(_told(circle))
    try:
        yield
    finally:
        with _lock:
            for it in mine:
                _waits[it].remove(place)
                if not _waits[it]:
                    del _waits[it]


def _path(start: Place, end: Place) -> list[Place] | None:
    """How one call waits for another, in steps; None if it does not."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for further in _waits.get(way[-1], ()):
            if further not in seen:
                seen.add(further)
                ways.append([*way, further])
    return None


def _told(circle: list[Place]) -> str:
    asked, asking = circle[0], circle[-1]
    if asked == asking:
        return f"key: {asked} asks for itself while it is made, and would wait for ever: give the inner call another key"
    chain = ", which waits for ".join(str(place) for place in circle)
    return f"key: {asking} asks for {chain}: they would wait for one another for ever: give one of them another key"


def _is_same_function(one: Any, other: Any) -> bool:
    if isinstance(one, types.MethodType) and isinstance(other, types.MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return one is other


def _tell_of_waiting(flights: list[Flight]) -> None:
    names = sorted({str(flight.place) for flight in flights if not flight.done.done()})
    logger.warning(
        "%s is left, and waits for what is under way, so that its answer is recorded: %s; cancel it, or press Ctrl-C, "
        "to leave it at once",
        flights[0].place.episode.ref,
        ", ".join(names),
    )


def _after_fork() -> None:
    """Whoever held the lock, or was waiting, does not exist in the child."""
    global _lock
    _lock = threading.Lock()
    _waits.clear()


os.register_at_fork(after_in_child=_after_fork)
