"""Holds the arrows of ARCHITECTURE.md: which room of the engine may know which, and that the modules of a room form no cycle.

usage: python tools/check_arrows.py [ROOT]

Each finding is one line `file: what`; any finding makes the exit code 1. Tests are left out: they may know everything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Each room, and the rooms that it may know. What stands at the top of the crate (errors, options, the process, dates) all may.
ROOMS: dict[str, set[str]] = {
    "disk": set(),
    "segment": {"disk"},
    "write": {"segment", "disk"},
    "recover": {"segment", "disk"},
    "read": {"segment", "disk"},
    "own": {"segment", "disk"},
    "tend": {"segment", "disk"},
    "store": {"write", "recover", "read", "own", "tend", "segment", "disk"},
    "refs": {"store", "read"},
    "export": {"store", "write", "recover", "read", "own", "tend", "segment", "disk"},
}
# Modules that know one another in a circle. None may be added; one that is mended is taken out of this list.
CIRCLES: dict[str, list[list[str]]] = {
    "disk": [["real", "watch"]],
    "disk/sim": [["process", "watch"], ["outcomes", "random_cuts", "trace"], ["dir", "model"]],
    "tend/compact": [["blocks", "output"]],
    "segment": [
        ["bodies", "grouped", "log", "scanned", "sealed", "summing"],
        ["cards", "heals", "manifest", "storage"],
    ],
    "write": [["decide", "log"]],
    "read": [["attempt", "catalog", "places", "records"]],
    "own": [["closing", "mailbox"]],
    "tend": [["bases", "named", "subjects", "verify"]],
}

_TEST = re.compile(r"#\[cfg\((?:all\()?test\b")
_USE = re.compile(r"\bcrate::(\w+)(?:::(\w+))?")


def code_of(path: Path) -> str:
    """The text of a module without its tests and comments."""
    text = path.read_text()
    cut = _TEST.search(text)
    text = text[: cut.start()] if cut and "mod tests" in text[cut.start() : cut.start() + 80] else text
    return re.sub(r"//[^\n]*", "", text)


def is_test(path: Path) -> bool:
    """Whether a module is only there for tests."""
    return any(part in ("tests", "tests.rs", "testing.rs", "loom_tests.rs") for part in path.parts)


def arrows_between(source: Path) -> Iterator[str]:
    """Arrows between rooms that are not allowed."""
    for room, allowed in ROOMS.items():
        for path in sorted((source / room).rglob("*.rs")):
            if is_test(path.relative_to(source)):
                continue
            known = {found.group(1) for found in _USE.finditer(code_of(path))}
            for other in sorted(known & set(ROOMS) - allowed - {room}):
                yield f"{path}: {room} knows {other}, which ARCHITECTURE.md does not allow"


def modules_of(source: Path, name_of_room: str) -> dict[str, set[str]]:
    """The modules of a room, or of a folder in one, and which of them each one knows. A folder is one module."""
    room, called = source / name_of_room, name_of_room.replace("/", "::")
    names = {path.stem if path.is_file() else path.name for path in room.iterdir()} - {"mod", "tests"}
    knows: dict[str, set[str]] = {name: set() for name in names}
    for path in room.rglob("*.rs"):
        inside = path.relative_to(room)
        if is_test(inside) or (inside.name == "mod.rs" and len(inside.parts) == 1):
            continue
        name = inside.parts[0].removesuffix(".rs")
        depth = len(inside.parts) - (1 if inside.name != "mod.rs" else 2)
        up = r"\b" + r"super::" * (depth + 1)
        code = code_of(path)
        for other in re.findall(up + r"(\w+)", code) + re.findall(rf"\bcrate::{called}::(\w+)", code):
            if other in names and other != name:
                knows[name].add(other)
        for group in re.findall(up + r"\{([^}]*)\}", code):
            knows[name] |= {word for word in re.findall(r"\w+", group) if word in names and word != name}
    return knows


def circles_of(knows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each knows each other one, in some number of steps."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str, arrows: dict[str, set[str]], into: list[str]) -> None:
        seen.add(name)
        for other in sorted(arrows[name] - seen):
            if other not in seen:
                visit(other, arrows, into)
        into.append(name)

    for name in sorted(knows):
        if name not in seen:
            visit(name, knows, order)
    back: dict[str, set[str]] = {name: set() for name in knows}
    for name, others in knows.items():
        for other in others:
            back[other].add(name)
    seen = set()
    groups = []
    for name in reversed(order):
        if name not in seen:
            group: list[str] = []
            visit(name, back, group)
            groups.append(sorted(group))
    return [group for group in groups if len(group) > 1]


def main(root: Path) -> int:
    """Looks at all rooms."""
    source = root / "crates" / "keepstep" / "src"
    findings = list(arrows_between(source))
    folders = [path.relative_to(source) for room in ROOMS for path in sorted((source / room).iterdir())]
    nested = [
        folder.as_posix() for folder in folders if (source / folder).is_dir() and folder.name != "tests"
    ]
    for room in [*ROOMS, *nested]:
        circles, known = circles_of(modules_of(source, room)), CIRCLES.get(room, [])
        for circle in circles:
            if circle not in known:
                findings.append(f"{source / room}: these modules form a circle: {', '.join(circle)}")
        for circle in known:
            if circle not in circles:
                findings.append(f"{room}: mended, take it out of CIRCLES: {', '.join(circle)}")
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
