"""A real graph that is killed: a loop whose every round has two tasks side by side, checkpoints kept by keepstep.

usage: graph_to_kill.py, with lines of JSON on stdin: [STORE, MOMENT, "sync" or "async", OUTPUT]. Each is a process of its own,
forked from this one, since importing LangGraph takes seconds; how it ended is printed.

MOMENT is where it kills itself, such as `node 3`, `put 5`, `kept 5`, `writes 4`, `wrote 4`, `after 37` (milliseconds), or
`alone` (in one of two tasks, when what the other one wrote was acknowledged); `never` runs to the end. Every acknowledgement is printed before anything else happens.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import signal
import sys
import threading
import time
import traceback
from typing import Annotated, Any, TypedDict

from keepstep.adapters.langgraph import KeepstepSaver
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

ROUNDS = 6
THREAD = {"configurable": {"thread_id": "killed"}, "recursion_limit": 100}
INPUT = {"messages": [HumanMessage("go", id="0")], "seen": [], "round": 0}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: Annotated[list[str], operator.add]
    round: int


class Killer:
    """Counts what happens, and kills this process at the moment that was asked for."""

    def __init__(self, moment: str) -> None:
        self.what, _, number = moment.partition(" ")
        self.number = int(number or 0)
        self.counts: dict[str, int] = {}
        self.lock = threading.Lock()
        if self.what == "after":
            threading.Timer(self.number / 1000, self.die).start()

    def on(self, what: str) -> None:
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1
            if what == self.what and self.counts[what] == self.number:
                self.die()

    def wait_for(self, what: str, number: int) -> None:
        """Waits until it happened so often."""
        while self.counts.get(what, 0) < number:
            time.sleep(0.01)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def tell(*words: object) -> None:
    """One write, so that lines of several threads do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class WatchedSaver(KeepstepSaver):
    """Tells what was acknowledged, at once."""

    killer: Killer

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.killer.on("put")
        put = super().put(config, checkpoint, metadata, new_versions)
        tell("kept", checkpoint["id"])
        self.killer.on("kept")
        return put

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.killer.on("put")
        put = await super().aput(config, checkpoint, metadata, new_versions)
        tell("kept", checkpoint["id"])
        self.killer.on("kept")
        return put

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.killer.on("writes")
        super().put_writes(config, writes, task_id, task_path)
        tell("wrote", config["configurable"]["checkpoint_id"], task_id)
        self.killer.on("wrote")

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.killer.on("writes")
        await super().aput_writes(config, writes, task_id, task_path)
        tell("wrote", config["configurable"]["checkpoint_id"], task_id)
        self.killer.on("wrote")


def graph_of(saver: KeepstepSaver, killer: Killer) -> Any:
    def think(state: State) -> Any:
        tell("ran think", state["round"])
        killer.on("node")
        if killer.what == "alone":
            # The input was written first, then what the other task gave.
            killer.wait_for("wrote", 2)
            killer.die()
        number = state["round"]
        return {"messages": [AIMessage(f"thought {number}: " + "x" * 600, id=f"think-{number}")]}

    def look(state: State) -> Any:
        tell("ran look", state["round"])
        killer.on("node")
        return {"seen": [f"saw {state['round']}"]}

    def close_round(state: State) -> Any:
        tell("ran close", state["round"])
        killer.on("node")
        return {"round": state["round"] + 1}

    builder = StateGraph(State)
    for name, node in (("think", think), ("look", look), ("close", close_round)):
        builder.add_node(name, node)
    builder.add_edge(START, "think")
    builder.add_edge(START, "look")
    builder.add_edge(["think", "look"], "close")
    builder.add_conditional_edges("close", lambda s: ["think", "look"] if s["round"] < ROUNDS else END)
    return builder.compile(checkpointer=saver)


def main(where: str, moment: str, mode: str) -> None:
    killer = Killer(moment)
    with WatchedSaver(where) as saver:
        saver.killer = killer
        graph = graph_of(saver, killer)
        # An interrupted thread goes on without an input; one that never began has nothing to go on from.
        given = INPUT if graph.get_state(THREAD).created_at is None else None
        tell("began" if given else "goes on")
        if mode == "async":
            asyncio.run(graph.ainvoke(given, THREAD, durability="sync"))
        else:
            graph.invoke(given, THREAD, durability="sync")
        tell("done")


def serve() -> None:
    """Runs a process for each line."""
    for line in sys.stdin:
        where, moment, mode, output = json.loads(line)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
            os.dup2(1, 2)
            try:
                main(where, moment, mode)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
