"""A store: where runs are recorded to."""

from __future__ import annotations

import atexit
import os
import threading
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _checks, _core
from ._loops import warn_caller
from ._null import NullStore
from ._run import Run
from ._steps import Both
from .errors import BadInput, ConfigChanged

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._views import View

Level = Literal["kill", "power", "machine"]


class StoreOptions(NamedTuple):
    """How a store was opened: what another process needs to open it again."""

    where: str | None
    level: Level | None
    strict: bool
    lease_s: float
    stall_s: float
    redact: Any
    skip: tuple[str, ...]


def open(
    where: str | PathLike[str] | None,
    *,
    level: Level | None = None,
    strict: bool = False,
    lease_s: float = 30.0,
    stall_s: float = 60.0,
    redact: Callable[[str, Any], Any] | Sequence[str] | None = None,
    skip: Collection[str] = (),
) -> Store:
    """Opens a directory as a store, and creates it if it is not there. None is the null store, which records nothing.

    Parameters:
        where: the directory, or None.
        level: what an acknowledged step must survive. The default is the highest level that the storage supports:
            `power`, or `kill` with a warning if a sync does not reach a disk (tmpfs). A level that it does not
            support raises `LevelOutOfReach`.
        strict: refuse a value that can only be recorded as its `repr`, instead of warning about it once.
        lease_s: after how many seconds without a sign of life a process counts as dead, if its lock is no proof.
        stall_s: how many seconds a step waits for room on a full disk before it raises `DiskFull`.
        redact: names of fields to hide at any depth, compared exactly, upper and lower case included; or a function
            `(path, value)` that returns what to record instead.
        skip: fields of steps that are not recorded, such as `"info"`.
    """
    if where is not None:
        where = place_of(where)
    if isinstance(skip, str):
        raise BadInput(f"skip is {skip!r}: give a collection of field names, skip=[{skip!r}]")
    known = typing.get_type_hints(Both)
    for field in skip:
        if field not in known:
            raise BadInput(
                f"skip: {field!r} is not a field of steps: give some of {', '.join(sorted(known))}"
            )
    if level is not None:
        _checks.one_of("level", level, typing.get_args(Level))
    if isinstance(redact, str):
        raise BadInput(f"redact is {redact!r}: give a sequence of names, redact=[{redact!r}]")
    strict = _checks.flag("strict", strict)
    lease_s, stall_s = _checks.seconds("lease_s", lease_s, zero=False), _checks.seconds("stall_s", stall_s)
    return Store(StoreOptions(where, level, strict, lease_s, stall_s, redact, tuple(skip)))


def place_of(where: str | PathLike[str]) -> str:
    """The absolute path of the directory. An address such as `s3://bucket` is refused, not made a directory."""
    fix = "give a directory, or None for the null store"
    try:
        given = os.fspath(where)
    except TypeError:
        raise _checks.wrong("where", where, fix) from None
    if isinstance(given, bytes):
        raise _checks.wrong("where", where, f"{fix}: os.fsdecode turns bytes into text")
    _checks.text("where", given)
    if not given:
        raise BadInput(f"where is empty: {fix}")
    if "\0" in given:
        raise _checks.wrong("where", given, f"{fix}: a path cannot contain NUL")
    _core.refuse_address(given)
    return os.path.abspath(given)


class Store:
    """A directory that many processes may record to at once."""

    __slots__ = ("__weakref__", "_core", "_options")

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._core: Any
        if options.where is None:
            self._core = NullStore()
            return
        context = _core.Context(strict=options.strict, redact=options.redact, skip=list(options.skip))
        self._core = _core.Store(
            options.where,
            level=options.level,
            lease_s=options.lease_s,
            stall_s=options.stall_s,
            context=context,
        )
        with _lock:
            _closers[:] = [closer for closer in _closers if not closer.is_gone]
            _closers.append(self._core.closer())
        for warning in self._core.warnings:
            warn_caller(f"{options.where}: {warning}", RuntimeWarning)

    @property
    def where(self) -> str | None:
        """The directory; None for the null store."""
        return self._options.where

    @property
    def level(self) -> Level | None:
        """What an acknowledged step survives, unless a higher level is asked for."""
        return self._core.level  # type: ignore[no-any-return]

    def _reached(self, level: Level) -> Level | None:
        """What a synced record survives if this level is asked for: at least the level of the store.

        Raises `LevelOutOfReach` if this storage does not support it.
        """
        _checks.one_of("level", level, typing.get_args(Level))
        return self._core.reach(level)  # type: ignore[no-any-return]

    def run(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        links: Mapping[str, str] | None = None,
        new: bool = False,
        generation: int | None = None,
    ) -> Run:
        """Opens a run, or creates it. A config other than the recorded one is refused. `new` starts a new generation.

        Parameters:
            name: the name of the run.
            config: what all its episodes share. Without it, an existing run is opened with its own config. A run that was
                made with neither config nor links takes the first that are given, as long as no episode of it began.
            links: what the run refers to, by name.
            new: start a new generation of the name.
            generation: open this generation, which must exist. The default is the newest.
        """
        _checks.text("name", name, empty=False)
        _checks.mapping_or_none("config", config)
        named = _checks.mapping_or_none("links", links) or {}
        texts = {key: _checks.text(f"links[{key!r}]", link) for key, link in named.items()}
        number = _checks.whole_or_none("generation", generation)
        _checks.flag("new", new)
        try:
            return Run(self, self._core.run(name, config=config, links=texts, new=new, generation=number))
        except ConfigChanged:
            if config is not None:
                raise
        # Without a config, the run is opened as it is: most readers do not know its config.
        natives = [run for run in self._core.runs() if run.name == name and number in (None, run.generation)]
        return Run(self, max(natives, key=lambda run: run.generation))

    def runs(self) -> Iterator[Run]:
        """All runs of the store."""
        return (Run(self, native) for native in self._core.runs())

    def find(self, ref: str) -> View:
        """Finds an episode by its ref or by the start of its id, for reading."""
        from . import _views

        _checks.text("ref", ref)

        return _views.find(self._core, ref)

    def reap(self) -> int:
        """Marks attempts of dead processes as `crashed`. Returns how many there were."""
        return int(self._core.reap())

    def stats(self) -> Mapping[str, int]:
        """Counts of what this process has recorded."""
        return dict(self._core.stats())

    def close(self) -> None:
        """Writes everything that is queued, and closes the store. Episodes that are still open end as `aborted`."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[StoreOptions], Store], tuple[StoreOptions]]:
        return shared_store, (self._options,)

    def __repr__(self) -> str:
        return "<Store: null>" if self.where is None else f"<Store {self.where}>"


# Of all stores in use: an episode uses its store even if the Store object itself is gone.
_closers: list[_core.Closer] = []
_shared: dict[tuple[int, StoreOptions], Store] = {}
_lock = threading.RLock()


def shared_store(options: StoreOptions) -> Store:
    """The store for runs that other processes sent to this one: opened once."""
    if options.where is None:
        return Store(options)
    with _lock:
        key = (os.getpid(), options._replace(redact=repr(options.redact)))
        if key not in _shared:
            _shared[key] = Store(options)
        return _shared[key]


@atexit.register
def _close_all() -> None:
    """At a clean exit, all episodes that are still open get an end."""
    while _closers:
        # Threads that are still running may open more meanwhile.
        with _lock:
            closers = list(_closers)
            _closers.clear()
        for closer in closers:
            closer.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
