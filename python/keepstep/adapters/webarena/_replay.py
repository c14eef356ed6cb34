"""Compares a replayed task with its recording, and translates the numbers of page elements.

Chromium numbers the elements of a page as it finds them, so `[17]` of the recording may be `[141]` today. The text of a page
is compared without these numbers, and a recorded action is taken on the element at the same position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import keepstep

_NUMBER = re.compile(r"^(\t*)\[(\d+)\]", re.M)


class Replay:
    """The first `length` items of an earlier attempt, compared one by one with what the loop appends now."""

    def __init__(self, ref: str, steps: Sequence[keepstep.Step], length: int, ignore: frozenset[str]) -> None:
        self._ref = ref
        self._steps = steps
        self._ignore = ignore
        self._numbers: dict[str, str] = {}
        self.length = length

    def action(self, position: int) -> Any:
        """The recorded action, with today's number of its element."""
        recorded = self._steps[position].value
        if not isinstance(recorded, dict) or "element_id" not in recorded:
            return recorded
        number = recorded["element_id"]
        return {**recorded, "element_id": self._numbers.get(number, number)}

    def compare(self, position: int, now: Any) -> None:
        """Raises `Diverged` at the first difference that matters."""
        recorded = self._steps[position].value
        if _is_state(recorded) and _is_state(now):
            before, after = _seen(recorded), _seen(now)
        else:
            before, after = _done(self.action(position)), _done(now)
        for name in dict.fromkeys([*before, *after]):
            if name not in self._ignore and not _is_same(before.get(name), after.get(name)):
                raise keepstep.Diverged(self._difference(position, name, before.get(name), after.get(name)))
        if _is_state(recorded):
            self._numbers = dict(zip(_numbers(recorded), _numbers(now), strict=False))

    def _difference(self, position: int, name: str, before: Any, after: Any) -> str:
        return (
            f"{self._ref}: the replay differs at item {position} in {name!r}: recorded {_short(before)}, now "
            f'{_short(after)}; give ignore=[{name!r}] to skip this comparison, or environment="restart" to begin the task again'
        )


def _is_state(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("observation"), dict)


def _seen(state: Any) -> dict[str, Any]:
    """What must be the same of a state: what the agent sees, where it is, and what failed."""
    info = state.get("info", {})
    where = {"url": getattr(info.get("page"), "url", None), "fail_error": info.get("fail_error")}
    return {**where, **state["observation"], "text": _NUMBER.sub(r"\1[]", _text(state))}


def _done(action: Any) -> dict[str, Any]:
    """What must be the same of an action: all but the model's text, which may contain element numbers."""
    if not isinstance(action, dict):
        return {"item": action}
    return {name: value for name, value in action.items() if name != "raw_prediction"}


def _text(state: Any) -> str:
    text = state["observation"].get("text", "")
    return text if isinstance(text, str) else ""


def _numbers(state: Any) -> list[str]:
    return [found[2] for found in _NUMBER.finditer(_text(state))]


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
