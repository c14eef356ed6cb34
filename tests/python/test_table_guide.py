"""The guide on tables lists their columns, and says which are JSON text, as the tables themselves do."""

from __future__ import annotations

import re
from pathlib import Path

import keepstep
import pyarrow
import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pandas.md"


@pytest.mark.parametrize("of", ["episodes", "steps", "tokens", "notes"])
def test_the_guide_names_the_columns_of_json_text(run: keepstep.Run, of: str) -> None:
    """A first user took `"look"`, quotes and all, for what was recorded."""
    schema = pyarrow.table(run.table(of)).schema  # type: ignore[arg-type]
    found = [field.name for field in schema if field.type == pyarrow.large_string()]
    row = re.search(rf"^\| `{of}` \| (.*) \|$", GUIDE.read_text(), re.MULTILINE)
    assert row is not None
    assert re.findall(r"`(\w+)`", row.group(1)) == found


@pytest.mark.parametrize("of", ["episodes", "steps", "tokens", "notes"])
def test_the_guide_lists_the_columns(run: keepstep.Run, of: str) -> None:
    """A first user found no list of them."""
    listed = re.search(rf"^- \*\*`{of}`\*\*, [^:]*:(.*?)\.$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed.group(1)) == list(run.table(of).columns)  # type: ignore[arg-type]
