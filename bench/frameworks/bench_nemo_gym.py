"""Measures the token sink for NeMo Gym against its own file store: alternating pairs in one run, medians of ratios.

usage: bench_nemo_gym.py --json OUT [--seconds N] [--dir DIR]      in NeMo Gym's environment, with keepstep in it

An entry has 2,000 prompt tokens, all new, 200 generated ones and their log probabilities. Each `put` is awaited, so each
is durable: in both stores after a sync. The first call of each rollout makes files in both stores; it is put before the
clock starts, so what is measured is rollouts under way.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keepstep.adapters.nemo_gym import KeepstepTokenSink
from nemo_gym.token_id_capture import (
    ParentResolutionStatus,
    TokenCaptureStore,
    TokenEntry,
    stamp_continuation,
)
from nemo_gym.token_id_capture.records import stamp_lineage

PROMPT, GENERATED, VOCABULARY = 2_000, 200, 150_000
CONCURRENT = 256
CALLS_A_ROLLOUT = 9
PAIRS_MIN = 3

Row = dict[str, Any]


def tokens(rng: random.Random, count: int) -> list[int]:
    return rng.choices(range(VOCABULARY), k=count)


def log_probs(rng: random.Random, count: int) -> list[float]:
    """As an engine computes them, in 32 bits."""
    return list(
        struct.unpack(f"{count}f", struct.pack(f"{count}f", *(-rng.expovariate(2.0) for _ in range(count))))
    )


def entry(rng: random.Random, rollout: str, call: int, prompt: list[int]) -> TokenEntry:
    said = " ".join(rng.choices(WORDS, k=120))
    made = TokenEntry(
        rollout_id=rollout,
        model_call_id=f"call-{call}",
        model="model",
        prompt_token_ids=prompt,
        generation_token_ids=tokens(rng, GENERATED),
        generation_log_probs=log_probs(rng, GENERATED),
        output_items=[
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}
        ],
        token_item_index=0,
        response_id=f"resp-{rollout}-{call}",
        created_at=1.7e9 + call,
    )
    stamp_continuation(made, [{"role": "user", "content": f"task of {rollout}"}])
    return stamp_lineage(made, None, parent_resolution=ParentResolutionStatus.ROOT)


WORDS = [f"word{number}" for number in range(500)]


async def puts_per_second(sink: Any, entries: list[TokenEntry], concurrent: int) -> float:
    waiting = iter(entries)

    async def one_after_another() -> None:
        for made in waiting:
            await sink.put(made)

    began = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(concurrent)))
    return len(entries) / (time.perf_counter() - began)


class Bench:
    """Both stores in turn, each in a fresh folder."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.rng = random.Random(1)
        self.number = 0

    def fresh(self) -> Path:
        self.number += 1
        where = self.folder / str(self.number)
        os.sync()
        return where

    async def _rates(self, entries: list[TokenEntry], concurrent: int) -> tuple[float, float]:
        files, sink = TokenCaptureStore(self.fresh()), KeepstepTokenSink(self.fresh())
        for store in (files, sink):
            await puts_per_second(store, entries[:concurrent], concurrent)
        theirs = await puts_per_second(files, entries[concurrent:], concurrent)
        ours = await puts_per_second(sink, entries[concurrent:], concurrent)
        await sink.close()
        return ours, theirs

    def rates(self, name: str, need: float, concurrent: int, entries: Callable[[], list[TokenEntry]]) -> Row:
        pairs: list[tuple[float, float]] = []
        ends = time.monotonic() + self.seconds
        while len(pairs) < PAIRS_MIN or time.monotonic() < ends:
            made = entries()
            # What was made for the measurement is not the collector's business.
            gc.collect()
            gc.freeze()
            pairs.append(asyncio.run(self._rates(made, concurrent)))
            gc.unfreeze()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
        got = statistics.median(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        told = f"{ours:,.0f} against {theirs:,.0f} entries/s, {len(pairs)} pairs"
        return row(name, got, need, told)

    def concurrent_entries(self) -> list[TokenEntry]:
        """Rollouts side by side, each call after the one before."""
        return [
            entry(self.rng, f"r{rollout}", call, tokens(self.rng, PROMPT))
            for call in range(CALLS_A_ROLLOUT)
            for rollout in range(CONCURRENT)
        ]

    def sequential_entries(self) -> list[TokenEntry]:
        return [entry(self.rng, "r", call, tokens(self.rng, PROMPT)) for call in range(300)]

    def bytes_of_a_rollout(self, need: float) -> Row:
        """50 calls; the next prompt is the one before, what was generated, and 100 tokens of a tool."""

        async def both() -> tuple[int, int]:
            theirs, ours = self.fresh(), self.fresh()
            files, sink = TokenCaptureStore(theirs), KeepstepTokenSink(ours)
            prompt = tokens(self.rng, PROMPT)
            for call in range(50):
                made = entry(self.rng, "r", call, list(prompt))
                await files.put(made)
                await sink.put(made)
                prompt += made.generation_token_ids + tokens(self.rng, 100)
            await sink.close()
            return size_of(theirs), size_of(ours)

        theirs, ours = asyncio.run(both())
        told = f"{ours:,} against {theirs:,} bytes"
        return row("nemo-gym-bytes-growing-50", theirs / ours, need, told)


def size_of(folder: Path) -> int:
    """What it takes on the disk: claims and cards too."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def row(name: str, got: float, need: float, told: str) -> Row:
    return {"name": name, "got": round(got, 2), "need": need, "ok": got >= need, "told": told}


def measure(seconds: float = 20.0, folder: Path | None = None) -> list[Row]:
    """A row for each bar: `{name, got, need, ok}`, and what was measured in words."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        bench = Bench(Path(scratch) / "stores", seconds)
        bench.folder.mkdir()
        return [
            bench.rates("nemo-gym-put-256", 10, CONCURRENT, bench.concurrent_entries),
            bench.rates("nemo-gym-put-1", 1, 1, bench.sequential_entries),
            bench.bytes_of_a_rollout(10),
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the token sink against NeMo Gym's file store.")
    parser.add_argument("--json", type=Path, required=True, help="where the rows go")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of the two rates")
    parser.add_argument("--dir", type=Path, help="the disk to measure on")
    options = parser.parse_args()
    rows = measure(options.seconds, options.dir)
    options.json.write_text(json.dumps(rows, indent=1) + "\n")
    for found in rows:
        verdict = "ok" if found["ok"] else "MISSED"
        print(
            f"{found['name']:28} {found['got']:8.2f}x  need {found['need']:g}x  {verdict:6}  {found['told']}"
        )
    return 0 if all(found["ok"] for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
