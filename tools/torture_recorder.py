"""A recorder that torture_python.py kills: threads, tasks of an event loop, or processes, until it dies.

usage: torture_recorder.py MODE STORE SEED BREAK

Each worker goes on with its episode where it was killed, and says on stdout what was acknowledged: after the receipt came,
unless BREAK is `early-ack`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import signal
import sys
import threading
import traceback
import warnings
from typing import Any

warnings.filterwarnings("ignore", message="this keepstep is a debug build")

import keepstep  # noqa: E402
from torture_python import RUN, acknowledgement, observation_of  # noqa: E402

THREADS = 32
TASKS = 512
PROCESSES = 8
THREADS_OF_A_PROCESS = 4
# An episode has so many steps, so that some are over at every kill.
STEPS = 60
OUT = 1


class Worker:
    """Records the episodes of one task, one after the other."""

    def __init__(self, run: keepstep.Run, task: str, seed: int, is_early: bool) -> None:
        self.run, self.task, self.seed, self.is_early = run, task, seed, is_early
        self.random = random.Random()
        self.sample = 0
        self.must_adopt = False

    def takes_turn(self) -> bool:
        """A turn that was said before the kill is adopted; else now and then."""
        must, self.must_adopt = self.must_adopt, False
        return must or self.random.randrange(3) == 0

    def tell(self, index: int) -> None:
        os.write(OUT, acknowledgement(self.task, self.sample, index))

    def both(self, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is said in a turn, and what comes of it."""
        observation = observation_of(self.seed, self.task, self.sample, index)
        return {"action": index}, {"observation": observation, "state": {"next": index + 1}}

    def check(self, episode: keepstep.Episode) -> None:
        """What a resumed attempt is told must fit together."""
        if episode.state("next", 0) != episode.turns:
            raise AssertionError(f"{episode!r} says {episode.state('next', 0)} and has {episode.turns} turns")
        self.must_adopt = episode.pending is not None

    def record(self) -> None:
        while True:
            try:
                with self.run.episode(self.task, sample=self.sample, busy="wait") as episode:
                    self.check(episode)
                    while episode.turns < STEPS:
                        self.step(episode, episode.turns)
                    episode.end("finished").wait()
                self.tell(-1)
            except keepstep.Ended:
                pass
            self.sample += 1

    def step(self, episode: keepstep.Episode, index: int) -> None:
        said, result = self.both(index)
        if self.is_early:
            episode.submit(**said, **result)
            self.tell(index)
            return
        if self.takes_turn():
            with episode.turn(**said) as turn:
                turn.result(**result)
        elif self.random.randrange(2):
            episode.step(**said, **result)
        else:
            episode.submit(**said, **result).wait()
        self.tell(index)

    async def arecord(self) -> None:
        while True:
            try:
                async with self.run.episode(self.task, sample=self.sample, busy="wait") as episode:
                    self.check(episode)
                    while episode.turns < STEPS:
                        await self.astep(episode, episode.turns)
                    await episode.end("finished")
                self.tell(-1)
            except keepstep.Ended:
                pass
            self.sample += 1

    async def astep(self, episode: keepstep.Episode, index: int) -> None:
        said, result = self.both(index)
        if self.is_early:
            episode.submit(**said, **result)
            self.tell(index)
            await asyncio.sleep(0)
            return
        if self.takes_turn():
            async with episode.turn(**said) as turn:
                turn.result(**result)
        else:
            await episode.submit(**said, **result)
        self.tell(index)


def in_threads(run: keepstep.Run, prefix: str, count: int, seed: int, is_early: bool) -> None:
    workers = [Worker(run, f"{prefix}-{number}", seed, is_early) for number in range(count)]
    threads = [threading.Thread(target=worker.record) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def in_tasks(run: keepstep.Run, seed: int, is_early: bool) -> None:
    workers = [Worker(run, f"task-{number}", seed, is_early) for number in range(TASKS)]
    # Opening takes time: else the last ones would be killed before they began, each time.
    random.shuffle(workers)
    await asyncio.gather(*(worker.arecord() for worker in workers))


def in_process(sent: bytes, number: int, seed: int, is_early: bool) -> None:
    """A worker process: it opens the run that was sent to it, with a writer of its own."""
    threading.excepthook = fail
    in_threads(pickle.loads(sent), f"process-{number}", THREADS_OF_A_PROCESS, seed, is_early)


def in_processes(run: keepstep.Run, method: str, seed: int, is_early: bool) -> None:
    """Workers that begin by fork or spawn, while this process records too."""
    context: Any = multiprocessing.get_context(method)
    own = threading.Thread(target=in_threads, args=(run, "parent", 2, seed, is_early))
    own.start()
    workers = []
    for number in range(PROCESSES):
        worker = context.Process(target=in_process, args=(pickle.dumps(run), number, seed, is_early))
        worker.start()
        workers.append(worker)
        os.write(OUT, f"worker {worker.pid}\n".encode())
    alive: dict[Any, Any] = {worker.sentinel: worker for worker in workers}
    while alive:
        for sentinel in multiprocessing.connection.wait(list(alive)):
            worker = alive.pop(sentinel)
            worker.join()
            if worker.exitcode != -signal.SIGKILL:
                os._exit(3)
    own.join()


def fail(raised: threading.ExceptHookArgs) -> None:
    """A worker that fails ends the recorder, so that the tormentor hears of it."""
    traceback.print_exception(raised.exc_value)
    os._exit(3)


def main() -> None:
    threading.excepthook = fail
    mode, where, seed_text, wrong = sys.argv[1:]
    seed, is_early = int(seed_text), wrong == "early-ack"
    run = keepstep.open(where).run(RUN)
    if mode == "threads":
        in_threads(run, "thread", THREADS, seed, is_early)
    elif mode == "tasks":
        asyncio.run(in_tasks(run, seed, is_early))
    else:
        in_processes(run, mode, seed, is_early)


if __name__ == "__main__":
    main()
