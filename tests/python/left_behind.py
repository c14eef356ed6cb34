"""An episode that an error left in the middle, for those who come back to it."""

from __future__ import annotations

import keepstep
import pytest


def leave(run: keepstep.Run, task: str = "t", *, calls: bool = False, says: str | None = None) -> None:
    """Two steps and then an error; before that a call of the third turn, or its action."""
    with pytest.raises(RuntimeError, match="gone"), run.episode(task, resume="restart") as episode:
        for number in range(2):
            episode.step(action=number, state={"n": number})
        if calls:
            episode.call("llm", lambda it: it, "asked")
        if says is not None:
            episode.turn(action=says).__enter__()
        raise RuntimeError("gone")
