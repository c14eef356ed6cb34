"""On a terminal of 80 columns every verb fits into 80 columns, also where names are long, and letters wide."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from pathlib import Path
from typing import Any

import keepstep
import pytest

COLUMNS = 80
LONG = "a-task-with-a-name-that-somebody-made-of-the-whole-question-" * 3
WIDE = "日本語のとても長い名前" * 8
VERBS = ("demo ls show tail stats diff verify doctor torture reap export compact prune completions").split()


def on_terminal(*args: str, columns: int = COLUMNS) -> list[str]:
    """The lines of a command that writes to a terminal of so many columns."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-W", "ignore", "-m", "keepstep", *args]
    # A debug build says what it is, at whatever width.
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, close_fds=True, env=env) as process:
        os.close(its)
        said = b""
        while True:
            try:
                part = os.read(mine, 1 << 16)
            except OSError:  # it is gone, and so is the terminal
                break
            if not part:
                break
            said += part
        process.wait()
    os.close(mine)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    # What a bar of progress overwrote is not there any more.
    return [line.rstrip("\r").split("\r")[-1] for line in text.split("\n")]


def width(line: str) -> int:
    marks = ("Mn", "Me", "Cf")
    return sum(
        0 if unicodedata.category(c) in marks else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in line
    )


def too_wide(lines: list[str], columns: int = COLUMNS) -> list[str]:
    return [line for line in lines if width(line) > columns]


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Any:
    where = tmp_path_factory.mktemp("columns") / f"store-{'x' * 60}"
    with keepstep.open(where) as store:
        run = store.run(f"run-{WIDE}")
        for number, task in enumerate((LONG, WIDE)):
            with pytest.raises(ValueError), run.episode(task, on_error="keep") as episode:
                episode.step(action=WIDE, observation=LONG, reward=0.123456789)
                episode.call("llm", lambda *_, **__: {"text": LONG}, WIDE, number, temperature=0.5)
                episode.note("score", LONG, source=WIDE)
                with episode.turn(action=[LONG, {"a": WIDE}]):
                    raise ValueError(LONG)
            with run.episode(task) as episode, episode.pending as turn:  # type: ignore[union-attr]
                turn.result(observation=WIDE + str(number))
                episode.end("finished")
            run.annotate(episode.ref, "judged", WIDE, source=LONG).wait()
        run.plan([LONG, WIDE, "more"], samples=9)
    return where


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits(verb: str) -> None:
    for help in ("--help", "-h"):
        said = on_terminal(*([verb] if verb else []), help)
        assert len(said) > 5 and too_wide(said) == []


def test_every_verb_fits(where: Path) -> None:
    store = str(where)
    with keepstep.open(where) as opened:
        refs = [view.ref for run in opened.runs() for view in run.episodes()]
    asked = [
        *(("show", "-s", store, ref) for ref in (*refs, *(f"{ref}@0" for ref in refs))),
        ("tail", "-s", store),
        ("diff", "-s", store, *refs),
        ("stats", store),
        ("doctor", store),
        ("verify", store),
        ("ls", store),
        ("reap", store),
        ("show", "-s", store, f"{refs[0]}x"),
    ]
    for args in asked:
        said = on_terminal(*args)
        assert len(said) > 1 and too_wide(said) == [], args


def test_tables_with_usual_names_are_not_broken(tmp_path: Path) -> None:
    """With short names a row of `ls STORE RUN` had 82 columns, so that each was broken."""
    store = str(tmp_path / "runs")
    tasks = ("shop-17", "guess-a-number", "django__django-11099")
    with keepstep.open(store) as opened:
        run = opened.run("swe-bench")
        for task in tasks:
            with pytest.raises(ValueError), run.episode(task, on_error="keep") as episode:
                episode.step(action="look", reward=-0.1235)
                raise ValueError("no")
            with run.episode(task) as episode:
                episode.step(action="look", reward=-0.1235)
    for args in (
        ("ls", store),
        ("ls", store, "swe-bench"),
        ("ls", store, "--attempts"),
        ("ls", store, "swe-bench/shop-17"),
        ("prune", "-s", store, "--run", "swe-bench", "--dry-run"),
    ):
        said = on_terminal(*args)
        # What is broken goes on in the next line, indented.
        broken = [line for line in said if line.startswith(" ")]
        assert broken == [] and too_wide(said) == [] and len(said) > 2, (args, said)


def test_a_line_is_not_broken_where_nobody_looks(where: Path) -> None:
    """Data in a pipe are for programs: a line is a line. And the negative control of the test above."""
    with keepstep.open(where) as opened:
        (ref, *_) = [view.ref for run in opened.runs() for view in run.episodes()]
    command = [sys.executable, "-m", "keepstep", "show", "-s", str(where), ref]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert any(width(line) > COLUMNS for line in piped.splitlines())
    assert too_wide(on_terminal("stats", str(where), columns=400), 400) == []


def test_a_call_is_shown_as_a_call(tmp_path: Path) -> None:
    with keepstep.open(tmp_path / "store") as store, store.run("r").episode("t") as episode:
        episode.call("llm", lambda *_, **__: "look", "where", 3, temperature=0.5)
        episode.call("tool", lambda: [1, 2], key="k1")
        with pytest.raises(ValueError):
            episode.call("bad", lambda: int("x"))
        episode.end("finished")
    said = on_terminal("show", "-s", str(tmp_path / "store"), "r/t", columns=120)
    calls = [line.split("call ", 1)[1] for line in said if "call " in line]
    assert calls[0] == 'llm("where", 3, temperature=0.5) -> look'
    assert calls[1] == "tool(), key k1 -> [1, 2]"
    assert (
        calls[2].startswith("bad() failed: ValueError: invalid literal for int()")
        and "Traceback" not in calls[2]
    )
