"""Stands in for a model server and a tool: slow now and then, and failing now and then. For trying the agent offline."""

import json
import os
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

TURNS = 4


class Handler(BaseHTTPRequestHandler):
    failing = 0.0
    protocol_version = "HTTP/1.1"
    numbers = count()

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError("the client was killed while it asked")
        asked = json.loads(body)
        messages = asked["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        number = next(self.numbers)
        reply: dict[str, Any] = {
            "role": "assistant",
            "content": f"answer {number} to {messages[0]['content']}, turn {turn}",
        }
        if turn < TURNS - 1:
            call = {"name": "look_up", "arguments": json.dumps({"shelf": turn})}
            reply["tool_calls"] = [
                {"id": f"call-{turn}-{each}", "type": "function", "function": call} for each in range(2)
            ]
        choice = {"index": 0, "finish_reason": "stop", "message": reply}
        answer = {"id": f"chat-{number}", "object": "chat.completion", "created": 0, "model": asked["model"]}
        self.answer({**answer, "choices": [choice]}, f"{messages[0]['content']}, turn {turn}: {number}")

    def do_GET(self) -> None:
        self.answer({"found": f"a book on {self.path.rsplit('/', 1)[-1]}"})

    def answer(self, value: dict[str, Any], told: str | None = None) -> None:
        time.sleep(random.random() * 0.05)
        fails = random.random() < self.failing
        body = b"{}" if fails else json.dumps(value).encode()
        if told and not fails:
            os.write(1, f"{told}\n".encode())  # whole lines, from many threads
        self.send_response(500 if fails else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients are killed all the time here, on purpose. All other errors are reported.
        if not isinstance(sys.exc_info()[1], (ConnectionResetError, BrokenPipeError)):
            super().handle_error(request, client_address)


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    Handler.failing = float(sys.argv[2])
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()
