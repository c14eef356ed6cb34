"""A handle of a turn speaks for that turn alone: what comes late, or from a handle that was left, reaches no other turn."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import keepstep
import outside
import pytest


def leave(episode: keepstep.Episode, how: str, **said: Any) -> keepstep.Turn:
    """Enters a turn and leaves it in one of the ways there are; returns its handle."""
    turn = episode.turn(**said)
    try:
        with turn:
            if how == "stopped":
                raise KeyboardInterrupt
            if how == "failed":
                raise ValueError("no money")
            if how == "discarded":
                turn.discard("not in stock")
            if how == "done":
                turn.result(observation="done")
    except (KeyboardInterrupt, ValueError, keepstep.BadInput):
        pass
    return turn


WAYS = ["stopped", "no result", "failed", "kept", "discarded", "done"]


@pytest.fixture(params=["a store", "the null store"])
def any_run(request: pytest.FixtureRequest, run: keepstep.Run) -> keepstep.Run:
    return run if request.param == "a store" else keepstep.open(None).run("shop")


@pytest.mark.parametrize("late", ["result", "discard", "enter"])
@pytest.mark.parametrize("way", WAYS)
def test_a_turn_that_was_left_reaches_no_other_turn(any_run: keepstep.Run, way: str, late: str) -> None:
    """Its late result was recorded as that of the turn that was under way, and that one's own was refused."""
    on_error = "keep" if way == "kept" else "fail"
    with any_run.episode("t", on_error=on_error) as episode:
        old = leave(episode, "failed" if way == "kept" else way, action="pay")
        if episode.pending is not None:
            with episode.pending as again:
                again.result(observation="refused")
        with episode.turn(action="delete the account") as turn:
            with pytest.raises(keepstep.BadInput):
                if late == "enter":
                    old.__enter__()
                elif late == "result":
                    old.result(observation="paid", reward=1.0)
                else:
                    old.discard("late")
            turn.result(observation="kept", reward=-1.0)
        episode.end("finished")
    if any_run.store.where is not None:
        last = any_run.store.find("shop/t").steps[-1]
        assert (last.action, last.observation, last.reward) == ("delete the account", "kept", -1.0)


@pytest.mark.parametrize("late", ["result", "discard", "enter"])
@pytest.mark.parametrize("then", ["is done", "was discarded", "is under way"])
def test_a_second_handle_of_a_pending_turn_is_of_that_turn(
    any_run: keepstep.Run, then: str, late: str
) -> None:
    """It was entered after its turn was over, and its result went to the turn behind."""
    with any_run.episode("t") as episode:
        leave(episode, "stopped", action="buy")
        stale = episode.pending
        assert stale is not None and episode.pending is not None
        if then == "is done":
            with episode.pending as turn:
                turn.result(observation="bought")
            leave(episode, "stopped", action="sell the house")
        elif then == "was discarded":
            episode.pending.discard("no money")
            leave(episode, "stopped", action="sell the house")
        else:
            episode.pending.__enter__()
        with pytest.raises(keepstep.BadInput, match="not under way"):
            if late == "enter":
                stale.__enter__()
            elif late == "result":
                stale.result(observation="bought again")
            else:
                stale.discard("late")
        if then != "is under way":
            assert episode.pending is not None
            assert episode.pending.said["action"] == "sell the house"
        episode.end("abandoned")


def test_a_tool_that_answers_after_the_timeout_reaches_no_other_turn(run: keepstep.Run) -> None:
    """As agents have it: a shielded task that answers to the turn it was given."""

    async def main() -> str:
        async with run.episode("t") as episode:
            started, go_on = asyncio.Event(), asyncio.Event()

            async def tool(turn: keepstep.Turn) -> None:
                started.set()
                await go_on.wait()
                turn.result(observation="paid 5 EUR", reward=1.0)

            async def pay() -> None:
                async with episode.turn(action="pay 5 EUR") as turn:
                    tasks.append(asyncio.create_task(tool(turn)))
                    await asyncio.shield(tasks[0])

            tasks: list[asyncio.Task[None]] = []
            paying = asyncio.create_task(pay())
            await started.wait()
            paying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await paying
            assert episode.pending is not None
            async with episode.pending as again:
                again.result(observation="refused", reward=0.0)
            async with episode.turn(action="delete the account") as turn:
                go_on.set()
                with pytest.raises(keepstep.BadInput, match="was left by CancelledError"):
                    await tasks[0]
                turn.result(observation="kept", reward=-1.0)
            await episode.end("finished")
        return episode.ref

    view = run.store.find(asyncio.run(main()))
    assert [(step.action, step.observation) for step in view.steps] == [
        ("pay 5 EUR", "refused"),
        ("delete the account", "kept"),
    ]


def test_a_turn_that_is_cancelled_while_it_is_entered_is_pending(run: keepstep.Run) -> None:
    """It was pending in views, nobody had a handle of it, and no other turn could begin."""

    async def main(pauses: int) -> None:
        async with run.episode(f"t{pauses}") as episode:
            await episode.submit(action="first")

            async def one() -> None:
                async with episode.turn(action="b") as turn:
                    turn.result(reward=1.0)

            task = asyncio.create_task(one())
            for _ in range(pauses):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # What is durable covers all before it: the intent, if it was said.
            await episode.note("seen", 1, source="test")
            pending = episode.pending
            assert (pending is None) == (run.store.find(episode.ref).pending is None)
            async with pending or episode.turn(action="b") as turn:
                turn.result(reward=1.0)
            assert episode.turns in (2, 3)
            await episode.end("finished")

    for pauses in range(12):
        asyncio.run(main(pauses))


def test_a_discarded_turn_takes_its_calls_without_a_key_along(store: keepstep.Store) -> None:
    """Live the next call was a new one, and resumed it was the old one: the program diverged from itself."""
    program = """
import os, sys, warnings, keepstep
warnings.simplefilter("ignore")
run = keepstep.open(sys.argv[1]).run("shop")
asked = sys.argv[2]
def ask(question):
    with open(asked, "a") as file:
        file.write("x")
    return f"answer-{os.path.getsize(asked) - 1}"
with run.episode("t") as episode:
    while episode.turns < 1:
        reply = episode.call("llm", ask, "q")
        kept = episode.call("tool", ask, "t", key="once")
        with episode.turn(response=reply, action=[reply, kept]) as turn:
            if reply == "answer-0":
                turn.discard("unparsable")
                continue
            if sys.argv[3] == "crash":
                os.kill(os.getpid(), 9)
            turn.result(reward=1.0)
    episode.end("finished")
"""
    asked = str(store.where) + ".asked"
    for how, code in [("crash", -9), ("go on", 0)]:
        ran = subprocess.run(
            [sys.executable, "-c", program, str(store.where), asked, how], capture_output=True, text=True
        )
        assert ran.returncode == code, ran.stderr
    (step,) = store.find("shop/t").steps
    # The call with a key is one call for both turns of that index.
    assert step.action == ["answer-2", "answer-1"]
    with open(asked) as file:
        assert len(file.read()) == 3, "nothing that was answered is asked again"


def test_an_owner_that_lost_its_episode_does_not_act_in_an_adopted_turn(
    store: keepstep.Store, run: keepstep.Run
) -> None:
    """An adopted turn records nothing when it is entered: its action was taken by both."""
    episode = run.episode("t").__enter__()
    leave(episode, "stopped", action="pay")
    with keepstep.open(str(store.where)) as other, other.run("shop").episode("t", busy="take") as taker:
        assert taker.pending is not None
        with taker.pending as turn:
            turn.result(reward=1.0)
        with pytest.raises(keepstep.Fenced), episode.turn(action="pay"):
            raise AssertionError("the action would be taken once more")
        taker.end("finished")


def test_a_turn_that_could_not_be_entered_is_pending(run: keepstep.Run) -> None:
    """A warning that is an error came when the intent was on record: the turn was under way, and nobody had it."""
    with pytest.raises(RuntimeError), run.episode("t") as episode:
        episode.step(action="look")
        raise RuntimeError
    with run.episode("t") as episode:

        def warns(was_adopted: bool) -> None:
            raise RuntimeWarning("this program did not look")

        with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeWarning):
            patch.setattr(type(episode), "_said", lambda self, was_adopted: warns(was_adopted))
            episode.turn(action="buy").__enter__()
        assert episode.pending is not None
        with episode.pending as turn:
            turn.result(observation="bought")
        episode.end("finished")


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "raise KeyboardInterrupt"])
def test_a_forked_child_leaves_a_turn_as_it_wants(run: keepstep.Run, leaves: str) -> None:
    """Its own exit was replaced by `Forked`."""
    script = f"""
        import os, sys, keepstep
        with keepstep.open(sys.argv[1]).run("r").episode("t") as episode:
            with episode.turn(action="fork") as turn:
                child = os.fork()
                if child == 0:
                    {leaves}
                turn.result(observation=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            episode.end("finished")
    """
    outside.run(script, run.store.where)
    [step] = run.store.find("r/t").steps
    assert step.observation == {"sys.exit(0)": 0}.get(leaves, -signal.SIGINT)


@pytest.mark.parametrize("left", ["stopped", "no result"])
def test_another_intent_than_that_of_the_pending_turn_is_refused(any_run: keepstep.Run, left: str) -> None:
    """The null store adopted the old one in silence."""
    with any_run.episode("t") as episode:
        leave(episode, left, action="buy")
        with pytest.raises(keepstep.Diverged, match="action"):
            episode.turn(action="sell").__enter__()
        with episode.turn(action="buy") as turn:
            assert turn.adopted
            turn.result(observation="bought")
        episode.end("finished")
