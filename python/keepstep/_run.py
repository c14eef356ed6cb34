"""A run: episodes, plans, groups, streams, notes, and reading them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from . import _checks
from ._endings import RETRIED, Why
from ._episode import Episode
from ._log import logger, shown
from ._loops import submit_in_thread, warn_if_on_loop
from ._progress import Progress, log_given_up, log_held, progress_of
from ._sealing import Sealing
from ._turn import check_on_error
from .errors import BadInput, NotFound

if TYPE_CHECKING:
    from ._store import Store
    from ._table import Table
    from ._views import GroupView, View


def _on_error_of(options: dict[str, Any]) -> Any:
    """Takes `on_error`, which the engine does not know, out of the options of an episode, and checks `retry`."""
    if "retry" in options:
        options["retry"] = _checks.some_of("retry", options["retry"], RETRIED)
    return options.pop("on_error", "fail")


def _is_told(options: Mapping[str, Any]) -> bool:
    """True if the caller says what to do with recorded steps: then no warning about them is needed."""
    return "resume" in options or "at" in options


class Run:
    """A named set of episodes with one config. It can be pickled: another process then opens the same run."""

    __slots__ = ("__weakref__", "_core", "_store")

    def __init__(self, store: Store, native: Any) -> None:
        self._store = store
        self._core = native

    @property
    def name(self) -> str:
        """The name of the run."""
        return str(self._core.name)

    @property
    def store(self) -> Store:
        """The store that the run is in."""
        return self._store

    @property
    def config(self) -> Mapping[str, Any]:
        """What all its episodes share."""
        return self._core.config or {}

    @property
    def links(self) -> Mapping[str, str]:
        """What the run refers to, by name."""
        return dict(self._core.links)

    @property
    def generation(self) -> int:
        """Which generation of the name this is, from 0."""
        return int(self._core.generation)

    def episode(
        self, task: str | None = None, *, sample: int = 0, iteration: int = 0, **options: Any
    ) -> Episode:
        """An episode, to be entered with `with`. It is a new one, or resumes where an interrupted attempt stopped.

        Parameters:
            task: the name of the task. Without one, the episode gets a unique name.
            sample: which sample of the task.
            iteration: which visit to the task, for training that comes back to it.
            **options: how to open it, see `Opts`.
        """
        iteration, sample = _checks.whole("iteration", iteration), _checks.whole("sample", sample)
        if task is not None:
            ref = self._core.ref_of(_checks.text("task", task, empty=False), iteration, sample)
        else:
            ref = f"{self.name}/(unnamed)"
        open = functools.partial(self._core.open, task, iteration, sample)
        on_error, is_told = _on_error_of(options), _is_told(options)
        if options.get("busy") != "wait":
            return Episode(ref, functools.partial(open, options), on_error=on_error, is_told=is_told)
        at_once = functools.partial(open, {**options, "busy": "raise"})
        return Episode(ref, functools.partial(open, options), at_once, on_error, is_told)

    def group(self, task: str, *, size: int, iteration: int = 0) -> Group:
        """The samples of one task and iteration, to be sealed together. Reads and writes nothing. If the size differs from
        the one that was planned, recorded or sealed, `claim` and `seal` refuse it, before anything is recorded.
        """
        _checks.text("task", task, empty=False)
        size = _checks.whole("size", size, 1, _checks.SAMPLES_MAX)
        iteration = _checks.whole("iteration", iteration)
        return Group(self, self._core.group(task, iteration, size), task, iteration)

    def plan(
        self, tasks: Iterable[str], *, samples: int = 1, iteration: int = 0, needs: Collection[str] = ()
    ) -> None:
        """Plans samples of each task. Durable when it returns. Planning the same episodes again adds nothing.

        Parameters:
            tasks: the names of the tasks.
            samples: how many episodes of each task.
            iteration: which visit to the tasks.
            needs: names of notes that an episode needs to count as done.
        """
        named = _checks.texts("tasks", tasks, empty=False)
        samples = _checks.whole("samples", samples, 1, _checks.SAMPLES_MAX)
        iteration = _checks.whole("iteration", iteration)
        notes = [_checks.own_name("needs", note) for note in _checks.texts("needs", needs)]
        self._core.plan(named, samples, iteration, notes)

    def remaining(self, *, retry: Collection[Why] = (), max_attempts: int = 3, pause_s: float = 1.0) -> Jobs:
        """Yields the episodes of the plan that are still to be run, each claimed for this process.

        Episodes that other processes left interrupted come first. Then come new ones, those that this process left,
        truncated ones if `retry` asks for them, and errored ones. When nothing is left, the log names the episodes
        that were given up. Episodes that only lack a note come from `unscored`.

        Parameters:
            retry: endings to resume from that are final otherwise: `["truncated"]`. Each process that asks gets such
                an episode once.
            max_attempts: how often in a row an episode may be `errored`, without an attempt that added more than one step
                (which may be the one that failed), before it is given up. A higher number brings it back. An episode
                that this process left this often without an end and without a new step, or released this often before
                it was opened, is not given to it again.
            pause_s: how many seconds to wait before an episode is given again after this process saw it `errored`;
                doubled with each error in a row. If nothing else is left, the call waits for it.
        """
        endings = _checks.some_of("retry", retry, RETRIED)
        most = _checks.whole("max_attempts", max_attempts, 1, _checks.TIMES_MAX)
        pause = _checks.seconds("pause_s", pause_s)
        return Jobs(self, self._core.remaining(endings, most, pause, False), log_given_up)

    def unscored(self) -> Jobs:
        """Yields episodes that are over and lack a note that the plan needs. Each is claimed for scoring: annotate
        `job.ref`.

        Episodes that this process has claimed already are left out, and so are those that it annotated three times
        without the note that is needed. The log names them.
        """
        return Jobs(self, self._core.remaining([], 1, 0.0, True), log_held)

    def progress(self, *, max_attempts: int = 3) -> Progress:
        """How far the plan is, now. Claims and writes nothing.

        Parameters:
            max_attempts: how often in a row an episode may be `errored` before it counts as given up, as in `remaining`.
        """
        most = _checks.whole("max_attempts", max_attempts, 1, _checks.TIMES_MAX)
        return progress_of(self._core.progress(most))

    def claim(
        self, *, retry: Collection[Why] = (), max_attempts: int = 3, pause_s: float = 1.0
    ) -> Job | None:
        """Claims one job that is still to be run; None if there is none now. Waits as `remaining` does."""
        return next(self.remaining(retry=retry, max_attempts=max_attempts, pause_s=pause_s), None)

    def annotate(self, ref: str, name: str, value: Any, *, source: str, step: int | None = None) -> Any:
        """Adds a note to an episode of this run, an attempt at it, or a step. Returns at once.

        Parameters:
            ref: what the note is about: `run/task#iteration.sample~attempt@step`; later parts are optional. It must
                be there: an episode that began, an attempt at it, a step that was recorded. A full name costs one
                look-up. A task alone is searched for, and must have one episode.
            name: the name of the note. The newest of each name and source counts; older ones stay readable.
            value: the value. None is a value like any other: it satisfies a plan that needs the note.
            source: who gives the note.
            step: the step, if `ref` does not name it.
        """
        _checks.text("ref", ref)
        _checks.own_name("name", name)
        _checks.text("source", source, empty=False)
        return self._core.annotate(ref, _checks.whole_or_none("step", step), name, value, source)

    def episodes(
        self,
        *,
        task: str | None = None,
        iteration: int | None = None,
        ends: Collection[Why] | None = None,
        reward: tuple[float, float] | None = None,
        policy: int | str | None = None,
        since: float | None = None,
        attempts: Literal["last", "all"] = "last",
        after: str | None = None,
        follow: bool = False,
    ) -> Iterator[View]:
        """The episodes that match. With `after` or `follow`, only those that recorded their end, as the ends come in.

        Parameters:
            task: only of this task.
            iteration: only of this iteration.
            ends: only episodes with one of these endings; `View.state` also tells of those without an end. `crashed`
                and `superseded` are found by other processes, so they never come with `after` or `follow`, which
                refuse them.
            reward: only those whose reward is at least the first and at most the second number.
            policy: only those with a step of this policy version.
            since: only those with a step since this time, in seconds since 1970.
            attempts: the last attempt at each episode, or all attempts. With `last`, following may leave out the end
                of an attempt that was resumed.
            after: continue after this cursor, or from the beginning with `""`. That is exact, also in another process.
                The ends that one process recorded come in their order; those of several, in any order beside each
                other.
            follow: first all that ended before, from the beginning or from the cursor; then wait for more, for ever.
        """
        from . import _views

        return _views.episodes(
            self._core,
            task=task,
            iteration=iteration,
            ends=ends,
            reward=reward,
            policy=policy,
            since=since,
            attempts=attempts,
            after=after,
            follow=follow,
        )

    def groups(
        self, *, after: str | None = None, follow: bool = False, min_policy: int | None = None
    ) -> Iterator[GroupView]:
        """The sealed groups of the run; with `follow`, also those that are sealed from now on."""
        from . import _views

        return _views.groups(self._core, after=after, follow=follow, min_policy=min_policy)

    def stream(self, name: str) -> Stream:
        """A stream of this run, by name."""
        _checks.text("name", name, empty=False)
        return Stream(self._core.stream(name))

    def table(
        self, of: Literal["episodes", "steps", "tokens", "notes"], columns: Sequence[str] | None = None
    ) -> Table:
        """A table of the run, for pyarrow, polars, pandas, DuckDB and datasets."""
        from . import _views

        return _views.table(self._core, of, columns)

    def __reduce__(self) -> tuple[Callable[..., Run], tuple[Any, ...]]:
        # The config of the null store's runs is recorded nowhere, so it is sent along.
        config = self.config if self._store.where is None else None
        return _reopen, (self._store._options, self.name, self._core.generation_id, config)

    def __repr__(self) -> str:
        generation = f", generation {self.generation}" if self.generation else ""
        return f"<Run {self.name!r}{generation} in {self._store.where}>"


def _reopen(options: Any, name: str, generation_id: str, config: Mapping[str, Any] | None) -> Run:
    from ._store import shared_store

    store = shared_store(options)
    if options.where is None:
        return store.run(name, config=config)
    for run in store.runs():
        if run._core.generation_id == generation_id:
            return run
    raise NotFound(f"run {name!r} ({generation_id}) is not in {options.where} any more")


class Job:
    """An episode of a plan that is still to be run, claimed for this process."""

    __slots__ = ("_core", "_run")

    def __init__(self, run: Run, native: Any) -> None:
        self._run = run
        self._core = native

    @property
    def task(self) -> str:
        """The task."""
        return str(self._core.task)

    @property
    def sample(self) -> int:
        """Which sample of the task."""
        return int(self._core.sample)

    @property
    def iteration(self) -> int:
        """Which visit to the task."""
        return int(self._core.iteration)

    @property
    def attempts(self) -> int:
        """How many attempts at it were claimed before, including those that died before they recorded anything."""
        return int(self._core.attempts)

    @property
    def why(self) -> str:
        """How the last attempt ended; or `new`, or `unscored`."""
        return str(self._core.why)

    @property
    def ref(self) -> str:
        """How people and commands name the episode."""
        return str(self._core.ref)

    def episode(self, **options: Any) -> Episode:
        """The episode, to be entered with `with`."""
        on_error = _on_error_of(options)
        open = functools.partial(self._core.open, options)
        return Episode(self.ref, open, on_error=on_error, is_told=_is_told(options))

    def __repr__(self) -> str:
        return f"<Job {self.ref}: {self.why}, {self.attempts} attempts before>"


NAP_S = 1.0
"""How many seconds a wait for a job lasts at most before it looks again: a process may have died meanwhile."""
KEPT_NAP_S = 0.01
"""How many seconds to wait for a thread that is taking a job for a cancelled task."""


class Jobs:
    """Yields jobs and claims them, with `for` or `async for`. Threads and tasks may share it: each job goes to one of them."""

    __slots__ = ("_at_the_end", "_kept", "_left_alone", "_native", "_run", "given")

    def __init__(self, run: Run, native: Any, at_the_end: Callable[[Run, Any], None] | None = None) -> None:
        self._run = run
        self._native = native
        self._at_the_end = at_the_end
        # Jobs that were taken for a task that was cancelled meanwhile: the next caller gets them.
        self._kept: deque[Job] = deque()
        # What threads are taking for such tasks.
        self._left_alone: set[Future[Job | float | None]] = set()
        self.given = 0

    def __iter__(self) -> Jobs:
        return self

    def __next__(self) -> Job:
        """The next job. Raises StopIteration when nothing is left now, and logs the episodes that were given up."""
        warn_if_on_loop("use `async for`, or `await anext(jobs, None)` for one job", waits_for="a job")
        while not isinstance(job := self._take(), Job):
            if job is None:
                raise StopIteration
            time.sleep(min(job, NAP_S))
        return job

    def __aiter__(self) -> Jobs:
        return self

    async def __anext__(self) -> Job:
        """As `next()`, without blocking the event loop: claiming waits for the disk."""
        while not isinstance(job := await self._take_beside(), Job):
            if job is None:
                raise StopAsyncIteration
            await asyncio.sleep(min(job, NAP_S))
        return job

    async def _take_beside(self) -> Job | float | None:
        taking = submit_in_thread(self._take)
        try:
            return await asyncio.wrap_future(taking)
        except BaseException:
            # A thread that has started cannot be stopped. A job that it takes is kept, or it would count as released.
            self._left_alone.add(taking)
            taking.add_done_callback(self._keep)
            raise

    def _keep(self, taking: Future[Job | float | None]) -> None:
        if not taking.cancelled() and taking.exception() is None and isinstance(job := taking.result(), Job):
            self.given -= 1
            self._kept.append(job)
        self._left_alone.discard(taking)

    def _take(self) -> Job | float | None:
        """The next job; or how long to wait before asking again; or None, when nothing is left."""
        job = self._taken_before()
        if job is None:
            native = self._native.take()
            if native is None:
                return self._nothing()
            if isinstance(native, float):
                return native
            job = Job(self._run, native)
        self.given += 1
        return job

    def _nothing(self) -> float | None:
        if self._left_alone or self._kept:
            return KEPT_NAP_S
        if self._at_the_end is not None:
            self._at_the_end(self._run, self._native)
        return None

    def _taken_before(self) -> Job | None:
        try:
            return self._kept.popleft()
        except IndexError:
            return None

    def __repr__(self) -> str:
        return f"<Jobs of {self._run.name}: {self.given} given>"


class Group:
    """The samples of one task and iteration, sealed together."""

    __slots__ = ("_core", "_run", "iteration", "task")

    def __init__(self, run: Run, native: Any, task: str, iteration: int) -> None:
        self._run = run
        self._core = native
        self.task = task
        self.iteration = iteration

    @property
    def refs(self) -> tuple[str, ...]:
        """The refs of its episodes, by sample."""
        return tuple(ref for ref, _ in self._core.members())

    def claim(self, **options: Any) -> Episode | None:
        """Claims the next sample that needs work, as an episode; None if none needs work now."""
        on_error = check_on_error(_on_error_of(options))
        warn_if_on_loop("use `await asyncio.to_thread(group.claim)`")
        native = self._core.claim(options)
        if native is None:
            return None
        return Episode(native.ref, lambda: native, on_error=on_error, is_told=_is_told(options))

    def seal(
        self, rewards: Mapping[str, float] | None = None, *, source: str, least: int | None = None
    ) -> Any:
        """Seals the group, all or none, with rewards by the refs of its episodes. Trainers see it from then on.

        Parameters:
            rewards: rewards by ref.
            source: who gives them.
            least: seal even if members are missing, as long as this many are there.
        """
        given = _checks.mapping_or_none("rewards", rewards)
        by_id = None if given is None else [self._rewarded(ref, reward) for ref, reward in given.items()]
        _checks.text("source", source, empty=False)
        most = _checks.whole_or_none("least", least, 1)
        return Sealing(
            self._run.store, self._core.ref, functools.partial(self._core.seal, by_id, source, most)
        )

    def _rewarded(self, ref: str, reward: Any) -> tuple[str, str, float]:
        number = _checks.number_or_none(f"rewards[{ref!r}]", reward, "give a float")
        if number is None:
            raise _checks.wrong(f"rewards[{ref!r}]", reward, "give a float, or leave it out")
        self._core.warn_of_nan(number)
        try:
            return ref, self._run._core.episode_id(ref), number
        except (NotFound, BadInput) as error:
            raise type(error)(
                f"rewards[{ref!r}]: {error}; the refs of the group are group.refs: {self.refs[0]!r}, …"
            ) from None

    def __repr__(self) -> str:
        return f"<Group {self._core.ref} of {len(self._core.members())}>"


class Stream:
    """An append-only set of entries that many processes share until one of them freezes it."""

    __slots__ = ("_core",)

    def __init__(self, native: Any) -> None:
        self._core = native

    def put(self, id: str, value: Any) -> Any:
        """Adds an entry. Adding the same one again is fine; another value under the same id is refused.

        The order of keys and the types count: unlike arguments of calls, values are not compared as data.
        """
        _checks.text("id", id, empty=False)
        return self._core.put(id, value)

    def read(self, *, partial: bool = False) -> Mapping[str, Any]:
        """The entries that are in it now, by id.

        Two processes that did not see each other may have put two values under one id; entries may also be lost to damage.
        Then it raises `BadInput` or `Damaged`; with `partial=True` it gives the other entries, and logs what is left out.

        What this process has read before is kept in memory, up to a limit, and not read again: damage to that does not take
        it away. `freeze` always reads everything again.
        """
        return self._logged(self._core.read(_checks.flag("partial", partial)))

    def freeze(self, *, partial: bool = False) -> Mapping[str, Any]:
        """Closes the stream for good and returns its entries, as `read` does. After that, `put` raises `Fenced`.

        If entries were lost, the stream is closed and not frozen; `partial=True` freezes the others. If an id has several
        values, the stream is frozen, also if this raises.
        """
        return self._logged(self._core.freeze(_checks.flag("partial", partial)))

    def conflicts(self) -> Mapping[str, Sequence[Any]]:
        """The ids that were put with several values, with all of these. They are not among the entries."""
        found: Mapping[str, Sequence[Any]] = self._core.conflicts()
        return found

    @staticmethod
    def _logged(found: tuple[dict[str, Any], list[str]]) -> dict[str, Any]:
        entries, left_out = found
        for told in left_out:
            logger.warning("left out: %s", shown(told))
        return entries

    def drop(self) -> None:
        """Hides the stream for good. Its bytes stay: nothing deletes streams yet."""
        self._core.drop()

    def __repr__(self) -> str:
        return f"<Stream {self._core.name!r}>"
