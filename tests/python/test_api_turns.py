"""Turns, calls and recording lists: said before the action is taken, recorded once, adopted after a crash."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import keepstep
import outside
import pytest


def interrupt_in_turn(run: keepstep.Run, **said: Any) -> None:
    """Leaves an attempt with a turn that was said and has no result."""
    with pytest.raises(KeyboardInterrupt):
        with run.episode("t") as episode:
            episode.step(action="before", state={"n": 1})
            with episode.turn(**said):
                raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["with", "async with"])
def test_the_intent_is_durable_before_the_action_is_taken(
    store: keepstep.Store, run: keepstep.Run, how: str
) -> None:
    """In the body of the turn, another process can already read what was said."""

    def look() -> None:
        (turn,) = outside.events(store.where, "shop/t", "pending")
        assert (turn["action"], turn["prompt"]) == ("buy", ["hello"])

    async def amain() -> None:
        async with run.episode("t") as episode:
            async with episode.turn(action="buy", prompt=["hello"]) as turn:
                look()
                turn.result(observation="bought")
            await episode.end("finished")

    if how == "async with":
        asyncio.run(amain())
    else:
        with run.episode("t") as episode:
            with episode.turn(action="buy", prompt=["hello"]) as turn:
                look()
                turn.result(observation="bought")
            episode.end("finished")
    (step,) = outside.events(store.where, "shop/t", "step")
    assert (step["action"], step["observation"]) == ("buy", "bought")


def test_a_turn_knows_what_was_said(run: keepstep.Run) -> None:
    """Its index, what was said, and that nobody said it before."""
    with run.episode("t") as episode:
        episode.first("hello")
        with episode.turn(action="buy", agent="buyer") as turn:
            assert (turn.index, turn.said, turn.adopted, turn.error) == (
                1,
                {"action": "buy", "agent": "buyer"},
                False,
                None,
            )
            turn.result(reward=1)
        assert episode.turns == 1
        episode.end("finished")


def test_a_pending_turn_is_adopted(store: keepstep.Store, run: keepstep.Run) -> None:
    """Same index, and what was said is the recording."""
    interrupt_in_turn(run, action="buy", prompt=["hello"])
    with run.episode("t") as episode:
        assert episode.pending is not None
        assert (episode.pending.index, episode.pending.said["action"]) == (1, "buy")
        with episode.turn(action="buy", prompt=["hello"]) as turn:
            assert (turn.index, turn.adopted, turn.said["action"]) == (1, True, "buy")
            turn.result(observation="bought")
        assert episode.pending is None
        episode.end("finished")
    assert [step["action"] for step in outside.events(store.where, "shop/t", "step")] == ["before", "buy"]


def test_a_pending_turn_is_adopted_on_a_loop(run: keepstep.Run) -> None:
    """`async with` adopts as `with` does, and so does the pending turn itself."""

    async def main(sample: int) -> None:
        async with run.episode("t", sample=sample) as episode:
            if sample == 0:
                async with episode.turn(action="buy") as turn:
                    assert turn.adopted
                    turn.result(observation="bought")
            else:
                assert episode.pending is not None
                async with episode.pending as turn:
                    turn.result(observation="bought")
            assert episode.turns == 1
            await episode.end("finished")

    for sample in range(2):
        with pytest.raises(KeyboardInterrupt):
            with run.episode("t", sample=sample) as episode, episode.turn(action="buy"):
                raise KeyboardInterrupt
        asyncio.run(main(sample))


def test_saying_something_else_is_diverged(store: keepstep.Store, run: keepstep.Run) -> None:
    """The error names the turn, the field and both values; the turn stays pending."""
    interrupt_in_turn(run, action="buy", prompt=["hello"])
    with pytest.raises(keepstep.Diverged, match=r'turn 1 .*action.*"buy".*"sell"'):
        with run.episode("t") as episode:
            episode.turn(action="sell", prompt=["hello"]).__enter__()
    with run.episode("t") as episode:
        assert episode.pending is not None
        assert episode.pending.said["action"] == "buy"
        episode.end("abandoned")


def test_a_pending_turn_can_be_given_up_on_record(store: keepstep.Store, run: keepstep.Run) -> None:
    """discard() frees the index; what was given up, and why, stays readable."""
    interrupt_in_turn(run, action="buy")
    with run.episode("t") as episode:
        assert episode.pending is not None
        episode.pending.discard("the shop closed")
        assert episode.pending is None
        with episode.turn(action="sell") as turn:
            assert (turn.index, turn.adopted) == (1, False)
            turn.result(observation="sold")
        episode.end("finished")
    found = outside.lines(store.where, "shop/t")
    assert [line["action"] for line in found if line["what"] == "step"] == ["before", "sell"]
    assert "the shop closed" in str(found)


def test_what_a_turn_that_was_given_up_had_asked_for_by_key_is_not_asked_again(run: keepstep.Run) -> None:
    """A key is one call of that index, and the next turn has the index; a call without a key is a new one."""
    ask = Counting()
    with pytest.raises(KeyboardInterrupt):
        with run.episode("t") as episode:
            episode.call("llm", ask, "a", key="first")
            episode.call("llm", ask, "b")
            with episode.turn(action="buy"):
                raise KeyboardInterrupt
    with run.episode("t") as episode:
        assert episode.pending is not None
        episode.pending.discard("the shop closed")
        assert episode.call("llm", ask, "a", key="first") == {"answer": ["a"]}
        assert episode.call("llm", ask, "c") == {"answer": ["c"]}
        episode.end("finished")
    assert ask.calls == [("a",), ("b",), ("c",)]


def test_going_on_from_an_earlier_step_leaves_what_came_behind_it(run: keepstep.Run) -> None:
    """Calls and the pending turn, also if `at` is the last step: whoever names a step has that step and no more."""
    ask = Counting()
    with pytest.raises(KeyboardInterrupt):
        with run.episode("t") as episode:
            for number in range(3):
                episode.call("llm", ask, number)
                episode.step(action=number)
            episode.call("llm", ask, 3)
            with episode.turn(action="buy"):
                raise KeyboardInterrupt
    for at in (3, 1):
        with run.episode("t", at=at) as episode:
            assert (episode.turns, episode.pending) == (at, None)
            episode.call("llm", ask, "anew")
            episode.end("aborted")
    assert ask.calls == [(0,), (1,), (2,), (3,), ("anew",), ("anew",)]


def test_a_turn_of_this_attempt_can_be_given_up(run: keepstep.Run) -> None:
    """The action was not possible after all: no step, and the next turn has its index."""
    with run.episode("t") as episode:
        with episode.turn(action="buy") as turn:
            turn.discard("not in stock")
        assert "was discarded" in repr(turn)
        with episode.turn(action="sell") as turn:
            assert turn.index == 0
            turn.result(reward=0.0)
        episode.end("finished")


@pytest.mark.parametrize("how", ["with", "async with"])
def test_leaving_a_turn_without_a_result_is_an_error(run: keepstep.Run, how: str) -> None:
    """It raises, the turn stays pending, and the next attempt adopts it."""

    async def amain() -> None:
        async with run.episode("t") as episode:
            async with episode.turn(action="buy"):
                pass

    with pytest.raises(keepstep.BadInput, match="without a result"):
        if how == "with":
            with run.episode("t") as episode:
                with episode.turn(action="buy"):
                    pass
        else:
            asyncio.run(amain())
    with run.episode("t") as episode:
        assert episode.pending is not None
        episode.pending.result(observation="late")
        assert episode.turns == 1
        episode.end("finished")


@pytest.mark.parametrize("records", [True, False], ids=["a store", "the null store"])
@pytest.mark.parametrize("raised", [None, KeyboardInterrupt("stop")], ids=["left", "stopped"])
def test_a_turn_that_stays_pending_is_pending_at_once(
    run: keepstep.Run, records: bool, raised: BaseException | None
) -> None:
    """Views had it as pending, and the episode itself did not: a loop that went on could not take it up again."""
    run = run if records else keepstep.open(None).run("shop")
    with run.episode("t") as episode:
        with pytest.raises(KeyboardInterrupt if raised else keepstep.BadInput), episode.turn(action="buy"):
            if raised is not None:
                raise raised
        assert episode.pending is not None
        assert (episode.pending.index, episode.pending.said["action"]) == (0, "buy")
        with episode.turn(action="buy") as again:
            assert again.adopted
            again.result(reward=1.0)
        assert (episode.pending, episode.turns) == (None, 1)
        episode.end("finished")


@pytest.mark.parametrize("how", ["with", "async with"])
def test_an_exception_in_a_turn_keeps_what_was_said_and_the_error(
    store: keepstep.Store, run: keepstep.Run, how: str
) -> None:
    """The caller hears of the exception; the step has the action and the error; the episode errored."""

    async def amain() -> None:
        async with run.episode("t") as episode:
            async with episode.turn(action="buy"):
                raise ValueError("no money")

    with pytest.raises(ValueError, match="no money"):
        if how == "with":
            with run.episode("t") as episode:
                with episode.turn(action="buy"):
                    raise ValueError("no money")
        else:
            asyncio.run(amain())
    (step,) = outside.events(store.where, "shop/t", "step")
    assert (step["action"], step["error"]["type"]) == ("buy", "ValueError")
    assert outside.ending(store.where, "shop/t")["why"] == "errored"


def test_a_loop_can_go_on_after_a_failed_turn(store: keepstep.Store, run: keepstep.Run) -> None:
    """The failed turn is a step with an error; `turn.error` says what it was."""
    with run.episode("t") as episode:
        turn = episode.turn(action="buy")
        try:
            with turn:
                raise ValueError("no money")
        except ValueError:
            assert turn.error == "ValueError: no money"
        episode.step(action="leave")
        episode.end("finished")
    assert [step["action"] for step in outside.events(store.where, "shop/t", "step")] == ["buy", "leave"]


def test_a_cancelled_turn_stays_pending(run: keepstep.Run) -> None:
    """Nobody knows what the action did: the next attempt decides."""

    async def record(entered: asyncio.Event) -> None:
        async with run.episode("t") as episode:
            async with episode.turn(action="buy"):
                entered.set()
                await asyncio.sleep(60)

    async def main() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(record(entered))
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    with run.episode("t") as episode:
        assert episode.pending is not None
        episode.end("abandoned")


@pytest.mark.skipif(not hasattr(asyncio.Task, "cancelling"), reason="Python 3.10 cannot tell")
def test_a_cancellation_of_somebody_elses_fails_the_turn(run: keepstep.Run) -> None:
    """An environment that cancels a task of its own gave no result: the turn failed, as its episode does."""

    async def loop() -> None:
        async with run.episode("t") as episode:
            async with episode.turn(action="buy"):
                inner = asyncio.ensure_future(asyncio.sleep(60))
                inner.cancel()
                await inner

    async def task() -> None:
        with pytest.raises(asyncio.CancelledError):
            await loop()

    asyncio.run(task())
    view = run.store.find("shop/t")
    assert (view.state, view.pending) == ("errored", None)
    assert view.steps[0].error is not None and "CancelledError" in view.steps[0].error


def test_misuse_of_a_turn_is_told(run: keepstep.Run) -> None:
    """Two results, a result before it is said, entering twice, two turns at once."""
    with run.episode("t") as episode:
        turn = episode.turn(action="buy")
        with pytest.raises(keepstep.BadInput, match="not been entered"):
            turn.result(reward=0.0)
        with pytest.raises(keepstep.BadInput, match="no index"):
            _ = turn.index
        with turn:
            with pytest.raises(keepstep.KeepstepError):
                episode.turn(action="sell").__enter__()
            with pytest.raises(keepstep.KeepstepError):
                episode.step(action="sell")
            turn.result(reward=0.0)
            with pytest.raises(keepstep.BadInput, match="has its result"):
                turn.result(reward=1.0)
            with pytest.raises(keepstep.BadInput, match="has its result"):
                turn.discard("x")
        with pytest.raises(keepstep.BadInput, match="entered before"):
            turn.__enter__()
        episode.end("finished")


def test_a_refused_result_leaves_the_turn_open(run: keepstep.Run) -> None:
    """A reward that is a text is refused, named; a right one can follow."""
    with run.episode("t") as episode:
        with episode.turn(action="buy") as turn:
            with pytest.raises(keepstep.BadInput, match=r'reward .*"0\.100"|reward .*\'0\.100\''):
                turn.result(reward="0.100")
            turn.result(reward=0.1)
        episode.end("finished")


class Counting:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return {"answer": list(args)}


def test_a_call_is_made_once_and_then_replayed(store: keepstep.Store, run: keepstep.Run) -> None:
    """A resumed attempt gets the recording; without keys calls are told apart by their order in the turn."""
    ask = Counting()
    with run.episode("t") as episode:
        assert episode.call("llm", ask, "a") == {"answer": ["a"]}
        assert episode.call("llm", ask, "b") == {"answer": ["b"]}
        episode.end("aborted")
    with run.episode("t") as episode:
        assert episode.call("llm", ask, "a") == {"answer": ["a"]}
        assert episode.call("llm", ask, "b") == {"answer": ["b"]}
        assert episode.call("llm", ask, "c") == {"answer": ["c"]}
        episode.step(action=1)
        assert episode.call("llm", ask, "a") == {"answer": ["a"]}
        episode.end("finished")
    assert ask.calls == [("a",), ("b",), ("c",), ("a",)]
    found = outside.events(store.where, "shop/t", "call")
    assert [(call["index"], call["ordinal"]) for call in found] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_a_call_with_a_key_may_come_in_any_order(run: keepstep.Run) -> None:
    """Concurrent tools: each finds its own recording."""
    tool = Counting()
    with run.episode("t") as episode:
        for key in ("x", "y"):
            episode.call("tool", tool, key, key=key)
        episode.end("aborted")
    with run.episode("t") as episode:
        for key in ("y", "z", "x"):
            assert episode.call("tool", tool, key, key=key) == {"answer": [key]}
        episode.end("finished")
    assert tool.calls == [("x",), ("y",), ("z",)]


def test_a_call_with_other_arguments_is_diverged(run: keepstep.Run) -> None:
    """Not a wrong answer: the error says which call, and both arguments. So does another name."""
    ask = Counting()
    with run.episode("t") as episode:
        episode.call("llm", ask, "a")
        episode.end("aborted")
    for name, argument in (("llm", "other"), ("tool", "a")):
        with pytest.raises(keepstep.Diverged, match=f'call "{name}"'):
            with run.episode("t") as episode:
                episode.call(name, ask, argument)
    assert ask.calls == [("a",)]


def test_a_call_that_raised_is_recorded_and_made_again(store: keepstep.Store, run: keepstep.Run) -> None:
    """The caller hears of it; a resumed attempt tries again."""

    def fail() -> None:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        with run.episode("t") as episode:
            episode.call("llm", fail)
    with run.episode("t") as episode:
        assert episode.call("llm", lambda: 3) == 3
        episode.end("finished")
    failed, made = outside.events(store.where, "shop/t", "call")
    assert failed["error"]["type"] == "OSError"
    assert made["result"] == 3


def test_async_calls_are_recorded_too(store: keepstep.Store, run: keepstep.Run) -> None:
    """A coroutine function, and one that raises; replayed on resume."""
    made: list[str] = []

    async def ask(text: str) -> str:
        await asyncio.sleep(0)
        made.append(text)
        return text.upper()

    async def fail() -> str:
        raise OSError("no network")

    async def first() -> None:
        async with run.episode("t") as episode:
            assert await episode.call("llm", ask, "a") == "A"
            assert await episode.call("llm", ask, "b") == "B"
            with pytest.raises(OSError):
                await episode.call("llm", fail)
            await episode.end("aborted")

    async def again() -> None:
        async with run.episode("t") as episode:
            assert await episode.call("llm", ask, "a") == "A"
            assert await episode.call("llm", ask, "b") == "B"
            assert await episode.call("llm", ask, "c") == "C"
            await episode.end("finished")

    asyncio.run(first())
    asyncio.run(again())
    assert made == ["a", "b", "c"]


def test_what_is_awaited_once_is_awaited_on_resume(run: keepstep.Run) -> None:
    """A decorated coroutine function (as clients of language models have) gave its recording bare: awaiting it raised."""

    class Client:
        @as_clients_do
        async def ask(self, text: str) -> str:
            return text.upper()

        async def __call__(self, text: str) -> str:
            return text.lower()

    async def main() -> None:
        client = Client()
        async with run.episode("t") as episode:
            assert await episode.call("llm", client.ask, "a") == "A"
            assert await episode.call("llm", client, "A") == "a"
            assert await episode.call("llm", functools.partial(client.ask, "c")) == "C"
            await episode.end("aborted")

    asyncio.run(main())
    asyncio.run(main())


def as_clients_do(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that is not itself `async`."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def test_a_call_gives_what_a_resumed_attempt_will_get(run: keepstep.Run) -> None:
    """The result of a call is the function's own on the first run, and equal to it on the next."""
    with run.episode("t") as episode:
        first = episode.call("llm", lambda: {"a": [1, 2.5, None, "x"]})
        episode.end("aborted")
    with run.episode("t") as episode:
        assert episode.call("llm", lambda: None) == first
        episode.end("finished")


def test_a_trajectory_is_a_list_that_records(store: keepstep.Store, run: keepstep.Run) -> None:
    """append, extend and += are durable when they return; on resume the items are there."""
    with run.episode("t") as episode:
        trajectory = episode.trajectory()
        assert isinstance(trajectory, list)
        trajectory.append({"observation": "a"})
        trajectory.extend([{"action": 1}, {"observation": "b"}])
        assert len(outside.events(store.where, "shop/t", "step")) == 3
        assert episode.trajectory() is trajectory
        episode.end("aborted")
    with run.episode("t") as episode:
        trajectory = episode.trajectory()
        assert trajectory == [{"observation": "a"}, {"action": 1}, {"observation": "b"}]
        trajectory += [{"action": 2}]
        assert trajectory[-1] == {"action": 2}
        episode.end("finished")
    assert len(outside.events(store.where, "shop/t", "step")) == 4


def test_a_trajectory_only_grows(run: keepstep.Run) -> None:
    """Whatever else would change the list raises, and changes nothing; copies are plain lists."""
    with run.episode("t") as episode:
        trajectory = episode.trajectory()
        trajectory.extend([1, 2])
        changes = [
            lambda: trajectory.__setitem__(0, 9),
            lambda: trajectory.__delitem__(0),
            lambda: trajectory.insert(0, 9),
            lambda: trajectory.pop(),
            lambda: trajectory.remove(1),
            lambda: trajectory.clear(),
            lambda: trajectory.sort(),
            lambda: trajectory.reverse(),
            lambda: trajectory.__imul__(2),
        ]
        for change in changes:
            with pytest.raises(TypeError, match="only grow"):
                change()
        assert trajectory == [1, 2]
        for copied in (
            list(trajectory),
            copy.copy(trajectory),
            copy.deepcopy(trajectory),
            trajectory[:],
            trajectory.copy(),
            pickle.loads(pickle.dumps(trajectory)),
        ):
            assert (type(copied), copied) == (list, [1, 2])
        episode.end("finished")


def test_what_cannot_be_recorded_is_not_in_the_trajectory(run: keepstep.Run) -> None:
    """The list and the record say the same."""
    with run.episode("t") as episode:
        trajectory = episode.trajectory()
        trajectory.append(1)
        episode.end("finished")
        with pytest.raises(keepstep.Ended):
            trajectory.append(2)
        assert trajectory == [1]
