"""The bench of the Python package: every bar is measured, and judged as it says."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "python"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


def test_every_bar_has_a_measurement_and_every_measurement_a_bar(bench: Any, tmp_path: Path) -> None:
    """A bar that nobody measures, or a number that no bar asks for, is a slip of the pen."""
    measured = bench("measure").Bench(tmp_path, True, None).measurements()
    names = [bar.name for bar in bench("bars").BARS]
    assert sorted(names) == sorted(measured)


def test_a_bar_is_met_from_its_number_on_and_missing_without_one(bench: Any) -> None:
    """Nothing measured is a failure, and so is what is not a number."""
    bar = bench("bars").Bar
    more, less = bar("more", "", 2, "at_least", "x"), bar("less", "", 2, "at_most", "x")
    assert [more.row(got)["ok"] for got in (1.9, 2.0, 2.1)] == [False, True, True]
    assert [less.row(got)["ok"] for got in (1.9, 2.0, 2.1)] == [True, True, False]
    for got in (None, float("nan")):
        assert (more.row(got)["ok"], more.row(got)["got"]) == (False, None)


def test_rows_join_a_report_in_place_of_older_ones(bench: Any, tmp_path: Path) -> None:
    """The engine's rows stay."""
    merge_into = bench("bars").merge_into
    report = tmp_path / "target" / "bench.json"
    merge_into(report, [{"name": "write-64", "got": 1}, {"name": "py", "got": 1}])
    merge_into(report, [{"name": "py", "got": 2}])
    assert json.loads(report.read_text()) == [{"name": "write-64", "got": 1}, {"name": "py", "got": 2}]
