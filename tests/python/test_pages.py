"""Pages say what the code says: endings, options, defaults and verbs are checked against the code's own lists."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import keepstep
import pytest
from keepstep import _core

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("guides/*.md"), *DOCS.glob("concepts/*.md")]
ENDINGS = typing.get_args(keepstep.Why)


def test_the_endings_that_type_checkers_read_are_those_of_the_engine() -> None:
    assert tuple(name for name, *_ in _core.ENDINGS) == ENDINGS
    stub = (ROOT / "python/keepstep/__init__.pyi").read_text()
    told = re.search(r"^Why = Literal\[\s*([^\]]*)\]", stub, re.MULTILINE)
    assert told, "the stub says which endings there are"
    assert tuple(re.findall(r'"(\w+)"', told.group(1))) == ENDINGS


FINAL = {"finished", "truncated"}


def rows(page: str, first: str) -> dict[str, list[str]]:
    """The rows of the table whose head begins so, by what stands first in them."""
    lines = iter((DOCS / page).read_text().splitlines())
    head = next((line for line in lines if line.startswith(f"| {first}")), None)
    assert head is not None, f"{page} has no table that begins with {first!r}"
    next(lines)
    found = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        found[name.strip("`")] = cells
    return found


def test_the_table_of_endings_is_the_codes() -> None:
    told = rows("concepts/attempts.md", "ending")
    assert sorted(told) == sorted(ENDINGS)
    for why, cells in told.items():
        assert cells[-1].startswith("no" if why in FINAL else "yes"), f"{why}: {cells}"


def test_the_contract_names_each_ending() -> None:
    contract = (DOCS / "design.md").read_text()
    ends = contract.partition("**Ends.**")[2].partition("\n\n")[0]
    assert not [why for why in ENDINGS if f"`{why}`" not in ends]


def test_how_an_interrupted_episode_is_opened_is_the_codes() -> None:
    options = typing.get_type_hints(keepstep.Opts)
    told = {name.split("`")[0].strip('"') for name in rows("concepts/attempts.md", "`resume=`")}
    assert told == set(typing.get_args(options["resume"]))


def verbs() -> set[str]:
    said = subprocess.run(
        [sys.executable, "-m", "keepstep", "--help"], capture_output=True, text=True, check=True
    )
    return set(
        re.findall(r"^  ([a-z]+) {2,}", said.stdout.partition("Commands:")[2].partition("Options:")[0], re.M)
    )


def test_the_readme_and_the_contract_name_the_verbs_that_there_are() -> None:
    real = verbs() - {"help"}
    readme = (ROOT / "README.md").read_text()
    row = next(line for line in readme.splitlines() if line.startswith("| The command:"))
    assert set(re.findall(r"`([a-z]+)`", row)) == real
    contract = (DOCS / "design.md").read_text()
    listed = re.search(r"`keepstep ([a-z |\n]+)`", contract)
    assert listed is not None
    assert {verb.strip() for verb in listed[1].split("|")} == real


@pytest.mark.parametrize(
    ("function", "argument", "told"),
    [
        (keepstep.open, "lease_s", "half minute (`lease_s`)"),
        (keepstep.Run.remaining, "max_attempts", "until it failed three times"),
    ],
)
def test_a_default_that_a_page_tells_is_the_codes(function: typing.Any, argument: str, told: str) -> None:
    numbers = {"half minute (`lease_s`)": 30.0, "until it failed three times": 3}
    assert inspect.signature(function).parameters[argument].default == numbers[told]
    assert any(told in page.read_text() for page in PAGES), f"no page says {told!r} any more: check it anew"


def test_prose_wraps_at_120() -> None:
    """Tables, headings, pictures and code may be longer, and so may the reference, which is made from the stub."""
    long = []
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        is_code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            is_prose = not is_code and not line.lstrip().startswith(("|", "#", "!", "```"))
            if is_prose and len(line) > 120 and page.name != "reference.md":
                long.append(f"{page.name}:{number}")
    assert not long


def test_no_page_installs_what_is_not_published() -> None:
    assert not [page.name for page in PAGES if "pip install keepstep" in page.read_text()]


def test_every_option_that_a_page_gives_is_one() -> None:
    """`run.episode("x", bussy="wait")` in a page would be an example of what is refused."""
    options = set(typing.get_type_hints(keepstep.Opts)) | {"sample", "iteration"}
    wrong = []
    for page in PAGES:
        for call in re.findall(r"(?:run|job)\.episode\(([^()\n]*)\)", page.read_text()):
            wrong += [(page.name, name) for name in re.findall(r"(\w+)=", call) if name not in options]
    assert not wrong
