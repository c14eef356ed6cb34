"""What was refused is no fact: the attempt that goes on, and one that resumes it, know what was recorded, and nothing else."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keepstep
import pytest
import slow_disk


@pytest.fixture
def run(tmp_path: Path) -> Iterator[keepstep.Run]:
    with keepstep.open(tmp_path / "runs", stall_s=0.1) as store:
        yield store.run("shop")


class Stopped(BaseException):
    """The program dies here."""


paid = itertools.count()


def ask(question: str) -> str:
    return f"{question}, {next(paid)}"


def calls(episode: keepstep.Episode) -> list[Any]:
    return [episode.call("tool", ask, question) for question in ("a", "a", "b")]


def live_and_resumed(run: keepstep.Run, episode: keepstep.Episode) -> list[Any]:
    """What the calls of the pending turn give, live and when the attempt is resumed. Both must be the same."""
    with pytest.raises(Stopped), episode:
        with episode.turn(action="act") as turn:
            assert turn.adopted
            live = calls(episode)
            raise Stopped
    with run.episode("t") as resumed:
        with resumed.turn(action="act") as turn:
            assert turn.adopted
            assert calls(resumed) == live
            turn.result(observation="done")
        resumed.end("finished")
    return live


@pytest.mark.parametrize("inherits", [False, True])
@pytest.mark.parametrize("what", ["discard", "discard later", "result", "fail", "keep"])
def test_the_calls_of_a_turn_keep_their_answers_if_its_end_is_refused(
    run: keepstep.Run, what: str, inherits: bool
) -> None:
    """After a refused discard, the calls were made anew under new numbers, and a resumed attempt gave the old answers."""
    episode = run.episode("t").__enter__()
    if inherits:
        with pytest.raises(Stopped), episode, episode.turn(action="act"):
            before = calls(episode)
            raise Stopped
        episode = run.episode("t").__enter__()
    try:
        with episode.turn(action="act", on_error="keep" if what == "keep" else "fail") as turn:
            before = calls(episode)
            if what == "discard later":
                raise Stopped
            slow_disk.stop()
            if what in ("fail", "keep"):
                raise ValueError
            if what == "discard":
                turn.discard("refused")
            else:
                turn.result(observation="refused")
    except (keepstep.KeepstepError, ValueError, Stopped):
        pass
    finally:
        slow_disk.go_on()
    if what == "discard later":
        with slow_disk.stopped(), pytest.raises(keepstep.KeepstepError):
            assert episode.pending is not None
            episode.pending.discard("refused")
    assert live_and_resumed(run, episode) == before


def test_so_it_is_if_calls_were_made_behind_the_refused_result(run: keepstep.Run) -> None:
    """They are of the next turn. The calls of the turn before were forgotten, and made again."""
    episode = run.episode("t").__enter__()
    with pytest.raises(keepstep.KeepstepError), episode.turn(action="act") as turn:
        before = calls(episode)
        with slow_disk.stopped():
            turn.result(observation="refused")
            episode.call("tool", ask, "a")
    assert live_and_resumed(run, episode) == before


def test_so_it_is_on_an_event_loop(run: keepstep.Run) -> None:
    async def aask(question: str) -> str:
        return ask(question)

    async def acalls(episode: keepstep.Episode) -> list[Any]:
        return [await episode.call("tool", aask, question) for question in ("a", "a", "b")]

    async def main() -> None:
        async with run.episode("t") as episode:
            try:
                async with episode.turn(action="act") as turn:
                    before = await acalls(episode)
                    slow_disk.stop()
                    turn.result(observation="refused")
                    behind = asyncio.ensure_future(episode.call("tool", aask, "a"))
            except keepstep.KeepstepError:
                pass
            finally:
                slow_disk.go_on()
            assert isinstance(
                (await asyncio.gather(behind, return_exceptions=True))[0], keepstep.KeepstepError
            )
            async with episode.turn(action="act") as turn:
                assert turn.adopted
                assert await acalls(episode) == before
                turn.result(observation="done")
            await episode.end("aborted")

    asyncio.run(main())


def test_several_turns_that_were_refused_leave_the_first_of_them_pending(run: keepstep.Run) -> None:
    async def main() -> list[Any]:
        episode = await run.episode("t").__aenter__()
        turn = await episode.turn(action="act").__aenter__()
        before = calls(episode)
        with slow_disk.stopped():
            turn.result(observation="refused")
            behind = episode.turn(action="next")
            entering = asyncio.ensure_future(behind.__aenter__())
            await asyncio.sleep(0)
            while "not recorded" not in repr(turn._settled):
                time.sleep(0.05)
        with pytest.raises(keepstep.KeepstepError):
            await entering
        assert live_and_resumed(run, episode) == before
        return before

    asyncio.run(main())


def test_the_numbers_of_a_fenced_attempt_are_of_no_use(run: keepstep.Run, tmp_path: Path) -> None:
    """Its discard is refused, it records nothing more, and the owner's turn is as it was."""
    episode = run.episode("t").__enter__()
    turn = episode.turn(action="act").__enter__()
    before = calls(episode)
    with keepstep.open(tmp_path / "runs") as other, other.run("shop").episode("t", busy="take") as taker:
        with pytest.raises(keepstep.Fenced):
            turn.discard("late")
        with taker.turn(action="act") as again:
            assert calls(taker) == before
            again.result(observation="done")
        taker.end("finished")
