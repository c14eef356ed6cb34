"""Names that keepstep has for itself, and names that name nothing: refused before anything is done or written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import keepstep
import pytest

WRONG = ["", "keepstep.", "keepstep.turn", "keepstep.mine"]
FINE = ["keepstep", "keepsteps.mine", "my.keepstep.", "Keepstep.x"]


def call(episode: keepstep.Episode, name: str, fn: Callable[[], Any]) -> None:
    episode.call(name, fn)


def call_by_key(episode: keepstep.Episode, name: str, fn: Callable[[], Any]) -> None:
    episode.call(name, fn, key="k")


def call_awaited(episode: keepstep.Episode, name: str, fn: Callable[[], Any]) -> None:
    async def made() -> Any:
        return fn()

    asyncio.run(episode.call(name, made))


def note(episode: keepstep.Episode, name: str, fn: Callable[[], Any]) -> None:
    episode.note(name, fn() if name in FINE else 1, source="me").wait()


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("by", [call, call_by_key, call_awaited, note])
@pytest.mark.parametrize("where", ["recorded", "null"])
def test_a_name_that_is_reserved_or_empty_is_refused(
    run: keepstep.Run, by: Callable[..., None], name: str, where: str
) -> None:
    """Such calls were made and recorded, and `View.calls` left them out."""
    made = []
    used = run if where == "recorded" else keepstep.open(None).run("r")
    with used.episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match=r"^name cannot be .*: give ") as told:
            by(episode, name, lambda: made.append(name))
        assert f'"{name}"' in str(told.value)
        episode.end("finished")
    assert not made
    if where == "recorded":
        view = run.store.find("shop/t")
        assert (list(view.calls), dict(view.notes)) == ([], {})


@pytest.mark.parametrize("name", FINE)
def test_other_names_are_taken(run: keepstep.Run, name: str) -> None:
    """The negative control: and they are listed."""
    with run.episode("t") as episode:
        for by in (call, call_by_key, call_awaited, note):
            by(episode, name, lambda: 7)
        episode.end("finished")
    view = run.store.find("shop/t")
    assert [it.name for it in view.calls] == [name] * 3
    assert dict(view.notes) == {name: 7}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_needs_no_note_that_nobody_can_give(run: keepstep.Run, name: str) -> None:
    """It could never be done."""
    with pytest.raises(keepstep.BadInput, match=r"^needs"):
        run.plan(["a"], needs=["score", name])
    assert run.progress().planned == 0
