"""Every example in the docs runs, and prints what the page says."""

import sys
from pathlib import Path

import pytest
from docs_pages import run_page

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "guides").glob("*.md"),
        *(ROOT / "docs" / "concepts").glob("*.md"),
    ]
    # The contract shows calls without their surroundings; its example stands in the guides, where it runs.
    if page.name != "design.md"
)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Pages about a framework run on its stand-in, and on the real one in `make test-outside`.
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "tests" / "standins")])
    run_page((ROOT / page).read_text(), page, tmp_path)


def test_there_are_pages() -> None:
    assert "docs/tutorial.md" in PAGES
    assert len(PAGES) >= 10


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("```python\nraise RuntimeError('broken')\n```\n", "broken"),
        (
            "```python\nvalue = 1\n```\n\n```python\nassert value == 2, 'one namespace'\n```\n",
            "one namespace",
        ),
        ("```sh\nexit 3\n```\n", "exit code 3"),
        (
            '```python title="wrong.py"\nimport nothing_of_that_name\n```\n```sh\npython wrong.py\n```\n',
            "nothing_of",
        ),
        ("```python\nprint('a b')\n```\n```text\na c\n```\n", "the page says"),
        ("```python\nprint('a\\nb')\n```\n```text\na\n```\n", "the page says"),
        ("<!-- not run: -->\n```python\n```\n", "not why"),
    ],
)
def test_a_wrong_page_is_found(page: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=says):
        run_page(page, "page", tmp_path)


def test_a_right_page_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = """
```python title="said.py"
print("took 12 ms,  done")
```

```sh
python said.py
```

```text
took … ms, done
```

<!-- not run: needs a cluster -->
```sh
sbatch job.sh
```
"""
    assert run_page(page, "page", tmp_path) == 2
