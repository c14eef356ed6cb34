"""What NeMo Gym calls a rollout: `<id>`, and `<id>-a<N>` for its later attempts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keepstep

TASK, ROLLOUT, ATTEMPT, EXPLICIT = (
    "_ng_task_index",
    "_ng_rollout_index",
    "_ng_attempt_index",
    "_ng_rollout_id",
)

_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RolloutName:
    """Which rollout a request or a row is about."""

    id: str
    """The rollout, whatever the attempt."""
    task: str
    """The task of its episode."""
    sample: int = 0
    """Which sample of that task."""
    dispatch: int = 0
    """Which attempt the dispatcher says this is; 0 if it says nothing."""

    @classmethod
    def of(cls, body: Any) -> RolloutName | None:
        """Reads the name as NeMo Gym does: an explicit id, else task and rollout index. None if there is none."""
        # Newer requests have it in one object.
        named = _field(body, "episode_id")
        if named is not None and _field(named, "rollout_id") is not None:
            id, dispatch = _field(named, "rollout_id"), _field(named, "attempt")
            return cls(id=_checked(id), task=id, dispatch=int(dispatch or 0))
        dispatch = int(_field(body, ATTEMPT) or 0)
        explicit = _field(body, EXPLICIT)
        if explicit is None:
            explicit = _field(body, "capture_rollout_id")
        if explicit is not None:
            return cls(id=_checked(explicit), task=explicit, dispatch=dispatch)
        task, rollout = _field(body, TASK), _field(body, ROLLOUT)
        if task is None or rollout is None:
            return None
        return cls(id=f"{task}-{rollout}", task=str(task), sample=int(rollout), dispatch=dispatch)

    def attempt(self, number: int) -> str:
        """The name of an attempt. The dispatcher's own number comes first: its collector looks for that."""
        number = self.dispatch or number
        return f"{self.id}-a{number}" if number else self.id


def _checked(id: Any) -> str:
    if not isinstance(id, str) or not _PATTERN.fullmatch(id):
        raise keepstep.BadInput(
            f"{EXPLICIT}: is {id!r}: give letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return id


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, Mapping) else getattr(body, name, None)
