"""The files of a store that may be in use: temporary names come and go beside those that were published."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def published(where: str | os.PathLike[str] | None) -> list[Path]:
    """Every name below the store but the temporary ones, in order."""
    return sorted(path for path in Path(str(where)).rglob("*") if not path.name.startswith(".tmp-"))


def copy(where: Path, to: Path) -> None:
    """As `cp -r` copies it: what vanishes meanwhile is left out."""
    shutil.copytree(where, to, copy_function=copy_if_there)


def copy_if_there(source: str, target: str) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        pass
