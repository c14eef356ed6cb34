"""Runs each adapter against the real framework, in an environment of its own, and prints a table.

usage: python tools/test_outside.py [NAME ...] [--wheel FILE | --tree] [--envs DIR] [-- PYTEST ARGUMENTS]

A framework is a folder of tests/outside with `outside.toml` (its package, its Python, what the system needs),
`requirements.txt` (exact versions) and tests. Environments are kept between runs and made anew when either file changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tomllib

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ROOT / "tests" / "outside"


class Failed(Exception):
    """An environment could not be made; the message says which and why."""


@dataclass(frozen=True)
class Framework:
    """What a folder of tests/outside asks for."""

    name: str
    package: str
    python: str
    # Distributions whose own bound on Python is too narrow; installed by pip, which can be told to look away.
    any_python: tuple[str, ...] = ()
    # Debian packages, and the program each one brings.
    system: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Framework:
        said = tomllib.loads((folder / "outside.toml").read_text())
        return cls(
            name=folder.name,
            package=said["package"],
            python=said["python"],
            any_python=tuple(said.get("any-python", ())),
            system=said.get("system", {}),
        )

    @property
    def folder(self) -> Path:
        return OUTSIDE / self.name

    @property
    def fingerprint(self) -> str:
        made_from = (self.folder / "outside.toml").read_bytes() + (
            self.folder / "requirements.txt"
        ).read_bytes()
        return hashlib.sha256(made_from).hexdigest()


@dataclass
class Row:
    """A line of the table."""

    framework: Framework
    version: str = "-"
    passed: int = 0
    wrong: int = 0
    skipped: int = 0
    suites: list[str] = field(default_factory=list)
    seconds: float = 0.0
    problem: str = ""

    @property
    def ok(self) -> bool:
        # A test that was skipped for want of something showed nothing.
        return not self.problem and self.wrong == 0 and self.skipped == 0 and self.passed > 0

    def cells(self) -> list[str]:
        total = self.passed + self.wrong + self.skipped
        checks = f"{self.passed}/{total}" + (f" ({self.skipped} skipped)" if self.skipped else "")
        suites = ", ".join(self.suites) or "-"
        verdict = "ok" if self.ok else self.problem or "FAILED"
        return [self.framework.package, self.version, checks, suites, f"{self.seconds:.0f} s", verdict]


def sh(*command: object, **more: Any) -> None:
    """Runs a step of setting up; its output is shown only when it fails."""
    done = subprocess.run(
        list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more
    )
    if done.returncode != 0:
        raise Failed(f"`{' '.join(map(str, command))}` failed:\n{done.stdout[-4000:]}")


def uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Failed("uv is not here: run `make test-outside`, which installs it, or `pip install uv`")
    return found


def ask_the_system(framework: Framework) -> None:
    """Installs what Debian has and the framework needs, where we may."""
    missing = [package for package, program in framework.system.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed(
            f"not installed here: {', '.join(missing)}; install with `apt-get install {' '.join(missing)}`"
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    sh("apt-get", "update", "-qq", env=quiet)
    sh("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, env=quiet)


def python_of(framework: Framework) -> str:
    """A Python of that version: uv's own finding, then pyenv's folders."""
    here = sorted(Path.home().glob(f".pyenv/versions/{framework.python}*/bin/python3"))
    return str(here[-1]) if here else framework.python


def make_environment(framework: Framework, where: Path) -> Path:
    """The framework's environment, as it was kept or made anew; returns its Python."""
    python = where / "bin" / "python"
    stamp = where / "made-from"
    if stamp.exists() and stamp.read_text() == framework.fingerprint:
        return python
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    print(
        f"{framework.name}: making an environment with Python {framework.python}", file=sys.stderr, flush=True
    )
    sh(uv(), "venv", "--quiet", "--seed", "--no-python-downloads", "--python", python_of(framework), where)
    # The list is complete, so nothing is resolved: what is tested is what is written down.
    listed = framework.folder / "requirements.txt"
    sh(uv(), "pip", "install", "--quiet", "--no-deps", "--python", python, "-r", listed)
    if framework.any_python:
        loose = ("install", "--quiet", "--no-deps", "--ignore-requires-python", *framework.any_python)
        sh(python, "-m", "pip", *loose)
    stamp.write_text(framework.fingerprint)
    return python


def install_keepstep(python: Path, wheel: Path | None) -> None:
    """The wheel, or without one the tree as it stands."""
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    tree = Path(site) / "keepstep-tree.pth"
    if wheel is None:
        # One that is installed would be found first.
        sh(uv(), "pip", "uninstall", "--quiet", "--python", python, "keepstep")
        tree.write_text(f"{ROOT / 'python'}\n")
        return
    tree.unlink(missing_ok=True)
    sh(uv(), "pip", "install", "--quiet", "--no-deps", "--reinstall", "--python", python, wheel)


def newest_wheel() -> Path | None:
    """What `make wheel` built last."""
    return max((ROOT / "dist").glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime, default=None)


def version_of(python: Path, package: str) -> str:
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", asked], text=True, capture_output=True).stdout.strip() or "-"


def run_tests(framework: Framework, python: Path, row: Row, pytest_args: list[str]) -> None:
    """Runs the folder's tests and counts them from pytest's own report."""
    with tempfile.TemporaryDirectory() as scratch:
        report, suites = Path(scratch) / "report.xml", Path(scratch) / "suites.jsonl"
        told = {**os.environ, "KEEPSTEP_OUTSIDE": framework.name, "KEEPSTEP_OUTSIDE_SUITES": str(suites)}
        # What somebody's shell says about Python is not the framework's environment.
        told.pop("PYTHONPATH", None)
        # Away from the root, whose `python` folder is not what is installed.
        command = [
            python,
            "-m",
            "pytest",
            framework.folder,
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ]
        done = subprocess.run([*map(str, command), *pytest_args], env=told, cwd=OUTSIDE)
        if suites.exists():
            told_lines = map(json.loads, suites.read_text().splitlines())
            row.suites = [f"{line['suite']} {line['passed']}/{line['total']}" for line in told_lines]
        if not report.exists():
            row.problem = f"pytest ended with {done.returncode} and no report"
            return
        counts = ElementTree.parse(report).getroot().find("testsuite")
        assert counts is not None
        row.wrong = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
        row.skipped = int(counts.get("skipped", 0))
        row.passed = int(counts.get("tests", 0)) - row.wrong - row.skipped


def try_framework(framework: Framework, envs: Path, wheel: Path | None, pytest_args: list[str]) -> Row:
    row, began = Row(framework), time.monotonic()
    try:
        ask_the_system(framework)
        python = make_environment(framework, envs / framework.name)
        install_keepstep(python, wheel)
        row.version = version_of(python, framework.package)
        run_tests(framework, python, row, pytest_args)
    except Failed as why:
        print(why, file=sys.stderr)
        row.problem = "not set up"
    row.seconds = time.monotonic() - began
    return row


def show(rows: list[Row]) -> None:
    head = ["package", "version", "checks passed", "its own suite", "time", ""]
    lines = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print()
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> int:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    said, pytest_args = words[:cut], words[cut + 1 :]
    parser = argparse.ArgumentParser(description="Tests the adapters against the real frameworks.")
    parser.add_argument("names", nargs="*", help="folders of tests/outside; all of them without one")
    parser.add_argument(
        "--wheel", type=Path, help="the keepstep to install; the newest of dist/ without this"
    )
    parser.add_argument(
        "--tree",
        action="store_true",
        help="test python/keepstep as it stands, with the native half built there",
    )
    parser.add_argument(
        "--envs", type=Path, default=ROOT / ".outside", help="where the environments are kept"
    )
    options = parser.parse_args(said)
    known = sorted(path.parent.name for path in OUTSIDE.glob("*/outside.toml"))
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no such framework: {', '.join(unknown)}; there are {', '.join(known)}")
    wheel = None if options.tree else options.wheel or newest_wheel()
    if wheel is None and not options.tree:
        parser.error("no wheel in dist/: run `make wheel`, or give --wheel or --tree")
    frameworks = [Framework.read(OUTSIDE / name) for name in options.names or known]
    rows = [try_framework(framework, options.envs, wheel, pytest_args) for framework in frameworks]
    show(rows)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
