"""The `keepstep` command inside the wheel."""

import signal
import sys

from . import _core


def main() -> None:
    # Python would only note an interrupt, and look at the note when the command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_core.command(sys.executable, ["-m", "keepstep"], ["keepstep", *sys.argv[1:]]))
