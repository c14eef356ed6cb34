"""Reading a run: a list of its episodes, or episodes and groups as they come in.

A view has what a list says of an attempt. Its steps, notes, ending and policies are read when they are used; all but the
steps are kept.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from . import _checks, _core
from ._cached import cached_property
from ._endings import SAID, WHYS, Ending
from ._log import warn_of_troubles
from ._loops import in_thread, warn_if_on_loop
from ._steps import Call, Step, Steps, call_of, error_text, shown, step_of, table_html
from .errors import BadInput, NotFound

if TYPE_CHECKING:
    from ._table import Table

__all__ = ["Ending", "GroupView", "Step", "Steps", "View", "episodes", "find", "groups", "step_of", "table"]

# A wait is cut into slices of this length, so that Ctrl-C works.
_SLICE_S = 0.2


class View:
    """An attempt at an episode as it was when it was read, including what it inherited."""

    _core: Any

    def __init__(self, native: Any) -> None:
        object.__setattr__(self, "_core", native)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a view cannot be changed")

    @property
    def ref(self) -> str:
        """How people and commands name the attempt."""
        return str(self._core.ref)

    @property
    def id(self) -> str:
        """The id of the episode: the same on every machine."""
        return str(self._core.id)

    @property
    def run(self) -> str | None:
        """The name of its run."""
        return self._core.run  # type: ignore[no-any-return]

    @property
    def task(self) -> str:
        """The task; empty for an episode without a name."""
        return str(self._core.task)

    @property
    def iteration(self) -> int:
        """Which visit to the task."""
        return int(self._core.iteration)

    @property
    def sample(self) -> int:
        """Which sample of the task."""
        return int(self._core.sample)

    @property
    def attempt(self) -> int:
        """Which attempt at the episode, from 0."""
        return int(self._core.attempt)

    @property
    def state(self) -> str:
        """How it ended. If it has not: `running`, `silent` or `interrupted`."""
        return str(self._core.state)

    @property
    def counts(self) -> bool:
        """True for the newest attempt that really began."""
        return bool(self._core.counts)

    @property
    def reward(self) -> float | None:
        """The sum of the rewards of its steps, as `math.fsum` gives it; None if none has one. A group's rewards are in `GroupView.rewards`."""
        return self._core.reward  # type: ignore[no-any-return]

    @property
    def first_time(self) -> float | None:
        """When its first record was made, in seconds since 1970."""
        return self._core.first_time  # type: ignore[no-any-return]

    @property
    def last_time(self) -> float | None:
        """When its newest record was made, in seconds since 1970."""
        return self._core.last_time  # type: ignore[no-any-return]

    @property
    def cursor(self) -> str:
        """The place after this view, to give to `episodes(after=…)`.

        It is exact for views that came with `follow` or `after`. Views of a plain list have the empty cursor, which
        is before everything that ended: nothing is missed if you continue from it.
        """
        return str(self._core.cursor)

    @cached_property
    def steps(self) -> Steps:
        """Its steps. Each is read when it is used."""
        return Steps(self._core.steps, self._core.step)

    @cached_property
    def ending(self) -> Ending | None:
        """How it ended; None if it had not ended when it was listed."""
        found = self._core.ending()
        if found is None:
            return None
        why, limit, error, said_by = found
        return Ending(why, limit, error_text(error), said_by or "")

    @cached_property
    def policies(self) -> tuple[int | str, ...]:
        """The policies that acted in it, in the order of their steps. Reads all its steps."""
        return tuple(self._core.policies())

    @cached_property
    def pending(self) -> Step | None:
        """A turn with an intent and no result."""
        found = self._core.pending()
        return None if found is None else step_of(found)

    @property
    def parent(self) -> str | None:
        """The ref of the episode that it is part of, if one was given."""
        return self._origin[0]

    @property
    def meta(self) -> Any:
        """The `meta` that it was opened with."""
        return self._origin[1]

    @property
    def trouble(self) -> str | None:
        """What is wrong with it; None if nothing is known. A file that it depends on is missing or unreadable, or
        records of it are lost.

        Damage inside a record may be found only when the record is read: see `Step.damaged`, and `keepstep verify`,
        which reads everything.
        """
        return self._core.trouble  # type: ignore[no-any-return]

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What was lost of it as a whole. `Step.damaged` names damaged fields."""
        return tuple(self._core.missing())

    @cached_property
    def calls(self) -> Sequence[Call]:
        """The calls that `episode.call` recorded in it, in the order in which they returned. Reads only these."""
        return tuple(call_of(call) for call in self._core.calls())

    @cached_property
    def notes(self) -> Mapping[str, Any]:
        """Notes on the episode and this attempt, by name. If several sources gave one, the newest counts."""
        newest: dict[str, tuple[float, Any]] = {}
        for step, name, _, time, value in self._notes:
            if step is None and time >= newest.get(name, (-math.inf, None))[0]:
                newest[name] = (time, value)
        return MappingProxyType({name: value for name, (_, value) in newest.items()})

    @cached_property
    def notes_by_source(self) -> Mapping[tuple[str, str], Any]:
        """The same notes by name and source: the newest of each."""
        found = sorted((it for it in self._notes if it[0] is None), key=lambda it: it[3])
        return MappingProxyType({(name, source): value for _, name, source, _, value in found})

    def notes_on(self, step: int) -> Mapping[str, Any]:
        """Notes on one step, by name. If several sources gave one, the newest counts."""
        step = _checks.whole("step", step)
        found = sorted((it for it in self._notes if it[0] == step), key=lambda it: it[3])
        return MappingProxyType({name: value for _, name, _, _, value in found})

    def attempts(self) -> Sequence[View]:
        """All attempts at the episode that really began, in order, as they stand now."""
        return tuple(View(native) for native in self._core.attempts())

    def follow(self) -> Iterator[Step]:
        """Its steps from the first on, then new ones as they come, until it has ended or its process is gone.

        A step comes as soon as it is durable, so it is marked LAST only if the end was recorded by then.
        """
        warn_if_on_loop("use `async for step in view.afollow()`", waits_for="new steps")
        follow = self._core.follow()
        while not follow.is_over:
            found = follow.next(_SLICE_S)
            if found is not None:
                yield step_of(found)

    async def afollow(self) -> AsyncIterator[Step]:
        """As `follow`, without blocking the event loop."""
        follow = await in_thread(self._core.follow)
        try:
            while not follow.is_over:
                found = await in_thread(follow.next, _SLICE_S)
                if found is not None:
                    yield step_of(found)
        finally:
            follow.stop()

    @cached_property
    def _origin(self) -> tuple[str | None, Any]:
        return self._core.origin()  # type: ignore[no-any-return]

    @cached_property
    def _notes(self) -> Sequence[tuple[int | None, str, str, float, Any]]:
        return self._core.notes()  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        """True for the same attempt, if as much of it was recorded when each was read."""
        if not isinstance(other, View):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash((self.id, self.attempt))

    @property
    def _identity(self) -> tuple[Any, ...]:
        return (self.id, self.attempt, self._core.listed_steps, self.state, self.last_time)

    def __repr__(self) -> str:
        reward = "" if self.reward is None else f", reward {self.reward:g}"
        return f"<View {self.ref}: {self._core.listed_steps} steps, {self.state}{reward}>"

    def _repr_html_(self) -> str:
        rows = [
            ("ref", self.ref),
            ("state", self.state),
            ("steps", str(self._core.listed_steps)),
            ("reward", shown(self.reward)),
            ("notes", shown(dict(self.notes) or None, 400)),
        ]
        return table_html(["episode", shown(self.task)], rows) + self.steps._repr_html_()


class GroupView:
    """A sealed group: its members are the attempts that count, by sample."""

    __slots__ = ("cursor", "members", "missing", "ref", "rewards", "source", "time")
    ref: str
    members: tuple[View, ...]
    rewards: tuple[
        float | None, ...
    ]  # as they were sealed, by member; without any, the sums of the steps' rewards
    missing: Mapping[int, str]
    source: str
    time: float
    cursor: str

    def __init__(self, parts: tuple[Any, ...]) -> None:
        ref, members, missing, source, time, cursor = parts
        views = tuple(View(native) for native, _ in members)
        rewards = tuple(reward for _, reward in members)
        if all(reward is None for reward in rewards):
            rewards = tuple(view.reward for view in views)
        fields = (cursor, views, MappingProxyType(dict(missing)), ref, rewards, source, time)
        for name, value in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a sealed group cannot be changed")

    def __repr__(self) -> str:
        missing = f", {len(self.missing)} missing" if self.missing else ""
        return f"<GroupView {self.ref}: {len(self.members)} members{missing}>"

    def _repr_html_(self) -> str:
        rows = [
            (it.ref, it.state, shown(reward)) for it, reward in zip(self.members, self.rewards, strict=True)
        ]
        rows += [(f"sample {sample}", why, "") for sample, why in self.missing.items()]
        return table_html([self.ref, "state", "reward"], rows)


def find(core_store: Any, ref: str) -> View:
    """The attempt that a ref or the start of an id names. If it names no attempt: the one that counts."""
    if not isinstance(core_store, _core.Store):
        raise NotFound(f"{ref}: the null store records nothing")
    view = View(_core.find(core_store, ref))
    if view.trouble is not None:
        warn_of_troubles([f"{view.ref}: {view.trouble}"])
    return view


def episodes(
    core_run: Any,
    *,
    task: str | None = None,
    iteration: int | None = None,
    ends: Collection[str] | None = None,
    reward: tuple[float, float] | None = None,
    policy: int | str | None = None,
    since: float | None = None,
    attempts: Literal["last", "all"] = "last",
    after: str | None = None,
    follow: bool = False,
) -> Iterator[View]:
    """The episodes of a run that match.

    Without `after` and `follow` these are all episodes, including running ones, sorted by task, iteration, sample and
    attempt. With either they are those that ended, in the order in which their ends became known: from the beginning
    or from the cursor, up to now or, with `follow`, for ever. An attempt that another process found dead recorded no
    end itself: it is in the list, but not among these.
    """
    coming = _checks.flag("follow", follow) or _checks.text_or_none("after", after) is not None
    states = None if ends is None else _checks.some_of("ends", ends, WHYS)
    if coming and states is not None and not SAID.issuperset(states):
        # These never come, so following would wait for ever.
        never = ", ".join(sorted(set(states) - SAID))
        raise BadInput(
            f"ends: has {never}, which never comes with after or follow, since an attempt does not record it itself: "
            f"leave out after and follow to list such episodes, or give some of {', '.join(sorted(SAID))}"
        )
    if policy is not None and (isinstance(policy, bool) or not isinstance(policy, (int, str))):
        raise _checks.wrong("policy", policy, "give a number or a name")
    wanted = {
        "task": _checks.text_or_none("task", task),
        "iteration": _checks.whole_or_none("iteration", iteration),
        "ends": states,
        "reward": _checks.pair_or_none("reward", reward),
        "policy": policy,
        "since": _checks.bound_or_none("since", since, "give seconds since 1970, such as time.time() - 3600"),
        "all_attempts": _checks.one_of("attempts", attempts, ("last", "all")) == "all",
    }
    if not isinstance(core_run, _core.Run):
        return iter(())
    if not coming:
        listing = _core.list_episodes(core_run, wanted)
        warn_of_troubles(listing.troubles)
        return map(View, listing)
    return map(View, _coming(_core.follow_run(core_run, wanted, after or None).next_episode, follow))


def groups(
    core_run: Any, *, after: str | None = None, follow: bool = False, min_policy: int | None = None
) -> Iterator[GroupView]:
    """The sealed groups of a run, in the order in which their seals became known; with `follow`, for ever.

    `min_policy` leaves out groups that have a step of an older policy. Only numbers are compared.
    """
    _checks.flag("follow", follow)
    _checks.text_or_none("after", after)
    _checks.whole_or_none("min_policy", min_policy, -(1 << 63))
    if not isinstance(core_run, _core.Run):
        return iter(())
    native = _core.follow_run(core_run, {**dict.fromkeys(_ANY), "all_attempts": True}, after or None)
    found = map(GroupView, _coming(native.next_group, follow))
    return found if min_policy is None else (it for it in found if _is_fresh(it, min_policy))


_ANY = ("task", "iteration", "ends", "reward", "policy", "since")


def table(core_run: Any, of: str, columns: Sequence[str] | None = None) -> Table:
    """A table of a run, for pyarrow, polars, pandas, DuckDB and datasets."""
    from ._table import Table

    run = core_run if isinstance(core_run, _core.Run) else None
    _checks.text("of", of)
    return Table(_core.Table(run, of, None if columns is None else _checks.texts("columns", columns)))


def _coming(ask: Any, follow: bool) -> Iterator[Any]:
    """Yields what comes in, and waits for it in slices; without `follow`, only what is there."""
    while True:
        found, is_quiet, troubles = ask(_SLICE_S if follow else 0.0)
        warn_of_troubles(troubles)
        if found is not None:
            yield found
        elif is_quiet and not follow:
            return


def _is_fresh(group: GroupView, min_policy: int) -> bool:
    numbers = (it for view in group.members for it in view.policies if isinstance(it, int))
    return all(number >= min_policy for number in numbers)
