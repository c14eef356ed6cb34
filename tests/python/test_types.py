"""Type checkers accept the examples: the programs strictly, the pages as they are, without annotations."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import blocks_of
from test_docs import PAGES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(str(path) for path in (ROOT / "examples").glob("*.py"))
WRONG = """import keepstep
episode = keepstep.open("runs").run("r").episode("t")
episode.step(reward="0.100")
episode.step(acton=1)
"""


def pyright(folder: Path, mode: str) -> str:
    """What pyright finds in the modules of a folder; empty if nothing."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    standins = str(ROOT / "tests" / "standins")
    (folder / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": mode, "extraPaths": [standins]})
    )
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def mypy(folder: Path, files: list[str]) -> str:
    """What mypy finds; empty if nothing."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_mypy_accepts_the_examples(tmp_path: Path) -> None:
    assert not mypy(tmp_path, EXAMPLES)


def test_pyright_accepts_the_examples(tmp_path: Path) -> None:
    for path in EXAMPLES:
        shutil.copy(path, tmp_path)
    assert not pyright(tmp_path, "strict")


def test_pyright_accepts_the_pages(tmp_path: Path) -> None:
    """One module for the blocks of each page that run one after another, one for each file that it makes."""
    for page in PAGES:
        blocks = [block for block in blocks_of((ROOT / page).read_text()) if block.language == "python"]
        name = "page_" + page.replace("/", "_").replace("-", "_").removesuffix(".md")
        (tmp_path / f"{name}.py").write_text("".join(block.code for block in blocks if block.file is None))
        for block in blocks:
            if block.file is not None:
                (tmp_path / f"{name}_{block.file}").write_text(block.code)
    assert not pyright(tmp_path, "basic")


def test_a_wrong_field_is_found_by_both(tmp_path: Path) -> None:
    """A reward as a text, and a name that is misspelt."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    for found in (mypy(tmp_path, [str(wrong)]), pyright(tmp_path, "strict")):
        assert "reward" in found or "float" in found, found
        assert "acton" in found, found
