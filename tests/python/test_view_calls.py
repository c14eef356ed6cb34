"""The calls of an episode, as whoever looks at it later reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import keepstep
import pytest


def record(where: Path) -> None:
    with keepstep.open(where) as store, store.run("shop").episode("t") as episode:
        episode.call("search", lambda query: [query], "shoes")
        with episode.turn(action="look") as turn:
            episode.call("buy", lambda **it: it, size=42, key="first")
            turn.result(observation="shoes")
        with pytest.raises(OSError, match="down"):
            episode.call("pay", lambda: (_ for _ in ()).throw(OSError("down")))
        episode.end("finished")


@pytest.mark.parametrize("stage", ["closed", "compacted"])
def test_calls_are_read_back(tmp_path: Path, stage: str) -> None:
    """They were in the store, and only the command could show them."""
    record(tmp_path / "s")
    if stage == "compacted":
        for _ in range(2):
            compact = [sys.executable, "-m", "keepstep", "compact", str(tmp_path / "s"), "--grace", "0"]
            subprocess.run(compact, check=True, capture_output=True)
    with keepstep.open(tmp_path / "s") as store:
        search, buy, pay = store.find("shop/t").calls
    assert (search.step, search.name, search.key) == (0, "search", None)
    assert (search.arguments, search.result) == (["shoes"], ["shoes"])
    assert (buy.name, buy.key, buy.result) == ("buy", "first", {"size": 42})
    assert buy.arguments == {"args": [], "kwargs": {"size": 42}}
    assert pay.result is None
    assert pay.error is not None
    assert pay.error.startswith("OSError: down")
    assert search.time is not None
    assert search.damaged == ()
    assert "search" in repr(search)


def test_bookkeeping_is_not_among_them(tmp_path: Path) -> None:
    """A turn that failed and is kept for the next try is no call of the program's."""
    with keepstep.open(tmp_path / "s") as store:
        with (
            pytest.raises(OSError, match="down"),
            store.run("shop").episode("t") as episode,
            episode.turn(action="look", on_error="keep"),
        ):
            raise OSError("down")
        assert store.find("shop/t").calls == ()
