"""A process that puts checkpoints: `langgraph_worker.py STORE THREAD NAME COUNT LINGERS`; each is told when it is acknowledged.

With LINGERS it goes on until it is killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent.parent / "standins"))

from keepstep.adapters.langgraph import KeepstepSaver


def checkpoint(id: str, messages: list[Any]) -> Any:
    return {
        "v": 4,
        "id": id,
        "ts": "2026-11-15T00:00:00+00:00",
        "channel_values": {"messages": messages},
        "channel_versions": {"messages": len(messages)},
        "versions_seen": {},
        "updated_channels": None,
    }


def main(where: str, thread: str, name: str, count: str, lingers: str) -> None:
    with KeepstepSaver(where) as saver:
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        newest = saver.get_tuple(config)
        messages = newest.checkpoint["channel_values"]["messages"] if newest else []
        parent = newest.config if newest else config
        for number in range(int(count)):
            messages = [*messages, f"{name} {number} " + "x" * 500]
            id = f"{len(messages):06}-{name}"
            parent = saver.put(
                parent, checkpoint(id, messages), {"step": number}, {"messages": len(messages)}
            )
            saver.put_writes(parent, [("messages", [f"next of {id}"])], f"task-{name}")
            print(id, flush=True)
        while lingers == "lingers":
            time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
