"""The errors of keepstep, by what you can do next: retry, reopen, fix the input, stop, restore data."""

from ._log import printable


class KeepstepError(Exception):
    """The base class of all errors of keepstep."""

    def __str__(self) -> str:
        # It may quote recorded text, which is hostile, and tracebacks are read on terminals.
        return printable(super().__str__())


class Busy(KeepstepError):
    """Retry: a live process owns the episode, or the queue is full."""


class Poisoned(KeepstepError, OSError):
    """A write to the disk failed; nothing acknowledged is lost. Open the store again when the cause is gone."""


class Closed(KeepstepError, ValueError):
    """The store was closed. Open it again."""


class Forked(KeepstepError):
    """This process was forked from the one that opened the store. Open the store again here."""


class BadInput(KeepstepError, ValueError):
    """A field has a value that cannot be recorded, or an argument makes no sense."""


class ConfigChanged(BadInput):
    """The run exists with another config; the message says which keys differ."""


class NotFound(KeepstepError, LookupError):
    """Nothing has that name, or it was pruned."""


class Fenced(KeepstepError):
    """Stop: another attempt owns this episode now, or another process closed the log of this one. Open the episode
    again to resume it.
    """


class Ended(KeepstepError):
    """Stop: the episode is over."""


class Diverged(KeepstepError):
    """An intent, a call or an observation differs from the recorded one; the message names the step and the field."""


class Damaged(KeepstepError, ValueError):
    """Bytes in storage are not what was written."""


class DiskFull(KeepstepError, OSError):
    """Retry when there is room; nothing acknowledged is lost."""


class OutOfFiles(KeepstepError, OSError):
    """Retry: this process has too many files open. Close some, or raise the limit (`ulimit -n`); nothing is lost."""


class NotAllowed(KeepstepError, PermissionError):
    """The system does not allow this process to read or write there: permission denied, or mounted read-only. Nothing
    is lost.
    """


class LevelOutOfReach(KeepstepError, OSError):
    """This storage does not support the level that was asked for."""


class NewerFormat(KeepstepError, ValueError):
    """The store was written by a newer version of keepstep."""
