"""A resumed attempt may go another way than the one before: a call that failed then succeeds now, and the fallback is not made.

Then the calls behind it have other numbers. None of them gets the answer of another call: it gets its own, or an error.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import keepstep
import pytest


class Down(Exception):
    """The service is down."""


class Crashed(Exception):
    """The program dies here."""


class Service:
    """Answers with its name, or is down."""

    def __init__(self, name: str, *, is_up: bool = True) -> None:
        self.name, self.is_up = name, is_up

    def ask(self, *question: str) -> str:
        if not self.is_up:
            raise Down
        return f"answer of {self.name}"


primary, fallback, judge = Service("primary"), Service("fallback"), Service("judge")


@pytest.fixture(autouse=True)
def _all_are_up() -> None:
    primary.is_up = True


def ask_primary(*question: str) -> str:
    return primary.ask(*question)


def ask_fallback(*question: str) -> str:
    return fallback.ask(*question)


def ask_judge(*question: str) -> str:
    return judge.ask(*question)


def wrapped(service: Service) -> Callable[..., str]:
    def ask(*question: str) -> str:
        return service.ask(*question)

    return ask


# How the three are called: as functions, as methods of one class, as what other functions make, with and without arguments.
WAYS: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
    "functions": lambda: [(ask_primary, "q"), (ask_fallback, "q"), (ask_judge, "q")],
    "without arguments": lambda: [(ask_primary,), (ask_fallback,), (ask_judge,)],
    "methods": lambda: [(it.ask, "q") for it in (primary, fallback, judge)],
    "closures": lambda: [(wrapped(it), "q") for it in (primary, fallback, judge)],
    "lambdas": lambda: [(lambda: primary.ask(),), (lambda: fallback.ask(),), (lambda: judge.ask(),)],
    "one lambda": lambda: [(lambda it=it: it.ask(),) for it in (primary, fallback, judge)],
    "partials": lambda: [(functools.partial(it.ask, "q"),) for it in (primary, fallback, judge)],
}


def with_fallback(episode: keepstep.Episode, way: str) -> tuple[Any, Any]:
    first, second, third = WAYS[way]()
    try:
        a = episode.call("llm", *first)
    except Down:
        a = episode.call("llm", *second)
    return a, episode.call("llm", *third)


def crash(run: keepstep.Run, program: Callable[[keepstep.Episode], Any]) -> Any:
    with pytest.raises(Crashed), run.episode("t") as episode:
        came = program(episode)
        raise Crashed
    return came


@pytest.mark.parametrize("way", WAYS)
def test_a_call_behind_a_fallback_that_is_not_made_now_gets_no_answer_of_the_fallback(
    run: keepstep.Run, way: str
) -> None:
    """The judge got the fallback's answer: name and arguments are the same, and the functions were not compared."""
    primary.is_up = False
    program = functools.partial(with_fallback, way=way)
    assert crash(run, program) == ("answer of fallback", "answer of judge")
    primary.is_up = True
    # The answer of the primary is recorded by the first of these attempts, and replayed in the next.
    for _ in range(3):
        with pytest.raises(keepstep.Diverged, match=r"key=.*discard.*at=0"), run.episode("t") as episode:
            program(episode)
    primary.is_up = False


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_that_comes_again_keeps_the_way(run: keepstep.Run, way: str) -> None:
    primary.is_up = False
    program = functools.partial(with_fallback, way=way)
    before = crash(run, program)
    assert crash(run, program) == before
    assert crash(run, program) == before


def test_the_same_function_gets_its_answer(run: keepstep.Run) -> None:
    """A failure that the program puts up with costs no call behind it."""

    def program(episode: keepstep.Episode) -> list[Any]:
        came: list[Any] = []
        for function in (ask_primary, ask_fallback, ask_judge):
            try:
                came.append(episode.call("llm", function, "q"))
            except Down:
                came.append(None)
        return came

    primary.is_up = False
    before = crash(run, program)
    primary.is_up, fallback.name = True, "another"
    try:
        assert crash(run, program) == ["answer of primary", *before[1:]]
    finally:
        fallback.name = "fallback"


def test_a_key_is_a_way_out(run: keepstep.Run) -> None:
    def program(episode: keepstep.Episode) -> tuple[Any, Any]:
        try:
            a = episode.call("llm", primary.ask, "q", key="primary")
        except Down:
            a = episode.call("llm", fallback.ask, "q", key="fallback")
        return a, episode.call("llm", judge.ask, "q", key="judge")

    primary.is_up = False
    crash(run, program)
    primary.is_up = True
    assert crash(run, program) == ("answer of primary", "answer of judge")


def test_so_it_is_after_a_timeout(run: keepstep.Run) -> None:
    """A call that was cancelled is not even recorded."""

    async def patient(question: str) -> str:
        await asyncio.sleep(0 if primary.is_up else 60)
        return primary.ask(question)

    async def program(episode: keepstep.Episode) -> tuple[Any, Any]:
        try:
            a = await asyncio.wait_for(episode.call("llm", patient, "q"), 0.1)
        except asyncio.TimeoutError:
            a = await episode.call("llm", afallback, "q")
        return a, await episode.call("llm", ajudge, "q")

    async def main() -> Any:
        async with run.episode("t") as episode:
            came = await program(episode)
            raise Crashed(came)

    primary.is_up = False
    with pytest.raises(Crashed, match=r"fallback.*judge"):
        asyncio.run(main())
    with pytest.raises(Crashed, match=r"fallback.*judge"):
        asyncio.run(main())
    primary.is_up = True
    for _ in range(2):
        with pytest.raises(keepstep.Diverged):
            asyncio.run(main())


async def afallback(question: str) -> str:
    return fallback.ask(question)


async def ajudge(question: str) -> str:
    return judge.ask(question)


def test_calls_of_a_gather_do_not_know_of_one_another(run: keepstep.Run) -> None:
    """They are made before any of them failed: each gets its answer, in whatever order they had come."""

    async def one(service: Service, pause_s: float) -> str:
        await asyncio.sleep(pause_s)
        return service.ask()

    async def program(episode: keepstep.Episode) -> list[Any]:
        calls = [
            episode.call("llm", lambda: one(primary, 0.0)),
            episode.call("llm", lambda: one(fallback, 0.02)),
            episode.call("llm", lambda: one(judge, 0.01)),
        ]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    async def main() -> list[Any]:
        try:
            async with run.episode("t") as episode:
                came = await program(episode)
                raise Crashed
        except Crashed:
            return came

    primary.is_up = False
    before = asyncio.run(main())
    assert isinstance(before[0], Down)
    primary.is_up = True
    for _ in range(2):
        assert asyncio.run(main()) == ["answer of primary", "answer of fallback", "answer of judge"]


def test_an_error_of_keepstep_is_a_failure_too(run: keepstep.Run) -> None:
    """A program that takes every exception for one of the service: its fallback got the answer of the call behind."""
    arguments = ["one"]

    def program(episode: keepstep.Episode) -> tuple[Any, Any]:
        try:
            a = episode.call("llm", ask_primary, *arguments)
        except Exception:
            a = episode.call("llm", ask_fallback, "q")
        return a, episode.call("llm", ask_judge, "q")

    assert crash(run, program) == ("answer of primary", "answer of judge")
    arguments[0] = "two"
    with pytest.raises(keepstep.Diverged), run.episode("t") as episode:
        program(episode)


def test_a_turn_that_was_kept_is_tried_another_way(run: keepstep.Run) -> None:
    def program(episode: keepstep.Episode) -> Any:
        with episode.turn(action="act", on_error="keep") as turn:
            came = with_fallback(episode, "functions")
            if not primary.is_up:
                raise Down
            turn.result(observation=came)

    with run.episode("t") as episode:
        primary.is_up = False
        with pytest.raises(Down):
            program(episode)
        primary.is_up = True
        with pytest.raises(keepstep.Diverged):
            program(episode)
        assert episode.pending is not None
        episode.pending.discard("another way")
        program(episode)
        episode.end("finished")
    [step] = run.store.find("shop/t").steps
    assert step.observation == ("answer of primary", "answer of judge")
