"""A disk that takes nothing for a while, made without root: the limit on the size of files is set to nothing.

The engine meets EFBIG at every write and waits for better times, as it does on a full disk.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def stop() -> None:
    """From now on nothing can be written to any file by this process, so also nothing printed to one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


def go_on() -> None:
    """The disk takes writes again."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def stopped() -> Iterator[None]:
    """A disk that takes nothing until the block is left, or `go_on` is called in it."""
    stop()
    try:
        yield
    finally:
        go_on()


@contextmanager
def stopped_later() -> Iterator[Callable[[], None]]:
    """As `stopped`, from when the function that it gives is called."""
    try:
        yield stop
    finally:
        go_on()
