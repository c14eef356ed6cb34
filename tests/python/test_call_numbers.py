"""Calls without a key are told apart by their numbers: a resumed attempt gives each the answer that it had before.

Whatever came in between: tries that failed, were stopped, kept or discarded; calls that raised, were cancelled, or whose
answer was being recorded when their caller stopped waiting.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import keepstep
import pytest
import slow_disk
from hypothesis import given, settings
from hypothesis import strategies as st

CALLS_BEFORE, CALLS_IN = 2, 3


class Down(Exception):
    """A call that raises."""


class Stopped(BaseException):
    """A call, or a turn, that is cancelled: nothing of it is recorded."""


class Agent:
    """Makes the same calls in each try of its turn, two before the intent and three in it, all with one name."""

    def __init__(self, episode: keepstep.Episode, paid: itertools.count[int]) -> None:
        self._episode, self._paid = episode, paid
        self._outcome = "returns"
        self.answers: dict[int, str] = {}

    def _call(self, at: int, outcome: str) -> None:
        self._outcome = outcome
        try:
            # The function of each try is a new one, and the same as far as can be seen.
            self.answers[at] = self._episode.call("tool", lambda: self._ask(at))
        except (Down, Stopped):
            pass

    def _ask(self, at: int) -> str:
        if self._outcome == "raises":
            raise Down
        if self._outcome == "is cancelled":
            raise Stopped
        return f"{at}: {next(self._paid)}"

    def try_turn(self, outcomes: list[str], leaves: str) -> None:
        """Makes as many calls as there are outcomes, and leaves the turn."""
        self.answers = {}
        for at in range(CALLS_BEFORE):
            self._call(at, outcomes[at] if at < len(outcomes) else "returns")
        try:
            with self._episode.turn(action="act") as turn:
                for at in range(CALLS_BEFORE, len(outcomes)):
                    self._call(at, outcomes[at])
                if leaves == "discarded":
                    turn.discard("another one")
                elif leaves == "fails":
                    raise Down
                elif leaves == "is stopped":
                    raise Stopped
        except (Down, Stopped, keepstep.BadInput):
            pass
        if leaves == "is discarded later" and self._episode.pending is not None:
            self._episode.pending.discard("another one")


outcomes = st.lists(st.sampled_from(["returns", "raises", "is cancelled"]), max_size=CALLS_BEFORE + CALLS_IN)
tries = st.lists(
    st.tuples(
        outcomes,
        st.sampled_from(["fails", "is stopped", "has no result", "discarded", "is discarded later"]),
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@given(tries=tries, last=outcomes)
def test_a_resumed_attempt_gives_each_call_its_own_answer(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[list[str], str]], last: list[str]
) -> None:
    """Live and resumed numbers differed after a discard if a call had raised, and in a turn that was made again after it
    was stopped: a call got the answer of another one."""
    paid = itertools.count()
    with keepstep.open(tmp_path_factory.mktemp("numbers") / "runs") as store:
        run = store.run("r")
        with pytest.raises(Stopped), run.episode("t", on_error="keep") as episode:
            agent = Agent(episode, paid)
            for one, leaves in tries:
                agent.try_turn(one, leaves)
            agent.try_turn(last, "is stopped")
            raise Stopped
        before = agent.answers
        with run.episode("t", on_error="keep") as episode:
            resumed = Agent(episode, paid)
            resumed.try_turn(["returns"] * (CALLS_BEFORE + CALLS_IN), "is stopped")
            assert {at: resumed.answers[at] for at in before} == before
            made_again = {at: answer for at, answer in resumed.answers.items() if at not in before}
            assert all(answer.startswith(f"{at}: ") for at, answer in made_again.items())
            episode.end("aborted")


def test_a_call_that_is_tried_again_in_a_turn_that_is_made_again_keeps_the_numbers(run: keepstep.Run) -> None:
    """It had the number that it had in the try before, and the next call got the same: its answer was lost."""
    paid = itertools.count()
    with run.episode("t", on_error="keep") as episode:
        agent = Agent(episode, paid)
        agent.try_turn(["returns", "returns", "is cancelled"], "is stopped")
        agent.try_turn(["returns"] * 5, "is stopped")
        assert [agent.answers[at].split(":")[0] for at in range(5)] == list("01234")
        episode.end("aborted")


def test_a_call_whose_caller_stops_waiting_for_the_record_is_one_call(tmp_path: Path) -> None:
    """Its answer was recorded all the same. Tried again, it was made and recorded a second time, under the next number, and
    the call behind it got that answer when the attempt was resumed."""
    made: list[str] = []

    async def ask() -> str:
        made.append(f"first, {len(made)}")
        return made[-1]

    async def then() -> str:
        return "then"

    async def main(run: keepstep.Run) -> None:
        async with run.episode("t") as episode:
            with slow_disk.stopped():
                task = asyncio.create_task(settled(episode.call("tool", ask)))
                while not made:
                    await asyncio.sleep(0)
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await episode.call("tool", ask) == "first, 0"
            assert await episode.call("tool", then) == "then"
            await episode.end("aborted")
        async with run.episode("t") as episode:
            assert await episode.call("tool", ask) == "first, 0"
            assert await episode.call("tool", then) == "then"
            await episode.end("finished")

    with keepstep.open(tmp_path / "runs") as store:
        asyncio.run(main(store.run("r")))
    assert made == ["first, 0"]


async def settled(came: Any) -> Any:
    """Awaits what a call returned, as a task of its own."""
    return await came
