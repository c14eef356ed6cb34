"""keepstep keeps every step of an agent's rollout on disk. A crash costs at most the step in flight.

This file is the whole public surface. `python -m mypy.stubtest keepstep` and the tests keep it true.
"""

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, final

from typing_extensions import Self, Unpack

from .errors import (
    BadInput,
    Busy,
    Closed,
    ConfigChanged,
    Damaged,
    DiskFull,
    Diverged,
    Ended,
    Fenced,
    Forked,
    KeepstepError,
    LevelOutOfReach,
    NewerFormat,
    NotAllowed,
    NotFound,
    OutOfFiles,
    Poisoned,
)

__all__ = [
    "Array",
    "BadInput",
    "Both",
    "Busy",
    "Call",
    "Closed",
    "ConfigChanged",
    "Damaged",
    "DiskFull",
    "Diverged",
    "Ended",
    "Ending",
    "Episode",
    "Fenced",
    "Forked",
    "GivenUp",
    "Group",
    "GroupView",
    "Job",
    "Jobs",
    "KeepstepError",
    "Level",
    "LevelOutOfReach",
    "Lost",
    "Media",
    "NewerFormat",
    "NotAllowed",
    "NotFound",
    "Opts",
    "OutOfFiles",
    "Poisoned",
    "Progress",
    "Receipt",
    "RecordedAsRepr",
    "Repr",
    "Result",
    "Run",
    "Said",
    "Scope",
    "Sealing",
    "Step",
    "Store",
    "Stream",
    "Table",
    "Tokens",
    "Turn",
    "View",
    "Why",
    "__version__",
    "current",
    "open",
    "record",
    "register",
]

__version__: str

Level = Literal["kill", "power", "machine"]
"""What a record survives: a killed process, a power cut, the loss of the machine."""

Why = Literal[
    "finished", "truncated", "abandoned", "aborted", "errored", "cancelled", "crashed", "superseded"
]
"""How an attempt ended. `finished` is final, and so is `truncated` unless `retry` asks for more. All others can be resumed."""

_E = TypeVar("_E")

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

def register(cls: type, *, encode: Callable[[Any], Any], decode: Callable[[Any], Any] | None = None) -> None:
    """Records objects of exactly this class as what `encode` returns, and reads them back with `decode`.

    Subclasses are not included. Without `decode`, the objects come back as the plain data that `encode` returned.
    """

def record(
    env: _E,
    run: Run,
    *,
    task: str | Callable[[_E, Any], str],
    iteration: int = 0,
    sample: int | None = None,
    environment: Literal["restart", "restore", "replay"] | None = None,
    state: tuple[Callable[[_E], Any], Callable[[_E, Any], None]] | None = None,
    ending: Callable[[_E, Any], Ending | None] | None = None,
    on_record_error: Literal["raise", "warn"] = "raise",
    skip: Collection[str] = (),
) -> _E:
    """The same environment, recorded: each reset is an episode, each step is durable when it returns.

    `task` is a name, or a function of the environment and of what `reset` returned. Without a `sample`, each reset
    resumes a sample that an earlier process left interrupted, or else takes the next number. `environment` says how
    an interrupted episode resumes: `restore` sets the recorded state (with `state`, a pair of functions (get, set),
    or with methods of the environment), `restart` begins again at step 0, `replay` takes the recorded actions again.
    The default is `restore` if the environment supports it, else `restart`. `ending` is called after each step and
    returns how the episode ended, for environments that do not say it.
    """

def current(env: object) -> Episode:
    """The episode that a recorded environment records now, or recorded last."""

class Store:
    """A directory that many processes may record to at once."""

    @property
    def where(self) -> str | None:
        """The directory; None for the null store."""

    @property
    def level(self) -> Level | None:
        """What an acknowledged step survives, unless a higher level is asked for."""

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

    def runs(self) -> Iterator[Run]:
        """All runs of the store."""

    def find(self, ref: str) -> View:
        """Finds an episode by its ref or by the start of its id, for reading."""

    def reap(self) -> int:
        """Marks attempts of dead processes as `crashed`. Returns how many there were."""

    def stats(self) -> Mapping[str, int]:
        """Counts of what this process has recorded."""

    def close(self) -> None:
        """Writes everything that is queued, and closes the store. Episodes that are still open end as `aborted`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Opts(TypedDict, total=False):
    """How an episode is opened."""

    resume: Literal["continue", "restart", "refuse"]
    """What to do with an interrupted episode: resume it (the default), begin again from step 0, or raise."""
    at: int
    """How many steps to inherit, including the first observation. Calls and a pending turn after these are not inherited."""
    busy: Literal["raise", "wait", "take"]
    """What to do if a live process owns the episode: raise `Busy` (the default), wait for it, or take the episode from it."""
    policy: int | str
    """The version of the policy that will act."""
    new_policy: Literal["continue", "restart", "refuse"]
    """What to do if the last step had another policy: resume (the default), begin again from step 0, or raise."""
    retry: Collection[Why]
    """Endings to resume from that are final otherwise: `["truncated"]`. Possible only while the group is not sealed. Every
    ending but `finished` is accepted; those other than `truncated` are resumed anyway."""
    parent: str
    """The ref of the episode that this one is part of, for sub-agents."""
    meta: Mapping[str, Any]
    """More data about the attempt."""
    on_error: Literal["fail", "keep"]
    """What an exception in a turn does: make it a failed step (the default), or keep its intent for the next try."""

class Run:
    """A named set of episodes with one config. It can be pickled: another process then opens the same run."""

    @property
    def name(self) -> str:
        """The name of the run."""

    @property
    def store(self) -> Store:
        """The store that the run is in."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What all its episodes share."""

    @property
    def links(self) -> Mapping[str, str]:
        """What the run refers to, by name."""

    @property
    def generation(self) -> int:
        """Which generation of the name this is, from 0."""

    def episode(
        self, task: str | None = None, *, sample: int = 0, iteration: int = 0, **options: Unpack[Opts]
    ) -> Episode:
        """An episode, to be entered with `with`. It is a new one, or resumes where an interrupted attempt stopped.

        Parameters:
            task: the name of the task. Without one, the episode gets a unique name.
            sample: which sample of the task.
            iteration: which visit to the task, for training that comes back to it.
            **options: how to open it, see `Opts`.
        """

    def group(self, task: str, *, size: int, iteration: int = 0) -> Group:
        """The samples of one task and iteration, to be sealed together. Reads and writes nothing. If the size differs from
        the one that was planned, recorded or sealed, `claim` and `seal` refuse it, before anything is recorded.
        """

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

    def unscored(self) -> Jobs:
        """Yields episodes that are over and lack a note that the plan needs. Each is claimed for scoring: annotate
        `job.ref`.

        Episodes that this process has claimed already are left out, and so are those that it annotated three times
        without the note that is needed. The log names them.
        """

    def progress(self, *, max_attempts: int = 3) -> Progress:
        """How far the plan is, now. Claims and writes nothing.

        Parameters:
            max_attempts: how often in a row an episode may be `errored` before it counts as given up, as in `remaining`.
        """

    def claim(
        self, *, retry: Collection[Why] = (), max_attempts: int = 3, pause_s: float = 1.0
    ) -> Job | None:
        """Claims one job that is still to be run; None if there is none now. Waits as `remaining` does."""

    def annotate(self, ref: str, name: str, value: Any, *, source: str, step: int | None = None) -> Receipt:
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

    def groups(
        self, *, after: str | None = None, follow: bool = False, min_policy: int | None = None
    ) -> Iterator[GroupView]:
        """The sealed groups of the run; with `follow`, also those that are sealed from now on."""

    def stream(self, name: str) -> Stream:
        """A stream of this run, by name."""

    def table(
        self, of: Literal["episodes", "steps", "tokens", "notes"], columns: Sequence[str] | None = None
    ) -> Table:
        """A table of the run, for pyarrow, polars, pandas, DuckDB and datasets."""

class Job:
    """An episode of a plan that is still to be run, claimed for this process."""

    @property
    def task(self) -> str:
        """The task."""

    @property
    def sample(self) -> int:
        """Which sample of the task."""

    @property
    def iteration(self) -> int:
        """Which visit to the task."""

    @property
    def attempts(self) -> int:
        """How many attempts at it were claimed before, including those that died before they recorded anything."""

    @property
    def why(self) -> Why | Literal["new", "unscored"]:
        """How the last attempt ended; or `new`, or `unscored`."""

    @property
    def ref(self) -> str:
        """How people and commands name the episode."""

    def episode(self, **options: Unpack[Opts]) -> Episode:
        """The episode, to be entered with `with`."""

@dataclass(frozen=True, slots=True)
class GivenUp:
    """An episode that was `errored` as often in a row as is allowed."""

    ref: str
    """How people and commands name the episode."""
    attempts: int
    """How many attempts at it were claimed."""
    errors: int
    """How often in a row it was `errored`, each time with at most one step more than before."""
    error: str | None = None
    """Type and message of the last error."""

@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Progress:
    """How far a plan is. Each planned episode is not begun, running, interrupted, ended, absent, pruned or damaged."""

    planned: int = 0
    """How many episodes the plan has."""
    not_begun: int = 0
    """No process has begun them."""
    running: int = 0
    """A process has them now, or is not proven dead."""
    interrupted: int = 0
    """Their process left them or died; `remaining` yields them."""
    ended: Mapping[str, int] = ...
    """How the others ended: how many `finished`, `truncated`, `errored`."""
    unscored: int = 0
    """Of those that ended: they are over and lack a note that the plan needs. `Run.unscored` yields them."""
    given_up: Sequence[GivenUp] = ()
    """Of those that ended: they were `errored` as often in a row as is allowed. `remaining` yields the other `errored` ones."""
    absent: Sequence[str] = ()
    """Their groups were sealed without them, so they could not join any more. `remaining` does not yield them."""
    pruned: int = 0
    """They were deleted."""
    damaged: int = 0
    """What is recorded of them cannot be read: `keepstep verify` says more."""
    done: int = 0
    """How many are over and scored. Those that were given up, are absent or were pruned are not done, but nothing remains to do for them."""
    left: int = 0
    """How many still have something to do."""

class Tokens(NamedTuple):
    """Token ids and the arrays that belong to them, as arrays or lists of numbers."""

    prompt: Any = None
    """The ids of the prompt."""
    ids: Any = None
    """The ids that were sampled."""
    logprobs: Any = None
    """Their log probabilities."""
    mask: Any = None
    """Which of them count for the loss."""
    arrays: Mapping[str, Any] = {}
    """Other arrays by name: routed experts, values, …"""

class Said(TypedDict, total=False):
    """The intent of a turn: what is durable before the action is taken."""

    action: Any
    """The action that will be taken."""
    prompt: Any
    """What the policy was given."""
    response: Any
    """What the policy answered."""
    tokens: Tokens
    """Prompt and response in tokens."""
    policy: int | str
    """The version of the policy that answered."""
    agent: str
    """Which agent acts, if there are several."""

class Result(TypedDict, total=False):
    """The result of an action."""

    observation: Any
    """What the environment showed."""
    reward: float | None
    """The reward. A missing one is None, never 0."""
    reward_terms: Mapping[str, float]
    """The parts of the reward, by name."""
    discount: float | None
    """The discount, as in dm_env."""
    info: Any
    """What else the environment returned."""
    state: Mapping[str, Any]
    """Named values to resume from. They are part of the step, so they are never ahead of it or behind it."""

class Both(Said, Result):
    """A whole step: its intent and its result."""

class Scope:
    """Something to enter and leave with `with` or `async with`. Leaving it waits for what is in flight."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Turn(Scope):
    """A step in the making: its intent is recorded first, its result when the turn is left."""

    @property
    def index(self) -> int:
        """The index of the step that the turn becomes."""

    @property
    def said(self) -> dict[str, Any]:
        """The recorded intent as plain data, also in the turn that records it."""

    adopted: bool
    """True if the intent was recorded before: by an interrupted attempt, or in a failed try that was kept."""
    error: str | None
    """What the action raised, if it raised."""

    def result(self, **result: Unpack[Result]) -> None:
        """Records the result of the action. It is encoded now, and durable when the turn is left."""

    def discard(self, reason: str) -> None:
        """Discards the turn, on record: it becomes no step. The next turn gets its index. Calls with a key keep their results; calls without one are made anew."""

class Episode(Scope):
    """One attempt at an episode. It is opened when it is entered, or when it is first used."""

    @property
    def ref(self) -> str:
        """How people and commands name it: `run/task#iteration.sample~attempt`."""

    @property
    def id(self) -> str:
        """Its id: the same on every machine."""

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 0."""

    @property
    def resumed(self) -> bool:
        """True if it resumes an earlier attempt."""

    @property
    def turns(self) -> int:
        """How many turns are complete. The first observation does not count, nor does a failed turn."""

    @property
    def ended(self) -> str | None:
        """How it ended; None if it has not."""

    @property
    def pending(self) -> Turn | None:
        """A turn with an intent and no result: the attempt was interrupted, or the last try was kept."""

    @property
    def history(self) -> Sequence[Step]:
        """The inherited steps. Each is read when it is used."""

    def state(self, name: str, default: Any = None) -> Any:
        """A named value as of the last step, or the default if there is none."""

    def first(self, observation: Any, *, info: Any = None, state: Mapping[str, Any] | None = None) -> Receipt:
        """Records the first observation, before any step. A resumed attempt that has steps has it already. Returns at once."""

    def turn(self, *, on_error: Literal["fail", "keep"] | None = None, **said: Unpack[Said]) -> Turn:
        """A turn, to be entered with `with`. Its intent is durable then, and the action may be taken.

        Parameters:
            on_error: what an exception in the turn does. With `"fail"` it becomes a failed step, and the next turn
                has an intent of its own. With `"keep"` its intent is kept for the next try. The default is what the
                episode was opened with.
            **said: the intent.
        """

    def step(self, **both: Unpack[Both]) -> Receipt:
        """Records a turn and its result. Durable when it returns."""

    def submit(self, **both: Unpack[Both]) -> Receipt:
        """Records a turn and its result. Returns at once: await the receipt, or call its `wait()`."""

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

    def note(self, name: str, value: Any, *, source: str, step: int | None = None) -> Receipt:
        """Adds a note to this attempt, or to one of its steps. Returns at once."""

    def end(
        self,
        why: Why,
        *,
        limit: str | None = None,
        error: BaseException | str | None = None,
        said_by: str = "loop",
    ) -> Receipt:
        """Records how the episode ended, once. Returns at once.

        Parameters:
            why: the reason that really applied.
            limit: which limit, if it was truncated: `"turns"`, `"time"`, `"tokens"`, …
            error: what went wrong, if something did.
            said_by: who gives the reason.
        """

    def trajectory(self) -> list[Any]:
        """A list whose items are durable when `append` or `extend` returns. In a resumed attempt it has the earlier items."""

@final
class Jobs:
    """Yields jobs and claims them, with `for` or `async for`. Threads and tasks may share it: each job goes to one of them."""

    given: int
    """How many jobs it has yielded so far."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Job:
        """The next job. Raises StopIteration when nothing is left now, and logs the episodes that were given up."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Job:
        """As `next()`, without blocking the event loop: claiming waits for the disk."""

    def __repr__(self) -> str: ...

class Group:
    """The samples of one task and iteration, sealed together."""

    task: str
    """The task."""
    iteration: int
    """Which visit to the task."""

    @property
    def refs(self) -> tuple[str, ...]:
        """The refs of its episodes, by sample."""

    def claim(self, **options: Unpack[Opts]) -> Episode | None:
        """Claims the next sample that needs work, as an episode; None if none needs work now."""

    def seal(
        self, rewards: Mapping[str, float] | None = None, *, source: str, least: int | None = None
    ) -> Sealing:
        """Seals the group, all or none, with rewards by the refs of its episodes. Trainers see it from then on.

        Parameters:
            rewards: rewards by ref.
            source: who gives them.
            least: seal even if members are missing, as long as this many are there.
        """

class Sealing:
    """The receipt of a seal. On an event loop the group is sealed in the background, elsewhere before you get the receipt."""

    ref: str
    """The ref of the group."""
    step: int | None
    """None: a seal is not a step."""
    missing: Mapping[int, str]
    """Which samples are missing, and how they ended."""

    @property
    def level(self) -> Level | None:
        """What the seal survives; None until it is made."""

    def wait(self, timeout: float | None = None, *, level: Level | None = None) -> Sealing:
        """Waits until the seal is durable at the level of the store, or at `level` if that is higher. Raises TimeoutError."""

    def __await__(self) -> Generator[Any, None, Sealing]: ...

class Stream:
    """An append-only set of entries that many processes share until one of them freezes it."""

    def put(self, id: str, value: Any) -> Receipt:
        """Adds an entry. Adding the same one again is fine; another value under the same id is refused.

        The order of keys and the types count: unlike arguments of calls, values are not compared as data.
        """

    def read(self, *, partial: bool = False) -> Mapping[str, Any]:
        """The entries that are in it now, by id.

        Two processes that did not see each other may have put two values under one id; entries may also be lost to damage.
        Then it raises `BadInput` or `Damaged`; with `partial=True` it gives the other entries, and logs what is left out.

        What this process has read before is kept in memory, up to a limit, and not read again: damage to that does not take
        it away. `freeze` always reads everything again.
        """

    def freeze(self, *, partial: bool = False) -> Mapping[str, Any]:
        """Closes the stream for good and returns its entries, as `read` does. After that, `put` raises `Fenced`.

        If entries were lost, the stream is closed and not frozen; `partial=True` freezes the others. If an id has several
        values, the stream is frozen, also if this raises.
        """

    def conflicts(self) -> Mapping[str, Sequence[Any]]:
        """The ids that were put with several values, with all of these. They are not among the entries."""

    def drop(self) -> None:
        """Hides the stream for good. Its bytes stay: nothing deletes streams yet."""

@final
class Receipt:
    """A record on its way, or there."""

    @property
    def level(self) -> Level | None:
        """What it survives by now: None while it is on its way."""

    @property
    def ref(self) -> str:
        """What it belongs to."""

    @property
    def step(self) -> int | None:
        """The index of the step, or None for what is not a step."""

    def wait(self, timeout: float | None = None, *, level: Level | None = None) -> Self:
        """Waits until it is durable at the level that was asked for, or at a higher one. Raises TimeoutError."""

    def __await__(self) -> Generator[Any, None, Self]:
        """Waits for it on the running event loop. Cancelling that does not withdraw the step."""

class Ending(NamedTuple):
    """How an attempt ended, and who said so."""

    why: Why
    """The reason that really applied."""
    limit: str | None = None
    """Which limit, if it was truncated."""
    error: str | None = None
    """What went wrong, if something did."""
    said_by: str = ""
    """Who said so."""

@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that `episode.call` recorded. A field that is None was not recorded, unless `damaged` names it."""

    step: int | None = None
    """The turn that it belongs to."""
    name: str | None = None
    """The name of the call."""
    key: str | None = None
    """Its key, if it has one."""
    arguments: Any = None
    """Its arguments: a list, or with keywords a mapping of `args` and `kwargs`."""
    result: Any = None
    """What it returned, as plain data."""
    error: str | None = None
    """What it raised instead: type, message and traceback."""
    time: float | None = None
    """When it was recorded, in seconds since 1970."""
    damaged: tuple[str, ...] = ()
    """Names of fields that are lost."""

@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Step:
    """A step. A field that is None was not recorded, unless `damaged` names it.

    An item of a recording list (`episode.trajectory()`) is a step with a `value`. If that is a mapping with an
    "observation", this is also the observation of the step (and its "info" the info). If it has an "action_type" or
    an "action" instead, the whole item is the action.
    """

    index: int
    """Its number, from 0."""
    kind: Literal["FIRST", "MID", "LAST"] = "MID"
    """`FIRST` is an observation without a turn; `LAST` is known from the end of the episode."""
    time: float = 0.0
    """When it was recorded, in seconds since 1970."""
    observation: Any = None
    """What the environment showed."""
    action: Any = None
    """The action that was taken."""
    reward: float | None = None
    """The reward; None if there was none."""
    reward_terms: Mapping[str, float] | None = None
    """The parts of the reward, by name."""
    discount: float | None = None
    """The discount, as in dm_env."""
    prompt: Any = None
    """What the policy was given."""
    response: Any = None
    """What the policy answered."""
    tokens: Tokens | None = None
    """Prompt and response in tokens."""
    policy: int | str | None = None
    """The version of the policy that answered."""
    agent: str | None = None
    """Which agent acted."""
    info: Any = None
    """What else the environment returned."""
    state: Mapping[str, Any] | None = None
    """The named values to resume from."""
    error: str | None = None
    """What the action raised."""
    value: Any = None
    """An item of a recording list."""
    damaged: tuple[str, ...] = ()
    """Names of fields whose bytes are lost."""

    @property
    def failed(self) -> bool:
        """True if the action raised: the step has an error instead of a result, and does not count in `episode.turns`."""

    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class View:
    """An attempt at an episode as it was when it was read, including what it inherited."""

    @property
    def ref(self) -> str:
        """How people and commands name the attempt."""

    @property
    def id(self) -> str:
        """The id of the episode: the same on every machine."""

    @property
    def run(self) -> str | None:
        """The name of its run."""

    @property
    def task(self) -> str:
        """The task; empty for an episode without a name."""

    @property
    def iteration(self) -> int:
        """Which visit to the task."""

    @property
    def sample(self) -> int:
        """Which sample of the task."""

    @property
    def attempt(self) -> int:
        """Which attempt at the episode, from 0."""

    @property
    def state(self) -> str:
        """How it ended. If it has not: `running`, `silent` or `interrupted`."""

    @property
    def counts(self) -> bool:
        """True for the newest attempt that really began."""

    @property
    def reward(self) -> float | None:
        """The sum of the rewards of its steps, as `math.fsum` gives it; None if none has one. A group's rewards are in `GroupView.rewards`."""

    @property
    def first_time(self) -> float | None:
        """When its first record was made, in seconds since 1970."""

    @property
    def last_time(self) -> float | None:
        """When its newest record was made, in seconds since 1970."""

    @property
    def cursor(self) -> str:
        """The place after this view, to give to `episodes(after=…)`.

        It is exact for views that came with `follow` or `after`. Views of a plain list have the empty cursor, which
        is before everything that ended: nothing is missed if you continue from it.
        """

    @property
    def steps(self) -> Sequence[Step]:
        """Its steps. Each is read when it is used."""

    @property
    def ending(self) -> Ending | None:
        """How it ended; None if it had not ended when it was listed."""

    @property
    def policies(self) -> tuple[int | str, ...]:
        """The policies that acted in it, in the order of their steps. Reads all its steps."""

    @property
    def pending(self) -> Step | None:
        """A turn with an intent and no result."""

    @property
    def parent(self) -> str | None:
        """The ref of the episode that it is part of, if one was given."""

    @property
    def meta(self) -> Any:
        """The `meta` that it was opened with."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with it; None if nothing is known. A file that it depends on is missing or unreadable, or
        records of it are lost.

        Damage inside a record may be found only when the record is read: see `Step.damaged`, and `keepstep verify`,
        which reads everything.
        """

    @property
    def missing(self) -> tuple[str, ...]:
        """What was lost of it as a whole. `Step.damaged` names damaged fields."""

    @property
    def calls(self) -> Sequence[Call]:
        """The calls that `episode.call` recorded in it, in the order in which they returned. Reads only these."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """Notes on the episode and this attempt, by name. If several sources gave one, the newest counts."""

    @property
    def notes_by_source(self) -> Mapping[tuple[str, str], Any]:
        """The same notes by name and source: the newest of each."""

    def notes_on(self, step: int) -> Mapping[str, Any]:
        """Notes on one step, by name. If several sources gave one, the newest counts."""

    def attempts(self) -> Sequence[View]:
        """All attempts at the episode that really began, in order, as they stand now."""

    def follow(self) -> Iterator[Step]:
        """Its steps from the first on, then new ones as they come, until it has ended or its process is gone.

        A step comes as soon as it is durable, so it is marked LAST only if the end was recorded by then.
        """

    def afollow(self) -> AsyncIterator[Step]:
        """As `follow`, without blocking the event loop."""

    def __eq__(self, other: object) -> bool:
        """True for the same attempt, if as much of it was recorded when each was read."""

    def __hash__(self) -> int: ...

class GroupView:
    """A sealed group: its members are the attempts that count, by sample."""

    ref: str
    """The group: `run/task#iteration`."""
    members: tuple[View, ...]
    """The attempts that count, by sample."""
    rewards: tuple[float | None, ...]
    """The sealed rewards, by member. If none were sealed: the sums of the rewards of the steps."""
    missing: Mapping[int, str]
    """Which samples are missing, and how they ended."""
    source: str
    """Who gave the rewards."""
    time: float
    """When it was sealed, in seconds since 1970."""
    cursor: str
    """The place after this group, to give to `groups(after=…)`."""

class Table:
    """A table that is read from the store in batches each time it is used: `pyarrow.table(t)`, `polars.DataFrame(t)`,
    `duckdb.sql("from t")`, `t.to_pandas()`; batch by batch with `pyarrow.RecordBatchReader.from_stream(t)`.
    """

    @property
    def of(self) -> str:
        """What it is a table of."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream. It always has the table's own schema: to get another one, cast what you read."""

    def __arrow_c_schema__(self) -> object:
        """The Arrow C schema."""

    def to_pandas(self) -> Any:
        """The whole table as a pandas DataFrame. Needs pandas and pyarrow."""

class Media:
    """An image, a sound, …: its media type and its bytes. PIL images are recorded as this."""

    kind: str
    """The media type, such as `image/png`."""
    data: bytes
    """The bytes."""

    def __init__(self, kind: str, data: bytes) -> None: ...
    def image(self) -> Any:
        """The PIL image (needs pillow)."""

class Array:
    """An array whose elements have no type in the installed libraries: numpy is missing, or `ml_dtypes` for bfloat16
    and float8.

    `data` has the elements in C order, little-endian.
    """

    dtype: str
    """The type of its elements."""
    shape: tuple[int, ...]
    """How many elements there are in each dimension."""
    data: bytes
    """The elements."""

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes) -> None: ...

class Repr(str):
    """The `repr` of an object that could not be recorded as data; `type` is the name of its class."""

    type: str
    """The name of its class."""

    def __new__(cls, type: str, text: str) -> Repr: ...

class Lost:
    """Stands for a value whose bytes are damaged; `hash` is the hash of the value."""

    hash: bytes
    """The hash of the lost value."""

    def __init__(self, hash: bytes) -> None: ...
    def __bool__(self) -> bool: ...

class RecordedAsRepr(UserWarning):
    """Objects of this class cannot be recorded as data, so their `repr` was recorded. `keepstep.register` changes that."""
