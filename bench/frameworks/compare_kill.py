"""Measures what keepstep and its alternatives keep of a toy agent that is killed with -9, and what they cost.

usage: python bench/frameworks/compare_kill.py NAME ... [--dir DIR] [--repeat N] [--think-ms N] [--noise]
Prints a JSON line for each NAME, with a figure for each repetition: jsonl, jsonl-history, jsonl-fsync (need
nothing), keepstep, langgraph, langgraph-async (with langgraph-checkpoint-sqlite), inspect (inspect-ai). Syncs
are counted if `strace` is there. The agent takes 30 turns: the model says 5 KB, the environment 5 KB, both
join the history. It kills itself in the action of turn 20: the model has answered, the environment has not.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import operator
import os
import random
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

TURNS, DIES_IN_TURN, TEXT_BYTES = 30, 20, 5_000


class Toy:
    """The model and the environment. Each call is noted in a file that belongs to no store."""

    def __init__(self, notes: Path, think_s: float, noise: bool, dies: bool) -> None:
        self.notes = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.think_s, self.dies, rng = think_s, dies, random.Random(notes.stem)
        words = [rng.randbytes(2).hex() for _ in range(100)]
        texts = [" ".join(rng.choices(words, k=TEXT_BYTES // 5)) for _ in range(2 * TURNS)]
        if noise:
            texts = [base64.b64encode(rng.randbytes(TEXT_BYTES * 3 // 4)).decode() for _ in texts]
        self.answers, self.observations = texts[:TURNS], texts[TURNS:]

    def note(self, what: str, turn: int) -> None:
        os.write(self.notes, f"{what} {turn} {time.perf_counter()}\n".encode())

    def ask(self, turn: int) -> str:
        self.note("asked", turn)
        time.sleep(self.think_s)
        self.note("answered", turn)
        return self.answers[turn]

    def act(self, turn: int) -> str:
        self.note("acted", turn)
        if self.dies and turn == DIES_IN_TURN:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.observations[turn]


class Jsonl:
    """A line a turn, written when the turn is over. One file for all processes."""

    def __init__(self, store: Path, *, fsync: bool = False, history: bool = False) -> None:
        self.file, self.fsync, self.history = store / "steps.jsonl", fsync, history

    def lines(self, name: str) -> list[Any]:
        whole = self.file.read_text().split("\n")[:-1] if self.file.exists() else []
        return [line for line in map(json.loads, whole) if line["name"] == name]

    def run(self, name: str, toy: Toy) -> None:
        messages = [said for line in self.lines(name) for said in (line["response"], line["observation"])]
        with self.file.open("a") as file:
            for turn in range(len(messages) // 2, TURNS):
                reply = toy.ask(turn)
                step = {"name": name, "turn": turn, "response": reply, "observation": toy.act(turn)}
                file.write(json.dumps(step | ({"prompt": messages} if self.history else {})) + "\n")
                file.flush()
                if self.fsync:
                    os.fsync(file.fileno())
                messages = [*messages, reply, step["observation"]]

    def kept(self, name: str) -> tuple[int, int]:
        return (len(self.lines(name)),) * 2


class Keepstep:
    """The loop of its README."""

    def __init__(self, store: Path) -> None:
        import keepstep

        self.store = keepstep.open(store / "runs")
        self.recorded = self.store.run("compare")

    def run(self, name: str, toy: Toy) -> None:
        with self.recorded.episode(name) as episode:
            messages = episode.state("messages", [])
            while len(messages) < 2 * TURNS:
                reply = episode.call("llm", lambda said: toy.ask(len(said) // 2), messages)
                with episode.turn(prompt=messages, response=reply, action=reply) as turn:
                    observation = toy.act(len(messages) // 2)
                    messages = [*messages, reply, observation]
                    turn.result(observation=observation, state={"messages": messages})
            episode.end("finished")
        self.store.close()

    def kept(self, name: str) -> tuple[int, int]:
        view = next(view for view in self.recorded.episodes() if view.task == name)
        return len(view.steps) + (view.pending is not None), len(view.steps)


class State(TypedDict):
    messages: Annotated[list[str], operator.add]


class LangGraph:
    """Two nodes, a model and a tool, as LangGraph's own agents have."""

    def __init__(self, store: Path, *, durability: str = "sync") -> None:
        self.file, self.durability = store / "checkpoints.sqlite", durability

    def graph(self, toy: Any) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        builder = StateGraph(State)
        builder.add_node("model", lambda state: {"messages": [toy.ask(len(state["messages"]) // 2)]})
        builder.add_node("tool", lambda state: {"messages": [toy.act(len(state["messages"]) // 2)]})
        builder.add_edge(START, "model")
        builder.add_edge("model", "tool")
        builder.add_conditional_edges("tool", lambda s: END if len(s["messages"]) == 2 * TURNS else "model")
        return builder.compile(checkpointer=SqliteSaver(sqlite3.connect(self.file, check_same_thread=False)))

    def run(self, name: str, toy: Toy) -> None:
        config: Any = {"configurable": {"thread_id": name}, "recursion_limit": 3 * TURNS}
        graph = self.graph(toy)
        begun = graph.get_state(config).created_at is not None
        graph.invoke(None if begun else {"messages": []}, config, durability=self.durability)
        graph.checkpointer.conn.close()

    def kept(self, name: str) -> tuple[int, int]:
        state = self.graph(None).get_state({"configurable": {"thread_id": name}})
        messages = state.values.get("messages", [])
        return (len(messages) + 1) // 2, len(messages) // 2


class Inspect:
    """One sample whose solver is the loop; `eval_set`, which goes on with what an earlier run left."""

    def __init__(self, store: Path) -> None:
        self.logs = store / "logs"

    def run(self, name: str, toy: Toy) -> None:
        from inspect_ai import Task, eval_set
        from inspect_ai.dataset import Sample
        from inspect_ai.model import ChatMessageUser, ModelAPI, ModelOutput, modelapi
        from inspect_ai.solver import solver

        @modelapi(name="toy")
        class ToyModel(ModelAPI):
            async def generate(self, input: Any, **_: Any) -> ModelOutput:
                turn = sum(message.role == "assistant" for message in input)
                toy.note("asked", turn)
                await asyncio.sleep(toy.think_s)
                toy.note("answered", turn)
                return ModelOutput.from_content("toy", toy.answers[turn])

        @solver
        def loop() -> Any:
            async def solve(state: Any, generate: Any) -> Any:
                for turn in range(TURNS):
                    state = await generate(state)
                    state.messages.append(ChatMessageUser(content=toy.act(turn)))
                return state

            return solve

        compare = Task(name="compare", dataset=[Sample(input="go", id=name)], solver=loop())
        eval_set(compare, log_dir=str(self.logs / name), model="toy/model", display="none")

    def kept(self, name: str) -> tuple[int, int]:
        """Of its log, or of its sample buffer, where an observation is part of the question after it."""
        from inspect_ai.log import list_eval_logs, read_eval_log
        from inspect_ai.log._recorders.buffer.buffer import sample_buffer

        log = list_eval_logs(str(self.logs / name))[0]
        if ended := read_eval_log(log).samples:
            return (len(ended[0].messages) // 2,) * 2
        events = [held.event for held in sample_buffer(log.name).get_sample_data(name, 1).events]
        answers = len({event["uuid"] for event in events if "input" in event and "completed" in event})
        return answers, answers - 1


STORES: dict[str, Callable[[Path], Any]] = {
    "jsonl": Jsonl,
    "jsonl-history": lambda store: Jsonl(store, history=True),
    "jsonl-fsync": lambda store: Jsonl(store, fsync=True),
    "keepstep": Keepstep,
    "langgraph": LangGraph,
    "langgraph-async": lambda store: LangGraph(store, durability="async"),
    "inspect": Inspect,
}


class Bench:
    """One store in a folder of its own. Each process of the agent is the script started again."""

    def __init__(self, store: str, options: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        given = [f"--think-ms={options.think_ms}", f"--dir={folder}"] + ["--noise"] * options.noise
        self.command = [sys.executable, sys.argv[0], store, *given, "--child"]
        (folder / "store").mkdir()

    def start(self, *child: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        # What a framework keeps in the user's home counts too, and must not be there already.
        home = os.environ | {"XDG_DATA_HOME": str(self.folder / "store" / "home")}
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen([*before, *self.command, *child], stdout=said, stderr=said, env=home)

    def finish(self, child: subprocess.Popen[bytes], code: int = 0) -> None:
        if child.wait(120) != code:
            raise RuntimeError(f"ended with {child.returncode}: {(self.folder / 'said').read_text()[-2000:]}")

    def kept(self, name: str) -> list[int]:
        self.finish(self.start("kept", name))
        return json.loads((self.folder / "said").read_text().splitlines()[-1])

    def cost(self) -> dict[str, Any]:
        """Milliseconds from the model's answer to its next question, and bytes on the disk at the end."""
        self.finish(self.start("run", "e0"))
        notes = (self.folder / "e0.notes").read_text().splitlines()
        at = {(what, int(turn)): float(when) for what, turn, when in map(str.split, notes)}
        gaps = [(at["asked", turn + 1] - at["answered", turn]) * 1e3 for turn in range(TURNS - 1)]
        size = sum(file.stat().st_size for file in (self.folder / "store").rglob("*") if file.is_file())
        return {"ms_a_turn": statistics.median(gaps), "bytes_for_each_new": size / (2 * TURNS * TEXT_BYTES)}

    def killed(self) -> dict[str, Any]:
        self.finish(self.start("die", "e0"), -signal.SIGKILL)
        answers, turns = self.kept("e0")
        self.finish(self.start("run", "e0"))
        twice = (self.folder / "e0.notes").read_text().count("asked") - TURNS
        return {"answers_kept": answers, "turns_kept": turns, "asked_twice": twice}

    def syncs(self) -> dict[str, Any]:
        """Syncs in all; in how many turns one came before the action, and before the next question."""
        strace = "strace -f -y -s 16 -e trace=fsync,fdatasync,sync_file_range,write -o".split()
        self.finish(self.start("run", "e0", before=[*strace, str(self.folder / "trace")]))
        found, since = {"syncs": 0, "synced_before_acted": 0, "synced_before_asked": 0}, 0
        for line in (self.folder / "trace").read_text(errors="replace").splitlines():
            if re.search(r"\b(fsync|fdatasync|sync_file_range)\(", line):
                found["syncs"], since = found["syncs"] + 1, since + 1
            elif noted := re.search(r'\.notes>, "(\w+) (\d+) ', line):
                key = f"synced_before_{noted[1]}"
                if key in found and noted[0][-8:] != "asked 0 ":
                    found[key] += since > 0
                since = 0
        return found

    def together(self) -> dict[str, Any]:
        names = ["e0", "e1", "e2", "e3"]
        for child in [self.start("run", name) for name in names]:
            self.finish(child)
        return {"turns_of_4_processes": sum(self.kept(name)[1] for name in names)}


def measure(store: str, options: argparse.Namespace) -> dict[str, Any]:
    parts = [Bench.cost, Bench.killed, Bench.together] + [Bench.syncs] * (shutil.which("strace") is not None)
    measured: dict[str, list[float]] = {}
    for part in parts * options.repeat:
        with tempfile.TemporaryDirectory(dir=options.dir, prefix="compare-") as folder:
            for key, value in part(Bench(store, options, Path(folder))).items():
                measured.setdefault(key, []).append(round(value, 2))
    return {"store": store, "think_ms": options.think_ms, "noise": options.noise} | measured


def main(stores: dict[str, Callable[[Path], Any]]) -> None:
    parser = argparse.ArgumentParser(description="What is kept of a killed agent, and what it costs.")
    parser.add_argument("stores", nargs="+", choices=list(stores), metavar="NAME", help=", ".join(stores))
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="the disk to measure on")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--think-ms", type=float, default=20.0, help="how long the model takes")
    parser.add_argument("--noise", action="store_true", help="texts that do not compress")
    parser.add_argument("--child", nargs=2, default=("", ""), help=argparse.SUPPRESS)
    options = parser.parse_args()
    for store in options.stores:
        what, name = options.child
        if not what:
            print(json.dumps(measure(store, options)), flush=True)
        elif what == "kept":
            print(json.dumps(stores[store](options.dir / "store").kept(name)))
        else:
            toy = Toy(options.dir / f"{name}.notes", options.think_ms / 1e3, options.noise, what == "die")
            stores[store](options.dir / "store").run(name, toy)


if __name__ == "__main__":
    main(STORES)
