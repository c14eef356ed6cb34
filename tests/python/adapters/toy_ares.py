"""A small environment of ARES: an agent talks until it has heard enough, and writes to the messages that it sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from ares.environments import base
from ares.llms import request, response
from keepstep.adapters.ares import TrajectoryCollectingEnvironment


def answer(text: str) -> response.LLMResponse:
    """What a model answers."""
    return response.LLMResponse(
        data=[response.TextData(content=text)],
        cost=0.25,
        usage=response.Usage(prompt_tokens=len(text), generated_tokens=2),
    )


class Talk(base.Environment[response.LLMResponse, "request.LLMRequest | None", float, float]):
    """Ends after so many turns; troubles are met at a reset, or at a step by its number."""

    def __init__(
        self,
        tasks: tuple[str, ...] = ("greet",),
        *,
        turns: int = 3,
        troubles: Mapping[Any, Callable[[], Any]] | None = None,
        last: tuple[float, float] = (1.0, 0.0),
    ) -> None:
        self.tasks = tasks
        self.turns = turns
        self.troubles = dict(troubles or {})
        self.last = last
        self.resets = 0
        self.closed = 0
        self.taken: list[str] = []
        self._messages: list[Any] = []
        self._current_task: SimpleNamespace | None = None

    async def reset(self) -> Any:
        await self._meet("select")
        self._current_task = SimpleNamespace(name=self.tasks[self.resets % len(self.tasks)])
        self.resets += 1
        await self._meet("reset")
        self.taken = []
        self._messages = [{"role": "user", "content": f"do {self._current_task.name}"}]
        # As CodeEnvironment does: a first step with a reward and a discount.
        return base.TimeStep("FIRST", 0.0, 1.0, self._request())

    async def step(self, action: response.LLMResponse) -> Any:
        await self._meet(len(self.taken))
        said = action.data[0].content
        self.taken.append(said)
        self._messages.append({"role": "assistant", "content": said})
        self._messages.append({"role": "user", "content": f"heard {said}"})
        if len(self.taken) < self.turns:
            return base.TimeStep("MID", 0.0, 1.0, self._request())
        reward, discount = self.last
        return base.TimeStep("LAST", reward, discount, None if discount == 0 else self._request())

    async def close(self) -> None:
        self.closed += 1

    def _request(self) -> request.LLMRequest:
        # The list itself, as mini-swe-agent sends it.
        return request.LLMRequest(messages=self._messages, system_prompt="be brief")

    async def _meet(self, what: Any) -> None:
        if what in self.troubles:
            came = self.troubles[what]()
            if came is not None:
                await came


async def talk(env: Any, begun: int = 0) -> Any:
    """Talks from where the episode stands to its end."""
    time_step, turn = None, begun
    while time_step is None or not time_step.last():
        time_step = await env.step(answer(f"word {turn}"))
        turn += 1
    return time_step


def collecting(
    collector: Any, **how: Any
) -> tuple[TrajectoryCollectingEnvironment[Any, Any, Any, Any], Talk]:
    return TrajectoryCollectingEnvironment(inner := Talk(**how), collector), inner


async def to_the_end(env: Any, inner: Talk) -> None:
    """An episode from its begin to its end."""
    await env.reset()
    await talk(env)


class Met:
    """A place where a task waits for ever; who knows that it is there can cancel it."""

    def __init__(self) -> None:
        self._here = asyncio.Event()

    async def wait(self) -> None:
        self._here.set()
        await asyncio.sleep(600)

    async def cancel(self, task: asyncio.Future[Any]) -> None:
        await self._here.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
