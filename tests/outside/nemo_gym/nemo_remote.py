"""A sink, a source or a resolver in a process of its own, and what stands for it here.

usage: python nemo_remote.py {sink|source|lineage} STORE      a JSON line in for each call, a JSON line out
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import outside
from nemo_gym.token_id_capture import TokenEntry
from nemo_gym.token_id_capture.protocols import LineageMatch, LineageResolution, TokenCaptureSnapshot

CLIENTS = {"sink": "KeepstepTokenSink", "source": "KeepstepTokenSource", "lineage": "KeepstepLineage"}


async def serve(kind: str, store: str) -> None:
    """Each client is made anew when the other side makes one, as separate workers would."""
    from keepstep.adapters import nemo_gym

    clients: dict[int, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        number, method, said = asked["client"], asked["method"], asked["said"]
        try:
            if number not in clients:
                clients[number] = getattr(nemo_gym, CLIENTS[kind])(store)
            if method == "put":
                said = {"entry": TokenEntry.model_validate(said["entry"])}
            came = await getattr(clients[number], method)(**said)
            told = {"came": _plain(came)}
        except Exception as raised:
            told = {"raised": f"{type(raised).__name__}: {raised}"}
        print(json.dumps(told), flush=True)


def _plain(came: Any) -> Any:
    if isinstance(came, TokenCaptureSnapshot):
        return {**vars(came), "entries": [entry.model_dump(mode="json") for entry in came.entries]}
    if isinstance(came, LineageResolution):
        return {**vars(came), "match": None if came.match is None else vars(came.match)}
    return came


class Process:
    """The process, and the clients in it."""

    def __init__(self, kind: str, store: Path) -> None:
        self.running = outside.start(Path(__file__), kind, store)
        self.count = 0

    def ask(self, client: int, method: str, said: dict[str, Any]) -> Any:
        assert self.running.stdin is not None and self.running.stdout is not None
        self.running.stdin.write(json.dumps({"client": client, "method": method, "said": said}) + "\n")
        self.running.stdin.flush()
        line = self.running.stdout.readline()
        assert line, f"the process ended: {self.running.stderr.read() if self.running.stderr else ''}"
        told = json.loads(line)
        if "raised" in told:
            raise RuntimeError(told["raised"])
        return told["came"]

    def end(self) -> None:
        self.running.communicate(timeout=30)
        assert self.running.returncode == 0


class _Remote:
    def __init__(self, process: Process) -> None:
        self._process = process
        process.count += 1
        self._client = process.count

    async def _ask(self, method: str, **said: Any) -> Any:
        return await asyncio.to_thread(self._process.ask, self._client, method, said)

    async def close(self) -> None:
        await self._ask("close")


class RemoteSink(_Remote):
    async def put(self, entry: TokenEntry) -> None:
        await self._ask("put", entry=entry.model_dump(mode="json"))

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        await self._ask("mark_incomplete", rollout_id=rollout_id, model_call_id=model_call_id)

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        await self._ask("begin_call", rollout_id=rollout_id, model_call_id=model_call_id)


class RemoteSource(_Remote):
    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        came = await self._ask("freeze", rollout_id=rollout_id)
        entries = tuple(TokenEntry.model_validate(entry) for entry in came.pop("entries"))
        return TokenCaptureSnapshot(entries=entries, **came)

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        dropped = await self._ask("drop", rollout_id=rollout_id, snapshot_id=snapshot_id, version=version)
        return bool(dropped)


class RemoteLineage(_Remote):
    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        came = await self._ask("resolve", rollout_id=rollout_id, request_items=request_items)
        match = came.pop("match")
        if match is not None:
            match["cumulative_token_ids"] = tuple(match["cumulative_token_ids"])
            match["staging_chain"] = tuple(match["staging_chain"])
            match = LineageMatch(**match)
        return LineageResolution(match=match, **came)

    def is_process_shared(self) -> bool:
        return True


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
