"""Calls without a key are told apart by their numbers: a resumed attempt gives each the answer that it had before.

Whatever came in between: tries that failed, were stopped, kept or discarded; calls that raised, were cancelled, or whose
answer was being recorded when their caller stopped waiting; services that were down and are up again, so that the program
goes another way; and ends of turns that were refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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


class Service:
    """Answers with its name and the question, or is down. Each answer is another one."""

    paid = itertools.count()

    def __init__(self, name: str) -> None:
        self.name, self.is_up = name, True

    def ask(self, *question: str) -> str:
        if not self.is_up:
            raise Down
        return f"{self.name}{question} {next(self.paid)}"


A, B, C = services = [Service(name) for name in "ABC"]


def ask_a(*question: str) -> str:
    return A.ask(*question)


def ask_b(*question: str) -> str:
    return B.ask(*question)


def ask_c(*question: str) -> str:
    return C.ask(*question)


FUNCTIONS: dict[str, Callable[[int], Callable[..., str]]] = {
    "function": lambda at: (ask_a, ask_b, ask_c)[at],
    "method": lambda at: services[at].ask,
    "lambda": lambda at: lambda *question: services[at].ask(*question),
    "partial": lambda at: functools.partial(services[at].ask),
    "closure": lambda at: closure(services[at]),
}


def closure(service: Service) -> Callable[..., str]:
    def ask(*question: str) -> str:
        return service.ask(*question)

    return ask


class Stage(NamedTuple):
    """A call, perhaps with a fallback for when it fails: which services are asked, how, and what."""

    how: str
    asked: int
    question: tuple[str, ...]
    fallback: int | None
    asked_then: tuple[str, ...]


class Try(NamedTuple):
    """One try of the turn: in a new attempt or not, what is down, how many stages are reached, and how it ends."""

    is_resumed: bool
    down: frozenset[int]
    reached: int
    ends: str


# Mostly the same question, the same service that is down or up, and all stages: else calls are seldom mistaken for others.
questions = st.sampled_from([("q",), ("q",), ("r",), ()])
stages = st.lists(
    st.builds(
        Stage,
        st.sampled_from(list(FUNCTIONS)),
        st.sampled_from([0, 0, 1, 2]),
        questions,
        st.sampled_from([1, 2, None]),
        questions,
    ),
    min_size=2,
    max_size=4,
)
ways = st.lists(
    st.builds(
        Try,
        st.booleans(),
        st.sampled_from([frozenset({0}), frozenset(), frozenset({1})]),
        st.sampled_from([4, 4, 2]),
        st.sampled_from(
            ["stops", "discard refused", "result refused", "is discarded", "fails", "keep refused"]
        ),
    ),
    min_size=2,
    max_size=4,
)


class Program:
    """Makes the calls of its stages, the first before the intent and the others in the turn."""

    def __init__(self, stages: list[Stage]) -> None:
        self._stages = stages
        self.answers: dict[tuple[int, str], str] = {}
        self.has_diverged = False

    def make(self, episode: keepstep.Episode, one: Try) -> None:
        """Makes a try. Whatever a call gives is an answer of the service that was asked, to that question."""
        self.answers, self.has_diverged = {}, False
        for at, service in enumerate(services):
            service.is_up = at not in one.down
        try:
            self._stage(episode, 0)
            with episode.turn(action="act", on_error="keep") as turn:
                for at in range(1, min(one.reached, len(self._stages))):
                    self._stage(episode, at)
                self._end(turn, one.ends)
        except keepstep.Diverged:
            self.has_diverged = True
        except (Down, Stopped, OSError):
            pass
        finally:
            slow_disk.go_on()

    def _stage(self, episode: keepstep.Episode, at: int) -> None:
        stage = self._stages[at]
        try:
            self._call(episode, (at, "asked"), stage.how, stage.asked, stage.question)
        except Down:
            if stage.fallback is not None:
                with contextlib.suppress(Down):
                    self._call(episode, (at, "fallback"), stage.how, stage.fallback, stage.asked_then)

    def _call(
        self, episode: keepstep.Episode, at: tuple[int, str], how: str, asked: int, question: tuple[str, ...]
    ) -> None:
        answer = episode.call("tool", FUNCTIONS[how](asked), *question)
        assert answer.startswith(f"{services[asked].name}{question} "), "the answer of another call"
        self.answers[at] = answer

    @staticmethod
    def _end(turn: keepstep.Turn, ends: str) -> None:
        if ends.endswith("refused"):
            slow_disk.stop()
        if ends == "stops":
            raise Stopped
        if ends in ("fails", "keep refused"):
            raise Down
        if ends == "result refused":
            turn.result(observation=1)
        else:
            turn.discard("another one")


@settings(deadline=None, max_examples=60)
@given(stages=stages, tries=ways)
def test_whichever_way_a_program_goes_no_call_gets_the_answer_of_another(
    tmp_path_factory: pytest.TempPathFactory, stages: list[Stage], tries: list[Try]
) -> None:
    """A service was down, its fallback answered, and when it was up again the next call got the fallback's answer. And a
    discard that was refused made the attempt number its calls otherwise than one that resumes it."""
    program = Program(stages)
    with keepstep.open(tmp_path_factory.mktemp("ways") / "runs", stall_s=0.05) as store:
        run = store.run("r")
        episode = run.episode("t").__enter__()
        before: Try | None = None
        for at, one in enumerate(tries):
            # Nothing tells keepstep that a program begins again before its intent: so it is a new attempt.
            if one.is_resumed or program.has_diverged:
                episode.end("aborted")
                episode.__exit__(None, None, None)
                episode = run.episode("t").__enter__()
            answers = program.answers
            program.make(episode, one)
            if len({it.down for it in tries[: at + 1]}) == 1:
                assert not program.has_diverged, "it always went this way"
            if before is not None and before.down == one.down and before.ends != "is discarded":
                # The same way: what was answered before is answered alike.
                common = answers.keys() & program.answers.keys()
                assert {it: answers[it] for it in common} == {it: program.answers[it] for it in common}
            before = one
        episode.end("aborted")
        episode.__exit__(None, None, None)


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
