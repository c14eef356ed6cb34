"""`verify` says what was lost, an episode a line; all of it with --full."""

from __future__ import annotations

import os
from pathlib import Path

import keepstep
import outside


def lines(word: str, printed: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in printed.splitlines() if line.startswith(word)]


def test_what_was_lost_is_told_an_episode_a_line(tmp_path: Path) -> None:
    """A damaged log printed a line for each record, and "all of it" of what was one call."""
    where = tmp_path / "runs"
    with keepstep.open(where) as store:
        run = store.run("shop")
        for task in ("a", "b"):
            with run.episode(task) as episode:
                for number in range(4):
                    episode.call("llm", lambda: os.urandom(3000))
                    episode.step(action=os.urandom(3000), reward=float(number))
                episode.end("finished")
    assert lines("lost", outside.command("verify", where)) == []
    (segment,) = where.rglob("*.seg")
    damaged = bytearray(segment.read_bytes())
    for at in range(6000, 24000, 1500):
        damaged[at] ^= 0xFF
    segment.write_bytes(damaged)
    short, full = (
        lines("lost", outside.command("verify", where, *more, code=3)) for more in ([], ["--full"])
    )
    names = {line.split(":")[0] for line in short}
    assert names <= {"shop/a#0.0", "shop/b#0.0"} and len(short) == len(names)
    assert any(" call" in line and " step" in line for line in short), short
    assert len(full) > len(short) and any("one call, all of it" in line for line in full), full
