"""What the Python package must reach, and what was reached: the same rows as `bench/bars.toml` gives the engine."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Bar:
    """What must be reached."""

    name: str
    what: str
    need: float
    sense: Literal["at_least", "at_most"]
    unit: str

    def row(self, got: float | None) -> dict[str, Any]:
        """What was reached. Nothing measured is a failure."""
        is_measured = got is not None and not math.isnan(got)
        is_met = is_measured and (got >= self.need if self.sense == "at_least" else got <= self.need)
        shown = got if is_measured else None
        return {
            "name": self.name,
            "got": shown,
            "need": self.need,
            "sense": self.sense,
            "unit": self.unit,
            "ok": is_met,
        }


BARS = (
    Bar(
        "py-512-fsync", "steps/s of 512 tasks, of JSONL with an fsync a step (64 threads)", 4, "at_least", "x"
    ),
    Bar(
        "py-512-flush", "steps/s of 512 tasks, of JSONL with a flush a step (64 threads)", 1, "at_least", "x"
    ),
    Bar("py-64-beside-cpu", "steps/s of 64 tasks beside a CPU-bound thread, of alone", 0.3, "at_least", "x"),
    Bar("py-submit-p50", "submit() of a dict of 2 KB and 12 keys, on the caller", 20, "at_most", "µs"),
    Bar(
        "py-history-fresh",
        "submit() of a known 1 MB history but for a message, fresh objects",
        1.5,
        "at_most",
        "ms",
    ),
    Bar(
        "py-history-same",
        "submit() of a known 1 MB history but for a message, same objects",
        0.3,
        "at_most",
        "ms",
    ),
    Bar("py-array-memory", "peak extra memory of recording a numpy array of 1 MB", 2, "at_most", "x"),
    Bar(
        "py-wrapper",
        "what the wrapper adds to a Gymnasium step, without the durable write",
        30,
        "at_most",
        "µs",
    ),
    Bar("py-null", "submit() to the null store", 2, "at_most", "µs"),
    Bar("py-table-steps", 'rows of table("steps"), 1 KB each, all columns', 200_000, "at_least", "/s"),
    Bar("py-table-episodes", 'rows of table("episodes"), what a list says', 500_000, "at_least", "/s"),
)


def print_table(rows: list[dict[str, Any]]) -> None:
    """For people."""
    whats = {bar.name: bar.what for bar in BARS}
    print(f"\n{'name':<20} {'got':>9} {'need':>9}  {'unit':<5} {'ok':<7} what")
    for row in rows:
        got = "-" if row["got"] is None else f"{row['got']:.3f}"
        sign = "≥" if row["sense"] == "at_least" else "≤"
        verdict = "ok" if row["ok"] else "MISSING" if row["got"] is None else "MISSED"
        need = f"{sign} {row['need']:g}"
        print(f"{row['name']:<20} {got:>9} {need:>9}  {row['unit']:<5} {verdict:<7} {whats[row['name']]}")


def merge_into(path: Path, rows: list[dict[str, Any]]) -> None:
    """Puts the rows into a report, in place of older ones of the same name; the others stay."""
    known = json.loads(path.read_text()) if path.exists() else []
    names = {row["name"] for row in rows}
    kept = [row for row in known if row["name"] not in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept + rows, indent=2, ensure_ascii=False) + "\n")
