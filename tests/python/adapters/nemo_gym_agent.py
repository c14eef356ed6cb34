"""An agent for the tests: it asks a model that counts, calls a tool that counts, and answers after five turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepstep.adapters.nemo_gym import JournaledRollout, RunJournal

TURNS = 5


class Killed(BaseException):
    """Stands for the end of the process: nobody says anything after it."""


class Counter:
    """An environment with a state: what its tool says depends on all calls before."""

    def __init__(self) -> None:
        self.value = 0
        self.calls = 0
        self.restored: list[Any] = []

    def tool(self, by: int) -> str:
        self.calls += 1
        self.value = self.value * 3 + by
        return f"it is {self.value}"

    def export(self) -> Any:
        return {"value": self.value}

    async def restore(self, state: Any) -> None:
        self.restored.append(state)
        self.value = state["value"]


class Stateless(Counter):
    """An environment without a state: the same call is always answered alike."""

    def tool(self, by: int) -> str:
        self.calls += 1
        return f"it is {by}"


def body(task: int = 7, rollout: int = 0, **more: Any) -> dict[str, Any]:
    """A request as NeMo Gym's collector sends it."""
    asked = {"input": [{"role": "user", "content": "count, please"}]}
    return {"responses_create_params": asked, "_ng_task_index": task, "_ng_rollout_index": rollout, **more}


class Agent:
    """The handler of `/run`. `stop` is called at each point of it, and may raise `Killed`."""

    def __init__(
        self, journal: RunJournal, env: Counter, stop: Callable[[str], None] = lambda point: None
    ) -> None:
        self.journal = journal
        self.env = env
        self.stop = stop
        self.asked: list[list[Any]] = []
        self.names: list[str] = []

    async def ask(self, items: list[Any]) -> dict[str, Any]:
        turn = sum(item.get("type") == "function_call_output" for item in items)
        self.stop(f"asking {turn}")
        self.asked.append(items)
        call = {
            "type": "function_call",
            "name": "count",
            "call_id": f"call-{turn}",
            "arguments": f"{turn + 1}",
        }
        last = {"type": "message", "role": "assistant", "content": items[-1]["output"] if turn else ""}
        return {"id": f"resp-{turn}", "model": "m", "output": [last if turn == TURNS else call]}

    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        restorable = self.journal.environment == "export/restore"
        hooks = {"export": self.env.export, "restore": self.env.restore} if restorable else {}
        async with self.journal.rollout(request, **hooks) as rollout:
            if rollout.result is None:
                self.names.append(rollout.name)
                await self.loop(rollout)
                self.stop("verifying")
                response = {**(rollout.last_response or {}), "output": rollout.output}
                await rollout.finish({**request, "response": response, "reward": float(len(rollout.output))})
                self.stop("answering")
        assert rollout.result is not None
        return rollout.result

    async def loop(self, rollout: JournaledRollout) -> None:
        while not rollout.done:
            async with rollout.turn(self.ask) as turn:
                self.stop(f"acting {rollout.turns}")
                outputs = [
                    {
                        "type": "function_call_output",
                        "call_id": call["call_id"],
                        "output": self.env.tool(int(call["arguments"])),
                    }
                    for call in turn.calls
                ]
                self.stop(f"acted {rollout.turns}")
                await turn.result(outputs, done=not turn.calls)


POINTS = [f"{what} {turn}" for turn in range(TURNS + 1) for what in ("asking", "acting", "acted")] + [
    "verifying",
    "answering",
]
