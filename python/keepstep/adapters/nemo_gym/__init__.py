"""NeMo Gym: its captured tokens in a keepstep store, a journal for an agent's `/run`, and its rollout files.

`KeepstepTokenSink`, `KeepstepTokenSource` and `KeepstepLineage` replace its file store (`token_id_capture`).
`RunJournal` makes each turn of a rollout durable; `write_rollouts` and `read_rollouts` write and read its JSON Lines.
"""

from __future__ import annotations

from ._capture import KeepstepLineage, KeepstepTokenSink, KeepstepTokenSource
from ._journal import JournaledRollout, JournaledTurn, RunJournal
from ._names import RolloutName
from ._rows import Written, read_rollouts, write_rollouts

__all__ = [
    "JournaledRollout",
    "JournaledTurn",
    "KeepstepLineage",
    "KeepstepTokenSink",
    "KeepstepTokenSource",
    "RolloutName",
    "RunJournal",
    "Written",
    "read_rollouts",
    "write_rollouts",
]
