"""The `keepstep` command inside the wheel."""

import signal
import sys

from . import _core

# How the command starts itself again. Ctrl-C reaches the new process too, perhaps while Python still imports modules: so the
# handler is set first, with a built-in module.
_AGAIN = "import _signal as s; s.signal(s.SIGINT, s.SIG_DFL); from keepstep._command import main; main()"


def again(code: str) -> list[str]:
    """The arguments with which this Python runs some code in a process that finds the modules that this one finds.

    `-m` and `-c` would look into the current folder first, and a `random.py` there would be imported. Python 3.10 has no
    `-P`, and `-I` would not see what a PYTHONPATH adds. What Python imports before the code, it finds without that folder.
    """
    return ["-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    if sys.argv[1:2] == ["demo"]:
        # The command has a demo of its own, for machines without Python; this one shows what people write.
        from ._demo import main as demo

        sys.exit(demo(sys.argv[2:]))
    # Python would handle an interrupt only when the command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_core.command(sys.executable, again(_AGAIN), ["keepstep", *sys.argv[1:]]))
