"""Waits for a quiet machine before each measurement, within reason: as the engine's bench does, and for its reasons."""

from __future__ import annotations

import time
from pathlib import Path

# Of all processors together; the bench itself is idle while this is looked at.
BUSY_MAX = 0.15
LOOK_S = 0.1


class Patience:
    """How long a whole run may wait, and how often it measured all the same."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds
        self.measured = self.measured_busy = 0

    def wait(self) -> None:
        """Returns when others leave the processors alone, or when this run has waited enough."""
        self.measured += 1
        while busy_share() > BUSY_MAX:
            self.left_s -= LOOK_S
            if self.left_s <= 0:
                self.measured_busy += 1
                return

    def describe(self) -> str:
        """How quiet it was, for whoever judges the numbers."""
        if not self.measured_busy:
            return f"{self.measured} measurements on a quiet machine"
        return (
            f"{self.measured_busy} OF {self.measured} MEASUREMENTS BEGAN WHILE OTHERS USED THE PROCESSORS: "
            "run it again on a quiet machine"
        )


def busy_share() -> float:
    busy_before, all_before = processor_ticks()
    time.sleep(LOOK_S)
    busy, all_ticks = processor_ticks()
    return (busy - busy_before) / max(1, all_ticks - all_before)


def processor_ticks() -> tuple[int, int]:
    """Ticks that all processors together were busy, and all ticks; zeros where the kernel does not say."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 0
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
