"""An episode that was taken over: what it says about itself is what was recorded, and leaving it tells the truth once."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator

import keepstep
import pytest


@pytest.fixture
def taken(store: keepstep.Store, run: keepstep.Run) -> Iterator[keepstep.Episode]:
    """An episode with a step, which another handle took over: its owner does not know."""
    episode = run.episode("t").__enter__()
    episode.step(action=1)
    with keepstep.open(str(store.where)) as other, other.run("shop").episode("t", busy="take") as taker:
        yield episode
        taker.end("finished")


def facts(episode: keepstep.Episode) -> tuple[object, ...]:
    pending = episode.pending
    return episode.ended, episode.turns, episode.state("n"), pending and pending.said


def test_an_end_that_was_refused_is_no_end(taken: keepstep.Episode) -> None:
    """`ended` stayed `finished`, and later calls raised Ended."""
    before = facts(taken)
    with pytest.raises(keepstep.Fenced):
        taken.end("finished").wait()
    assert facts(taken) == before
    with pytest.raises(keepstep.Fenced):
        taken.step(action=2)
    with pytest.raises(keepstep.Fenced):
        taken.note("score", 1, source="judge").wait()
    with pytest.raises(keepstep.Fenced):
        taken.end("aborted").wait()
    assert facts(taken) == before


def test_a_step_that_was_refused_is_no_step(taken: keepstep.Episode) -> None:
    """Neither is a turn, nor what it would have left behind."""
    before = facts(taken)
    with pytest.raises(keepstep.Fenced):
        taken.submit(action=2, state={"n": 2}).wait()
    assert facts(taken) == before
    with pytest.raises(keepstep.Fenced), taken.turn(action=3):
        raise AssertionError("its intent was refused")
    assert facts(taken) == before


def test_a_turn_is_not_adopted_by_whoever_lost_the_episode(store: keepstep.Store, run: keepstep.Run) -> None:
    """An adopted turn records nothing, so nothing was refused, and its action was taken once more."""
    with pytest.raises(KeyboardInterrupt), run.episode("t") as first, first.turn(action=1):
        raise KeyboardInterrupt
    episode = run.episode("t").__enter__()
    assert episode.pending is not None
    with keepstep.open(str(store.where)) as other, other.run("shop").episode("t", busy="take") as taker:
        with pytest.raises(keepstep.Fenced):
            episode.note("score", 1, source="judge").wait()
        with pytest.raises(keepstep.Fenced, match="attempt 2"), episode.turn(action=1):
            raise AssertionError("the action would be taken")
        with pytest.raises(keepstep.Fenced), episode.pending:
            raise AssertionError("the action would be taken")
        taker.end("finished")


def leave(episode: keepstep.Episode, raised: BaseException | None) -> None:
    episode.__exit__(type(raised) if raised else None, raised, None)


def leave_on_loop(episode: keepstep.Episode, raised: BaseException | None) -> None:
    async def leaving() -> None:
        await episode.__aexit__(type(raised) if raised else None, raised, None)

    asyncio.run(leaving())


@pytest.mark.parametrize("by", [leave, leave_on_loop])
@pytest.mark.parametrize("is_known", [False, True])
def test_leaving_a_taken_episode_claims_nothing(taken: keepstep.Episode, by, is_known: bool) -> None:
    """It warned that the episode is recorded as aborted, and then raised Fenced."""
    if is_known:
        with pytest.raises(keepstep.Fenced):
            taken.step(action=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(keepstep.Fenced) as told:
            by(taken, None)
    assert told.value.__context__ is None


@pytest.mark.parametrize("by", [leave, leave_on_loop])
@pytest.mark.parametrize("is_known", [False, True])
def test_an_exception_leaves_a_taken_episode_as_it_is(taken: keepstep.Episode, by, is_known: bool) -> None:
    """Leaving raises nothing of its own, so the caller's exception goes on."""
    if is_known:
        with pytest.raises(keepstep.Fenced):
            taken.step(action=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by(taken, ValueError("the loop's own"))


@pytest.mark.parametrize("by", [leave, leave_on_loop])
def test_an_episode_that_is_still_owned_is_told_what_was_recorded(run: keepstep.Run, by) -> None:
    """The negative control: there the warning comes, and is true."""
    episode = run.episode("t").__enter__()
    with pytest.warns(RuntimeWarning, match="without end.*recorded as aborted"):
        by(episode, None)
    assert run.store.find("shop/t").state == "aborted"
