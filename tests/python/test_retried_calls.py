"""A loop that tries a call again: the answer is one answer, live and resumed, whatever failed before it came."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest
import slow_disk


class Down(Exception):
    """The service is down."""


class Crashed(Exception):
    """The program dies here."""


class Model:
    """Fails so many times for each question, then answers it; and counts what it was paid for."""

    def __init__(self, failures: int, *, hangs: bool = False) -> None:
        self.failures, self.hangs = failures, hangs
        self.failed: dict[str, int] = {}
        self.answered: list[str] = []

    def ask(self, question: str) -> str:
        if self.failed.setdefault(question, 0) < self.failures:
            self.failed[question] += 1
            raise Down(question)
        self.answered.append(question)
        return f"{question}!"

    async def aask(self, question: str) -> str:
        await asyncio.sleep(0)
        if self.hangs and self.failed.setdefault(question, 0) < self.failures:
            self.failed[question] += 1
            await asyncio.sleep(60)
        return self.ask(question)


Says = Callable[[keepstep.Episode, Model, str], Any]


def by_arguments(episode: keepstep.Episode, model: Model, question: str) -> Any:
    return episode.call("llm", model.ask, question)


def by_lambda(episode: keepstep.Episode, model: Model, question: str) -> Any:
    return episode.call("llm", lambda: model.ask(question))


def by_partial(episode: keepstep.Episode, model: Model, question: str) -> Any:
    return episode.call("llm", functools.partial(model.ask, question))


def retrying(says: Says, episode: keepstep.Episode, model: Model, question: str) -> Any:
    for _ in range(10):
        try:
            return says(episode, model, question)
        except Down:
            continue
    raise AssertionError("never answered")


@pytest.mark.parametrize("says", [by_arguments, by_lambda, by_partial])
@pytest.mark.parametrize("failures", [0, 1, 3])
@pytest.mark.parametrize("questions", [["one"], ["plan", "answer"], ["same", "same"]])
def test_an_answer_that_came_at_last_is_not_asked_for_again(
    run: keepstep.Run, says: Says, failures: int, questions: list[str]
) -> None:
    """A failed call used up its number: the resumed attempt asked and paid again, or diverged from itself."""
    model = Model(failures)

    def turn(episode: keepstep.Episode) -> list[Any]:
        return [retrying(says, episode, model, question) for question in questions]

    with pytest.raises(Crashed), run.episode("t") as episode:
        first = turn(episode)
        raise Crashed
    paid = list(model.answered)
    with run.episode("t") as episode:
        assert turn(episode) == first
        episode.step(action=first)
        episode.end("finished")
    assert model.answered == paid


@pytest.mark.parametrize("hangs", [False, True])
def test_so_it_is_on_an_event_loop(run: keepstep.Run, hangs: bool) -> None:
    """Several at once, each tried again after an error or a timeout; a call that was cancelled was not even recorded."""
    model = Model(2, hangs=hangs)

    async def one(episode: keepstep.Episode, question: str) -> Any:
        for _ in range(10):
            try:
                return await asyncio.wait_for(episode.call("llm", model.aask, question), 0.2)
            except (Down, asyncio.TimeoutError):
                continue
        raise AssertionError("never answered")

    async def turn(episode: keepstep.Episode) -> list[Any]:
        return list(await asyncio.gather(*(one(episode, question) for question in "abc")))

    async def main() -> None:
        with pytest.raises(Crashed):
            async with run.episode("t") as episode:
                first = await turn(episode)
                raise Crashed
        paid = list(model.answered)
        async with run.episode("t") as episode:
            assert await turn(episode) == first
            await episode.end("finished")
        assert model.answered == paid

    asyncio.run(main())


@pytest.mark.parametrize("says", [by_arguments, by_lambda])
def test_a_failure_that_is_put_up_with_keeps_its_place(run: keepstep.Run, says: Says) -> None:
    """Another call comes after it: that one's answer is not given to the one that failed."""
    down, up = Model(99), Model(0)

    def turn(episode: keepstep.Episode, first: Model) -> tuple[Any, Any]:
        try:
            came = says(episode, first, "first")
        except Down:
            came = None
        return came, says(episode, up, "second")

    with pytest.raises(Crashed), run.episode("t") as episode:
        assert turn(episode, down) == (None, "second!")
        raise Crashed
    with run.episode("t") as episode:
        assert turn(episode, Model(0)) == ("first!", "second!")
        episode.end("finished")
    assert up.answered == ["second"]


def test_a_turn_that_is_kept_finds_its_calls(run: keepstep.Run) -> None:
    """What failed in one try of a turn takes no number from the next."""
    model = Model(1)

    def tries(episode: keepstep.Episode) -> list[Any]:
        with episode.turn(action="look", on_error="keep") as turn:
            came = [by_arguments(episode, model, question) for question in ("a", "b", "c")]
            turn.result(observation=came)
            return came

    with run.episode("t") as episode:
        for _ in range(3):
            with pytest.raises(Down):
                tries(episode)
        assert tries(episode) == ["a!", "b!", "c!"]
        episode.end("finished")
    assert model.answered == ["a", "b", "c"]


def test_a_turn_that_is_kept_may_be_tried_with_another_client(run: keepstep.Run) -> None:
    """What a function sees is made anew with each try: its key is still that of the call that has its answer."""

    class Client:
        def ask(self) -> str:
            return "answer"

    with run.episode("t") as episode:
        for is_last in (False, True):
            client = Client()
            with contextlib.suppress(Down), episode.turn(action="look", on_error="keep") as turn:
                assert episode.call("look", lambda client=client: client.ask(), key="call_0") == "answer"
                if not is_last:
                    raise Down
                turn.result(observation=1)
        episode.end("finished")


# A key is one call.


def test_a_key_that_is_used_for_another_call_is_refused(run: keepstep.Run) -> None:
    """A server that repeats the ids of tool calls: the second tool was not called, and had the answer of the first."""
    with run.episode("t") as episode:
        for attempt in range(2):
            for shelf in (1, 2):
                if shelf == 1:
                    assert episode.call("look", lambda: f"book {shelf}", key="call_0") == "book 1"  # noqa: B023
                else:
                    with pytest.raises(keepstep.BadInput, match=r"key: 'call_0' .* another call"):
                        episode.call("look", lambda: f"book {shelf}", key="call_0")  # noqa: B023
            assert attempt in (0, 1)
        episode.end("finished")


def test_a_key_of_the_same_call_gives_its_answer(run: keepstep.Run) -> None:
    """Asked for again by whatever is the same: an equal lambda, a partial, a method, with arguments."""
    model = Model(0)

    def look(shelf: int) -> Any:
        return episode.call("look", lambda: model.ask(str(shelf)), key=f"call_{shelf}")

    with run.episode("t") as episode:
        assert [look(1), look(2), look(1), look(2)] == ["1!", "2!", "1!", "2!"]
        for _ in range(2):
            assert episode.call("p", functools.partial(model.ask, "3"), key="p") == "3!"
            assert episode.call("m", model.ask, "4", key="m") == "4!"
        episode.end("finished")
    assert model.answered == ["1", "2", "3", "4"]


def test_an_empty_key_is_refused(run: keepstep.Run) -> None:
    with run.episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match="key"):
            episode.call("look", lambda: 1, key="")
        episode.end("finished")


@pytest.mark.parametrize("how", ["with", "async"])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_call_whose_result_could_not_be_written_is_the_same_when_it_is_made_again(
    tmp_path: Path, how: str, key: str | None
) -> None:
    """The disk took nothing: the next try got another number, and a resumed attempt was Diverged; with a key, it was refused."""
    made: list[str] = []
    asked = ("one", "two", "three")

    def asking(question: str) -> Callable[[], Any]:
        def ask() -> str:
            made.append(question)
            return f"{question}!"

        async def aask() -> str:
            made.append(question)
            return f"{question}!"

        fn = ask if how == "with" else aask
        # A new function object inside another tells calls of one key apart.
        return fn if key is None else lambda: fn()

    def ask(episode: keepstep.Episode, question: str) -> Any:
        came = episode.call("llm", asking(question), key=key and f"{key}{question}")
        if how == "with":
            return came

        async def awaited() -> Any:
            return await came

        return asyncio.run(awaited())

    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        with pytest.raises(Crashed), store.run("shop").episode("t") as episode:
            with slow_disk.stopped(), pytest.raises(keepstep.KeepstepError):
                ask(episode, "one")
            assert [ask(episode, question) for question in ("one", "two")] == ["one!", "two!"]
            raise Crashed
        assert made == ["one", "one", "two"]
        with store.run("shop").episode("t") as episode:
            assert [ask(episode, question) for question in asked] == [f"{it}!" for it in asked]
            episode.end("finished")
    assert made == ["one", "one", "two", "three"]
