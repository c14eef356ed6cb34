"""An agent server of the real NeMo Gym with a journal, and its counter environment, in one process that is killed.

usage: python nemo_server.py      a JSON line in for each server: {"store": …, "environment": …, "point": …}
Importing NeMo Gym takes seconds: so this process only imports, and forks a server for each line. The server says its
process and port, and that it is at the point, where it waits; of its death this process tells.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any

import uvicorn
from fastapi import Request
from keepstep.adapters.nemo_gym import JournaledRollout, RunJournal
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import (
    BaseServerConfig,
    GlobalAIOHTTPAsyncClientConfig,
    ServerClient,
    get_response_json,
    raise_for_status,
    set_global_aiohttp_client,
)
from omegaconf import OmegaConf
from pydantic import ConfigDict, PrivateAttr
from resources_servers.example_session_state_mgmt.app import (
    StatefulCounterResourcesServer,
    StatefulCounterResourcesServerConfig,
)

TURNS = 4


class RunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


async def reach(point: str) -> None:
    if point == STOP_AT:
        print(f"at {point}", flush=True)
        await asyncio.sleep(600)


class CounterAgent(SimpleResponsesAPIAgent):
    """Calls `increment_counter` four times, each time by one more, and then answers."""

    config: BaseResponsesAPIAgentConfig
    # One rollout at a time here.
    _cookies: Any = PrivateAttr(default=None)

    async def responses(self, body: Any) -> NeMoGymResponse:
        raise NotImplementedError

    async def ask(self, items: list[Any]) -> NeMoGymResponse:
        turn = sum(item.get("type") == "function_call_output" for item in items)
        await reach(f"asking {turn}")
        said: dict[str, Any] = {
            "type": "function_call",
            "name": "increment_counter",
            "call_id": f"call-{turn}",
            "arguments": json.dumps({"count": turn + 1}),
        }
        if turn == TURNS:
            text = {"type": "output_text", "text": "done", "annotations": []}
            said = {
                "type": "message",
                "id": "last",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        return NeMoGymResponse.model_validate(
            {
                "id": f"resp-{turn}",
                "object": "response",
                "created_at": 1.0,
                "model": "m",
                "output": [said],
                "parallel_tool_calls": False,
                "tool_choice": "auto",
                "tools": [],
            }
        )

    async def run(self, request: Request, body: RunRequest) -> VerifyResponse:
        self._cookies = None
        hooks = (
            {"export": self.export, "restore": self.restore}
            if JOURNAL.environment == "export/restore"
            else {}
        )
        async with JOURNAL.rollout(body, **hooks) as rollout:
            if rollout.result is None:
                if not rollout.turns:
                    await self.restore({"count": 0})
                await self.loop(rollout)
                await reach("verifying")
                response = {**(rollout.last_response or {}), "output": rollout.output}
                verified = await self.post("/verify", {**body.model_dump(mode="json"), "response": response})
                await rollout.finish(verified)
                await reach("answering")
        return VerifyResponse.model_validate(rollout.result)

    async def loop(self, rollout: JournaledRollout) -> None:
        while not rollout.done:
            async with rollout.turn(self.ask) as turn:
                await reach(f"acting {rollout.turns}")
                outputs = [await self.tool(call) for call in turn.calls]
                await reach(f"acted {rollout.turns}")
                await turn.result(outputs, done=not turn.calls)

    async def tool(self, call: dict[str, Any]) -> dict[str, Any]:
        said = {"stateless": True}
        if JOURNAL.environment != "stateless":
            said = await self.post(f"/{call['name']}", json.loads(call["arguments"]))
        return {"type": "function_call_output", "call_id": call["call_id"], "output": json.dumps(said)}

    async def export(self) -> dict[str, Any]:
        return await self.post("/get_counter_value", {})

    async def restore(self, state: dict[str, Any]) -> None:
        self._cookies = None
        await self.post("/seed_session", {"initial_count": state["count"]})

    async def post(self, path: str, said: dict[str, Any]) -> dict[str, Any]:
        came = await self.server_client.post("resources", path, json=said, cookies=self._cookies)
        await raise_for_status(came)
        self._cookies = came.cookies or self._cookies
        found: dict[str, Any] = await get_response_json(came)
        return found


def listening() -> socket.socket:
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    return door


async def serve() -> None:
    doors = [listening(), listening()]
    ports = [door.getsockname()[1] for door in doors]
    named = {
        "agent": {"responses_api_agents": {"counter": {"host": "127.0.0.1", "port": ports[0]}}},
        "resources": {"resources_servers": {"counter": {"host": "127.0.0.1", "port": ports[1]}}},
    }
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create(named),
    )
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    agent = CounterAgent(
        config=BaseResponsesAPIAgentConfig(host="127.0.0.1", port=ports[0], entrypoint="", name="agent"),
        server_client=client,
    )
    config = StatefulCounterResourcesServerConfig(
        host="127.0.0.1", port=ports[1], entrypoint="", name="resources"
    )
    resources = StatefulCounterResourcesServer(config=config, server_client=client)
    servers = [
        uvicorn.Server(uvicorn.Config(server.setup_webserver(), log_level="warning"))
        for server in (agent, resources)
    ]
    running = [
        asyncio.create_task(server.serve(sockets=[door])) for server, door in zip(servers, doors, strict=True)
    ]
    while not all(server.started for server in servers):
        await asyncio.sleep(0.01)
    print(json.dumps({"pid": os.getpid(), "port": ports[0]}), flush=True)
    await asyncio.gather(*running)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            STOP_AT = asked["point"]
            JOURNAL = RunJournal(asked["store"], environment=asked["environment"])
            asyncio.run(serve())
            os._exit(1)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"died": os.waitstatus_to_exitcode(status)}), flush=True)
