"""Episodes as people write them: begun, left, resumed, ended, by `with` and by `async with`."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
from keepstep import _loops


def steps(store: keepstep.Store, ref: str) -> list[dict[str, Any]]:
    return outside.events(store.where, ref, "step")


def test_a_step_is_there_with_all_its_fields(store: keepstep.Store, run: keepstep.Run) -> None:
    """What step() takes is what another process reads, and it is durable when the call returns."""
    given: dict[str, Any] = {
        "action": {"click": 12},
        "prompt": [{"role": "user", "content": "buy"}],
        "response": "ok",
        "policy": 7,
        "agent": "buyer",
        "observation": "a page",
        "reward": 0.5,
        "reward_terms": {"format": 0.1, "goal": 0.4},
        "discount": 0.9,
        "info": {"latency": 3},
        "state": {"messages": ["a"]},
    }
    with run.episode("t") as episode:
        receipt = episode.step(tokens=keepstep.Tokens(ids=[1, 2], logprobs=[-0.5, -1.0]), **given)
        assert (receipt.level, receipt.step) == ("power", 0)
        (step,) = steps(store, "shop/t")
        episode.end("finished")
    assert {name: step[name] for name in given} == given
    assert step["tokens"]["ids"] == [1, 2]


def test_first_is_a_step_and_not_a_turn(store: keepstep.Store, run: keepstep.Run) -> None:
    """FIRST has an index and no action; `turns` counts what comes after it, and the kinds are FIRST, MID, LAST."""
    with run.episode("t") as episode:
        assert episode.first("hello", info={"seed": 1}, state={"n": 0}).wait().step == 0
        assert episode.turns == 0
        episode.submit(action=1, observation="a")
        episode.submit(action=2, observation="b", reward=None)
        assert episode.turns == 2
        episode.end("finished")
    found = steps(store, "shop/t")
    assert [step["kind"] for step in found] == ["FIRST", "MID", "LAST"]
    assert "reward" not in found[2] or found[2]["reward"] is None


def test_state_is_as_of_the_last_step(run: keepstep.Run) -> None:
    """Within an attempt and after it: the newest value of each name, or the default."""
    with run.episode("t") as episode:
        assert episode.state("messages", []) == []
        assert episode.state("messages") is None
        episode.step(action=1, state={"messages": ["a"], "seed": 1})
        episode.step(action=2, state={"messages": ["a", "b"]})
        assert (episode.state("messages"), episode.state("seed")) == (["a", "b"], 1)
        episode.end("aborted")
    with run.episode("t") as episode:
        assert (episode.state("messages"), episode.state("seed")) == (["a", "b"], 1)
        episode.end("finished")


def test_a_state_of_none_is_a_state(run: keepstep.Run) -> None:
    """What was recorded as None is None, and not the default."""
    with run.episode("t") as episode:
        episode.step(action=1, state={"seed": None})
        assert episode.state("seed", 3) is None
        episode.end("aborted")
    with run.episode("t") as episode:
        assert episode.state("seed", 3) is None
        episode.end("finished")


def test_what_is_mutated_afterwards_was_recorded_before(store: keepstep.Store, run: keepstep.Run) -> None:
    """The value of the moment of the call, though the caller goes on with the same objects."""
    messages = ["a"]
    with run.episode("t") as episode:
        receipt = episode.submit(prompt=messages, state={"messages": messages}, action=1)
        messages.append("b")
        receipt.wait()
        assert episode.state("messages") == ["a"]
        episode.end("finished")
    assert steps(store, "shop/t")[0]["prompt"] == ["a"]


def test_an_interrupted_episode_goes_on(store: keepstep.Store, run: keepstep.Run) -> None:
    """Attempt 1 inherits what attempt 0 had, with its history, and counts on from there."""
    with pytest.warns(RuntimeWarning, match="left without end"):
        with run.episode("t") as episode:
            assert (episode.attempt, episode.resumed) == (0, False)
            episode.first("hello")
            episode.step(action=1, observation="a")
    with run.episode("t") as episode:
        assert (episode.attempt, episode.resumed, episode.turns, len(episode.history)) == (1, True, 1, 2)
        assert [(step.index, step.kind) for step in episode.history] == [(0, "FIRST"), (1, "MID")]
        assert (episode.history[-1].action, episode.history[0].observation) == (1, "hello")
        with pytest.raises(IndexError):
            _ = episode.history[2]
        assert episode.step(action=2, observation="b").step == 2
        episode.end("finished")
    assert [step["index"] for step in steps(store, "shop/t")] == [0, 1, 2]


def test_resume_says_what_an_interrupted_episode_does(run: keepstep.Run) -> None:
    """`restart` begins anew and keeps the old attempt; `refuse` is refused; `at` inherits so many steps."""
    with run.episode("t") as episode:
        for number in range(4):
            episode.step(action=number, state={"n": number})
        episode.end("errored", error="first")
    with run.episode("t", resume="restart") as episode:
        assert (episode.attempt, episode.turns, len(episode.history), episode.resumed) == (1, 0, 0, False)
        for number in range(3):
            episode.step(action=10 + number, state={"n": 10 + number})
        episode.end("aborted")
    with run.episode("t", at=2) as episode:
        assert (episode.attempt, len(episode.history), episode.state("n")) == (2, 2, 11)
        episode.end("aborted")
    with pytest.raises(keepstep.KeepstepError):
        run.episode("t", resume="refuse").__enter__()
    with run.episode("t") as episode:
        assert (episode.attempt, len(episode.history)) == (3, 2)
        episode.end("truncated", limit="turns")
    with pytest.raises(keepstep.Ended, match="truncated"):
        run.episode("t").__enter__()


def test_new_policy_says_what_is_half_done_under_other_weights_does(run: keepstep.Run) -> None:
    """Refused, begun anew or gone on with, as the opener says; under the same policy it goes on in any case."""
    for sample in range(4):
        with run.episode("t", sample=sample) as episode:
            episode.step(action=1, policy=7)
            episode.end("aborted")
    with pytest.raises(keepstep.KeepstepError, match="7"):
        run.episode("t", sample=0, policy=8, new_policy="refuse").__enter__()
    for sample, policy, new_policy, inherited in (
        (1, 8, "restart", 0),
        (2, 8, "continue", 1),
        (3, 7, "refuse", 1),
    ):
        with run.episode("t", sample=sample, policy=policy, new_policy=new_policy) as episode:
            assert len(episode.history) == inherited, new_policy
            episode.end("finished")
    for wrong in ({"policy": 1.5}, {"new_policy": "perhaps"}):
        with pytest.raises(keepstep.BadInput, match="policy"):
            run.episode("u", **wrong).__enter__()


def test_parent_and_meta_are_kept(store: keepstep.Store, run: keepstep.Run) -> None:
    """A sub-agent's episode names its parent, and what else was said on opening."""
    with run.episode("t") as above, run.episode("sub", parent="shop/t#0.0", meta={"depth": 2}) as episode:
        episode.end("finished")
        above.end("finished")
    (begin,) = outside.events(store.where, "shop/sub", "begin")
    assert begin["parent"] == "shop/t#0.0"
    assert begin["meta"] == {"depth": 2}


def test_samples_and_iterations_are_episodes_of_their_own(run: keepstep.Run) -> None:
    """The name is (task, iteration, sample), and the id follows from it."""
    ids = set()
    for iteration in range(2):
        for sample in range(2):
            with run.episode("t", iteration=iteration, sample=sample) as episode:
                assert episode.ref == f"shop/t#{iteration}.{sample}~0"
                ids.add(episode.id)
                episode.end("finished")
    assert len(ids) == 4


def test_unnamed_episodes_are_all_different(store: keepstep.Store, run: keepstep.Run) -> None:
    """An episode without a task gets a name of its own, and can be found by its id."""
    with run.episode() as one, run.episode() as two:
        assert one.id != two.id
        one.step(action=1)
        one.end("finished")
        two.end("finished")
    assert len(steps(store, one.id)) == 1


@pytest.mark.parametrize("why", ["finished", "truncated", "abandoned", "aborted", "errored", "cancelled"])
def test_an_end_is_recorded_as_it_was_said(store: keepstep.Store, run: keepstep.Run, why: Any) -> None:
    """Each reason that somebody may give, with who said it."""
    with run.episode("t") as episode:
        receipt = episode.end(why, limit="turns" if why == "truncated" else None)
        assert receipt.wait().step is None
        assert episode.ended == why
    end = outside.ending(store.where, "shop/t")
    assert (end["why"], end["said_by"]) == (why, "loop")
    assert end.get("limit") == ("turns" if why == "truncated" else None)


def test_the_error_of_an_end_is_kept(store: keepstep.Store, run: keepstep.Run) -> None:
    """An exception with its type, message and traceback; a text as it is."""
    with run.episode("a") as episode:
        try:
            raise ValueError("the page is gone")
        except ValueError as raised:
            episode.end("errored", error=raised)
    error = outside.ending(store.where, "shop/a")["error"]
    assert (error["type"], error["message"]) == ("ValueError", "the page is gone")
    assert "test_the_error_of_an_end_is_kept" in error["traceback"]
    with run.episode("b") as episode:
        episode.end("errored", error="no browser")
    assert outside.ending(store.where, "shop/b")["error"] == "no browser"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (ValueError("x"), "errored"),
        (Unprintable(), "errored"),
        (KeyboardInterrupt(), "aborted"),
        (SystemExit(3), "aborted"),
        (GeneratorExit(), "aborted"),
    ],
)
@pytest.mark.parametrize("how", ["with", "async with"])
def test_leaving_by_an_exception_is_the_ending_that_it_means(
    store: keepstep.Store, run: keepstep.Run, raised: BaseException, why: str, how: str
) -> None:
    """The caller gets the exception, the record says what really applied."""

    def leave() -> None:
        with run.episode("t") as episode:
            episode.step(action=1)
            raise raised

    async def aleave() -> None:
        async with run.episode("t") as episode:
            await episode.submit(action=1)
            raise raised

    with pytest.raises(type(raised)) as caught:
        leave() if how == "with" else drive(aleave)
    assert caught.value is raised
    end = outside.ending(store.where, "shop/t")
    assert (end["why"], end["said_by"]) == (why, "exception")
    assert end["error"]["type"].endswith(type(raised).__name__)


def drive(main: Callable[[], Any]) -> None:
    """Runs a coroutine without a task's own ideas about KeyboardInterrupt and SystemExit."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        gc.collect()
        loop.close()


def test_a_cancelled_task_leaves_a_cancelled_episode(store: keepstep.Store, run: keepstep.Run) -> None:
    """The recording task itself was cancelled: that is no error of the environment's."""

    async def record(entered: asyncio.Event) -> None:
        async with run.episode("t") as episode:
            await episode.submit(action=1)
            entered.set()
            await asyncio.sleep(60)

    async def main() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(record(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert outside.ending(store.where, "shop/t")["why"] == "cancelled"


def test_cancelled_while_it_is_opened_is_cancelled(store: keepstep.Store, run: keepstep.Run) -> None:
    """The thread that opens cannot be stopped. What it opened was recorded as aborted: nobody had it, so nobody said why."""

    async def record(sample: int) -> None:
        async with run.episode("t", sample=sample) as episode:
            await asyncio.sleep(60)
            episode.end("finished")

    async def main() -> None:
        tasks = [asyncio.create_task(record(sample)) for sample in range(64)]
        await asyncio.sleep(0)
        for at, task in enumerate(tasks):
            if at % 8 == 0:
                await asyncio.sleep(0.001)
            if at % 2:
                task.cancel()
        # The others are cancelled by asyncio.run, with whatever they are doing.

    asyncio.run(main())
    # All threads at one point: none of them opens any more.
    together = threading.Barrier(_loops._THREADS_MAX)
    list(_loops._threads().map(lambda _: together.wait(), range(_loops._THREADS_MAX)))
    assert {row["why"] for row in outside.listed(store.where, "shop")} == {"cancelled"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell whose task was cancelled")
def test_an_environment_that_cancels_its_own_task_errored(store: keepstep.Store, run: keepstep.Run) -> None:
    """CancelledError out of an inner task, while nobody cancelled ours: the environment failed."""

    async def environment() -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    async def main() -> None:
        async with run.episode("t") as episode:
            await episode.submit(action=1)
            await environment()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert outside.ending(store.where, "shop/t")["why"] == "errored"


def test_a_timeout_inside_is_an_error_not_a_cancellation(store: keepstep.Store, run: keepstep.Run) -> None:
    """`asyncio.wait_for` around a slow tool raises TimeoutError in our task: nobody cancelled us."""

    async def main() -> None:
        async with run.episode("t"):
            await asyncio.wait_for(asyncio.sleep(60), 0.01)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
    assert outside.ending(store.where, "shop/t")["why"] == "errored"


@pytest.mark.parametrize("how", ["with", "async with"])
def test_leaving_without_end_warns_and_aborts(store: keepstep.Store, run: keepstep.Run, how: str) -> None:
    """The warning points to the caller's line, and the record says who did not say a word."""

    async def aleave() -> None:
        async with run.episode("t"):
            pass

    with pytest.warns(RuntimeWarning, match="left without end") as caught:
        if how == "with":
            with run.episode("t"):
                pass
        else:
            asyncio.run(aleave())
    assert {Path(str(warning.filename)).name for warning in caught} == {Path(__file__).name}
    end = outside.ending(store.where, "shop/t")
    assert (end["why"], end["said_by"]) == ("aborted", "left without end()")


def test_an_episode_that_is_forgotten_is_aborted(store: keepstep.Store, run: keepstep.Run) -> None:
    """Used without `with` and dropped: nobody waits for the end of the process to say so."""
    episode = run.episode("t")
    episode.step(action=1)
    del episode
    gc.collect()
    assert outside.ending(store.where, "shop/t")["why"] == "aborted"


def test_nothing_is_recorded_after_the_end(store: keepstep.Store, run: keepstep.Run) -> None:
    """Set once: all that comes later is refused, and changes nothing."""
    with run.episode("t") as episode:
        episode.end("finished")
        for late in (
            lambda: episode.step(action=1),
            lambda: episode.submit(action=1),
            lambda: episode.first("x"),
            lambda: episode.turn(action=1).__enter__(),
            lambda: episode.end("errored"),
        ):
            with pytest.raises(keepstep.Ended):
                late()
    assert outside.ending(store.where, "shop/t")["why"] == "finished"


def test_with_and_async_with_may_be_mixed(store: keepstep.Store, run: keepstep.Run) -> None:
    """One class: an episode of sync code with turns of async code, and the reverse."""

    async def main() -> None:
        async with run.episode("t") as episode:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with episode.turn(action=1) as turn:
                    turn.result(observation="a")
            async with episode.turn(action=2) as turn:
                turn.result(observation="b")
            await episode.end("finished")

    asyncio.run(main())
    assert [step["observation"] for step in steps(store, "shop/t")] == ["a", "b"]


def test_512_episodes_in_one_loop(store: keepstep.Store, run: keepstep.Run) -> None:
    """Every task gets its own receipts, and every step is there."""

    async def record(sample: int) -> None:
        async with run.episode("t", sample=sample) as episode:
            for number in range(3):
                receipt = await episode.submit(action=[sample, number])
                assert (receipt.level, receipt.step) == ("power", number)
            await episode.end("finished")

    async def main() -> None:
        await asyncio.gather(*(record(sample) for sample in range(512)))

    asyncio.run(main())
    found = outside.listed(store.where, "shop")
    assert len(found) == 512
    assert {(episode["why"], episode["steps"]) for episode in found} == {("finished", 3)}


def test_reprs_are_worth_reading(store: keepstep.Store, run: keepstep.Run) -> None:
    """What it is, which one, and how far it is."""
    assert repr(store) == f"<Store {store.where}>"
    assert repr(run) == f"<Run 'shop' in {store.where}>"
    episode = run.episode("t")
    assert repr(episode) == "<Episode shop/t#0.0: not opened yet>"
    with episode:
        turn = episode.turn(action=1)
        assert repr(turn) == "<Turn ? of shop/t#0.0~0: not entered yet>"
        with turn:
            assert repr(turn) == "<Turn 0 of shop/t#0.0~0: pending>"
            turn.result(observation=1)
        assert repr(turn) == "<Turn 0 of shop/t#0.0~0: has its result>"
        receipt = episode.submit(action=2)
        receipt.wait()
        assert repr(receipt) == "<Receipt shop/t#0.0~0@1: survives power>"
        assert repr(episode) == "<Episode shop/t#0.0~0: 2 steps, running>"
        episode.end("finished")
    assert repr(episode) == "<Episode shop/t#0.0~0: 2 steps, finished>"
    assert repr(keepstep.open(None)) == "<Store: null>"
    assert repr(run.group("t", size=2)) == "<Group shop/t#0 of 2>"
    assert repr(run.stream("tokens")) == "<Stream 'tokens'>"
