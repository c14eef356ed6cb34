"""A journal for `/run`: what was killed goes on, as far as its environment can; and NeMo Gym's rollout files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import keepstep
import pytest

pytest.importorskip("pydantic")

from keepstep.adapters.nemo_gym import (
    JournaledRollout,
    KeepstepTokenSink,
    KeepstepTokenSource,
    RolloutName,
    RunJournal,
    Written,
    read_rollouts,
    write_rollouts,
)
from nemo_gym_agent import POINTS, TURNS, Agent, Counter, Killed, Stateless, body
from test_nemo_gym_capture import entry

CLASSES = ["export/restore", "restart-only", "stateless"]


def killed_at(point: str) -> Any:
    def stop(here: str) -> None:
        if here == point:
            raise Killed(point)

    return stop


def fresh(environment: str) -> Counter:
    return Stateless() if environment == "stateless" else Counter()


def steps(store: keepstep.Store, run: str) -> list[Any]:
    """A finished record, without its times."""
    fields = (
        "index",
        "kind",
        "observation",
        "action",
        "prompt",
        "response",
        "reward",
        "info",
        "state",
        "error",
    )
    return [[getattr(step, field) for field in fields] for step in store.find(f"{run}/7").steps]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with keepstep.open(tmp_path_factory.mktemp("journal")) as store:
        yield store


@pytest.fixture(scope="module")
def whole(store: keepstep.Store) -> dict[str, Any]:
    """By class of environment, what a run that nobody kills answers, and its record."""
    found = {}
    for number, environment in enumerate(CLASSES):
        journal = RunJournal(store, run=f"whole {number}", environment=environment)  # type: ignore[arg-type]
        answer = asyncio.run(Agent(journal, fresh(environment)).run(body()))
        found[environment] = answer, steps(store, journal.run.name)
    return found


@pytest.mark.parametrize(
    ("environment", "point"),
    [
        (environment, point)
        for environment in CLASSES
        for point in POINTS
        # Every point where a state is restored; elsewhere the first, one between, and the last.
        if environment == "export/restore" or point[-1] not in "134"
    ],
)
def test_killed_anywhere_it_goes_on_as_if_nobody_had_killed_it(
    store: keepstep.Store, whole: dict[str, Any], environment: Any, point: str
) -> None:
    """The next operation is the one that an uninterrupted run would have made, and the finished record is the same."""
    journal = RunJournal(store, run=f"{CLASSES.index(environment)} {point}", environment=environment)
    with pytest.raises(Killed):
        asyncio.run(Agent(journal, fresh(environment), killed_at(point)).run(body()))
    again = Agent(journal, env := fresh(environment))
    answer = asyncio.run(again.run(body()))
    assert (answer, steps(store, journal.run.name)) == whole[environment]
    assert store.find(f"{journal.run.name}/7").state == "finished"

    what, _, turn = point.partition(" ")
    if what == "answering":
        assert not again.asked and not env.calls, "it was finished: nothing is done again"
        return
    assert again.names == ["7-0-a1"]
    # An answer that was durable is not asked for again; a call whose result was not durable is made again.
    done = 0 if environment == "restart-only" else int(turn or TURNS + 1)
    answered = done + (environment != "restart-only" and what in ("acting", "acted"))
    assert [len(items) for items in again.asked] == [1 + 2 * asked for asked in range(answered, TURNS + 1)]
    assert env.calls == max(TURNS - done, 0)


def test_a_restored_environment_is_the_one_of_the_last_turn(store: keepstep.Store) -> None:
    journal = RunJournal(store, run="restored", environment="export/restore")
    with pytest.raises(Killed):
        asyncio.run(Agent(journal, first := Counter(), killed_at("acting 3")).run(body()))
    asyncio.run(Agent(journal, second := Counter()).run(body()))
    assert second.restored == [{"value": first.value}] and first.calls == 3
    assert second.calls == TURNS - 3, "no call is made twice"


def test_what_cannot_be_restored_activates_nothing(store: keepstep.Store) -> None:
    """A turn without a state, or a state that the environment refuses: the loop is not entered, and the record says why."""
    with pytest.raises(Killed):
        stateless = RunJournal(store, run="refused", environment="stateless")
        asyncio.run(Agent(stateless, Counter(), killed_at("asking 2")).run(body()))
    journal = RunJournal(store, run="refused", environment="export/restore")
    agent = Agent(journal, Counter())
    with pytest.raises(keepstep.NotFound, match="kept no state"):
        asyncio.run(agent.run(body()))
    assert not agent.asked and not agent.env.calls
    assert store.find("refused/7").state == "errored"


def test_a_restore_that_fails_can_be_tried_again(store: keepstep.Store) -> None:
    journal = RunJournal(store, run="tried again", environment="export/restore")
    with pytest.raises(Killed):
        asyncio.run(Agent(journal, Counter(), killed_at("asking 2")).run(body()))

    class Broken(Counter):
        async def restore(self, state: Any) -> None:
            raise ConnectionError("the environment is not up")

    agent = Agent(journal, Broken())
    with pytest.raises(ConnectionError):
        asyncio.run(agent.run(body()))
    assert not agent.asked and not agent.env.calls
    asyncio.run(Agent(journal, env := Counter()).run(body()))
    assert env.calls == TURNS - 2


def test_damaged_state_activates_nothing(tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as store:
        journal = RunJournal(store, run="damaged", environment="export/restore")
        with pytest.raises(Killed):
            asyncio.run(Agent(journal, Counter(), killed_at("asking 3")).run(body()))
    for segment in tmp_path.rglob("*.seg"):
        data = bytearray(segment.read_bytes())
        at = len(data) // 2
        data[at : at + 200] = bytes(200)
        segment.write_bytes(data)
    with keepstep.open(tmp_path) as store:
        agent = Agent(RunJournal(store, run="damaged", environment="export/restore"), Counter())
        with pytest.raises(keepstep.KeepstepError):
            asyncio.run(agent.run(body()))
        assert not agent.asked and not agent.env.restored


@pytest.mark.parametrize("does", ["turn", "finish"])
def test_an_attempt_that_was_taken_over_can_neither_go_on_nor_end_the_rollout(
    tmp_path: Path, does: str
) -> None:
    async def scene() -> None:
        with keepstep.open(tmp_path) as one, keepstep.open(tmp_path) as two:
            zombie = Agent(RunJournal(one, environment="stateless"), Stateless())
            taker = Agent(RunJournal(two, environment="stateless"), Stateless())
            with pytest.raises(keepstep.Fenced):
                async with zombie.journal.rollout(body()) as rollout:
                    async with rollout.turn(zombie.ask) as turn:
                        await turn.result(
                            [{"type": "function_call_output", "call_id": "call-0", "output": "x"}]
                        )
                    async with taker.journal.rollout(body(), busy="take") as later:
                        assert (rollout.name, later.name, later.turns) == ("7-0", "7-0-a1", 1)
                        await taker.loop(later)
                        await later.finish({"reward": 1.0})
                    if does == "finish":
                        await rollout.finish({"reward": 0.0})
                    async with rollout.turn(zombie.ask) as turn:
                        await turn.result()
            view = two.find("rollouts/7")
            assert (view.attempt, view.state, view.reward) == (1, "finished", 1.0)
            assert len(view.steps) == 1 + TURNS + 1 + 1

    asyncio.run(scene())


def test_a_request_of_an_older_dispatch_is_refused(store: keepstep.Store) -> None:
    journal = RunJournal(store, run="dispatches", environment="stateless")
    newer = Agent(journal, Counter(), killed_at("asking 2"))
    with pytest.raises(Killed):
        asyncio.run(newer.run(body(_ng_attempt_index=2)))
    assert newer.names == ["7-0-a2"]
    stale = Agent(journal, Counter())
    for older in ({}, {"_ng_attempt_index": 1}):
        with pytest.raises(keepstep.Fenced, match="dispatch 2 has begun"):
            asyncio.run(stale.run(body(**older)))
    assert not stale.asked
    asyncio.run(Agent(journal, Counter()).run(body(_ng_attempt_index=2)))


def test_finishing_twice_is_harmless_and_a_finished_rollout_answers_again(store: keepstep.Store) -> None:
    async def scene() -> None:
        journal = RunJournal(store, run="twice")
        async with journal.rollout(body()) as rollout:
            first = await rollout.finish({"reward": 1.0, "response": {}})
            assert await rollout.finish({"reward": 1.0, "response": {}}) == first
            with pytest.raises(keepstep.Ended):
                await rollout.finish({"reward": 0.5, "response": {}})
        for _ in range(2):
            async with journal.rollout(body()) as rollout:
                assert rollout.result == first
                assert await rollout.finish({"reward": 1.0, "response": {}}) == first

    asyncio.run(scene())


def test_a_verified_rollout_is_not_verified_again(
    store: keepstep.Store, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may die between the result and the end of the record, also where it would begin again."""

    async def dies(self: JournaledRollout, limit: str | None) -> None:
        raise Killed("ending")

    for environment in CLASSES:
        journal = RunJournal(store, run=f"verified {CLASSES.index(environment)}", environment=environment)  # type: ignore[arg-type]
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(JournaledRollout, "_end", dies)
            asyncio.run(Agent(journal, fresh(environment)).run(body()))
        again = Agent(journal, fresh(environment))
        assert asyncio.run(again.run(body())) == whole[environment][0]
        assert not again.asked
        assert store.find(f"{journal.run.name}/7").state == "finished"


def test_a_limit_is_said_truthfully(store: keepstep.Store) -> None:
    async def scene() -> None:
        async with RunJournal(store, run="limits").rollout(body()) as rollout:
            await rollout.finish({"reward": 0.0}, limit="turns")

    asyncio.run(scene())
    ending = store.find("limits/7").ending
    assert ending is not None and (ending.why, ending.limit) == ("truncated", "turns")


def test_an_error_of_the_handler_reaches_the_caller_and_the_record(
    store: keepstep.Store, whole: dict[str, Any]
) -> None:
    journal = RunJournal(store, run="errors", environment="stateless")

    def stop(here: str) -> None:
        if here == "acting 2":
            raise ConnectionError("the tool server is gone")

    with pytest.raises(ConnectionError, match="the tool server is gone"):
        asyncio.run(Agent(journal, Stateless(), stop).run(body()))
    view = store.find("errors/7")
    assert view.state == "errored" and "the tool server is gone" in (view.steps[-1].error or "")
    again = Agent(journal, Stateless())
    assert asyncio.run(again.run(body())) == whole["stateless"][0]
    assert len(again.asked) == TURNS - 1, "the turn that failed is asked again"


def test_later_attempts_capture_under_their_own_name_and_inherit(store: keepstep.Store) -> None:
    async def scene() -> None:
        sink, source = KeepstepTokenSink(store), KeepstepTokenSource(store)
        journal = RunJournal(store, run="captured", environment="stateless", captures=sink)

        class Captured(Agent):
            async def ask(self, items: list[Any]) -> dict[str, Any]:
                answer = await super().ask(items)
                await sink.put(
                    entry(f"{self.names[-1]}-{answer['id']}", rollout=name, response_id=answer["id"])
                )
                return answer

        name = "7-0"
        with pytest.raises(Killed):
            await Captured(journal, env := Counter(), killed_at("acting 2")).run(body())
        name = "7-0-a1"
        result = await Captured(journal, env).run(body())
        assert RolloutName.of(result) == RolloutName("7-0", "7", 0, dispatch=1)
        found = await source.freeze("7-0-a1")
        inherited = {f"7-0-resp-{turn}" for turn in range(3)}
        own = {f"7-0-a1-resp-{turn}" for turn in range(3, TURNS + 1)}
        assert {call.model_call_id for call in found.entries} == inherited | own
        with pytest.raises(keepstep.Fenced):
            await sink.put(entry("late", rollout="7-0"))

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("given", "named", "attempts"),
    [
        ({"_ng_task_index": 3, "_ng_rollout_index": 2}, ("3-2", "3", 2, 0), ("3-2", "3-2-a1")),
        ({"_ng_rollout_id": "x.y", "_ng_task_index": 3}, ("x.y", "x.y", 0, 0), ("x.y", "x.y-a1")),
        ({"_ng_rollout_id": "x", "_ng_attempt_index": 4}, ("x", "x", 0, 4), ("x-a4", "x-a4")),
        ({"episode_id": {"rollout_id": "e", "attempt": 1}}, ("e", "e", 0, 1), ("e-a1", "e-a1")),
    ],
)
def test_rollouts_are_named_as_nemo_gym_names_them(given: Any, named: Any, attempts: Any) -> None:
    found = RolloutName.of(given)
    assert found == RolloutName(*named)
    assert found is not None and (found.attempt(0), found.attempt(1)) == attempts


def test_a_name_that_nemo_gym_refuses_is_refused() -> None:
    assert RolloutName.of({"_ng_task_index": 3}) is None
    for bad in ("", ".x", "a/b", "a b", 7):
        with pytest.raises(keepstep.BadInput, match="_ng_rollout_id"):
            RolloutName.of({"_ng_rollout_id": bad})


def test_a_rollout_without_a_name_is_recorded_and_not_resumed(store: keepstep.Store) -> None:
    async def scene() -> None:
        for _ in range(2):
            async with RunJournal(store, run="nameless").rollout(
                {"responses_create_params": {"input": "hi"}}
            ) as rollout:
                assert rollout.items == [{"role": "user", "content": "hi"}] and rollout.attempt == 0
                await rollout.finish({"reward": 1.0})

    asyncio.run(scene())
    assert len(list(store.run("nameless").episodes())) == 2


def row(task: int, rollout: int, **more: Any) -> dict[str, Any]:
    call = {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"}
    seen = {"type": "function_call_output", "call_id": "c", "output": "a shelf"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "größer"}]}
    output = [
        {"type": "reasoning", "summary": []},
        call,
        seen,
        said,
        {"role": "user", "content": "more"},
        said,
    ]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "go"}], "tools": []},
        "response": {"id": "r", "output": output, "usage": None},
        "reward": 0.5,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "a"},
        **more,
    }


def test_rollout_files_are_read_turn_by_turn_and_written_as_they_were(
    store: keepstep.Store, tmp_path: Path
) -> None:
    rows = [row(task, sample, verified={"by": "x", "n": None}) for task in (1, 2, 10) for sample in (0, 1)]
    given, written = tmp_path / "given.jsonl", tmp_path / "written.jsonl"
    given.write_text("\n".join(json.dumps(line) for line in reversed(rows)) + "\n\n")
    run = store.run("from a file")
    assert read_rollouts(given, run) == len(rows)
    assert read_rollouts(given, run) == 0, "those that are there are left alone"
    assert write_rollouts(run, written) == Written(rows=len(rows), left_out={})
    assert [json.loads(line) for line in written.read_text().splitlines()] == rows
    view = store.find("from a file/10#0.1")
    assert view.reward == 0.5
    assert [len(step.prompt or []) for step in view.steps] == [0, 1, 4, 6, 0]
    assert [len(step.observation or []) for step in view.steps] == [1, 1, 1, 0, 0]


def test_a_row_that_says_otherwise_is_refused(store: keepstep.Store, tmp_path: Path) -> None:
    run = store.run("conflicts")
    for line, reward in enumerate((0.5, 0.75)):
        (tmp_path / f"{line}.jsonl").write_text(json.dumps(row(1, 0, reward=reward)) + "\n")
    read_rollouts(tmp_path / "0.jsonl", run)
    with pytest.raises(keepstep.BadInput, match=r"line 1: rollout 1-0 .* another result"):
        read_rollouts(tmp_path / "1.jsonl", run)


def test_what_is_left_out_of_a_file_is_counted(store: keepstep.Store, tmp_path: Path) -> None:
    journal = RunJournal(store, run="left out", environment="stateless")
    with pytest.raises(Killed):
        asyncio.run(Agent(journal, Counter(), killed_at("asking 1")).run(body(1)))

    async def finish(task: int, reward: float, limit: str | None = None) -> None:
        async with journal.rollout(body(task)) as rollout:
            await rollout.finish({**body(task), "reward": reward}, limit=limit)

    asyncio.run(finish(2, 1.0))
    asyncio.run(finish(3, 0.0, "turns"))
    asyncio.run(finish(4, float("nan")))
    path = tmp_path / "out.jsonl"
    written = write_rollouts(journal.run, path)
    assert written == Written(rows=2, left_out={"aborted": 1, "a number that JSON does not have": 1})
    assert write_rollouts(journal.run, path, ends=["finished"]).rows == 1
    assert len(path.read_text().splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]
