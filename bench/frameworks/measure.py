"""Measures the adapters beside what their frameworks bring themselves, each in the environment of `make test-outside`.

usage: measure.py [NAME ...] [--wheel FILE | --tree] [--envs DIR] [--out target/bench-frameworks.json]

A framework's bench is `bench_<name>.py` beside this file: run in that framework's environment with `--json OUT`, it writes rows
`{name, got, need, ok}`. Exits with 1 if a bar is missed or was not measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import test_outside as outside  # noqa: E402


def measure(name: str, envs: Path, wheel: Path | None) -> list[dict[str, Any]]:
    """The rows of one framework; one that says so if it could not be measured."""
    framework = outside.Framework.read(outside.OUTSIDE / name)
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows.json"
        try:
            outside.ask_the_system(framework)
            python = outside.make_environment(framework, envs / name)
            outside.install_keepstep(python, wheel)
            # It exits with 1 if a bar is missed: the rows say which.
            subprocess.run([python, HERE / f"bench_{name}.py", "--json", rows], cwd=scratch)
            measured: list[dict[str, Any]] = json.loads(rows.read_text())
        except (outside.Failed, OSError, ValueError) as why:
            print(f"{name}: {why}", file=sys.stderr)
            return [{"name": name, "got": None, "need": "to be measured", "ok": False}]
    return measured


def main() -> int:
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(description="Measures the adapters beside their frameworks' own stores.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all of them without one"
    )
    parser.add_argument(
        "--wheel", type=Path, help="the keepstep to measure; the newest of dist/ without this"
    )
    parser.add_argument("--tree", action="store_true", help="measure python/keepstep as it stands")
    parser.add_argument(
        "--envs", type=Path, default=ROOT / ".outside", help="where the environments are kept"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "bench-frameworks.json")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no bench of {', '.join(unknown)}; there are {', '.join(known)}")
    wheel = None if options.tree else options.wheel or outside.newest_wheel()
    if wheel is None and not options.tree:
        parser.error("no wheel in dist/: run `make wheel`, or give --wheel or --tree")
    rows = [row for name in options.names or known for row in measure(name, options.envs, wheel)]
    print()
    for row in rows:
        got = "not measured" if row["got"] is None else f"{row['got']:.2f}"
        print(f"{row['name']:<36} {got:>12}  need {row['need']!s:<6} {'ok' if row['ok'] else 'MISSED'}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
