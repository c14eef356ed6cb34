"""A rollout over TransferQueue as its users write one: a producer, a worker of Ray that scores, checkpoints; killed and run again.

usage: python tq_flow.py FOLDER STEPS

Says `step N` when a step is safe, and at the end a digest of all data and of all that is known about them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import keepstep.adapters.transfer_queue  # noqa: F401
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict

GROUP = 4


def keys_of(step: int) -> list[str]:
    return [f"prompt-{step}.{sample}" for sample in range(GROUP)]


def produce(step: int) -> TensorDict:
    """What a policy would sample: the same for the same step."""
    dice = torch.Generator().manual_seed(step)
    lengths = torch.randint(3, 40, (GROUP,), generator=dice).tolist()
    tokens = [torch.randint(0, 32_000, (length,), generator=dice) for length in lengths]
    logprobs = [torch.randn(length, generator=dice).bfloat16() for length in lengths]
    return TensorDict(
        {
            "prompt": [{"step": step, "text": f"question {step}"}] * GROUP,
            "response_ids": torch.nested.as_nested_tensor(tokens, layout=torch.jagged),
            "logprobs": torch.nested.as_nested_tensor(logprobs, layout=torch.jagged),
        },
        batch_size=GROUP,
    )


@ray.remote(num_cpus=0)
def score(step: int) -> None:
    """Runs in another process, which was told nothing of keepstep."""
    tq.init()
    keys = keys_of(step)
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["response_ids"])
    rewards = [float(ids.sum() % 7) for ids in data["response_ids"].unbind()]
    fields = TensorDict({"reward": torch.tensor(rewards).unsqueeze(1)}, batch_size=len(keys))
    tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[{"scored": True}] * len(keys))


def digest(keys: list[str]) -> str:
    """All data, and the tags of the keys, as one number."""
    hashed = hashlib.sha256()
    data = tq.kv_batch_get(keys=keys, partition_id="train")
    for field in sorted(data.keys()):
        for value in data[field]:
            is_tensor = isinstance(value, torch.Tensor)
            hashed.update(
                f"{field} {value.dtype} {value.float().tolist()}".encode()
                if is_tensor
                else repr(value).encode()
            )
    tags = tq.kv_list(partition_id="train")["train"]
    hashed.update(json.dumps({key: tags[key] for key in keys}, sort_keys=True).encode())
    return hashed.hexdigest()


def start(folder: Path) -> int:
    """Starts TransferQueue, or goes on from its checkpoint. The step to begin with."""
    backend: dict[str, Any] = {"storage_backend": "Keepstep", "Keepstep": {"store": str(folder / "store")}}
    tq.init(OmegaConf.create({"controller": {"polling_mode": True}, "backend": backend}))
    checkpoint = folder / "checkpoint"
    if not checkpoint.exists() and not checkpoint.with_name("checkpoint.old").exists():
        return 0
    tq.load_checkpoint(checkpoint)
    step: int = json.loads((checkpoint / "metadata.json").read_text())["user_metadata"]["step"]
    return step


def main(folder: Path, steps: int) -> None:
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=80 << 20,
        namespace="flow",
        log_to_driver=False,
    )
    begin = start(folder)
    print(f"from {begin}", flush=True)
    for step in range(begin, steps):
        tags = [{"scored": False}] * GROUP
        tq.kv_batch_put(keys=keys_of(step), partition_id="train", fields=produce(step), tags=tags)
        print(f"put {step}", flush=True)
        ray.get(score.remote(step))
        print(f"scored {step}", flush=True)
        if step % 3 == 2:
            # Training is done with this one; its indexes are given to the next.
            tq.kv_clear(keys=keys_of(step - 2), partition_id="train")
            print(f"cleared {step - 2}", flush=True)
        tq.save_checkpoint(folder / "checkpoint", metadata={"step": step + 1})
        print(f"step {step}", flush=True)
    left = sorted(tq.kv_list(partition_id="train")["train"])
    print(json.dumps({"left": left, "digest": digest(left)}), flush=True)
    tq.close()
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
