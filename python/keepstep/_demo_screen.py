"""What `keepstep demo` prints: talk and progress on stderr, tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence

BAR_WIDTH = 40


def say(text: str = "") -> None:
    """A line of talk."""
    print(text, file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table: texts to the left, numbers to the right."""
    shown = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    is_number = [all(isinstance(row[column], int) for row in rows) for column in range(len(head))]
    for row in shown:
        cells = zip(row, widths, is_number, strict=True)
        print(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells
            ).rstrip()
        )
    sys.stdout.flush()


def counted(number: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


class Progress:
    """A bar on a terminal; elsewhere a line for each quarter."""

    def __init__(self, total: int, what: str) -> None:
        self._total = max(total, 1)
        self._what = what
        self._done = 0
        self._is_terminal = sys.stderr.isatty()

    def advance(self) -> None:
        """One more."""
        before = 4 * self._done // self._total
        self._done += 1
        if self._is_terminal:
            self._draw()
        elif 4 * self._done // self._total > before:
            say(f"  {self}")

    def leave(self) -> None:
        """Leaves the bar as it is."""
        if self._is_terminal:
            say()

    def _draw(self) -> None:
        full = BAR_WIDTH * min(self._done, self._total) // self._total
        print(f"\r  {'█' * full}{'░' * (BAR_WIDTH - full)} {self}", end="", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        return f"{self._done} of {self._total} {self._what}"
