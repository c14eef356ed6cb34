"""Runs the examples of a page, in order, as a reader would.

- `python` blocks run in one namespace, block after block; one with `title="NAME"` becomes a file of that name instead.
- `sh` blocks run in bash, in the same folder; their `python` and `keepstep` are the ones under test.
- A `text` block right after one that ran is what that one prints: `…` stands for anything, spaces count as one.
- `<!-- not run: REASON -->` on the line before a block leaves it out.
Other languages are for reading only.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

FENCE = re.compile(r"^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run:(?P<reason>[^\n]*)-->\n\Z")
TITLE = re.compile(r'title="(?P<name>[^"]+)"')


@dataclass
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    line: int
    file: str | None
    is_next: bool
    """True if nothing but blank lines stands between it and the block before."""


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that are to be run or compared."""
    blocks, end = [], 0
    for fence in FENCE.finditer(text):
        before = text[: fence.start()]
        is_next = end > 0 and not text[end : fence.start()].strip()
        end = fence.end()
        left_out = NOT_RUN.search(before)
        if left_out is not None:
            if not left_out["reason"].strip():
                raise ValueError(f"line {before.count(chr(10))}: says that a block is not run, but not why")
            continue
        title = TITLE.search(fence["rest"])
        name = None if title is None else title["name"]
        line = before.count("\n") + 2
        blocks.append(Block(fence["language"], fence["code"], line, name, is_next))
    return blocks


def run_page(text: str, name: str, folder: Path) -> int:
    """Runs the blocks of a page in a folder, which must be the current one. How many ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    ran = 0
    for block in blocks_of(text):
        if block.language == "text" and block.is_next and printed is not None:
            compare(block, name, printed)
            printed = None
            continue
        printed = None
        if block.file is not None:
            (folder / block.file).write_text(block.code)
        elif block.language == "python":
            printed = run_python(block, name, namespace)
        elif block.language == "sh":
            printed = run_shell(block, name, folder)
        else:
            continue
        ran += 1
    return ran


def run_python(block: Block, name: str, namespace: dict[str, Any]) -> str:
    """Runs a block; a traceback names the line of the page."""
    code = compile("\n" * (block.line - 1) + block.code, name, "exec")
    # What the programs that it starts print is shown in the same place.
    with tempfile.TemporaryFile("w+") as out, _standard_output(out.fileno()) as stdout:
        with contextlib.redirect_stdout(stdout):
            exec(code, namespace)
        stdout.flush()
        out.seek(0)
        return out.read()


@contextlib.contextmanager
def _standard_output(file: int) -> Iterator[TextIO]:
    """Everything that this process and its children print goes to a file, in order."""
    before = os.dup(1)
    os.dup2(file, 1)
    try:
        with open(file, "w", buffering=1, closefd=False) as stdout:
            yield stdout
    finally:
        os.dup2(before, 1)
        os.close(before)


def run_shell(block: Block, name: str, folder: Path) -> str:
    """Runs a block in bash; a command that fails fails the page."""
    keepstep = (
        f'keepstep() {{ "{sys.executable}" -m keepstep "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
    )
    settings = {
        **os.environ,
        "PYTHONWARNINGS": "ignore:this keepstep is a debug build",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", keepstep + block.code],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise AssertionError(f"{name}:{block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def compare(block: Block, name: str, printed: str) -> None:
    """Fails unless the block is what was printed."""
    wanted = [pattern_of(line) for line in block.code.splitlines() if line.strip()]
    found = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    fits = len(wanted) == len(found) and all(
        re.fullmatch(one, other) for one, other in zip(wanted, found, strict=True)
    )
    if not fits:
        raise AssertionError(
            f"{name}:{block.line}: the page says\n{block.code}\nbut this is printed\n{printed}"
        )


def pattern_of(line: str) -> str:
    """A line of the page as a pattern."""
    return ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
