"""A paid answer is not thrown away: a turn that failed can leave what was said to the next try. Failed turns are no turns."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest


class Loop:
    """A loop that asks, acts and fails when it is told to."""

    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, 0

    def ask(self, question: str) -> str:
        self.asked += 1
        return f"answer {self.asked} to {question}"

    def act(self) -> str:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the tool failed")
        return "done"

    def turn(self, episode: keepstep.Episode, **options: Any) -> None:
        reply = episode.call("llm", self.ask, f"q{episode.turns}")
        with episode.turn(response=reply, action=reply, **options) as turn:
            turn.result(observation=episode.call("tool", self.act), state={"reply": turn.said["response"]})

    async def aturn(self, episode: keepstep.Episode, **options: Any) -> None:
        async def ask(question: str) -> str:
            return self.ask(question)

        async def act() -> str:
            return self.act()

        reply = await episode.call("llm", ask, f"q{episode.turns}")
        async with episode.turn(response=reply, action=reply, **options) as turn:
            turn.result(observation=await episode.call("tool", act))


@pytest.mark.parametrize("by", ["episode", "turn"])
@pytest.mark.parametrize("where", ["recorded", "null"])
def test_a_kept_answer_is_not_asked_for_again(run: keepstep.Run, by: str, where: str) -> None:
    """In the same process: the next try has the recorded answer; the failed tries are on record, and no steps."""
    # A pending turn keeps what its episode says.
    failures = 2 if by == "episode" else 1
    loop = Loop(failures)
    used = run if where == "recorded" else keepstep.open(None).run("r")
    options: dict[str, Any] = {"on_error": "keep"}
    with used.episode("t", **(options if by == "episode" else {})) as episode:
        tries = 0
        while episode.turns < 2 and (tries := tries + 1) < 9:
            try:
                pending = episode.pending
                if pending is None:
                    loop.turn(episode, **(options if by == "turn" else {}))
                else:
                    assert pending.adopted and pending.index == 0
                    with pending as turn:
                        assert turn.said["response"] == "answer 1 to q0"
                        turn.result(observation=episode.call("tool", loop.act))
            except RuntimeError:
                assert episode.turns == 0
        episode.end("finished")
    assert (loop.asked, tries) == (2, failures + 2)
    if where == "null":
        return
    (view,) = run.episodes()
    assert [(step.failed, step.response) for step in view.steps] == [
        (False, "answer 1 to q0"),
        (False, "answer 2 to q1"),
    ]
    errors = [
        call for call in outside.events(run.store.where, view.ref, "call") if call["name"] == "keepstep.turn"
    ]
    assert len(errors) == failures
    assert all("the tool failed" in call["error"]["message"] for call in errors)


@pytest.mark.parametrize("how", ["with", "async"])
def test_saying_it_again_adopts_what_was_said(run: keepstep.Run, how: str) -> None:
    """A loop that knows nothing of `pending`: its calls are given again from the first, so it says the same."""
    loop = Loop(failures=3)

    def play() -> None:
        with run.episode("t", on_error="keep") as episode:
            for _ in range(3):
                with pytest.raises(RuntimeError):
                    loop.turn(episode)
            loop.turn(episode)
            loop.turn(episode)
            assert (episode.turns, loop.asked) == (2, 2)
            episode.end("finished")

    async def aplay() -> None:
        async with run.episode("t", on_error="keep") as episode:
            for _ in range(3):
                with pytest.raises(RuntimeError):
                    await loop.aturn(episode)
            await loop.aturn(episode)
            await loop.aturn(episode)
            assert (episode.turns, loop.asked) == (2, 2)
            await episode.end("finished")

    play() if how == "with" else asyncio.run(aplay())
    (view,) = run.episodes()
    assert [(step.index, step.failed, step.response) for step in view.steps] == [
        (0, False, "answer 1 to q0"),
        (1, False, "answer 2 to q1"),
    ]


def test_an_exception_that_leaves_the_episode_keeps_it_too(run: keepstep.Run) -> None:
    """The next attempt, here or elsewhere, has the answer."""
    loop = Loop(failures=1)
    with pytest.raises(RuntimeError):
        with run.episode("t", on_error="keep") as episode:
            loop.turn(episode)
    with run.episode("t") as episode:
        assert episode.pending is not None and episode.pending.said["response"] == "answer 1 to q0"
        loop.turn(episode)
        assert (episode.turns, loop.asked) == (1, 1)
        episode.end("finished")


def test_by_default_a_failed_turn_is_a_failed_step(run: keepstep.Run) -> None:
    """It is marked, has an index, and is not counted: by this attempt, by the next, after `at`, by another process."""
    loop = Loop(failures=0)
    with pytest.raises(RuntimeError):
        with run.episode("t") as episode:
            episode.first("you enter")
            for failures in (0, 1, 1):
                loop.failures = failures
                try:
                    loop.turn(episode)
                except RuntimeError:
                    assert episode.turns == 1
            loop.failures = 0
            loop.turn(episode)
            assert (episode.turns, loop.asked) == (2, 4), "each answer was asked anew"
            loop.failures = 1
            loop.turn(episode)
    with run.episode("t") as episode:
        assert (episode.turns, len(episode.history)) == (2, 6)
        episode.step(action="a")
        assert episode.turns == 3
        episode.end("aborted")
    with run.episode("t", at=4) as episode:
        assert (episode.turns, len(episode.history)) == (1, 4)
        episode.step(action="b")
        assert episode.turns == 2
        episode.end("finished")
    (view,) = run.episodes()
    assert [step.failed for step in view.steps] == [False, False, True, True, False]
    assert [step.index for step in view.steps] == [0, 1, 2, 3, 4]
    script = "import keepstep, sys; e = keepstep.open(sys.argv[1]).run('shop').episode('t', resume='continue'); e.turns"
    assert "Ended" in outside.start(script, run.store.where).communicate()[1]


def test_what_on_error_takes(run: keepstep.Run) -> None:
    """A misspelt one is refused before anything is opened."""
    with pytest.raises(keepstep.BadInput, match='on_error is \'kep\': give "fail" or "keep"'):
        run.episode("t", on_error="kep")  # type: ignore[arg-type]
    with run.episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match="on_error"):
            episode.turn(action="a", on_error="retry")  # type: ignore[arg-type]
        episode.end("finished")


KILLED = """
import os, signal, sys
import keepstep, test_kept_answers as it

store, effects, point = sys.argv[1:]
loop = it.Loop(failures=0)

def ask(question):
    with open(effects, "a") as file:
        file.write("ask\\n")
    return "an answer"

def act():
    if episode.attempt == 0:
        raise RuntimeError("the tool failed")
    return "done"

with keepstep.open(store).run("shop").episode("t", on_error="keep") as episode:
    tries = 0
    while episode.turns < 1:
        reply = episode.call("llm", ask, "q")
        try:
            with episode.turn(response=reply) as turn:
                if point == "in" and tries and episode.attempt == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                turn.result(observation=act())
        except RuntimeError:
            tries += 1
            if point == "after":
                os.kill(os.getpid(), signal.SIGKILL)
    episode.end("finished").wait()
"""


@pytest.mark.parametrize("point", ["after", "in"])
def test_after_kill_9_the_kept_answer_is_there(tmp_path: Path, point: str) -> None:
    """Killed after the failed try, or in the next one: nothing is asked again, and the failed try is on record."""
    given = (tmp_path / "runs", tmp_path / "effects", point)
    outside.run(KILLED, *given, code=outside.KILLED)
    outside.run(KILLED, *given)
    assert (tmp_path / "effects").read_text() == "ask\n"
    steps = outside.events(tmp_path / "runs", "shop/t#0.0", "step")
    calls = outside.events(tmp_path / "runs", "shop/t#0.0", "call")
    assert [(step["response"], step["observation"]) for step in steps] == [("an answer", "done")]
    assert [call["name"] for call in calls] == ["llm", "keepstep.turn"]


@pytest.mark.parametrize("on_error", ["fail", "keep"])
@pytest.mark.parametrize("catches", [True, False])
@pytest.mark.parametrize("late", ["fails", "comes"])
def test_a_tool_that_ends_after_its_turn_was_left_is_quiet(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture, on_error: Any, catches: bool, late: str
) -> None:
    """With gather, one tool fails and the other is still on its way: no traceback, and its result is none of the next turn's."""
    told: list[dict[str, Any]] = []

    async def fails() -> None:
        raise RuntimeError("first")

    async def is_late(go: asyncio.Event) -> str:
        await go.wait()
        if late == "fails":
            raise ValueError("second")
        return "late"

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        go = asyncio.Event()

        async def play() -> None:
            async with run.episode("t", on_error=on_error) as episode:
                try:
                    async with episode.turn(action="a"):
                        await asyncio.gather(
                            episode.call("a", fails),
                            episode.call("b", lambda: is_late(go)),
                            episode.call("c", fails),
                        )
                except RuntimeError:
                    if not catches:
                        asyncio.get_running_loop().call_later(0.05, go.set)
                        raise
                async with episode.turn(action="a") as turn:
                    assert turn.adopted == (on_error == "keep")
                    go.set()
                    await asyncio.sleep(0.05)
                    names = "abc" if turn.adopted else "xyz"
                    came = [await episode.call(name, lambda name=name: _soon(name)) for name in names]
                    # The turn that is tried again is given what came late; another turn is not.
                    kept = ["a", "late", "c"] if late == "comes" else ["a", "b", "c"]
                    assert came == (kept if turn.adopted else ["x", "y", "z"])
                    turn.result(observation="o")
                await episode.end("finished")

        try:
            await play()
        except RuntimeError:
            assert not catches
        go.set()
        await asyncio.sleep(0.05)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert told == []
    assert all(record.exc_info is None for record in caplog.records), caplog.text
    assert "too late" not in caplog.text


async def _soon(value: str) -> str:
    await asyncio.sleep(0)
    return value


async def _kept_while_it_runs(episode: keepstep.Episode, task: Any, started: asyncio.Event) -> None:
    """A turn that is kept while one of its calls is still under way."""
    async with episode.turn(action="a"):
        task.append(asyncio.ensure_future(task.pop()()))
        await started.wait()
        raise RuntimeError("another tool failed")


def test_a_call_that_comes_late_does_not_refuse_the_next_try(run: keepstep.Run) -> None:
    """It put its old function beside its key after the turn was kept, so the new one was "another call"."""

    async def main() -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def is_late() -> str:
            started.set()
            await go.wait()
            return "late"

        async def is_new() -> str:
            raise AssertionError("the late one has its result")

        async with run.episode("t", on_error="keep") as episode:
            task: Any = [lambda: episode.call("tool", is_late, key="k")]
            with pytest.raises(RuntimeError):
                await _kept_while_it_runs(episode, task, started)
            go.set()
            assert await task[0] == "late"
            async with episode.turn(action="a") as turn:
                assert await episode.call("tool", is_new, key="k") == "late"
                # Within one try, it is still refused.
                with pytest.raises(keepstep.BadInput, match="another call"):
                    await episode.call("tool", is_late, key="k")
                turn.result(observation="o")
            await episode.end("finished")

    asyncio.run(main())


def test_a_call_that_fails_late_does_not_number_the_next_try(run: keepstep.Run) -> None:
    """The next try took over its number, and the call behind that got the same: a resumed attempt was Diverged."""

    async def main() -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def tool(question: str) -> str:
            if not go.is_set():
                started.set()
                await go.wait()
                raise ValueError("late")
            return f"answer to {question}"

        async def ask(episode: keepstep.Episode) -> list[str]:
            return [await episode.call("tool", tool, question) for question in ("one", "two", "three")]

        with pytest.raises(RuntimeError, match="killed"):
            async with run.episode("t", on_error="keep") as episode:
                task: Any = [lambda: episode.call("tool", tool, "one")]
                with pytest.raises(RuntimeError):
                    await _kept_while_it_runs(episode, task, started)
                go.set()
                with pytest.raises(ValueError):
                    await task[0]
                async with episode.turn(action="a"):
                    first = await ask(episode)
                    raise RuntimeError("killed")
        async with run.episode("t", on_error="keep") as episode:
            async with episode.turn(action="a") as turn:
                assert await ask(episode) == first
                turn.result(observation="o")
            await episode.end("finished")

    asyncio.run(main())
