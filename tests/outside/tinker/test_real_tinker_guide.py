"""The guide's examples run with the real cookbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_pages import run_page

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "tinker.md"


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # What is left out where there is no cookbook is run here.
    text = re.sub(r"^<!-- not run: needs tinker-cookbook.*-->\n", "", GUIDE.read_text(), flags=re.M)
    assert run_page(text, GUIDE.name, tmp_path) == 3
