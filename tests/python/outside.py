"""Looks at keepstep from outside: other processes, and the command as a reader that shares nothing with the recorder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KILLED = -signal.SIGKILL

# Differs between two recordings of the same rollout, and may.
_ACCIDENTAL = ("time_us", "id", "ref", "writer", "by", "target_attempt")


def environment() -> dict[str, str]:
    """The environment of a process that imports the package as this one does."""
    import keepstep

    package = str(Path(keepstep.__file__).parent.parent)
    known = [package, str(HERE), os.environ.get("PYTHONPATH", "")]
    # Not strict in the library's own threads only: a warning that nobody expects is seen on stderr.
    quiet = "ignore:this keepstep is a debug build:RuntimeWarning"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, known)), "PYTHONWARNINGS": quiet}


def start(script: str | Path, *args: object, **popen: Any) -> subprocess.Popen[str]:
    """Starts a Python process with a script of its own: a file, or the text of one."""
    code = [str(script)] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
    command = [sys.executable, *code, *map(str, args)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
    return subprocess.Popen(command, text=True, env=environment(), **pipes)


def run(script: str | Path, *args: object, timeout_s: float = 60, code: int = 0) -> str:
    """Runs a Python process to its end, which must be the exit code given. What it printed."""
    with start(script, *args) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"still running after {timeout_s} s\n{out}\n{err}") from None
    assert process.returncode == code, f"exit code {process.returncode}, not {code}\n{out}\n{err}"
    return out


def complaint(*args: object, code: int = 1) -> str:
    """What a `keepstep` command that fails says on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "keepstep", *map(str, args)], text=True, capture_output=True, env=environment()
    )
    assert done.returncode == code, f"{args}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stderr


def command(*args: object, code: int = 0) -> str:
    """What a `keepstep` command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "keepstep", *map(str, args)], text=True, capture_output=True, env=environment()
    )
    assert done.returncode == code, f"{args}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def lines(store: object, ref: str) -> list[dict[str, Any]]:
    """All that was recorded of an episode, as another process reads it."""
    return [json.loads(line) for line in command("show", "-s", store, ref, "--json").splitlines()]


def events(store: object, ref: str, what: str) -> list[dict[str, Any]]:
    """The lines of one kind: `step`, `call`, `note`, `end`, …"""
    return [line for line in lines(store, ref) if line["what"] == what]


def ending(store: object, ref: str) -> dict[str, Any]:
    """How an attempt ended, as it was said."""
    (end,) = events(store, ref, "end")
    return end


def essence(store: object, ref: str) -> list[dict[str, Any]]:
    """What an episode says, without who recorded it and when: equal for equal rollouts."""
    kept = [line for line in lines(store, ref) if line["what"] in ("step", "call", "note", "end")]
    return [{name: value for name, value in line.items() if name not in _ACCIDENTAL} for line in kept]


def listed(store: object, run_name: str) -> list[dict[str, Any]]:
    """The episodes of a run, as the command lists them."""
    return [json.loads(line) for line in command("ls", store, run_name, "--json").splitlines()]
