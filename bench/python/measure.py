"""Measures the Python package: alternating pairs, medians, a row for every bar.

usage: measure.py [--quick] [--only NAME] [--report-only] [--patience 120] [--out target/bench.json] [--dir DIR]

Exits with 1 if a bar is missed or was not measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import costs
import keepstep
import rates
import tables
from bars import BARS, merge_into, print_table
from quiet import Patience

PAIRS, PAIRS_QUICK = 9, 3
SECONDS, SECONDS_QUICK = 1.0, 0.3


class Bench:
    """Measures in turn, each in a fresh folder, with the file system synced in between."""

    def __init__(self, folder: Path, quick: bool, patience: Patience) -> None:
        self.folder = folder
        self.patience = patience
        self.pairs = PAIRS_QUICK if quick else PAIRS
        self.seconds = SECONDS_QUICK if quick else SECONDS
        self.calls = 2_000 if quick else 20_000
        self.number = 0

    def once(self, measure: Callable[[Path], float]) -> float:
        """One measurement in a folder of its own, gone afterwards."""
        self.number += 1
        place = self.folder / str(self.number)
        os.sync()
        self.patience.wait()
        try:
            return measure(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def median(self, measure: Callable[[Path], float]) -> float:
        return statistics.median(self.once(measure) for _ in range(self.pairs))

    def ratio(self, ours: Callable[[Path], float], ruler: Callable[[Path], float]) -> float:
        """The median over pairs; the two take turns."""
        pairs = [(self.once(ours), self.once(ruler)) for _ in range(self.pairs)]
        ratios = sorted(one / other for one, other in pairs)
        middle = statistics.median(ratios)
        rates_seen = " ".join(f"{one:.0f}/{other:.0f}" for one, other in pairs)
        print(f"  {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}): {rates_seen}", flush=True)
        return middle

    def measurements(self) -> dict[str, Callable[[], float]]:
        """How each bar is measured."""
        seconds, calls = self.seconds, self.calls
        tasks = {count: lambda at, count=count: rates.tasks(at, count, seconds) for count in (64, 512)}
        return {
            "py-512-fsync": lambda: self.ratio(
                tasks[512], lambda at: rates.jsonl(at, 64, seconds, syncs=True)
            ),
            "py-512-flush": lambda: self.ratio(
                tasks[512], lambda at: rates.jsonl(at, 64, seconds, syncs=False)
            ),
            "py-64-beside-cpu": lambda: self.ratio(
                lambda at: rates.tasks_beside_cpu(at, 64, seconds), tasks[64]
            ),
            "py-submit-p50": lambda: self.median(lambda at: costs.submit_us(at, calls)),
            "py-history-fresh": lambda: self.median(
                lambda at: costs.history_ms(at, calls // 50, is_fresh=True)
            ),
            "py-history-same": lambda: self.median(
                lambda at: costs.history_ms(at, calls // 50, is_fresh=False)
            ),
            "py-array-memory": lambda: self.median(costs.array_memory),
            "py-wrapper": lambda: self.median(lambda at: costs.wrapper_us(at, calls // 10)),
            "py-null": lambda: self.median(lambda at: costs.null_us(calls * 10)),
            "py-table-steps": lambda: self.median(lambda at: tables.steps_a_second(at, calls * 5)),
            "py-table-episodes": lambda: self.median(lambda at: tables.episodes_a_second(at, calls)),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 pairs: does the bench work? Proves no bar")
    parser.add_argument("--only", default="", help="the bars whose name contains this")
    parser.add_argument("--report-only", action="store_true", help="exit with 0 although bars are missed")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds to wait in all for a quiet machine"
    )
    parser.add_argument("--out", type=Path, default=Path("target/bench.json"))
    parser.add_argument("--dir", type=Path, default=os.environ.get("KEEPSTEP_BENCH_DIR"))
    given = parser.parse_args()
    if keepstep._core.IS_DEBUG_BUILD and not given.quick:
        print(
            "error: this keepstep is a debug build; measure a release build, or try --quick", file=sys.stderr
        )
        return 1
    folder = Path(tempfile.mkdtemp(prefix="bench-python-", dir=given.dir))
    got: dict[str, float | None] = {}
    bars = [bar for bar in BARS if given.only in bar.name]
    patience = Patience(0 if given.quick else given.patience)
    try:
        measurements = Bench(folder, given.quick, patience).measurements()
        for bar in bars:
            print(f"{bar.name}: {bar.what}", flush=True)
            try:
                got[bar.name] = measurements[bar.name]()
            except Exception:
                # The row is then missing, which is a failure; the others are still worth measuring.
                traceback.print_exc()
                got[bar.name] = None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [bar.row(got[bar.name]) for bar in bars]
    print_table(rows)
    print(f"\n{patience.describe()}")
    # What proves nothing must not stand among what does.
    merge_into(given.out.with_name("bench-part.json") if given.quick or given.only else given.out, rows)
    is_met = all(row["ok"] or (given.report_only and row["got"] is not None) for row in rows)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
