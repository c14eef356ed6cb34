"""tinker-cookbook: every rollout of a group is recorded turn by turn, and resumes where it stopped.

`install()` lets the cookbook's loops seal groups. Give the pair `RecordedBuilder` and `RecordedStrategy` to a training loop;
see docs/guides/tinker.md.
"""

try:
    import tinker_cookbook.rl.rollouts  # noqa: F401
except ModuleNotFoundError as _missing:
    if (_missing.name or "").partition(".")[0] not in ("tinker", "tinker_cookbook"):
        raise
    raise ImportError(
        "keepstep.adapters.tinker needs tinker-cookbook: pip install tinker-cookbook"
    ) from _missing

from ._capture import KeepingExporter, StreamSink
from ._env import EnvironmentGone, RecordedEnv, RecordedPolicy
from ._group import RecordedBuilder, RecordedDataset, do_group_rollout, install, is_installed
from ._restoring import Restorable
from ._strategy import RecordedStrategy

__all__ = [
    "EnvironmentGone",
    "KeepingExporter",
    "RecordedBuilder",
    "RecordedDataset",
    "RecordedEnv",
    "RecordedPolicy",
    "RecordedStrategy",
    "Restorable",
    "StreamSink",
    "do_group_rollout",
    "install",
    "is_installed",
]
