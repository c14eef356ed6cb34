"""What can go wrong, by what you can do next: retry, reopen, fix the input, stop, restore data."""


class KeepstepError(Exception):
    """Anything that keepstep raises on its own account."""


class Busy(KeepstepError):
    """Retry: a live process owns the episode, or the queue is full."""


class Poisoned(KeepstepError, OSError):
    """The disk refused; nothing acknowledged is lost. Open the store again when the cause is gone."""


class Closed(KeepstepError, ValueError):
    """The store was closed. Open it again."""


class Forked(KeepstepError):
    """This process was forked from the one that opened the store. Open it again here."""


class BadInput(KeepstepError, ValueError):
    """A field has a value that cannot be recorded, or an argument makes no sense."""


class ConfigChanged(BadInput):
    """The run exists with another config; the message says which keys differ."""


class NotFound(KeepstepError, LookupError):
    """There is nothing of that name, or it was pruned."""


class Fenced(KeepstepError):
    """Stop: another attempt owns this episode now, or others closed the log of this process. Open it again to go on."""


class Ended(KeepstepError):
    """Stop: the episode is over."""


class Diverged(KeepstepError):
    """What is said or observed now differs from the recording; the message names step and field."""


class Damaged(KeepstepError, ValueError):
    """Bytes in storage are not what was written."""


class DiskFull(KeepstepError, OSError):
    """Retry when there is room; nothing acknowledged is lost."""


class OutOfFiles(KeepstepError, OSError):
    """Retry: this process has too many files open. Close some, or raise the limit (`ulimit -n`); nothing is lost."""


class NotAllowed(KeepstepError, PermissionError):
    """The system does not let this process read or write there: permission denied, or mounted read-only. Nothing is lost."""


class LevelOutOfReach(KeepstepError, OSError):
    """This storage cannot give the durability that was asked for."""


class NewerFormat(KeepstepError, ValueError):
    """The store was written by a newer version of keepstep."""
