"""Calls that are running: which are the same, which cannot be told apart, and which wait for which.

A key is one call, however many threads and event loops ask for it. A call that would wait for itself is refused: it never hangs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from ._log import logger, shown
from ._loops import warn_caller
from .errors import BadInput, Ended

if TYPE_CHECKING:
    from ._episode import Episode

# After how many seconds the log says what leaving an episode waits for.
TOLD_AFTER_S = 5.0
# A call without a key is compared with this many calls of its name, the newest of the turn: so memory is bounded.
COMPARED_MAX = 100


class Place(NamedTuple):
    """What a call is known by. With a key, calls of the same place are one call."""

    episode: Episode
    turn: int
    name: str
    key: str | None

    def __str__(self) -> str:
        return f"call {self.name!r}" + ("" if self.key is None else f" with key {self.key!r}")


class Written(NamedTuple):
    """What tells a call without a key apart from others of its name and turn: arguments, function, and the caller."""

    # None if it has none.
    arguments: Any
    fn: Any
    # The task or thread, which may be gone. The calls of one task or thread come in the order of its program.
    who: weakref.ref[Any]
    # The try of a turn that it began in.
    tried: int

    def is_like(self, other: Written) -> bool:
        """True if a resumed attempt that makes the two calls in another order would swap their results without an error.

        Several tasks or threads may begin their calls in another order each time. Calls with different arguments are told
        apart by these. For the same function with the same arguments, either result will do.
        """
        if self.who == other.who or _is_same_function(self.fn, other.fn):
            return False
        if self.arguments is None or other.arguments is None:
            return self.arguments is other.arguments
        return bool(self.arguments.is_same(other.arguments))


class Flight:
    """One call that is being made, by a thread or by a task of an event loop."""

    __slots__ = ("done", "loop", "place", "thread", "written")

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop | None) -> None:
        self.place, self.loop = place, loop
        self.thread = threading.get_ident()
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()
        # So that no waiter can cancel it.
        self.done.set_running_or_notify_cancel()
        # What tells it apart from other calls without a key, once it is made.
        self.written: Written | None = None


# The calls that the running code is part of, outermost first.
_inside: ContextVar[tuple[Flight, ...]] = ContextVar("keepstep_calls", default=())
_lock = threading.Lock()
# By call: the calls that the code inside it waits for.
_waits: dict[Place, list[Place]] = {}
_warned: set[str] = set()


class Flights:
    """The running calls of one episode."""

    __slots__ = ("_answered", "_failed", "_is_left", "_keyed", "_now", "_tried", "_written")

    def __init__(self) -> None:
        self._now: set[Flight] = set()
        self._keyed: dict[Place, Flight] = {}
        # The newest try of a turn; the engine numbers them. A call belongs to the try that it began in, and is compared
        # with others of it only, also if it ends when the next one has begun.
        self._tried = 0
        # By name: the calls of the try without a key.
        self._written: dict[str, deque[Written]] = {}
        # Those of them that failed, by try and name, with their functions: trying one again is the same call.
        self._failed: dict[tuple[int, str], deque[tuple[Any, Any]]] = {}
        # By try, name and key: the functions of the calls that have a result and no arguments.
        self._answered: dict[tuple[int, str, str], Any] = {}
        self._is_left = False

    def begin_try(self, tried: int) -> None:
        """A call begins in this try. In a new one, calls are numbered from the first on, and may have new function objects."""
        with _lock:
            if tried > self._tried:
                self._tried = tried
                self._written.clear()
                self._failed.clear()
                self._answered.clear()

    def begin(self, flight: Flight) -> Flight | None:
        """Begins a call and returns None, or returns the call that is already running with the same key."""
        place = flight.place
        with _lock:
            if self._is_left and not any(it.place.episode is place.episode for it in _inside.get()):
                raise Ended(
                    f"{place.episode.ref} is being left, so {place} was not made: make all calls before you leave the episode"
                )
            if place.key is not None and (other := self._keyed.setdefault(place, flight)) is not flight:
                return other
            self._now.add(flight)
            return None

    def end(self, flight: Flight) -> None:
        """The call has ended, or was given up."""
        with _lock:
            self._now.discard(flight)
            if self._keyed.get(flight.place) is flight:
                del self._keyed[flight.place]
        if not flight.done.done():
            flight.done.set_result(None)

    def write(self, place: Place, written: Written) -> None:
        """Remembers a call without a key when the program makes it, and warns if its result could be swapped."""
        if place.name in _warned:
            return
        with _lock:
            if written.tried == self._tried:
                self._written.setdefault(place.name, deque(maxlen=COMPARED_MAX)).append(written)
        self._warn_of_order(place, written)

    def fail(self, place: Place, tried: int, call: Any, fn: Any) -> None:
        """Remembers a call that failed, was cancelled or could not be recorded: it has its number in the turn, and no result."""
        with _lock:
            if place.key is None:
                failed = self._failed.setdefault((tried, place.name), deque(maxlen=COMPARED_MAX))
                failed.append((call, fn))
            elif self._answered.get(answered := (tried, place.name, place.key)) is fn:
                del self._answered[answered]

    def again(self, place: Place, tried: int, fn: Any, is_called_so: Callable[[Any], bool]) -> Any:
        """The failed call that this one tries again, if there is one: a resumed attempt makes only one of them."""
        with _lock:
            alike = [it for it in self._failed.get((tried, place.name), ()) if _is_same_call(it[1], fn)]
        for failed in alike:
            if is_called_so(failed[0]):
                with _lock, contextlib.suppress(KeyError, ValueError):
                    self._failed[tried, place.name].remove(failed)
                    return failed[0]
        return None

    def answer(self, place: Place, tried: int, fn: Any) -> None:
        """Refuses the result of a key to a different call, as far as the functions show that it is different."""
        if place.key is None:
            return
        with _lock:
            known = self._answered.setdefault((tried, place.name, place.key), fn)
        if not _is_same_call(known, fn):
            raise BadInput(
                f"key: {place.key!r} is the key of another call of {place.name!r} in this turn, which has its result already: "
                "give each call a key of its own, and pass arguments after the function, so that they are compared"
            )

    def tell_apart(self, flight: Flight, written: Written) -> None:
        """Refuses a call without a key while another one runs, if nothing tells the two apart."""
        with _lock:
            if any(written.is_like(other) for other in self._beside(flight.place)):
                raise BadInput(
                    f"key is missing: {flight.place} is made while another call of that name runs in the same turn, and "
                    "nothing would tell the two apart when the attempt is resumed: give each a key=, such as the id of the "
                    "tool call"
                )
            flight.written = written
        # The other may have been running when this one got its number, and be over now.
        self._warn_of_order(flight.place, written)

    def _beside(self, place: Place) -> list[Written]:
        return [it.written for it in self._now if it.written is not None and it.place == place]

    def _warn_of_order(self, place: Place, written: Written) -> None:
        """Warns once for each name if several tasks or threads make calls, one after the other, that nothing tells apart.

        It warns when the calls are made: later, nothing shows whose result a recorded one was.
        """
        if place.name in _warned:
            return
        with _lock:
            earlier = self._written.get(place.name, ()) if self._tried == written.tried else ()
            # Mostly all calls have one caller, whose references are one object.
            others = [it for it in earlier if it.who is not written.who]
            beside = {id(it) for it in self._beside(place)}
        alike = [it for it in others if written.is_like(it)]
        # Calls that run at the same time are refused elsewhere.
        if not alike or any(id(it) in beside for it in alike):
            return
        _warned.add(place.name)
        warn_caller(
            f"{place} is made by several tasks or threads in one turn, with the same arguments or none: a resumed attempt gets "
            "the results in the order in which it makes the calls, which may differ: give each call a key=",
            RuntimeWarning,
        )

    def wait(self, flight: Flight, other: Flight) -> None:
        """Waits on this thread until the other is over."""
        with _waiting(flight.place):
            other.done.result()

    async def wait_on_loop(self, flight: Flight, other: Flight) -> None:
        """The same without blocking the event loop."""
        with _waiting(flight.place):
            # Not awaited itself: a cancellation here must not cancel the other.
            await asyncio.wait([asyncio.wrap_future(other.done)])

    def leave(self) -> None:
        """Waits on this thread for the calls of other threads, so that their results are recorded. No new ones begin."""
        if waited := self._left():
            dones = [flight.done for flight in waited]
            if concurrent.futures.wait(dones, TOLD_AFTER_S).not_done:
                _tell_of_waiting(waited)
                concurrent.futures.wait(dones)

    async def leave_on_loop(self) -> None:
        """The same without blocking the event loop, for the calls of its tasks too."""
        if waited := self._left(asyncio.get_running_loop()):
            dones = [asyncio.wrap_future(flight.done) for flight in waited]
            _, late = await asyncio.wait(dones, timeout=TOLD_AFTER_S)
            if late:
                _tell_of_waiting(waited)
                await asyncio.wait(dones)

    def _left(self, loop: asyncio.AbstractEventLoop | None = None) -> list[Flight]:
        """The calls that can end during the wait: not those that the waiter is part of, or whose event loop does not run."""
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
    """The running task, or the thread: the calls of one of them come in the order of its program."""
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
        # A coroutine that is never awaited to its end may be closed in another context.
        with contextlib.suppress(ValueError):
            _inside.reset(token)


@contextlib.contextmanager
def _waiting(place: Place) -> Iterator[None]:
    """Notes that the running calls wait for the call of that place. Refused if that one waits for one of them."""
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
    """The chain by which one call waits for another; None if it does not."""
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
        return f"key: {asked} asks for itself while it runs, and would wait for ever: give the inner call another key"
    chain = ", which waits for ".join(str(place) for place in circle)
    return f"key: {asking} asks for {chain}: they would wait for one another for ever: give one of them another key"


def _is_same_function(one: Any, other: Any) -> bool:
    if isinstance(one, types.MethodType) and isinstance(other, types.MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return one is other


def _is_same_call(one: Any, other: Any) -> bool:
    """True if two functions do the same, as far as that can be seen: one lambda in the source makes many objects."""
    if _is_same_function(one, other):
        return True
    if isinstance(one, functools.partial) and isinstance(other, functools.partial):
        same = _is_same_call(one.func, other.func)
        return same and _are_equal((one.args, one.keywords), (other.args, other.keywords))
    if isinstance(one, types.MethodType) and isinstance(other, types.MethodType):
        # A method shows the code of its function: that of another object may be the fallback, not the same call.
        return one.__func__ is other.__func__ and _are_equal(one.__self__, other.__self__)
    code = getattr(one, "__code__", None)
    if code is None or code is not getattr(other, "__code__", None):
        return False
    return all(_are_equal(_seen_by(one, name), _seen_by(other, name)) for name in _SEEN)


# What a function sees besides its arguments.
_SEEN = ("__closure__", "__defaults__", "__kwdefaults__")


def _seen_by(fn: Any, name: str) -> Any:
    seen = getattr(fn, name, None)
    # A cell that is empty yet has no contents.
    return [getattr(cell, "cell_contents", None) for cell in seen or ()] if name == "__closure__" else seen


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:
        # Cannot be told: comparing arrays gives an array.
        return True


def _tell_of_waiting(flights: list[Flight]) -> None:
    names = sorted({str(flight.place) for flight in flights if not flight.done.done()})
    logger.warning(
        "leaving %s waits for running calls, so that their results are recorded: %s; to leave at once, cancel the task or "
        "press Ctrl-C",
        shown(flights[0].place.episode.ref),
        shown(", ".join(names)),
    )


def _after_fork() -> None:
    """The threads that held the lock or were waiting do not exist in the child."""
    global _lock
    _lock = threading.Lock()
    _waits.clear()


os.register_at_fork(after_in_child=_after_fork)
