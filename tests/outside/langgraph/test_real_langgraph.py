"""KeepstepSaver under LangGraph's own suite, and under real graphs that are killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import random
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import docs_pages
import graph_to_kill
import outside
import pytest
from keepstep.adapters.langgraph import KeepstepSaver
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES, EXTENDED_CAPABILITIES
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from signatures import differences

PROGRAM = Path(graph_to_kill.__file__)
BASE_TESTS = 58


def test_langgraphs_own_suite(tmp_path: Path, suite: Callable[[str, int, int], None]) -> None:
    """All base capabilities, and the extended ones."""
    made = iter(range(100))

    @checkpointer_test(name="KeepstepSaver")
    async def savers() -> AsyncIterator[KeepstepSaver]:
        async with KeepstepSaver(tmp_path / str(next(made))) as saver:
            yield saver

    report = asyncio.run(validate(savers))
    for name, capabilities in (("base", BASE_CAPABILITIES), ("extended", EXTENDED_CAPABILITIES)):
        results = [report.results[capability.value] for capability in capabilities]
        passed = sum(result.tests_passed for result in results)
        total = passed + sum(result.tests_failed + result.tests_skipped for result in results)
        suite(name, passed, total)
        assert passed == total, [failure for result in results for failure in result.failures]
        assert name != "base" or total == BASE_TESTS
    assert report.conformance_level() == "FULL"


def test_the_stand_ins_are_like_the_real_ones() -> None:
    names = (
        "BaseCheckpointSaver",
        "CheckpointTuple",
        "Checkpoint",
        "CheckpointMetadata",
        "DeltaChannelHistory",
    )
    functions = ("get_checkpoint_id", "get_checkpoint_metadata", "WRITES_IDX_MAP")
    assert differences("langgraph.checkpoint.base", *names, *functions) == []
    assert differences("langgraph.checkpoint.serde.base", "SerializerProtocol") == []
    assert differences("langgraph.checkpoint.serde.jsonplus", "JsonPlusSerializer") == []
    assert differences("langchain_core.runnables", "RunnableConfig") == []


# Killed.


class Processes:
    """Runs the graph in processes of its own."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self.server, self.folder, self.count = server, folder, 0

    def run(self, store: Path, moment: str, mode: str) -> tuple[int, list[list[str]]]:
        """How it ended, and what it said: lines of words."""
        self.count += 1
        output = self.folder / str(self.count)
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps([str(store), moment, mode, str(output)]) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        said = output.read_text()
        assert code in (0, outside.KILLED), said
        return code, [line.split() for line in said.splitlines()]

    def killed_at(self, store: Path, moment: str, mode: str) -> list[list[str]]:
        code, said = self.run(store, moment, mode)
        assert code == outside.KILLED, said
        return said

    def finished(self, store: Path, mode: str) -> list[list[str]]:
        code, said = self.run(store, "never", mode)
        assert (code, said[-1]) == (0, ["done"]), said
        return said


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with outside.start(PROGRAM, stderr=None) as server:
        yield Processes(server, tmp_path_factory.mktemp("said"))
        assert server.stdin is not None
        server.stdin.close()


def history(store: Path) -> list[Any]:
    """A finished thread, without what is an accident: ids and times."""
    with KeepstepSaver(store) as saver:
        graph = graph_to_kill.graph_of(saver, graph_to_kill.Killer("never"))
        states = list(graph.get_state_history(graph_to_kill.THREAD))
        tuples = list(saver.list({"configurable": {"thread_id": "killed", "checkpoint_ns": ""}}))
    assert [state.config["configurable"]["checkpoint_id"] for state in states] == [
        found.checkpoint["id"] for found in tuples
    ]
    parents = [
        found.parent_config and found.parent_config["configurable"]["checkpoint_id"] for found in tuples
    ]
    assert parents == [found.checkpoint["id"] for found in tuples[1:]] + [None]
    return [
        (
            state.values,
            state.next,
            found.metadata,
            found.checkpoint["channel_values"],
            versions(found.checkpoint),
        )
        for state, found in zip(states, tuples, strict=True)
    ]


def versions(checkpoint: Any) -> Any:
    """A resumed graph notes which versions it was resumed at; all else must be the same."""
    seen = {name: each for name, each in checkpoint["versions_seen"].items() if name != "__interrupt__"}
    return checkpoint["channel_versions"], seen


def assert_nothing_acknowledged_is_lost(store: Path, said: list[list[str]]) -> None:
    with KeepstepSaver(store) as saver:
        found = {
            each.checkpoint["id"]: each for each in saver.list({"configurable": {"thread_id": "killed"}})
        }
    for words in said:
        if words[0] == "kept":
            assert words[1] in found, words
        # What was written to a checkpoint that was never kept itself is not shown.
        if words[0] == "wrote" and words[1] in found:
            assert words[2] in {task for task, _, _ in found[words[1]].pending_writes or ()}, words


@pytest.fixture(scope="module")
def uninterrupted(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    store = tmp_path_factory.mktemp("uninterrupted") / "runs"
    processes.finished(store, "sync")
    found = history(store)
    assert len(found) == 2 * graph_to_kill.ROUNDS + 2
    return found


MOMENTS = [
    "put 1",
    "kept 1",
    "kept 2",
    "node 1",
    "writes 2",
    "wrote 3",
    "node 8",
    "put 7",
    "kept 7",
    "kept 14",
]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_graph_goes_on(
    tmp_path: Path, processes: Processes, uninterrupted: list[Any], moment: str, mode: str
) -> None:
    """Killed, looked at, run again: the finished history is that of a graph that nobody disturbed."""
    store = tmp_path / "runs"
    said = processes.killed_at(store, moment, mode)
    assert_nothing_acknowledged_is_lost(store, said)
    said += processes.finished(store, mode)
    assert_nothing_acknowledged_is_lost(store, said)
    assert history(store) == uninterrupted


def test_a_graph_that_is_killed_again_and_again_ends_the_same(
    tmp_path: Path, processes: Processes, uninterrupted: list[Any]
) -> None:
    """At times that nobody chose, until one process was fast enough to end."""
    store, said, kills = tmp_path / "runs", [], 0
    rng = random.Random(seed := random.randrange(1 << 32))
    print(f"seed {seed}")
    code = outside.KILLED
    while code == outside.KILLED:
        mode = rng.choice(["sync", "async"])
        code, more = processes.run(store, f"after {rng.randrange(5, 30 + 5 * kills)}", mode)
        kills += code == outside.KILLED
        said += more
        assert_nothing_acknowledged_is_lost(store, said)
    assert kills > 0
    assert history(store) == uninterrupted


def test_a_task_whose_writes_were_acknowledged_is_not_run_again(tmp_path: Path, processes: Processes) -> None:
    """Two tasks side by side; killed in one when the other is done: only the one runs again."""
    store = tmp_path / "runs"
    said = processes.killed_at(store, "alone", "sync")
    assert ["ran", "look", "0"] in said and ["ran", "think", "0"] in said
    again = [words[1] for words in processes.finished(store, "sync") if words[0] == "ran" and words[2] == "0"]
    assert again == ["think", "close"]


# Real graphs.


class State(TypedDict):
    messages: Annotated[list[Any], operator.add]
    files: dict[str, Any]


def test_messages_come_back_as_themselves(tmp_path: Path) -> None:
    """LangChain's own objects, nested too, and what else its serializer knows."""
    said = [
        HumanMessage("hello", id="1"),
        AIMessage("", id="2", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c1"}]),
        ToolMessage("2", tool_call_id="c1", id="3"),
    ]
    files = {
        "a.txt": {"lines": ["x" * 300, "y"], "by": HumanMessage("me", id="4")},
        "empty": {},
        "": {1, 2},
    }

    builder = StateGraph(State)
    builder.add_node("speak", lambda state: {"messages": said, "files": files})
    builder.add_edge(START, "speak")
    with KeepstepSaver(tmp_path / "runs") as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        graph.invoke({"messages": [HumanMessage("first", id="0")], "files": {}}, config)
    with KeepstepSaver(tmp_path / "runs") as saver:
        state = builder.compile(checkpointer=saver).get_state(config)
    assert state.values == {"messages": [HumanMessage("first", id="0"), *said], "files": files}
    assert isinstance(state.values["files"]["a.txt"]["by"], HumanMessage)


def agent_of(saver: Any) -> Any:
    """Interrupts, fan-out by `Send`, a subgraph of its own memory: what pending writes are needed for."""

    def ask(state: State) -> Any:
        first = interrupt("name?")
        second = interrupt("age?")
        return {"messages": [f"{first} is {second}"]}

    def fan(state: State) -> list[Send]:
        return [Send("work", {"number": number}) for number in range(3)]

    def inner_node(state: State) -> Any:
        return {"messages": ["inner: " + interrupt("inner?")]}

    inner = StateGraph(State)
    inner.add_node("inner_node", inner_node)
    inner.add_edge(START, "inner_node")

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("work", lambda given: {"messages": [f"work {given['number']}"]})
    builder.add_node("sub", inner.compile(checkpointer=True))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", fan, ["work"])
    builder.add_edge("work", "sub")
    builder.add_edge("sub", END)
    return builder.compile(checkpointer=saver)


def play(opened: Callable[[], Any], mode: str) -> list[Any]:
    """The same conversation, each turn by a saver of its own, as a new process would have it."""
    config: Any = {"configurable": {"thread_id": "t"}}
    turns = [{"messages": ["go"], "files": {}}, *(Command(resume=answer) for answer in ("Ann", 7, "yes"))]
    seen = []
    for turn in turns:
        saver, close = opened()
        graph = agent_of(saver)
        if mode == "async":
            asyncio.run(graph.ainvoke(turn, config, durability="sync"))
        else:
            graph.invoke(turn, config, durability="sync")
        states = list(graph.get_state_history(config))
        seen.append(
            [
                (state.values, state.next, state.metadata["step"], [i.value for i in state.interrupts])
                for state in states
            ]
        )
        close()
    return seen


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_interrupts_fan_out_and_subgraphs_are_as_in_memory(tmp_path: Path, mode: str) -> None:
    """LangGraph's own saver in memory says what is right."""
    memory = InMemorySaver()

    def ours() -> tuple[Any, Callable[[], None]]:
        saver = KeepstepSaver(tmp_path / "runs")
        return saver, saver.close

    expected = play(lambda: (memory, lambda: None), mode)
    assert play(ours, mode) == expected
    assert expected[-1][0][0]["messages"][-1] == "inner: yes"


def test_time_travel_branches_a_thread(tmp_path: Path) -> None:
    """An update of an old checkpoint begins a branch; the old one stays as it was."""
    builder = StateGraph(State)
    for name in ("a", "b", "c"):
        builder.add_node(name, lambda state, name=name: {"messages": [name + "x" * 300]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", "c")
    config: Any = {"configurable": {"thread_id": "t"}}
    with KeepstepSaver(tmp_path / "runs") as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [], "files": {}}, config)
        before = list(graph.get_state_history(config))
        after_a = next(state for state in before if state.next == ("b",))
        branch = graph.update_state(after_a.config, {"messages": ["changed"]})
        ended = graph.invoke(None, branch)
        assert [said.rstrip("x") for said in ended["messages"]] == ["a", "changed", "b", "c"]
        assert list(graph.get_state_history(config))[-len(before) :] == before
        assert graph.get_state(before[0].config).values == before[0].values


def extend(old: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*old, *itertools.chain(*writes)]


class Deltas(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(extend)]
    turn: int


def test_a_delta_channel_is_made_of_its_writes(tmp_path: Path) -> None:
    """LangGraph's beta channel that stores snapshots now and then: also after `prune`."""
    builder = StateGraph(Deltas)
    builder.add_node("speak", lambda s: {"messages": [f"m{s['turn']}"], "turn": s["turn"] + 1})
    builder.add_edge(START, "speak")
    builder.add_conditional_edges("speak", lambda s: "speak" if s["turn"] < 8 else END)
    config: Any = {"configurable": {"thread_id": "t"}}
    said = [f"m{turn}" for turn in range(8)]
    with KeepstepSaver(tmp_path / "runs") as saver:
        graph = builder.compile(checkpointer=saver)
        assert graph.invoke({"messages": [], "turn": 0}, config)["messages"] == said
        assert graph.get_state(config).values["messages"] == said
        saver.prune(["t"])
        assert graph.get_state(config).values["messages"] == said
        assert asyncio.run(graph.aget_state(config)).values["messages"] == said


def test_a_thread_of_another_saver_goes_on(tmp_path: Path) -> None:
    """Copied checkpoint by checkpoint, with versions that are texts."""
    old = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t"}}
    answers = [Command(resume=answer) for answer in ("Ann", 7, "yes")]
    agent_of(old).invoke({"messages": ["go"], "files": {}}, config)
    agent_of(old).invoke(answers[0], config)
    with KeepstepSaver(tmp_path / "runs") as saver:
        for found in reversed(list(old.list(config))):
            at: Any = found.parent_config or {
                "configurable": {**found.config["configurable"], "checkpoint_id": None}
            }
            saver.put(at, found.checkpoint, found.metadata, found.checkpoint["channel_versions"])
            for task, channel, value in found.pending_writes or ():
                saver.put_writes(found.config, [(channel, value)], task)
        for answer in answers[1:]:
            ended = agent_of(saver).invoke(answer, config)
    for answer in answers[1:]:
        expected = agent_of(old).invoke(answer, config)
    assert ended == expected and ended["messages"][-1] == "inner: yes"


def test_a_thread_costs_what_is_new(tmp_path: Path) -> None:
    """120 messages of 1 KB in a list that grows: the SQLite saver stores more than twenty times as much."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    def size(saver: Any, file_or_folder: Path) -> int:
        builder = StateGraph(State)
        builder.add_node("speak", lambda s: {"messages": [f"{len(s['messages']):1000}"]})
        builder.add_edge(START, "speak")
        builder.add_conditional_edges("speak", lambda s: "speak" if len(s["messages"]) < 120 else END)
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}
        graph.invoke({"messages": [], "files": {}}, config, durability="sync")
        return sum(path.stat().st_size for path in file_or_folder.rglob("*") if path.is_file())

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    with KeepstepSaver(ours) as saver:
        mine = size(saver, ours)
    connection = sqlite3.connect(theirs / "db", check_same_thread=False)
    assert size(SqliteSaver(connection), theirs) > 20 * mine
    connection.close()


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, where LangGraph is."""
    guide = Path(__file__).parents[3] / "docs" / "guides" / "langgraph.md"
    mark = "<!-- not run: needs LangGraph -->\n"
    text = guide.read_text()
    assert text.count(mark) == 3
    monkeypatch.chdir(tmp_path)
    # The file and the shell's lines; what these print is compared.
    assert docs_pages.run_page(text.replace(mark, ""), guide.name, tmp_path) == 2
