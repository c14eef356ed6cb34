"""Calls that are under way: which are the same, which nothing tells apart, and who waits for whom.

A key is one call, however many threads and event loops ask for it. Whoever would wait for itself is told so, and does not hang.
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

# After so long whoever leaves an episode is told what it waits for.
TOLD_AFTER_S = 5.0
# With so many calls of its name, the newest of the turn, one without a key is compared: what is kept of a turn is bounded.
COMPARED_MAX = 100


class Place(NamedTuple):
    """Where a call stands: with a key, calls of the same place are one call."""

    episode: Episode
    turn: int
    name: str
    key: str | None

    def __str__(self) -> str:
        return f"call {self.name!r}" + ("" if self.key is None else f" with key {self.key!r}")


class Written(NamedTuple):
    """What tells a call without a key from others of its name and turn: its arguments, its function, and who makes it."""

    # None if it has none.
    arguments: Any
    fn: Any
    # The task or thread, which may be gone: what one of them does, it does in its program's order.
    who: weakref.ref[Any]

    def is_like(self, other: Written) -> bool:
        """True if a resumed attempt that makes the two in another order would swap their answers, and nobody would be told.

        Several tasks or threads begin their calls in any order, and another the next time. What has other arguments is told
        by these, and the same function with the same arguments may give either answer.
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
        # Nobody who waits for it can cancel it.
        self.done.set_running_or_notify_cancel()
        # What tells it apart from others without a key, once it is made.
        self.written: Written | None = None


# The calls that the running code is part of, outermost first.
_inside: ContextVar[tuple[Flight, ...]] = ContextVar("keepstep_calls", default=())
_lock = threading.Lock()
# For which calls the code inside a call waits.
_waits: dict[Place, list[Place]] = {}
_warned: set[str] = set()


class Flights:
    """The calls of one episode that are under way."""

    __slots__ = ("_answered", "_failed", "_is_left", "_keyed", "_now", "_turn", "_written")

    def __init__(self) -> None:
        self._now: set[Flight] = set()
        self._keyed: dict[Place, Flight] = {}
        # By name: the calls of the turn without a key.
        self._written: dict[str, deque[Written]] = {}
        # Those of them that failed, with their functions: whoever tries one again makes the same call.
        self._failed: dict[str, deque[tuple[Any, Any]]] = {}
        # By name and key: the functions of the calls of the turn that have an answer, and show no arguments.
        self._answered: dict[tuple[str, str], Any] = {}
        self._turn = 0
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

    def write(self, place: Place, written: Written) -> None:
        """Remembers a call without a key, as its program comes to it, and warns if its answer could be swapped."""
        if place.name in _warned:
            return
        with _lock:
            self._go_to(place.turn)
            self._written.setdefault(place.name, deque(maxlen=COMPARED_MAX)).append(written)
        self._warn_of_order(place, written)

    def _go_to(self, turn: int) -> None:
        if self._turn != turn:
            self._written.clear()
            self._failed.clear()
            self._answered.clear()
            self._turn = turn

    def fail(self, place: Place, call: Any, fn: Any) -> None:
        """Remembers a call without a key that failed or was cancelled: it has its number, and no answer."""
        if place.key is None:
            with _lock:
                self._go_to(place.turn)
                self._failed.setdefault(place.name, deque(maxlen=COMPARED_MAX)).append((call, fn))

    def again(self, place: Place, fn: Any, is_called_so: Callable[[Any], bool]) -> Any:
        """The call that failed before and is now tried again, if this is one: a resumed attempt comes to it once."""
        with _lock:
            self._go_to(place.turn)
            alike = [it for it in self._failed.get(place.name, ()) if _is_same_call(it[1], fn)]
        for tried in alike:
            if is_called_so(tried[0]):
                with _lock, contextlib.suppress(KeyError, ValueError):
                    self._failed[place.name].remove(tried)
                    return tried[0]
        return None

    def try_again(self) -> None:
        """The turn is tried again as a whole: its calls are numbered from the first on, by functions that are made anew."""
        with _lock:
            self._failed.clear()
            self._answered.clear()

    def answer(self, place: Place, fn: Any) -> None:
        """Refuses the answer of a key to another call than the one that it was the key of, as far as the functions tell."""
        if place.key is None:
            return
        with _lock:
            self._go_to(place.turn)
            known = self._answered.setdefault((place.name, place.key), fn)
        if not _is_same_call(known, fn):
            raise BadInput(
                f"key: {place.key!r} was the key of another call of {place.name!r} in this turn, which has its answer: give "
                "each call a key of its own, and the arguments behind the function, so that they are compared"
            )

    def tell_apart(self, flight: Flight, written: Written) -> None:
        """Refuses a call without a key that is made beside another, if nothing says which of the two is which."""
        with _lock:
            if any(written.is_like(other) for other in self._beside(flight.place)):
                raise BadInput(
                    f"key: is missing: {flight.place} is made beside another of that name in the same turn, and nothing "
                    "tells the two apart when the attempt is resumed: give each a key=, such as the id of the tool call"
                )
            flight.written = written
        # The other may have been under way when this one was written, and be over now.
        self._warn_of_order(flight.place, written)

    def _beside(self, place: Place) -> list[Written]:
        return [it.written for it in self._now if it.written is not None and it.place == place]

    def _warn_of_order(self, place: Place, written: Written) -> None:
        """Says once for a name that several tasks or threads make calls of it, one after the other, that nothing tells apart.

        Said when they are made: whoever is given a recorded answer cannot know whose it was.
        """
        if place.name in _warned:
            return
        with _lock:
            earlier = self._written.get(place.name, ()) if self._turn == place.turn else ()
            # Mostly all are of one caller, whose references are one object.
            others = [it for it in earlier if it.who is not written.who]
            beside = {id(it) for it in self._beside(place)}
        alike = [it for it in others if written.is_like(it)]
        # What is made beside it is refused.
        if not alike or any(id(it) in beside for it in alike):
            return
        _warned.add(place.name)
        warn_caller(
            f"{place} is made in one turn by several tasks or threads, with the same arguments or none: a resumed attempt is "
            "given the answers in the order in which they ask, which may be another one then: give each a key=",
            RuntimeWarning,
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


def _is_same_call(one: Any, other: Any) -> bool:
    """True if two functions do the same, as far as that can be seen: a lambda that is written once is made many times."""
    if _is_same_function(one, other):
        return True
    if isinstance(one, functools.partial) and isinstance(other, functools.partial):
        same = _is_same_call(one.func, other.func)
        return same and _are_equal((one.args, one.keywords), (other.args, other.keywords))
    code = getattr(one, "__code__", None)
    if code is None or code is not getattr(other, "__code__", None):
        return False
    return all(_are_equal(_seen_by(one, name), _seen_by(other, name)) for name in _SEEN)


# What a function sees beside its arguments.
_SEEN = ("__closure__", "__defaults__", "__kwdefaults__")


def _seen_by(fn: Any, name: str) -> Any:
    seen = getattr(fn, name, None)
    # A cell that is empty yet has no contents.
    return [getattr(cell, "cell_contents", None) for cell in seen or ()] if name == "__closure__" else seen


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:
        # Nothing can be told: arrays are compared one by one.
        return True


def _tell_of_waiting(flights: list[Flight]) -> None:
    names = sorted({str(flight.place) for flight in flights if not flight.done.done()})
    logger.warning(
        "%s is left, and waits for what is under way, so that its answer is recorded: %s; cancel it, or press Ctrl-C, "
        "to leave it at once",
        shown(flights[0].place.episode.ref),
        shown(", ".join(names)),
    )


def _after_fork() -> None:
    """Whoever held the lock, or was waiting, does not exist in the child."""
    global _lock
    _lock = threading.Lock()
    _waits.clear()


os.register_at_fork(after_in_child=_after_fork)
