"""keepstep keeps every step of an agent's rollout, so that no crash costs more than the step in flight.

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
"""What a record survives: the death of the process, of the power, of the machine."""

Why = Literal[
    "finished", "truncated", "abandoned", "aborted", "errored", "cancelled", "crashed", "superseded"
]
"""How an attempt ended. `finished` is final, `truncated` unless somebody asks for more; the others can be resumed."""

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
    """Opens a directory as a store, making it if it is not there. None is the null store: it records nothing.

    Parameters:
        where: the directory, or None.
        level: what an acknowledged step has to survive; without it, the most that the storage gives: `power`, or `kill`
            with a warning where a sync reaches no disk (tmpfs). One that cannot be reached raises `LevelOutOfReach`.
        strict: refuse what can only be recorded as its `repr`, instead of warning about it once.
        lease_s: after how many seconds of silence a process counts as dead whose lock does not tell.
        stall_s: how long a step waits for room on a full disk before it raises `DiskFull`.
        redact: names of fields to hide at any depth, compared exactly, upper and lower case included; or a function
            `(path, value)` that gives what to record instead.
        skip: fields of steps that are not recorded, such as `"info"`.
    """

def register(cls: type, *, encode: Callable[[Any], Any], decode: Callable[[Any], Any] | None = None) -> None:
    """Records objects of exactly this class as what `encode` gives, and reads them back through `decode`.

    Subclasses are classes of their own. Without `decode` they come back as the plain data that `encode` gave.
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

    `task` may be a function of the environment and of what `reset` returned. Without a `sample` each reset goes on with
    one that an earlier process left interrupted, else takes the next number. `environment` says how it comes back then:
    `restore` (by `state`, a pair of functions that get and set it, or by methods of its own), `restart`, or `replay`.
    `ending` is asked after each step how the episode ended, for environments that never say.
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
        """What an acknowledged step survives, unless more is asked for."""

    def run(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        links: Mapping[str, str] | None = None,
        new: bool = False,
        generation: int | None = None,
    ) -> Run:
        """Opens a run, or begins it. Another config than it was made with is refused; `new` begins a new generation.

        Parameters:
            name: its name.
            config: what its episodes have in common; without it, a run that is there is taken as it is.
            links: what it refers to, by name.
            new: begin a new generation of the name.
            generation: open this one, which must be there; without it the newest is meant.
        """

    def runs(self) -> Iterator[Run]:
        """All runs of the store."""

    def find(self, ref: str) -> View:
        """An episode by its ref or the beginning of its id, to be read."""

    def reap(self) -> int:
        """Records `crashed` for attempts whose process is dead. How many there were."""

    def stats(self) -> Mapping[str, int]:
        """What this process has recorded, in numbers."""

    def close(self) -> None:
        """Writes all that waits. Episodes that are still open end as aborted."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Opts(TypedDict, total=False):
    """How an episode is opened."""

    resume: Literal["continue", "restart", "refuse"]
    """What an interrupted episode does: go on (the default), begin again from step 0, or raise."""
    at: int
    """How many steps to inherit, the first observation counted. Calls and a pending turn behind them are not inherited."""
    busy: Literal["raise", "wait", "take"]
    """What a live owner means: raise `Busy` (the default), wait for it, or take the episode from it."""
    policy: int | str
    """The version of the policy that is going to act."""
    new_policy: Literal["continue", "restart", "refuse"]
    """What one does that is half-done under another policy: go on (the default), begin again from step 0, or raise."""
    retry: Collection[Why]
    """Endings to go on from that are final otherwise: `["truncated"]`, as long as its group is not sealed."""
    parent: str
    """The ref of the episode that this one is part of, for sub-agents."""
    meta: Mapping[str, Any]
    """What else is to be known of the attempt."""
    on_error: Literal["fail", "keep"]
    """What an exception in a turn means: the turn is a failed step (the default), or what was said stays for its next try."""

class Run:
    """A named set of episodes with one config. Pickles as its name: another process opens it again."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def store(self) -> Store:
        """The store that it is in."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What its episodes have in common."""

    @property
    def links(self) -> Mapping[str, str]:
        """What it refers to."""

    @property
    def generation(self) -> int:
        """Which generation of its name this is, from 0."""

    def episode(
        self, task: str | None = None, *, sample: int = 0, iteration: int = 0, **options: Unpack[Opts]
    ) -> Episode:
        """An episode, to be entered: begun, or gone on with where an interrupted attempt stopped.

        Parameters:
            task: what it is about; without one it gets a unique name.
            sample: which sample of the task.
            iteration: which visit of the task, for training that comes back to it.
            **options: how it is opened, see `Opts`.
        """

    def group(self, task: str, *, size: int, iteration: int = 0) -> Group:
        """The samples of one task and iteration, sealed together. Another size than is planned, recorded or sealed is refused."""

    def plan(
        self, tasks: Iterable[str], *, samples: int = 1, iteration: int = 0, needs: Collection[str] = ()
    ) -> None:
        """Plans episodes: so many samples of each task. Durable when it returns; what is planned adds nothing.

        Parameters:
            tasks: the tasks.
            samples: how many episodes of each.
            iteration: which visit of the tasks.
            needs: names of notes that an episode needs to count as done.
        """

    def remaining(self, *, retry: Collection[Why] = (), max_attempts: int = 3, pause_s: float = 1.0) -> Jobs:
        """What remains to be run of the plan, claimed as it is given.

        First what others left interrupted, then what is new, what this process left itself, what was truncated if that is
        asked for, and what errored. When nothing is left it logs what was given up. What lacks a note that the plan needs
        comes from `unscored`.

        Parameters:
            retry: endings to go on from that are final otherwise: `["truncated"]`, once for each who asks.
            max_attempts: how often in a row an episode may be `errored`, without getting on by more than the step that failed,
                before it is given up. A higher number brings it back. An episode that this process leaves so often without
                an end and without a new step, or does not open, is not given to it again.
            pause_s: how many seconds an episode rests after this process saw it `errored`, doubled with each error in a row.
                When nothing else is left, the next job is waited for.
        """

    def unscored(self) -> Jobs:
        """What is over and lacks a note that the plan needs, claimed for scoring as it is given: annotate `job.ref`.

        What this process has in hand already is passed over, and so is what it annotated three times without the note that
        is needed; the log says so.
        """

    def progress(self, *, max_attempts: int = 3) -> Progress:
        """How far the plan is, now. Claims and writes nothing.

        Parameters:
            max_attempts: how often in a row an episode may be `errored` before it counts as given up, as in `remaining`.
        """

    def claim(
        self, *, retry: Collection[Why] = (), max_attempts: int = 3, pause_s: float = 1.0
    ) -> Job | None:
        """One job of what remains to be run, or None if there is none now. Waits as `remaining` does."""

    def annotate(self, ref: str, name: str, value: Any, *, source: str, step: int | None = None) -> Receipt:
        """Adds a note to an episode of this run, an attempt at it, or a step. Returns at once.

        Parameters:
            ref: what it is about: `run/task#iteration.sample~attempt@step`, later parts optional. It must be there: an episode
                that began, an attempt at it, a step that was recorded. A whole name costs a look-up; a task alone is
                looked for, and must have one episode.
            name: its name. The newest of a name and source counts; older ones stay readable.
            value: what is noted. None is a value like any other: an episode that needs the note has it then.
            source: who says so.
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
        """The episodes of the run that fit; with `after` or `follow`, those that said how they ended, as they come.

        Parameters:
            task: only of this task.
            iteration: only of this iteration.
            ends: only those that ended so; how the others stand is `View.state`. `crashed` and `superseded` are found by others
                and said by nobody, so they do not come with `after` or `follow`, which refuse them.
            reward: only those whose reward is from the first to the second number.
            policy: only those with a step of this policy version.
            since: only those with a step since this time, in seconds since 1970.
            attempts: the last attempt at each, or all. Followed with `last`, the end of an attempt that was gone on from
                may not be told.
            after: go on after this cursor: exact, also in another process.
            follow: first all that ended before, from the beginning or behind `after`, then wait for more, for ever.
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
    """An episode that remains of a plan, claimed for this process."""

    @property
    def task(self) -> str:
        """The task."""

    @property
    def sample(self) -> int:
        """Which sample of it."""

    @property
    def iteration(self) -> int:
        """Which visit of it."""

    @property
    def attempts(self) -> int:
        """How many attempts at it were claimed before, also those that died before they recorded anything."""

    @property
    def why(self) -> Why | Literal["new", "unscored"]:
        """How the last attempt ended; or `new`, or `unscored`."""

    @property
    def ref(self) -> str:
        """How people and commands name the episode."""

    def episode(self, **options: Unpack[Opts]) -> Episode:
        """The episode, to be entered."""

@dataclass(frozen=True, slots=True)
class GivenUp:
    """An episode that was `errored` as often as it may be."""

    ref: str
    """How people and commands name the episode."""
    attempts: int
    """How many attempts at it were claimed."""
    errors: int
    """How often in a row it was `errored`, without getting on."""
    error: str | None = None
    """Type and message of the last error."""

@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Progress:
    """How far a plan is. Each planned episode is not begun, running, interrupted, ended, pruned or damaged."""

    planned: int = 0
    """How many episodes the plan has."""
    not_begun: int = 0
    """Nobody had them yet."""
    running: int = 0
    """Somebody has them now, or is not proven gone."""
    interrupted: int = 0
    """They were left; `remaining` gives them."""
    ended: Mapping[str, int] = ...
    """How the others ended: how many `finished`, `truncated`, `errored`."""
    unscored: int = 0
    """Those of them that are over and lack a note that the plan needs; `Run.unscored` gives them."""
    given_up: Sequence[GivenUp] = ()
    """Those of them that were `errored` as often as they may be. `remaining` gives the other `errored` ones."""
    pruned: int = 0
    """They were deleted."""
    damaged: int = 0
    """What is known of them cannot be read: `keepstep verify` says more."""
    done: int = 0
    """How many are over and scored. What was given up or pruned is not done, and nothing remains of it."""
    left: int = 0
    """Of how many something remains."""

class Tokens(NamedTuple):
    """Token ids and what belongs to them, as arrays or lists of numbers."""

    prompt: Any = None
    """The ids of the prompt."""
    ids: Any = None
    """The ids that were sampled."""
    logprobs: Any = None
    """Their log probabilities."""
    mask: Any = None
    """Which of them count for the loss."""
    arrays: Mapping[str, Any] = {}
    """Others by name: routed experts, values, …"""

class Said(TypedDict, total=False):
    """What is durable before the action is taken."""

    action: Any
    """What is done to the environment."""
    prompt: Any
    """What the policy was given."""
    response: Any
    """What it answered."""
    tokens: Tokens
    """The same in tokens."""
    policy: int | str
    """The version of the policy that answered."""
    agent: str
    """Which agent acts, where there are several."""

class Result(TypedDict, total=False):
    """What came of an action."""

    observation: Any
    """What the environment showed."""
    reward: float | None
    """A number, or None if there is none: never 0 for a missing one."""
    reward_terms: Mapping[str, float]
    """What the reward is made of."""
    discount: float | None
    """The discount, as dm_env means it."""
    info: Any
    """Whatever else the environment told."""
    state: Mapping[str, Any]
    """Named values to go on from; part of the step, so never ahead of it or behind it."""

class Both(Said, Result):
    """A whole step: what was said, and what came of it."""

class Scope:
    """Something that is entered and left. Leaving it waits for what is in flight."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Turn(Scope):
    """A step in the making."""

    @property
    def index(self) -> int:
        """The index of the step that it becomes."""

    @property
    def said(self) -> dict[str, Any]:
        """What was said, as it was recorded: plain data, also if it was said just now."""

    adopted: bool
    """True if it was said before: by an attempt that was interrupted, or in a try that failed and was kept."""
    error: str | None
    """What the action raised, if it did."""

    def result(self, **result: Unpack[Result]) -> None:
        """Says what came of it. Encoded now; durable when the turn is left."""

    def discard(self, reason: str) -> None:
        """Gives the turn up, on record: it becomes no step, and the next turn has its index, and what its calls gave."""

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
        """True if it goes on from an earlier attempt."""

    @property
    def turns(self) -> int:
        """How many turns are completed; the first observation is not one, nor is a turn that failed."""

    @property
    def ended(self) -> str | None:
        """How it ended, if it did."""

    @property
    def pending(self) -> Turn | None:
        """A turn that was said and never got its result: the attempt was interrupted, or the last try was kept."""

    @property
    def history(self) -> Sequence[Step]:
        """What was inherited, read as it is looked at."""

    def state(self, name: str, default: Any = None) -> Any:
        """A named value as of the last step, or the default if there is none."""

    def first(self, observation: Any, *, info: Any = None, state: Mapping[str, Any] | None = None) -> Receipt:
        """Records the first observation, before any step: a resumed attempt with steps has it. Returns at once."""

    def turn(self, *, on_error: Literal["fail", "keep"] | None = None, **said: Unpack[Said]) -> Turn:
        """A turn, to be entered: what is said is durable then, and the action may be taken.

        Parameters:
            on_error: what an exception in it means: `"fail"`, it is a failed step, and the next turn says something new;
                `"keep"`, what was said stays for the next try of it. Without it, what the episode was opened with.
            **said: what is said.
        """

    def step(self, **both: Unpack[Both]) -> Receipt:
        """Records a turn and its result. Durable when it returns."""

    def submit(self, **both: Unpack[Both]) -> Receipt:
        """Records a turn and its result. Returns at once: await the receipt, or wait() for it."""

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
        """Calls a function and records what it returns; a resumed attempt gets the recording.

        What it gives is of the same type both times: of the class that was named, by `returns` or by the annotation of
        the function, or plain data.

        Parameters:
            name: what it is called in the record.
            fn: the function; if it gives an awaitable, so does this.
            *args: its arguments. Others than were recorded are `Diverged`.
            key: tells calls of one name apart; without it, their order within the turn does, so calls that tasks or threads
                make at once need one.
            returns: the class of the result, or a type such as `list[Reply]`.
            **kwargs: its keyword arguments. One that is named `key` or `returns` is given by a lambda.
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
        """Says how it ended: set once. Returns at once.

        Parameters:
            why: the reason that really applied.
            limit: which limit, if it was truncated: `"turns"`, `"time"`, `"tokens"`, …
            error: what went wrong, if something did.
            said_by: who says so.
        """

    def trajectory(self) -> list[Any]:
        """A list whose items are durable when `append` or `extend` returns; on resume it has them already."""

@final
class Jobs:
    """Jobs as they are claimed: `for` and `async for` alike. Many threads and tasks may share it, each gets jobs of its own."""

    given: int
    """How many it gave so far."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Job:
        """The next job. Raises StopIteration when nothing is left now, and logs what was given up."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Job:
        """As `next()`, without stopping the event loop: claiming waits for the disk."""

    def __repr__(self) -> str: ...

class Group:
    """The samples of one task and iteration, sealed all at once."""

    task: str
    """The task."""
    iteration: int
    """Which visit of it."""

    @property
    def refs(self) -> tuple[str, ...]:
        """How people and commands name its episodes, by sample."""

    def claim(self, **options: Unpack[Opts]) -> Episode | None:
        """The next sample that needs work, as an episode; None if none does now."""

    def seal(
        self, rewards: Mapping[str, float] | None = None, *, source: str, least: int | None = None
    ) -> Sealing:
        """Seals the group, all or none, with rewards by the refs of its episodes. Then trainers see it.

        Parameters:
            rewards: rewards by ref.
            source: who gives them.
            least: seal also if members are missing, as long as there are so many.
        """

class Sealing:
    """A receipt of a seal: it is made before this exists, or, on an event loop, beside it."""

    ref: str
    """The group."""
    step: int | None
    """None: a seal is no step."""
    missing: Mapping[int, str]
    """Which samples are missing, and how they ended."""

    @property
    def level(self) -> Level | None:
        """What it survives by now: None while it is on its way."""

    def wait(self, timeout: float | None = None, *, level: Level | None = None) -> Sealing:
        """Waits until it is durable at the level of the store, or at a higher one. Raises TimeoutError."""

    def __await__(self) -> Generator[Any, None, Sealing]: ...

class Stream:
    """An append-only set of entries that many processes share; one freezes it."""

    def put(self, id: str, value: Any) -> Receipt:
        """Puts an entry. The same again is fine; another value under the same id is refused."""

    def read(self) -> Mapping[str, Any]:
        """What is in it now, by id."""

    def freeze(self) -> Mapping[str, Any]:
        """Closes it for good and gives what is in it. Whoever puts afterwards is fenced."""

    def drop(self) -> None:
        """Hides it for good. Its bytes stay: nothing deletes streams yet."""

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
    """A call that was recorded by `episode.call`. What is None was not recorded, unless its name stands in `damaged`."""

    step: int | None = None
    """The turn that it belongs to."""
    name: str | None = None
    """What was called."""
    key: str | None = None
    """Its key, if it was given one."""
    arguments: Any = None
    """What it was called with: a list, or with keywords a mapping of `args` and `kwargs`."""
    result: Any = None
    """What came back, as plain data."""
    error: str | None = None
    """What was raised instead: type, message and traceback."""
    time: float | None = None
    """When it was recorded, in seconds since 1970."""
    damaged: tuple[str, ...] = ()
    """Names of fields that are lost."""

@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Step:
    """A step. A field that is None was not recorded, unless its name stands in `damaged`.

    An item that was appended to a recording list (`episode.trajectory()`) is a step with a `value`. If that is a
    mapping with an "observation", the observation is also there by name (with its "info"); if it has an "action_type"
    or an "action", the whole item is the action.
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
    """What was done to it."""
    reward: float | None = None
    """The reward; None if there was none."""
    reward_terms: Mapping[str, float] | None = None
    """What the reward is made of."""
    discount: float | None = None
    """The discount, as dm_env means it."""
    prompt: Any = None
    """What the policy was given."""
    response: Any = None
    """What it answered."""
    tokens: Tokens | None = None
    """The same in tokens."""
    policy: int | str | None = None
    """The version of the policy that answered."""
    agent: str | None = None
    """Which agent acted."""
    info: Any = None
    """Whatever else the environment told."""
    state: Mapping[str, Any] | None = None
    """What was kept to go on from."""
    error: str | None = None
    """What the action raised."""
    value: Any = None
    """An item of a recording list."""
    damaged: tuple[str, ...] = ()
    """Fields whose bytes were lost."""

    @property
    def failed(self) -> bool:
        """True if the action raised: there is an error instead of a result, and it is not one of `episode.turns`."""

    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class View:
    """An attempt at an episode as it stood when it was read, with what it inherited."""

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
        """Which visit of the task."""

    @property
    def sample(self) -> int:
        """Which sample of it."""

    @property
    def attempt(self) -> int:
        """Which attempt at the episode, from 0."""

    @property
    def state(self) -> str:
        """How it ended; of one that did not, `running`, `silent` or `interrupted`."""

    @property
    def counts(self) -> bool:
        """True for the newest attempt that really began."""

    @property
    def reward(self) -> float | None:
        """The sum of the rewards of its steps; None if none has one. A group's rewards are in `GroupView.rewards`."""

    @property
    def first_time(self) -> float | None:
        """When its first record was made, in seconds since 1970."""

    @property
    def last_time(self) -> float | None:
        """When its newest record was made, in seconds since 1970."""

    @property
    def cursor(self) -> str:
        """Where to go on behind this one: give it to `episodes(after=…)`.

        It is exact for views that came from `follow` or `after`. Those of a plain list have the empty cursor, which
        stands before everything that ended: nothing is ever missed by going on from it.
        """

    @property
    def steps(self) -> Sequence[Step]:
        """Its steps, each read when it is asked for."""

    @property
    def ending(self) -> Ending | None:
        """How it ended; None if it had not when it was listed."""

    @property
    def policies(self) -> tuple[int | str, ...]:
        """The policies that acted in it, in the order in which they came. Reads all its steps."""

    @property
    def pending(self) -> Step | None:
        """A turn that was said and has no result."""

    @property
    def parent(self) -> str | None:
        """What it belongs to, if that was said."""

    @property
    def meta(self) -> Any:
        """What was given along when it was opened."""

    @property
    def trouble(self) -> str | None:
        """What is wrong: a card that it rests on cannot be read or is not there, or records of it are lost; None if nothing is known.

        A record that is damaged inside of a log whose index is whole is found when it is read: see `Step.damaged`, and
        `keepstep verify`, which reads all.
        """

    @property
    def missing(self) -> tuple[str, ...]:
        """What was lost of it as a whole; damaged fields are named in `Step.damaged`."""

    @property
    def calls(self) -> Sequence[Call]:
        """The calls that `episode.call` recorded in it, in the order in which they came back. Reads them alone."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """Notes on the episode and this attempt, by name. Of several sources the newest counts."""

    @property
    def notes_by_source(self) -> Mapping[tuple[str, str], Any]:
        """The same by name and source: what each source said last."""

    def notes_on(self, step: int) -> Mapping[str, Any]:
        """Notes on one step, by name. Of several sources the newest counts."""

    def attempts(self) -> Sequence[View]:
        """All attempts at the episode that really began, in order, as they stand now."""

    def follow(self) -> Iterator[Step]:
        """Its steps from the first on, and those that come in, until the attempt has ended or its recorder is gone.

        A step comes as soon as it is durable: that it is the LAST is known only if its end was there by then.
        """

    def afollow(self) -> AsyncIterator[Step]:
        """As `follow`, without blocking the event loop."""

    def __eq__(self, other: object) -> bool:
        """The same attempt, as far as it was recorded when each was read."""

    def __hash__(self) -> int: ...

class GroupView:
    """A sealed group: its members are the attempts that count, by sample."""

    ref: str
    """The group: `run/task#iteration`."""
    members: tuple[View, ...]
    """The attempts that count, by sample."""
    rewards: tuple[float | None, ...]
    """As they were sealed, by member; without any, the sums of the rewards of the steps."""
    missing: Mapping[int, str]
    """Which samples are missing, and how they ended."""
    source: str
    """Who gave the rewards."""
    time: float
    """When it was sealed, in seconds since 1970."""
    cursor: str
    """Where to go on behind this one: give it to `groups(after=…)`."""

class Table:
    """A table, read from the store in batches each time somebody asks: `pyarrow.table(t)`, `polars.DataFrame(t)`,
    `duckdb.sql("from t")`, `t.to_pandas()`; batch by batch with `pyarrow.RecordBatchReader.from_stream(t)`.
    """

    @property
    def of(self) -> str:
        """What it is a table of."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream. It has its own schema: casting is left to whoever asks for another."""

    def __arrow_c_schema__(self) -> object:
        """The Arrow C schema."""

    def to_pandas(self) -> Any:
        """All of it as a pandas DataFrame. Needs pandas and pyarrow."""

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
    """An array whose elements nothing here has a type for: numpy is missing, or `ml_dtypes` for bfloat16 and float8.

    `data` has the elements in C order, little-endian.
    """

    dtype: str
    """The type of its elements."""
    shape: tuple[int, ...]
    """How many there are in each dimension."""
    data: bytes
    """The elements."""

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes) -> None: ...

class Repr(str):
    """What an object looked like that could not be recorded; `type` is the name of its class."""

    type: str
    """The name of its class."""

    def __new__(cls, type: str, text: str) -> Repr: ...

class Lost:
    """Bytes in storage were damaged: here stood a value with this hash."""

    hash: bytes
    """The hash of what stood here."""

    def __init__(self, hash: bytes) -> None: ...
    def __bool__(self) -> bool: ...

class RecordedAsRepr(UserWarning):
    """Objects of this class cannot be recorded as data: their text was recorded. `keepstep.register` changes that."""
