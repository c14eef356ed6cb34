"""Wrong input: told by its name, its value and the fix, as `BadInput` or `NotFound`, before anything is written."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest
import store_files
from keepstep.errors import BadInput, KeepstepError, NotFound

HALF = "a\ud800b"
HUGE = 2**70


@pytest.fixture
def run(tmp_path: Path) -> Any:
    store = keepstep.open(tmp_path / "store")
    run = store.run("run")
    with run.episode("a") as episode:
        episode.step(action=1, reward=1.0)
        episode.end("finished")
    yield run
    store.close()


def entered(episode: keepstep.Episode, do: Callable[[keepstep.Episode], Any]) -> None:
    with episode:
        try:
            do(episode)
        finally:
            if episode.ended is None:
                episode.end("finished")


def in_turn(do: Callable[[keepstep.Turn], Any]) -> Callable[[keepstep.Episode], Any]:
    def play(episode: keepstep.Episode) -> None:
        with episode.turn(action=1) as turn:
            try:
                do(turn)
            finally:
                turn.result(observation=1)

    return play


# By the name of what is wrong: what is asked of a run, or of an episode of it.
OF_RUN: dict[str, tuple[str, Callable[[keepstep.Run], Any]]] = {
    "run": ("name", lambda run: run.store.run(HALF)),
    "links, key": ("links", lambda run: run.store.run("r2", links={HALF: "x"})),
    "links": ("links", lambda run: run.store.run("r2", links={"x": HALF})),
    "generation": ("generation", lambda run: run.store.run("run", generation=HUGE)),
    "find": ("ref", lambda run: run.store.find(HALF)),
    "task": ("task", lambda run: run.episode(HALF)),
    "sample": ("sample", lambda run: run.episode("t", sample=2**63)),
    "iteration": ("iteration", lambda run: run.episode("t", iteration=HUGE)),
    "parent": ("parent", lambda run: run.episode("t", parent=HALF).__enter__()),
    "parent, nothing": ("parent", lambda run: run.episode("t", parent="run/nobody#0.0").__enter__()),
    "parent, part": ("parent", lambda run: run.episode("t", parent="run/nobody").__enter__()),
    "parent, no run": ("parent", lambda run: run.episode("t", parent="other/a#0.0").__enter__()),
    "parent, no attempt": ("parent", lambda run: run.episode("t", parent="run/a#0.0~9").__enter__()),
    "parent, id": ("parent", lambda run: run.episode("t", parent="ab" * 16).__enter__()),
    "parent, group": ("parent", lambda run: run.group("t", size=1).claim(parent="run/nobody#0.0")),
    "policy": ("policy", lambda run: run.episode("t", policy=HUGE).__enter__()),
    "policy, text": ("policy", lambda run: run.episode("t", policy=HALF).__enter__()),
    "at": ("at", lambda run: run.episode("t", at=HUGE).__enter__()),
    "resume": ("resume", lambda run: run.episode("t", resume=HALF).__enter__()),  # type: ignore[arg-type]
    "busy": ("busy", lambda run: run.episode("t", busy=HALF).__enter__()),  # type: ignore[arg-type]
    "option": ("", lambda run: run.episode("t", **{HALF: 1}).__enter__()),  # type: ignore[arg-type]
    "group": ("task", lambda run: run.group(HALF, size=1)),
    "group, size": ("size", lambda run: run.group("t", size=HUGE)),
    "group, size of a billion": ("size", lambda run: run.group("t", size=10**9)),
    "plan": ("tasks", lambda run: run.plan([HALF])),
    "plan, empty": ("tasks", lambda run: run.plan([""])),
    "plan, samples": ("samples", lambda run: run.plan(["t"], samples=2**40)),
    "plan, iteration": ("iteration", lambda run: run.plan(["t"], iteration=HUGE)),
    "plan, needs": ("needs", lambda run: run.plan(["t"], needs=[HALF])),
    "plan, needs, empty": ("needs", lambda run: run.plan(["t"], needs=[""])),
    "remaining": ("max_attempts", lambda run: run.remaining(max_attempts=0)),
    "remaining, many": ("max_attempts", lambda run: run.remaining(max_attempts=2**40)),
    "remaining, retry": ("retry", lambda run: run.remaining(retry=[HALF])),  # type: ignore[list-item]
    "claim": ("max_attempts", lambda run: run.claim(max_attempts=0)),
    "progress": ("max_attempts", lambda run: run.progress(max_attempts=0)),
    "annotate": ("ref", lambda run: run.annotate(HALF, "n", 1, source="s")),
    "annotate, name": ("name", lambda run: run.annotate("run/a#0.0", HALF, 1, source="s")),
    "annotate, no name": ("name", lambda run: run.annotate("run/a#0.0", "", 1, source="s")),
    "annotate, source": ("source", lambda run: run.annotate("run/a#0.0", "n", 1, source=HALF)),
    "annotate, no source": ("source", lambda run: run.annotate("run/a#0.0", "n", 1, source="")),
    "annotate, step": ("step", lambda run: run.annotate("run/a#0.0", "n", 1, source="s", step=HUGE)),
    "annotate, huge step": ("ref", lambda run: run.annotate(f"run/a#0.0@{HUGE}", "n", 1, source="s")),
    "find, huge sample": ("ref", lambda run: run.store.find(f"run/a#0.{HUGE}")),
    "find, huge attempt": ("ref", lambda run: run.store.find(f"run/a#0.0~{2**40}")),
    "find, huge generation": ("ref", lambda run: run.store.find(f"run#{HUGE}/a")),
    "episodes": ("task", lambda run: list(run.episodes(task=HALF))),
    "episodes, iteration": ("iteration", lambda run: list(run.episodes(iteration=HUGE))),
    "episodes, policy": ("policy", lambda run: list(run.episodes(policy=HUGE))),
    "episodes, policy, text": ("policy", lambda run: list(run.episodes(policy=HALF))),
    "episodes, after": ("after", lambda run: list(run.episodes(after=HALF))),
    "episodes, since": ("since", lambda run: list(run.episodes(since=10**400))),
    "episodes, since, text": ("since", lambda run: list(run.episodes(since="x"))),  # type: ignore[arg-type]
    "episodes, reward": ("reward", lambda run: list(run.episodes(reward=(0, 10**400)))),
    "groups, after": ("after", lambda run: list(run.groups(after=HALF))),
    "groups, policy": ("min_policy", lambda run: list(run.groups(min_policy=HUGE))),
    "stream": ("name", lambda run: run.stream(HALF)),
    "stream, id": ("id", lambda run: run.stream("s").put(HALF, 1)),
    "stream, no id": ("id", lambda run: run.stream("s").put("", 1)),
    "table": ("of", lambda run: run.table(HALF)),  # type: ignore[arg-type]
    "table, columns": ("columns", lambda run: run.table("steps", [HALF])),
    "seal": ("source", lambda run: run.group("a", size=1).seal(source=HALF)),
    "seal, no source": ("source", lambda run: run.group("a", size=1).seal(source="")),
    "seal, rewards": (
        "rewards",
        lambda run: run.group("a", size=1).seal({"run/a#0.0": 10**17 + 1}, source="s"),
    ),
    "seal, ref": ("rewards", lambda run: run.group("a", size=1).seal({HALF: 1.0}, source="s")),
    "seal, least": ("least", lambda run: run.group("a", size=1).seal(source="s", least=HUGE)),
    "config": ("config", lambda run: run.store.run("r2", config={"a": object()})),
    "config, deep": ("config", lambda run: run.store.run("r2", config={"a": [{"b": object()}]})),
}
OF_EPISODE: dict[str, tuple[str, Callable[[keepstep.Episode], Any]]] = {
    "state": ("name", lambda episode: episode.state(HALF)),
    "field": ("", lambda episode: episode.step(**{HALF: 1})),  # type: ignore[arg-type]
    "agent": ("agent", lambda episode: episode.step(action=1, agent=HALF)),
    "policy": ("policy", lambda episode: episode.step(action=1, policy=HUGE)),
    "reward": ("reward", lambda episode: episode.step(action=1, reward=10**17 + 1)),
    "reward, huge": ("reward", lambda episode: episode.step(action=1, reward=10**400)),
    "discount": ("discount", lambda episode: episode.step(action=1, discount=2**53 + 1)),
    "terms": ("reward_terms", lambda episode: episode.step(action=1, reward_terms={"a": 2**53 + 1})),
    "terms, key": ("reward_terms", lambda episode: episode.step(action=1, reward_terms={HALF: 1.0})),
    "state, key": ("state", lambda episode: episode.step(action=1, state={HALF: 1})),
    "submit": ("reward", lambda episode: episode.submit(action=1, reward=10**17 + 1)),
    "turn": ("agent", lambda episode: episode.turn(agent=HALF).__enter__()),
    "result": ("reward", in_turn(lambda turn: turn.result(reward=10**17 + 1))),
    "discard": ("reason", in_turn(lambda turn: turn.discard(HALF))),
    "call": ("name", lambda episode: episode.call(HALF, lambda: 1)),
    "call, key": ("key", lambda episode: episode.call("c", lambda: 1, key=HALF)),
    "note": ("name", lambda episode: episode.note(HALF, 1, source="s")),
    "note, source": ("source", lambda episode: episode.note("n", 1, source=HALF)),
    "note, no source": ("source", lambda episode: episode.note("n", 1, source="")),
    "note, step": ("step", lambda episode: episode.note("n", 1, source="s", step=HUGE)),
    "end": ("why", lambda episode: episode.end(HALF)),  # type: ignore[arg-type]
    "end, limit": ("limit", lambda episode: episode.end("truncated", limit=HALF)),
    "end, said_by": ("said_by", lambda episode: episode.end("finished", said_by=HALF)),
    "tokens": ("tokens.logprobs", lambda it: it.step(tokens=keepstep.Tokens(ids=[1, 2], logprobs=[-1.0]))),
    "tokens, mask": ("tokens.mask", lambda it: it.step(tokens=keepstep.Tokens([1], [2, 3], mask=[1] * 4))),
    "tokens, text": ("tokens.ids", lambda it: it.step(tokens=keepstep.Tokens(ids="abc"))),
    "tokens, texts": ("tokens.ids[1]", lambda it: it.step(tokens=keepstep.Tokens(ids=[1, "b"]))),
    "tokens, number": ("tokens.prompt", lambda it: it.step(tokens=keepstep.Tokens(prompt=7))),
    "tokens, mapping": ("tokens.mask", lambda it: it.step(tokens=keepstep.Tokens(mask={"a": 1}))),
    "tokens, arrays": ("tokens.arrays", lambda it: it.step(tokens=keepstep.Tokens(arrays={HALF: [1]}))),
}


def told_by(do: Callable[[], Any], field: str) -> None:
    with pytest.raises((BadInput, NotFound)) as told:
        do()
    message = str(told.value)
    assert message.startswith(field) or f"{field}: " in message or f"{field}[" in message, message
    assert len(message) < 700
    message.encode()


@pytest.mark.parametrize("what", OF_RUN)
def test_what_is_asked_of_a_run(run: keepstep.Run, what: str) -> None:
    field, do = OF_RUN[what]
    before = store_files.published(run.store.where)
    told_by(lambda: do(run), field)
    assert not [it for it in store_files.published(run.store.where) if it not in before]


@pytest.mark.parametrize("what", OF_EPISODE)
def test_what_is_asked_of_an_episode(run: keepstep.Run, what: str) -> None:
    field, do = OF_EPISODE[what]
    told_by(lambda: entered(run.episode("b"), do), field)
    view = run.store.find("run/b")
    assert view.state == "finished" and not view.notes, "what was refused is not there"
    assert len(view.steps) == (what in ("result", "discard"))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("where", value) for value in (3, b"x", "a\0b", HALF)),
        *(("level", value) for value in (HALF, 3)),
        *(("lease_s", value) for value in (0, 0.0, 10**400, math.nan)),
        *(("stall_s", value) for value in (10**400, math.inf)),
        *(("redact", value) for value in ([HALF], 3, [3])),
        ("skip", [HALF]),
    ],
)
def test_what_opens_a_store(tmp_path: Path, argument: str, value: Any) -> None:
    where = value if argument == "where" else tmp_path / "store"
    told_by(lambda: keepstep.open(where, **({} if argument == "where" else {argument: value})), argument)
    assert not list(tmp_path.iterdir())


def test_what_is_right_is_taken(run: keepstep.Run) -> None:
    """Negative control: of each kind that is looked at, one that is fine."""
    tokens = keepstep.Tokens(prompt=(1, 2), ids=[3, 4], logprobs=[None, -0.5], mask=[1, 1, 1, 1])
    with run.episode("b", policy=2**63 - 1, iteration=2**63 - 1) as episode:
        episode.step(action=HALF, reward=2**53, discount=10**17, policy=-(2**63), tokens=tokens)
        episode.step(observation=HUGE, tokens=keepstep.Tokens(ids=[]), reward=True)
        episode.note("n", HALF, source="s")
        episode.end("finished")
    steps = list(run.store.find(episode.ref).steps)
    assert (steps[0].reward, steps[0].discount, steps[0].action) == (2.0**53, 1e17, HALF)
    assert steps[1].observation == HUGE


def test_a_run_whose_config_was_taken_is_opened_again(run: keepstep.Run) -> None:
    config = {"a": {1, 2}, "b": (1, 2), "c": Path("x"), "d": math.nan}
    run.store.run("r2", config=config)
    assert run.store.run("r2", config=config).generation == 0


def test_a_parent_may_be_running_or_of_another_run(run: keepstep.Run) -> None:
    other = run.store.run("other")
    with run.episode("b") as above:
        above.step(action=1)
        for number, parent in enumerate(
            ["run/b#0.0", "run/b", above.ref, "run/b#0.0~0@0", above.id, "run/a"]
        ):
            with other.episode("sub", sample=number, parent=parent) as episode:
                episode.end("finished")
            assert run.store.find(episode.ref).parent == parent
        above.end("finished")


def test_async_ways_in_say_the_same(run: keepstep.Run) -> None:
    async def main() -> None:
        with pytest.raises(BadInput, match="policy"):
            async with run.episode("b", policy=HUGE):
                pass
        with pytest.raises(BadInput, match="rewards"):
            await run.group("a", size=1).seal({"run/a#0.0": "x"}, source="s")  # type: ignore[dict-item]

    asyncio.run(main())
    assert issubclass(BadInput, KeepstepError)
