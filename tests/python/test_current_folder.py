"""Processes that the command starts import what the command imported, and nothing from the folder that it is used in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# As a console script begins: without the current folder among the places of modules.
COMMAND = [
    sys.executable,
    "-c",
    "import sys; sys.path.remove(''); from keepstep._command import main; main()",
]
SHADOWS = ("argparse", "asyncio", "inspect", "json", "random", "signal", "threading", "keepstep")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as somebody's project may be: with a file called like a module of Python."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('a module of the current folder was imported')\n"
        )
    return tmp_path


def ask(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=project, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "."),
        ("demo", "runs", "--episodes", "1", "--steps", "3", "--pause-ms", "0"),
        ("torture", "tort", "--seconds", "1", "--processes", "1", "--threads", "2"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_module_of_the_current_folder_is_imported(project: Path, arguments: tuple[str, ...]) -> None:
    """A `random.py` beside the store made `doctor` say that locks do not work there."""
    said = ask(project, *arguments)
    assert said.returncode == 0, said.stderr
    assert "current folder" not in said.stdout + said.stderr


def test_a_probe_that_crashes_says_nothing_about_locks(tmp_path: Path) -> None:
    """What could not be tried is unknown: only what was seen to fail is said to fail."""
    code = "import sys; from keepstep import _core; sys.exit(_core.command('/bin/false', [], sys.argv[1:]))"
    command = [sys.executable, "-c", code, "keepstep", "doctor", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert said.returncode == 1
    lines = {line.split("  ")[0].strip(): line for line in said.stdout.splitlines()}
    assert "unknown: the probe crashed: exit status: 1" in lines["lock"]
    assert "unknown" in lines["level kill"]
    assert "locks between processes are not known: the probe crashed" in lines["level kill"]
    assert "failed" not in said.stdout
    said = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=300)
    found = json.loads(said.stdout)
    assert found["lock"]["ok"] is None
    assert found["lock"]["why"].startswith("the probe crashed")
    assert found["levels"]["kill"]["ok"] is None
