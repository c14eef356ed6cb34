"""How many steps a second are durable: tasks of an event loop, and the rulers they are held against."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import keepstep
from workload import payload


def tasks(folder: Path, count: int, seconds: float) -> float:
    """Steps a second of so many tasks, each awaited durable at `power`."""

    async def record(run: keepstep.Run, sample: int, ready: Together, clock: Clock) -> int:
        async with run.episode("t", sample=sample) as episode:
            await ready.wait()
            clock.start()
            done = 0
            while not clock.is_over():
                await episode.submit(observation=payload(done))
                done += 1
            await episode.end("finished")
        return done

    async def main(run: keepstep.Run) -> float:
        ready, clock = Together(count), Clock(seconds)
        done = await asyncio.gather(*(record(run, sample, ready, clock) for sample in range(count)))
        return sum(done) / seconds

    with keepstep.open(folder) as store:
        assert store.level == "power"
        return asyncio.run(main(store.run("bench")))


def tasks_beside_cpu(folder: Path, count: int, seconds: float) -> float:
    """The same, while a thread of the same interpreter never stops."""
    is_over = False

    def burn() -> None:
        number = 0
        while not is_over:
            number += 1

    burner = threading.Thread(target=burn)
    burner.start()
    try:
        return tasks(folder, count, seconds)
    finally:
        is_over = True
        burner.join()


def jsonl(folder: Path, threads: int, seconds: float, *, syncs: bool) -> float:
    """Steps a second of threads that each append lines of JSON to a file of their own."""
    folder.mkdir(parents=True)
    counts = [0] * threads
    ready, clock = threading.Barrier(threads), Clock(seconds)

    def record(number: int) -> None:
        with open(folder / f"{number}.jsonl", "w") as file:
            ready.wait()
            clock.start()
            while not clock.is_over():
                file.write(json.dumps({"observation": payload(counts[number])}) + "\n")
                file.flush()
                if syncs:
                    os.fsync(file.fileno())
                counts[number] += 1

    workers = [threading.Thread(target=record, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / seconds


class Together:
    """Tasks that begin when all are there; `asyncio.Barrier` is younger than Python 3.10."""

    def __init__(self, count: int) -> None:
        self.missing = count
        self.event = asyncio.Event()

    async def wait(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.event.set()
        await self.event.wait()


class Clock:
    """A time that begins with whoever is first."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.until: float | None = None

    def start(self) -> None:
        if self.until is None:
            self.until = time.perf_counter() + self.seconds

    def is_over(self) -> bool:
        return self.until is not None and time.perf_counter() >= self.until
