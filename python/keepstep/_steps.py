"""The fields of a step: as they are recorded, and as they are read back (frozen, lazily fetched, and safe to show)."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, overload

from ._log import counted
from ._tokens import Tokens

# An item of a recording list that is a mapping with one of these keys is an action.
_ACTION_KEYS = ("action_type", "action")
_SHOWN_MAX = 60


class Said(TypedDict, total=False):
    """The intent of a turn: what is durable before the action is taken."""

    action: Any
    prompt: Any
    response: Any
    tokens: Tokens
    policy: int | str
    agent: str


class Result(TypedDict, total=False):
    """The result of an action."""

    observation: Any
    reward: float | None
    reward_terms: Mapping[str, float]
    discount: float | None
    info: Any
    state: Mapping[str, Any]


class Both(Said, Result):
    """A whole step: its intent and its result."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Step:
    """A step. A field that is None was not recorded, unless `damaged` names it.

    An item of a recording list (`episode.trajectory()`) is a step with a `value`. If that is a mapping with an
    "observation", this is also the observation of the step (and its "info" the info). If it has an "action_type" or
    an "action" instead, the whole item is the action.
    """

    index: int
    kind: Literal["FIRST", "MID", "LAST"] = "MID"
    time: float = 0.0
    observation: Any = None
    action: Any = None
    reward: float | None = None
    reward_terms: Mapping[str, float] | None = None
    discount: float | None = None
    prompt: Any = None
    response: Any = None
    tokens: Tokens | None = None
    policy: int | str | None = None
    agent: str | None = None
    info: Any = None
    state: Mapping[str, Any] | None = None
    error: str | None = None
    value: Any = None
    damaged: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """True if the action raised: the step has an error instead of a result, and does not count in `episode.turns`."""
        return self.error is not None or "error" in self.damaged

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        return all(same(getattr(self, it.name), getattr(other, it.name)) for it in fields(self))

    def __hash__(self) -> int:
        return hash((self.index, self.kind, self.time))

    def __repr__(self) -> str:
        return f"<Step {self.index} {self.kind}{''.join(f', {it}' for it in _told(self))}>"

    def _repr_html_(self) -> str:
        rows = [(it.name, getattr(self, it.name)) for it in fields(self)]
        return table_html(
            ["field", "value"], [(name, shown(it, 400)) for name, it in rows if it not in (None, ())]
        )


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


def call_of(recorded: Mapping[str, Any]) -> Call:
    """A call from what the engine returns."""
    return Call(**{**recorded, "error": error_text(recorded["error"])})


def step_of(recorded: Mapping[str, Any]) -> Step:
    """A step from what the engine returns: a dictionary of the fields that are there."""
    known = dict(recorded)
    if known.get("time") is None:
        known["time"] = 0.0
    if isinstance(known.get("tokens"), Mapping):
        known["tokens"] = Tokens(**known["tokens"])
    if "error" in known:
        known["error"] = error_text(known["error"])
    if "damaged" in known:
        known["damaged"] = tuple(known["damaged"])
    item = known.get("value")
    if isinstance(item, Mapping):
        if "observation" in item:
            known.setdefault("observation", item["observation"])
            known.setdefault("info", item.get("info"))
        elif any(key in item for key in _ACTION_KEYS):
            known.setdefault("action", item)
    return Step(**known)


def error_text(error: Any) -> str | None:
    """An error for people: its type and message, then where it came from; or whatever was recorded."""
    if error is None or isinstance(error, str):
        return error
    if isinstance(error, Mapping) and "type" in error and "message" in error:
        trace = error.get("traceback")
        return f"{error['type']}: {error['message']}" + (f"\n{trace}" if trace else "")
    return repr(error)


class Steps(Sequence[Step]):
    """The steps of an attempt. Each is read when it is used. Iterating holds one at a time."""

    __slots__ = ("_count", "_fetch", "_known")

    def __init__(self, count: Callable[[], int], fetch: Callable[[int], Mapping[str, Any]]) -> None:
        self._count = count
        self._fetch = fetch
        self._known: int | None = None

    def __len__(self) -> int:
        if self._known is None:
            self._known = self._count()
        return self._known

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> list[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | list[Step]:
        if isinstance(at, slice):
            return [step_of(self._fetch(index)) for index in range(*at.indices(len(self)))]
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(f"there is no step {at}: there are {len(self)}")
        return step_of(self._fetch(index))

    def __iter__(self) -> Iterator[Step]:
        return (step_of(self._fetch(index)) for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Steps, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'step')}>"

    def _repr_html_(self) -> str:
        first = [self[index] for index in range(min(len(self), 20))]
        rows = [
            (str(it.index), it.kind, shown(it.action), shown(it.observation), shown(it.reward))
            for it in first
        ]
        more = f"<p>… and {len(self) - len(first)} more</p>" if len(self) > len(first) else ""
        return table_html(["step", "kind", "action", "observation", "reward"], rows) + more


def same(a: Any, b: Any) -> bool:
    """True if two recorded values are the same: arrays are compared element by element, and NaN equals NaN."""
    if a is b:
        return True
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        is_alike = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        return is_alike and bool(a.tobytes() == b.tobytes())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and a != a:
        return b != b
    return type(a) is type(b) and bool(a == b)


def shown(value: Any, length_max: int = _SHOWN_MAX) -> str:
    """A value on one line, as far as there is room. Not yet safe as HTML."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else " " for c in text[: length_max * 4])
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def table_html(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for notebooks. Everything is escaped: what was recorded may be hostile."""
    head = "".join(f"<th>{html.escape(it)}</th>" for it in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(it)}</td>" for it in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _told(step: Step) -> Iterator[str]:
    for name in ("action", "observation", "value"):
        found = getattr(step, name)
        if found is not None and not (name == "value" and (step.action, step.observation) != (None, None)):
            yield f"{name}={shown(found, 40)!r}" if isinstance(found, str) else f"{name}={shown(found, 40)}"
    if step.reward is not None:
        yield f"reward={step.reward}"
    if step.error is not None:
        yield f"error={shown(step.error.partition(chr(10))[0], 40)!r}"
    if step.damaged:
        yield f"damaged: {', '.join(step.damaged)}"
