"""Draws a terminal recording of `keepstep demo` for the README: one SVG, no script, still where animation is off.

usage: python tools/picture.py OUT.svg      runs the demo of the installed package in a scratch folder

The lines are those that the demo printed; long tables are cut to a few rows, and that is said in the picture.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_WIDTH, _LINE, _LEFT, _TOP = 760, 19, 18, 46
_ROWS_MAX = 3
# Seconds before a line appears: a kill and a result deserve a pause.
_STEP_S, _PAUSE_S = 0.12, 1.2

_STYLE = """
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre }
  .said { fill: #7fdbca } .bad { fill: #ff6b6b } .good { fill: #addb67 } .dim { fill: #7c8a99 }
  @media (prefers-reduced-motion: no-preference) {
    text.line { opacity: 0; animation: show .15s linear forwards }
    @keyframes show { to { opacity: 1 } }
  }
"""


def printed() -> list[str]:
    """What the demo prints, on a terminal that is not one: without its progress bars."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "keepstep", "demo", "runs/demo"]
        # Data and talk in the order in which a terminal would show them.
        settings = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            command,
            cwd=folder,
            env=settings,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
        )
    return done.stdout.splitlines()


def shortened(lines: list[str]) -> list[str]:
    """Without lines that repeat what a picture has shown: progress, most rows of a table, where to look next."""
    kept: list[str] = []
    rows = 0
    for line in lines:
        if line.startswith("Look at it"):
            break
        is_row = bool(re.match(r"demo\S*/shop-\d", line))
        rows = rows + 1 if is_row else 0
        if re.match(r"\s+\d+ of \d+ steps", line) or rows > _ROWS_MAX + 1:
            continue
        kept.append("  …" if rows == _ROWS_MAX + 1 else line)
    return "\n".join(kept).strip().splitlines()


def kind_of(line: str) -> str:
    """How a line is coloured."""
    if line.startswith("$"):
        return "said"
    if "killed with -9" in line:
        return "bad"
    if "none lost" in line:
        return "good"
    return "dim" if line.isupper() or line.strip() == "…" else ""


def drawn(lines: list[str]) -> str:
    """The picture."""
    height = _TOP + _LINE * len(lines) + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"',
        ' aria-label="keepstep demo: a recorder is killed with -9, no acknowledged step is lost, and it goes on">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#011627"/>',
    ]
    for place, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        out.append(f'<circle cx="{20 + 18 * place}" cy="18" r="5.5" fill="{colour}"/>')
    after_s = 0.3
    for number, line in enumerate(lines):
        kind = kind_of(line)
        after_s += _PAUSE_S if kind in ("bad", "good") else _STEP_S
        where = f'x="{_LEFT}" y="{_TOP + _LINE * number}" style="animation-delay:{after_s:.2f}s"'
        out.append(f'<text class="line {kind}" xml:space="preserve" {where}>{html.escape(line)}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(["$ keepstep demo", *shortened(printed())]))
