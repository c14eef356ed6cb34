"""Measures what Weave's client has sent, or written to its log, when a toy agent is killed.

usage: python bench/frameworks/compare_weave.py          needs weave

A stub on loopback stands in for the server, so this says nothing about what a server keeps. The agent is that
of `compare_kill.py`: at the kill 41 calls are finished, 21 of the model and 20 of its tool. Prints a JSON
line for each run, with and without the write-ahead log, for a model of 20 ms (three times) and one of 300 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from compare_kill import TEXT_BYTES, TURNS, Toy

VIEWER = {"username": "u", "entity": "team", "defaultEntity": {"name": "team"}, "teams": {"edges": []}}
MODEL = {"name": "p", "id": "1", "internalId": "1"}
GRAPHQL = {
    "viewer": VIEWER,
    "model": MODEL,
    "project": MODEL,
    "upsertModel": {"model": MODEL, "project": MODEL},
}
SERVER = {"min_required_weave_python_version": "0.0.1", "trace_server_version": "1.0.0"}


class Stub(BaseHTTPRequestHandler):
    """Says yes to all that the client asks, and keeps what came about calls."""

    calls: list[bytes] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.say(SERVER)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if "call" in self.path:
            self.calls.append(body)
        self.say({"data": GRAPHQL} if "graphql" in self.path else {"digest": "d" * 40})

    def say(self, answer: Any) -> None:
        said = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def agent(home: Path, think_s: float, dies: bool) -> None:
    import weave

    toy = Toy(home / "e0.notes", think_s, False, dies)
    weave.init("team/p")

    @weave.op
    def ask(messages: list[str]) -> str:
        return toy.ask(len(messages) // 2)

    @weave.op
    def act(reply: str, turn: int) -> str:
        return toy.act(turn)

    messages: list[str] = []
    for turn in range(TURNS):
        reply = ask(messages)
        messages = [*messages, reply, act(reply, turn)]


def run(url: str, wal: bool, think_s: float, dies: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        home = Path(folder)
        asked = {"WANDB_API_KEY": "x" * 40, "WF_TRACE_SERVER_URL": url, "WANDB_BASE_URL": url}
        chosen = {"HOME": folder, "WEAVE_PRINT_CALL_LINK": "false", "WEAVE_ENABLE_WAL": str(wal).lower()}
        Stub.calls.clear()
        command = [sys.executable, __file__, folder, str(think_s), "die" if dies else ""]
        subprocess.run(command, env=os.environ | asked | chosen, capture_output=True, timeout=120)
        if dies:
            written = "".join(file.read_text() for file in home.glob(".weave/wal/**/*.jsonl"))
            sent = sum(body.count(b'"op_name"') for body in Stub.calls)
            return {"sent_at_kill": sent, "in_log_at_kill": written.count('"call_end"')}
        notes = map(str.split, (home / "e0.notes").read_text().splitlines())
        at = {(what, int(turn)): float(when) for what, turn, when in notes}
        gaps = [(at["asked", turn + 1] - at["answered", turn]) * 1e3 for turn in range(TURNS - 1)]
        sent = sum(map(len, Stub.calls)) / (2 * TURNS * TEXT_BYTES)
        return {"ms_a_turn": round(statistics.median(gaps), 2), "sent_for_each_new": round(sent, 2)}


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for wal in (False, True):
        for think_s in (0.02, 0.02, 0.02, 0.3):
            row = {"store": "weave", "wal": wal, "think_ms": think_s * 1e3}
            print(json.dumps(row | run(url, wal, think_s, True) | run(url, wal, think_s, False)), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        agent(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "die")
    else:
        main()
