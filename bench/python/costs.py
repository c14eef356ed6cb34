"""What a call costs its caller, in time and in memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
from workload import fresh, history, message, payload


def median_s(episode: keepstep.Episode, make: Callable[[int], dict[str, Any]], calls: int) -> float:
    """The median of submit() on the caller's thread. What is recorded is made before, and waited for behind the clock."""
    times = []
    for number in range(calls):
        given = make(number)
        began = time.perf_counter()
        receipt = episode.submit(**given)
        times.append(time.perf_counter() - began)
        if number % 16 == 15:
            receipt.wait()
    return statistics.median(times)


def submit_us(folder: Path, calls: int) -> float:
    """submit() of a dict of 2 KB."""
    with keepstep.open(folder).run("bench").episode("t") as episode:
        median = median_s(episode, lambda number: {"observation": payload(number)}, calls)
        episode.end("finished")
    return median * 1e6


def history_ms(folder: Path, calls: int, *, is_fresh: bool) -> float:
    """submit() of a history of 1 MB whose last message alone is new."""
    messages = history()

    def make(number: int) -> dict[str, Any]:
        messages[-1] = message(number)
        return {"prompt": fresh(messages) if is_fresh else list(messages)}

    with keepstep.open(folder).run("bench").episode("t") as episode:
        episode.step(prompt=messages)
        median = median_s(episode, make, calls)
        episode.end("finished")
    return median * 1e3


def null_us(calls: int) -> float:
    """submit() to the null store, a loop without it taken away."""
    episode = keepstep.open(None).run("bench").episode("t").__enter__()
    given = payload(0)

    def loop(with_it: bool) -> float:
        began = time.perf_counter()
        if with_it:
            for _ in range(calls):
                episode.submit(action=1, observation=given, reward=0.5)
        else:
            for _ in range(calls):
                pass
        return time.perf_counter() - began

    took = (loop(True) - loop(False)) / calls * 1e6
    episode.end("finished")
    return took


ARRAY = """
import ctypes, json, os, sys
import numpy, keepstep

def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

episode = keepstep.open(sys.argv[1]).run("bench").episode("t").__enter__()
def fresh():
    return numpy.frombuffer(os.urandom(1 << 20), dtype="float32")

# What is made once and kept (the workspace of the compressor, buffers of the log) is no memory of this array.
for number in range(20):
    episode.step(observation=fresh())
array = fresh()
# Free memory that the allocator holds back would hide what is used.
ctypes.CDLL(None).malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")
before = peak_kb()
episode.step(observation=array)
after = peak_kb()
episode.end("finished")
print(json.dumps((after - before) * 1024 / array.nbytes))
"""


def array_memory(folder: Path) -> float:
    """How far the peak of a process rises when it records one more fresh array of 1 MB, in arrays."""
    done = subprocess.run(
        [sys.executable, "-c", ARRAY, str(folder)], check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout))


def wrapper_us(folder: Path, calls: int) -> float:
    """A wrapped Gymnasium step, less a bare one, less the durable write of the same step.

    At `kill`, where a write takes microseconds: between two syncs of a fraction of a millisecond nobody finds 30 of them.
    """
    import gymnasium

    bare = gymnasium.make("CartPole-v1", max_episode_steps=10 * calls).unwrapped
    with keepstep.open(folder, level="kill") as store:
        run = store.run("bench")
        wrapped = keepstep.record(gymnasium.make("CartPole-v1").unwrapped, run, task="wrapped")
        with run.episode("by-hand") as episode:
            seen: dict[str, list[float]] = {"bare": [], "wrapped": [], "by hand": []}
            bare.reset(seed=1)
            wrapped.reset(seed=1)
            for number in range(calls):
                action = number % 2
                came = timed(seen["bare"], bare.step, action)
                ended = timed(seen["wrapped"], wrapped.step, action)
                given = {"action": action, "observation": came[0], "reward": float(came[1]), "info": came[4]}
                timed(seen["by hand"], in_a_turn, episode, given)
                if came[2]:
                    bare.reset(seed=number)
                if ended[2]:
                    wrapped.reset(seed=number)
            episode.end("finished")
        wrapped.close()
    medians = {name: statistics.median(times) for name, times in seen.items()}
    return (medians["wrapped"] - medians["bare"] - medians["by hand"]) * 1e6


def in_a_turn(episode: keepstep.Episode, given: dict[str, Any]) -> None:
    """What the wrapper has to write, by the calls that it makes: an intent before the action, a result behind it."""
    native = episode._native
    native.say({"action": given.pop("action")}, True)
    native.result(given, True)


def timed(times: list[float], do: Callable[..., Any], *given: Any) -> Any:
    began = time.perf_counter()
    came = do(*given)
    times.append(time.perf_counter() - began)
    return came
