"""The arrows of ARCHITECTURE.md are held by a tool, and the tool finds what it is there to find."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "check_arrows.py"
SOURCE = Path("crates/keepstep/src")


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, root], text=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / SOURCE, tmp_path / SOURCE)
    return tmp_path


def test_the_tree_has_no_other_arrows() -> None:
    done = check(ROOT)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("module", "line", "told"),
    [
        ("own/lease.rs", "use crate::read::Catalog;", "own knows read"),
        ("disk/made.rs", "use crate::segment::Log;", "disk knows segment"),
        ("segment/names.rs", "use super::window::Window;\nuse super::cards::Fields;", None),
        ("export/digits.rs", "use crate::store::Store;", None),
        ("write/step.rs", "use super::recorder::Recorder;", "form a circle"),
    ],
)
def test_what_is_not_allowed_is_told(tree: Path, module: str, line: str, told: str | None) -> None:
    path = tree / SOURCE / module
    path.write_text(f"{line}\n{path.read_text()}")
    done = check(tree)
    if told is not None:
        assert done.returncode == 1
        assert told in done.stdout
    else:
        assert "knows" not in done.stdout


def test_what_stands_in_tests_and_comments_is_no_arrow(tree: Path) -> None:
    path = tree / SOURCE / "own/lease.rs"
    more = "\n// use crate::read::Catalog;\n#[cfg(test)]\nmod tests {\n    use crate::read::Catalog;\n}\n"
    path.write_text(path.read_text().split("#[cfg(test)]")[0] + more)
    assert check(tree).returncode == 0
