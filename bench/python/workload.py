"""What is recorded: fresh content every time, so that neither dedupe nor a dictionary helps anyone."""

from __future__ import annotations

import itertools
import os
from typing import Any

# Cut at another place every time: fresh to every reader, and made without a system call. Asking the system for randomness
# gives the interpreter away, which beside a busy thread would measure that thread's patience, not the recording.
_POOL = os.urandom(2 << 20).hex()
_TEXT = 1800
_cuts = itertools.count(int.from_bytes(os.urandom(4), "little"))


def payload(number: int) -> dict[str, Any]:
    """A dict of 12 keys and about 2 KB: four fresh texts, and what stands around them."""
    cut = next(_cuts) * (_TEXT + 1) % (len(_POOL) - _TEXT)
    text = _POOL[cut : cut + _TEXT]
    return {
        "role": "tool",
        "number": number,
        "title": text[:100],
        "page": text[100:900],
        "tree": text[900:1500],
        "log": text[1500:],
        "url": "https://shop.example/item?id=17",
        "status": 200,
        "elapsed": 0.25,
        "is_new": True,
        "parent": None,
        "tags": ["a", "b", "c"],
    }


def message(number: int, length: int = 5_000) -> dict[str, Any]:
    """A message of a history."""
    return {"role": "user" if number % 2 else "assistant", "content": os.urandom(length // 2).hex()}


def history() -> list[dict[str, Any]]:
    """200 messages, 1 MB."""
    return [message(number) for number in range(200)]


def fresh(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal to what is given, and none of it the same object."""
    return [{"role": one["role"] + "", "content": (one["content"] + "x")[:-1]} for one in messages]
