"""keepstep keeps every step of an agent's rollout on disk. A crash costs at most the step in flight."""

import warnings

from . import _core, _log, _trajectory  # noqa: F401
from ._core import Receipt, __version__
from ._endings import Ending, Why
from ._episode import Episode
from ._opts import Opts
from ._progress import GivenUp, Progress
from ._run import Group, Job, Jobs, Run, Stream
from ._scope import Scope
from ._sealing import Sealing
from ._steps import Both, Call, Result, Said, Step
from ._store import Level, Store, open
from ._table import Table
from ._tokens import Tokens
from ._turn import Turn
from ._values import Array, Lost, Media, RecordedAsRepr, Repr, register
from ._views import GroupView, View
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
from .wrappers import current, record

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

# The whole package is imported at once, and nothing on first use: a fork while another thread imports would leave the child
# with a lock that nobody releases.
_core.look_up_all()

if _core.IS_DEBUG_BUILD:
    warnings.warn(
        "this keepstep is a debug build, which is many times slower: install a release build with `pip install .`",
        RuntimeWarning,
        stacklevel=2,
    )
