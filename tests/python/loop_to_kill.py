"""The loop of the design (§2 b), which kills itself with -9 at a chosen point.

It keeps in its state that it is done: a process that dies between the last result and the end must not play on.

usage: loop_to_kill.py STORE EFFECTS HOW [POINT]      HOW is `with` or `async`; POINT is `<turn>:<where>`

EFFECTS is a file: each side effect appends a line to it, so that the test can count what really happened.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import keepstep

TURNS = 3
# In the order in which they come in a turn.
POINTS = (
    "before-call",
    "called",  # the effect happened, and was not recorded
    "call-recorded",
    "intent-durable",
    "acted",  # the effect happened, and its result was not said
    "result-said",  # handed over, perhaps on the disk
    "result-durable",
)

store_path, effects_path, how, *rest = sys.argv[1:]
point = rest[0] if rest else ""


def die_at(turn: int, where: str) -> None:
    if point == f"{turn}:{where}":
        os.kill(os.getpid(), signal.SIGKILL)


def effect(text: str) -> None:
    handle = os.open(effects_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (text + "\n").encode())
    os.close(handle)


def ask(messages: list[Any]) -> dict[str, str]:
    turn = len(messages) // 2
    effect(f"ask {turn}")
    die_at(turn, "called")
    return {"role": "assistant", "content": f"answer {turn} to {len(messages)} messages"}


async def ask_later(messages: list[Any]) -> dict[str, str]:
    await asyncio.sleep(0)
    return ask(messages)


def act(turn: int, action: str) -> tuple[dict[str, str], float, bool]:
    effect(f"act {turn}")
    die_at(turn, "acted")
    return {"role": "tool", "content": f"saw {action!r}" + "." * 300}, turn / 4, turn == TURNS - 1


def outcome(messages: list[Any], observation: Any, reward: float, done: bool) -> dict[str, Any]:
    terms = {"format": 0.1, "goal": reward}
    state = {"messages": messages, "done": done}
    return {"observation": observation, "reward": reward, "reward_terms": terms, "state": state}


def loop(run: keepstep.Run) -> None:
    with run.episode("shop-17", sample=0) as episode:
        messages, done = episode.state("messages", []), episode.state("done", False)
        while not done:
            turn_number = episode.turns
            die_at(turn_number, "before-call")
            reply = episode.call("llm", ask, messages)
            die_at(turn_number, "call-recorded")
            with episode.turn(prompt=messages, response=reply, action=reply["content"][:8]) as turn:
                die_at(turn_number, "intent-durable")
                observation, reward, done = act(turn_number, turn.said["action"])
                messages = [*messages, reply, observation]
                turn.result(**outcome(messages, observation, reward, done))
                die_at(turn_number, "result-said")
            die_at(turn_number, "result-durable")
        episode.end("finished").wait()
        die_at(TURNS, "ended")


async def aloop(run: keepstep.Run) -> None:
    async with run.episode("shop-17", sample=0) as episode:
        messages, done = episode.state("messages", []), episode.state("done", False)
        while not done:
            turn_number = episode.turns
            die_at(turn_number, "before-call")
            reply = await episode.call("llm", ask_later, messages)
            die_at(turn_number, "call-recorded")
            async with episode.turn(prompt=messages, response=reply, action=reply["content"][:8]) as turn:
                die_at(turn_number, "intent-durable")
                observation, reward, done = act(turn_number, turn.said["action"])
                messages = [*messages, reply, observation]
                turn.result(**outcome(messages, observation, reward, done))
                die_at(turn_number, "result-said")
            die_at(turn_number, "result-durable")
        await episode.end("finished")
        die_at(TURNS, "ended")


if __name__ == "__main__":
    the_run = keepstep.open(store_path).run("shop", config={"model": "m-7b"})
    if how == "async":
        asyncio.run(aloop(the_run))
    else:
        loop(the_run)
