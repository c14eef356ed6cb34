"""The agent of `keepstep demo`: a small text environment, a scripted chat policy, and the loop that records them.

The loop is what anybody would write. Run again after a kill, it resumes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

import keepstep

if TYPE_CHECKING:
    _Environment = object
else:
    try:
        from gymnasium import Env as _Environment
    except ImportError:
        _Environment = object

GOODS = ("kettle", "lamp", "blanket", "radio", "teapot", "basket", "clock", "mirror", "candle", "rope")
RULES = "You are in a shop. Find what is on your list, then pay. End with a line `ACTION: walk | take THING | pay`."


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


class Shop(_Environment):
    """A shop in words, one thing on each shelf. A Gymnasium environment if that is installed, else just like one."""

    def __init__(self, shelves_max: int) -> None:
        self._shelves_max = shelves_max
        self._shelves: list[str] = []
        self._list: list[str] = []
        self._at = 0
        self.is_over = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """A new shop, the same for the same seed."""
        chance = random.Random(seed)
        count = chance.randint(max(1, self._shelves_max // 8), self._shelves_max)
        self._list = chance.sample(GOODS, k=min(3, count))
        others = [thing for thing in GOODS if thing not in self._list]
        self._shelves = [*self._list, *chance.choices(others, k=count - len(self._list))]
        chance.shuffle(self._shelves)
        self._at = 0
        self.is_over = False
        return self._seen("You enter the shop."), {"shelves": count}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes an action. Returns observation, reward, terminated, truncated, info."""
        verb, _, thing = action.partition(" ")
        info = {"at": self._at}
        if verb == "take" and thing == self._shelves[self._at] and thing in self._list:
            self._list.remove(thing)
            return self._seen(f"You take the {thing}."), 1.0, False, False, info
        if verb == "pay":
            self.is_over = True
            return "You pay and leave.", 0.0 if self._list else 5.0, True, False, info
        if verb == "walk" and self._at + 1 < len(self._shelves):
            self._at += 1
            return self._seen("You walk on."), -0.01, False, False, info
        return self._seen("That does not work here."), -0.1, False, False, info

    def snapshot(self) -> dict[str, Any]:
        """All that `restore` needs."""
        return {"shelves": self._shelves, "list": self._list, "at": self._at, "is_over": self.is_over}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continues from a snapshot."""
        self._shelves, self._list = list(snapshot["shelves"]), list(snapshot["list"])
        self._at, self.is_over = snapshot["at"], snapshot["is_over"]

    def _seen(self, happened: str) -> str:
        wanted = ", ".join(self._list) or "nothing more"
        return f"{happened} Shelf {self._at + 1} has a {self._shelves[self._at]}. Your list: {wanted}."


def think(messages: list[Message]) -> str:
    """The policy: scripted, but it knows only the chat, as a model would."""
    seen = messages[-1]["content"]
    thing = seen.partition(" has a ")[2].partition(".")[0]
    wanted = seen.partition("Your list: ")[2].rstrip(".").split(", ")
    if wanted == ["nothing more"]:
        return "I have everything.\nACTION: pay"
    if thing in wanted:
        return f"The {thing} is on my list.\nACTION: take {thing}"
    return f"I do not need a {thing}.\nACTION: walk"


def action_in(reply: str) -> str:
    """What a reply asks to do."""
    return reply.partition("ACTION: ")[2]


def seed_of(task: str) -> int:
    """The seed that a task stands for: `shop-7` is 7."""
    return int(task.rpartition("-")[2])


def steps_of(seed: int, turns_max: int) -> int:
    """How many steps an episode will have, including the first observation: shop and policy are deterministic."""
    shop = Shop(shelves_max=turns_max * 7 // 5)
    seen, _ = shop.reset(seed=seed)
    turns = 0
    while not shop.is_over and turns < turns_max:
        seen = shop.step(action_in(think([{"role": "user", "content": seen}])))[0]
        turns += 1
    return 1 + turns


async def rollout(
    episode: keepstep.Episode, seed: int, turns_max: int, pause_s: float, tell: Callable[[int], None]
) -> None:
    """One episode, from its beginning or from its last durable step. Passes the index of each durable step to `tell`."""

    async def ask(messages: list[Message]) -> str:
        await asyncio.sleep(random.uniform(0, 2 * pause_s))
        return think(messages)

    async with episode:
        shop = Shop(shelves_max=turns_max * 7 // 5)
        snapshot = episode.state("shop")
        if snapshot is not None:
            shop.restore(snapshot)
            messages: list[Message] = episode.state("messages")
        else:
            observation, info = shop.reset(seed=seed)
            messages = [{"role": "system", "content": RULES}, {"role": "user", "content": observation}]
            await episode.first(observation, info=info, state={"shop": shop.snapshot(), "messages": messages})
            tell(0)
        # Whether it is over is part of the state: a kill may come between the last turn and the end.
        while not shop.is_over and episode.turns < turns_max:
            reply = await episode.call("llm", ask, messages)
            async with episode.turn(prompt=messages, response=reply, action=action_in(reply)) as turn:
                observation, reward, _, _, info = shop.step(turn.said["action"])
                messages = [
                    *messages,
                    {"role": "assistant", "content": reply},
                    {"role": "user", "content": observation},
                ]
                turn.result(
                    observation=observation,
                    reward=reward,
                    info=info,
                    state={"shop": shop.snapshot(), "messages": messages},
                )
            tell(turn.index)
        if shop.is_over:
            episode.end("finished")
        else:
            episode.end("truncated", limit="turns")


async def record_all(jobs: list[keepstep.Job], turns_max: int, pause_s: float) -> None:
    """All episodes at once."""

    def rolled_out(job: keepstep.Job) -> Any:
        return rollout(
            job.episode(), seed_of(job.task), turns_max, pause_s, lambda index: _tell(job.task, index)
        )

    await asyncio.gather(*map(rolled_out, jobs))


def _tell(task: str, index: int) -> None:
    # One write each, so that everything that was reported before a kill is in the pipe.
    sys.stdout.write(f"{task} {index}\n")
    sys.stdout.flush()


def main() -> None:
    """The process that records, and is killed."""
    parser = argparse.ArgumentParser(prog="python -m keepstep._demo_agent")
    parser.add_argument("--store", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--turns-max", type=int, required=True)
    parser.add_argument("--pause-s", type=float, required=True)
    parser.add_argument("tasks", nargs="+")
    given = parser.parse_args()
    with keepstep.open(given.store) as store:
        run = store.run(given.run, config={"turns_max": given.turns_max})
        run.plan(given.tasks)
        # The process that started this one reports the interrupt.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(record_all(list(run.remaining()), given.turns_max, given.pause_s))


if __name__ == "__main__":
    main()
