"""The `keepstep` command inside the wheel."""

import signal
import sys

from . import _core


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    if sys.argv[1:2] == ["demo"]:
        # The command has a demo of its own, for where there is no Python; this one shows what people write.
        from ._demo import main as demo

        sys.exit(demo(sys.argv[2:]))
    # Python would only note an interrupt, and look at the note when the command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_core.command(sys.executable, ["-m", "keepstep"], ["keepstep", *sys.argv[1:]]))
