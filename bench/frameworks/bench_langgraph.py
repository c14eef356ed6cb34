"""Measures keepstep's LangGraph saver against LangGraph's own for SQLite, on a real graph with a list that grows.

usage: python bench/frameworks/bench_langgraph.py --json OUT [--dir DIR] [--pairs N] [--steps N]

Runs in LangGraph's environment (tests/outside/langgraph), with keepstep installed there. Both savers run the same graph at
durability "sync": 200 steps, each of which adds a message of 1.75 KB that does not compress well. Times are those of the
whole graph, LangGraph's own part included, in alternating pairs.
"""

from __future__ import annotations

import argparse
import base64
import json
import operator
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from keepstep.adapters.langgraph import KeepstepSaver
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

MESSAGE_BYTES = 1312  # as base64 1,750 letters


class Dicts(TypedDict):
    messages: Annotated[list, operator.add]
    turn: int


class Messages(TypedDict):
    messages: Annotated[list, add_messages]
    turn: int


def text(rng: random.Random) -> str:
    return base64.b64encode(rng.randbytes(MESSAGE_BYTES)).decode()


def a_dict(rng: random.Random, turn: int) -> Any:
    return {"role": "assistant", "content": text(rng), "turn": turn}


def a_message(rng: random.Random, turn: int) -> Any:
    return AIMessage(content=text(rng), id=f"message-{turn}")


KINDS: dict[str, tuple[type, Callable[[random.Random, int], Any]]] = {
    "messages": (Messages, a_message),
    "dicts": (Dicts, a_dict),
}


def graph_of(kind: str, steps: int, saver: Any) -> Any:
    """A graph that speaks to itself for so many steps."""
    state, make = KINDS[kind]
    rng = random.Random(7)

    def speak(said: Any) -> Any:
        return {"messages": [make(rng, said["turn"])], "turn": said["turn"] + 1}

    builder = StateGraph(state)
    builder.add_node("speak", speak)
    builder.add_edge(START, "speak")
    builder.add_conditional_edges("speak", lambda said: "speak" if said["turn"] < steps else END)
    return builder.compile(checkpointer=saver)


@contextmanager
def keepstep_saver(where: Path) -> Iterator[Any]:
    with KeepstepSaver(where / "store") as saver:
        yield saver


@contextmanager
def sqlite_saver(where: Path) -> Iterator[Any]:
    with SqliteSaver.from_conn_string(str(where / "checkpoints.sqlite")) as saver:
        # Each commit is synced, as each acknowledgement of keepstep at "power" is.
        saver.conn.execute("PRAGMA synchronous=FULL")
        yield saver


def measure(kind: str, steps: int, opened: Callable[[Path], Any], folder: Path) -> tuple[float, int]:
    """Seconds a step, and bytes on the disk once all is closed."""
    where = Path(tempfile.mkdtemp(dir=folder))
    try:
        with opened(where) as saver:
            graph = graph_of(kind, steps, saver)
            config = {"configurable": {"thread_id": "bench"}, "recursion_limit": steps + 10}
            began = time.perf_counter()
            ended = graph.invoke({"messages": [], "turn": 0}, config, durability="sync")
            took = time.perf_counter() - began
            again = graph.get_state(config).values
        if len(ended["messages"]) != steps or again != ended:
            raise AssertionError(f"{opened.__name__} gave back something else than the graph ended with")
        return took / steps, sum(file.stat().st_size for file in where.rglob("*") if file.is_file())
    finally:
        shutil.rmtree(where)
        os.sync()


def row(name: str, got: float, need: float) -> dict[str, Any]:
    return {"name": name, "got": round(got, 3), "need": need, "sense": "at least", "ok": got >= need}


def main() -> int:
    parser = argparse.ArgumentParser(description="LangGraph's savers: keepstep and SQLite.")
    parser.add_argument("--json", type=Path, help="where the rows are written")
    parser.add_argument("--dir", type=Path, help="the disk to measure; without it, the current folder's")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.dir or Path.cwd(), prefix="bench-langgraph-") as folder:
        for kind in KINDS:
            pairs = []
            for _ in range(options.pairs):
                ours = measure(kind, options.steps, keepstep_saver, Path(folder))
                theirs = measure(kind, options.steps, sqlite_saver, Path(folder))
                pairs.append((theirs[0] / ours[0], theirs[1] / ours[1]))
                print(
                    f"{kind}: a step {ours[0] * 1e3:.2f} ms, SQLite {theirs[0] * 1e3:.2f} ms; "
                    f"{ours[1]:,} bytes, SQLite {theirs[1]:,}",
                    file=sys.stderr,
                )
            speeds, sizes = zip(*pairs, strict=True)
            said = f"a list of {kind} that grows for {options.steps} steps"
            rows.append(
                row(f"langgraph: times fewer bytes than SQLite, {said}", statistics.median(sizes), 20)
            )
            rows.append(row(f"langgraph: steps a second, of SQLite's, {said}", statistics.median(speeds), 1))
    for each in rows:
        print(f"{each['got']:>8}  (>= {each['need']})  {'ok  ' if each['ok'] else 'MISS'}  {each['name']}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(each["ok"] for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
