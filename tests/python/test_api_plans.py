"""Plans, groups, notes and streams from Python."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
from keepstep import _loops
from keepstep._sealing import Sealing


def finish(job: keepstep.Job) -> str:
    with job.episode() as episode:
        episode.step(action=1, reward=1.0)
        episode.end("finished")
    return job.ref


def test_a_plan_is_what_remains_until_it_is_done(run: keepstep.Run) -> None:
    """Each (task, sample) once; planning it again adds nothing; what is finished does not come back."""
    run.plan(["a", "b"], samples=2)
    run.plan(["a", "b"], samples=2)
    jobs = list(run.remaining())
    assert sorted((job.task, job.sample, job.iteration, job.why, job.attempts) for job in jobs) == [
        (task, sample, 0, "new", 0) for task in "ab" for sample in range(2)
    ]
    assert "shop/a#0.0" in repr(sorted(jobs, key=lambda job: job.ref)[0])
    for job in jobs:
        finish(job)
    assert list(run.remaining()) == []
    assert run.claim() is None
    run.plan(["a"], iteration=1)
    again = run.claim()
    assert again is not None and (again.task, again.iteration) == ("a", 1)
    finish(again)


def test_a_job_is_opened_once(run: keepstep.Run) -> None:
    """Its claim is used up; asking for what remains gives another."""
    run.plan(["a"])
    job = run.claim()
    assert job is not None
    finish(job)
    with pytest.raises(keepstep.BadInput, match="opened before"):
        job.episode().__enter__()


def test_a_text_is_not_a_list_of_tasks(run: keepstep.Run) -> None:
    """It would plan one task for each letter."""
    with pytest.raises(keepstep.BadInput, match="tasks"):
        run.plan("shop-17")


INTERRUPTED = """
    import sys, keepstep
    run = keepstep.open(sys.argv[1]).run("shop")
    with run.episode("b") as episode:
        episode.step(action=1)
        episode.end("aborted")
    for number in range(2):
        with run.episode("c") as episode:
            episode.end("errored", error=f"{number}")
"""


def test_interrupted_ones_come_first_and_errored_ones_are_counted(run: keepstep.Run) -> None:
    """Both go on by themselves, and errored ones not more often than allowed."""
    run.plan(["a", "b", "c"])
    outside.run(INTERRUPTED, run.store.where)
    first, *rest = [(job.task, job.why, job.attempts) for job in run.remaining(max_attempts=2)]
    assert first == ("b", "aborted", 1)
    assert rest == [("a", "new", 0)]
    again = [job for job in run.remaining(max_attempts=3) if job.task == "c"]
    assert [(job.why, job.attempts) for job in again] == [("errored", 2)]


def test_an_unscored_episode_remains(run: keepstep.Run) -> None:
    """A plan that needs notes: a finished episode without its score is given to those who score."""
    run.plan(["a"], needs=["judge"])
    job = run.claim()
    assert job is not None
    finish(job)
    assert run.claim() is None
    assert [unscored.why for unscored in run.unscored()] == ["unscored"]
    run.annotate("shop/a", "judge", 0.7, source="model").wait()
    assert list(run.unscored()) == []


def test_threads_share_a_plan(run: keepstep.Run) -> None:
    """Many iterate at once: every job is done, and none twice."""
    run.plan([f"task-{number}" for number in range(20)], samples=4)
    done: list[str] = []

    def work() -> None:
        for job in run.remaining():
            done.append(finish(job))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 80
    assert max(Counter(done).values()) == 1


def work_in_process(run: keepstep.Run) -> list[str]:
    return [finish(job) for job in run.remaining()]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_a_plan(run: keepstep.Run, method: str) -> None:
    """The same with processes, which share nothing but the store."""
    run.plan([f"task-{number}" for number in range(10)], samples=4)
    with multiprocessing.get_context(method).Pool(4) as pool:
        done = [ref for refs in pool.map(work_in_process, [run] * 4, chunksize=1) for ref in refs]
    assert len(done) == 40
    assert max(Counter(done).values()) == 1
    assert list(run.remaining()) == []


def test_a_group_is_sealed_all_or_none(store: keepstep.Store, run: keepstep.Run) -> None:
    """Rewards by ref; too few members are refused; what is missing is named with its reason; sealed once."""
    group = run.group("t", size=3)
    assert group.refs == ("shop/t#0.0", "shop/t#0.1", "shop/t#0.2")
    for sample in range(2):
        with run.episode("t", sample=sample) as episode:
            episode.end("finished")
    with run.episode("t", sample=2) as episode:
        episode.end("errored", error="x")
    with pytest.raises(keepstep.KeepstepError):
        group.seal(source="trainer").wait()
    with pytest.raises(keepstep.BadInput, match=r"is '0\.5'"):
        group.seal({"shop/t#0.0": "0.5"}, source="trainer", least=2)  # type: ignore[dict-item]
    with pytest.raises(keepstep.NotFound):
        group.seal({"other/t#0.0": 0.5}, source="trainer", least=2)
    sealed = group.seal({"shop/t#0.0": 0.5, "shop/t#0.1": 1}, source="trainer", least=2)
    assert sealed.wait() is sealed
    assert (sealed.level, dict(sealed.missing)) == ("power", {2: "errored"})
    assert "sealed" in repr(sealed)
    # The same once more is the same seal; another reward is another.
    with pytest.raises(keepstep.KeepstepError):
        group.seal({"shop/t#0.0": 9.0, "shop/t#0.1": 1}, source="trainer", least=2).wait()


def test_a_seal_on_a_loop_is_awaited(run: keepstep.Run) -> None:
    """seal() behaves as submit(): it returns at once, and raises when it is awaited."""

    async def main() -> None:
        async with run.episode("t") as episode:
            await episode.end("finished")
        sealing = run.group("t", size=1).seal({"shop/t#0.0": 1.0}, source="trainer")
        assert await sealing is sealing
        assert sealing.level == "power"
        with pytest.raises(keepstep.KeepstepError):
            await run.group("nobody", size=1).seal(source="trainer")

    asyncio.run(main())


def test_a_seal_behaves_as_a_receipt(run: keepstep.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout is the builtin TimeoutError, a level out of reach is an error, and blocking a loop is warned about."""
    monkeypatch.setattr(_loops, "_has_warned", False)
    may_go = threading.Event()

    def seal() -> dict[int, str]:
        may_go.wait()
        return {1: "errored"}

    async def main() -> None:
        sealing = Sealing(run.store, "shop/t#0", seal)
        assert (sealing.level, "on its way" in repr(sealing)) == (None, True)
        with (
            pytest.warns(RuntimeWarning, match="event loop"),
            pytest.raises(TimeoutError, match="not sealed"),
        ):
            sealing.wait(0.01)
        may_go.set()
        assert (await sealing).missing == {1: "errored"}
        with pytest.raises(keepstep.LevelOutOfReach):
            sealing.wait(level="machine")

    asyncio.run(main())


def test_workers_claim_the_slots_of_a_group(run: keepstep.Run) -> None:
    """Each sample once; None when none needs work."""
    group = run.group("t", size=4)
    seen = []
    for _ in range(4):
        episode = group.claim()
        assert episode is not None
        with episode:
            seen.append(episode.ref)
            episode.end("finished")
    assert sorted(seen) == [f"shop/t#0.{sample}~0" for sample in range(4)]
    assert group.claim() is None


def test_notes_are_added_later_and_the_newest_counts(store: keepstep.Store, run: keepstep.Run) -> None:
    """By the loop, and by others afterwards: to an episode, an attempt, a step."""
    with run.episode("t") as episode:
        episode.step(action=1)
        episode.note("label", "good", source="human", step=0).wait()
        episode.end("finished")
    run.annotate("shop/t", "judge", 0.2, source="model").wait()
    run.annotate("shop/t#0.0~0", "judge", 0.7, source="model").wait()
    run.annotate("shop/t#0.0~0@0", "mark", {"why": "x"}, source="human").wait()
    run.annotate("shop/t", "mark", 2, source="human", step=0).wait()
    run.annotate(episode.id, "by-id", True, source="human").wait()
    label, *of_others = outside.events(store.where, "shop/t", "note")
    assert (label["name"], label["value"], label["source"]) == ("label", "good", "human")
    said = {
        (note["name"], note.get("index"), note.get("target_attempt")): note["value"] for note in of_others
    }
    # Of each that is about the same thing, the newest.
    assert said == {
        ("judge", None, None): 0.2,
        ("judge", None, 0): 0.7,
        ("mark", 0, 0): {"why": "x"},
        ("mark", 0, None): 2,
        ("by-id", None, None): True,
    }
    notes = store.find("shop/t").notes
    assert (notes["judge"], notes["by-id"]) == (0.7, True)
    with pytest.raises(keepstep.NotFound, match="other"):
        run.annotate("other/t", "judge", 1.0, source="model")
    with pytest.raises(keepstep.BadInput, match="ref"):
        run.annotate("shop/t#x", "judge", 1.0, source="model")


def test_a_stream_takes_each_entry_once(store: keepstep.Store, run: keepstep.Run) -> None:
    """The same again is fine, another value is refused; frozen, later puts are fenced; dropped, it is hidden."""
    stream = run.stream("tokens")
    stream.put("call-1", {"ids": [1, 2]}).wait()
    stream.put("call-1", {"ids": [1, 2]}).wait()
    with pytest.raises(keepstep.BadInput):
        stream.put("call-1", {"ids": [3]}).wait()
    stream.put("call-2", [b"x"]).wait()
    assert run.stream("tokens").read() == {"call-1": {"ids": [1, 2]}, "call-2": [b"x"]}
    assert stream.freeze() == {"call-1": {"ids": [1, 2]}, "call-2": [b"x"]}
    with pytest.raises(keepstep.Fenced):
        stream.put("call-3", 1).wait()
    assert stream.freeze() == {"call-1": {"ids": [1, 2]}, "call-2": [b"x"]}
    stream.drop()


def test_an_id_with_two_values_costs_that_id(store: keepstep.Store, run: keepstep.Run) -> None:
    """Two stores put one id without seeing each other: no other entry could be read after that, and `freeze` failed."""
    with keepstep.open(store.where) as other:
        streams = [run.stream("tokens"), other.run(run.name).stream("tokens")]
        # Each has looked a moment ago, and does not look again so soon.
        for number, stream in enumerate(streams):
            stream.put(f"own {number}", number).wait()
        try:
            for number, stream in enumerate(streams):
                stream.put("shared", number).wait()
        except keepstep.BadInput:
            return
        rest = {"own 0": 0, "own 1": 1}
        for stream in streams:
            with pytest.raises(keepstep.BadInput, match='"shared"'):
                stream.read()
            assert stream.read(partial=True) == rest
            assert stream.conflicts() == {"shared": [0, 1]}
        with pytest.raises(keepstep.BadInput, match="the frozen stream"):
            streams[0].freeze()
        assert streams[1].freeze(partial=True) == rest


def put_in_process(run: keepstep.Run, worker: int) -> None:
    stream = run.stream("tokens")
    receipts = [stream.put(f"{worker}-{number}", number) for number in range(20)]
    receipts.append(stream.put("shared", "the same"))
    for receipt in receipts:
        receipt.wait()


def test_processes_share_a_stream(run: keepstep.Run) -> None:
    """What any of them had acknowledged is in the frozen set."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(put_in_process, [(run, worker) for worker in range(3)])
    frozen = run.stream("tokens").freeze()
    assert len(frozen) == 61
    assert frozen["2-19"] == 19


def test_runs_are_listed_with_what_they_have(store: keepstep.Store) -> None:
    """Names, configs, links and generations."""
    store.run("a", config={"seed": 1}, links={"code": "v1"})
    store.run("b")
    found: dict[str, Any] = {run.name: run for run in store.runs()}
    assert set(found) == {"a", "b"}
    assert (found["a"].config, found["a"].links, found["a"].generation) == ({"seed": 1}, {"code": "v1"}, 0)
    assert dict(found["b"].config) == {}
    assert found["a"].store is store


def test_stats_count(store: keepstep.Store, run: keepstep.Run) -> None:
    """What this process has recorded, in numbers."""
    before = store.stats()
    with run.episode("t") as episode:
        episode.step(action=1)
        episode.end("finished")
    after = store.stats()
    assert all(isinstance(number, int) for number in after.values())
    assert any(after[name] > before.get(name, 0) for name in after)


def test_two_stores_in_one_process(tmp_path: Path) -> None:
    """They do not disturb each other, on one loop as in one thread."""

    async def main() -> None:
        one, two = (keepstep.open(tmp_path / name).run("shop") for name in ("one", "two"))
        async with one.episode("t") as first, two.episode("t") as second:
            for number in range(5):
                await asyncio.gather(wait(first.submit(action=number)), wait(second.submit(action=number)))
            await first.end("finished")
            await second.end("finished")

    async def wait(receipt: Any) -> None:
        await receipt

    asyncio.run(main())
    for name in ("one", "two"):
        assert len(outside.events(tmp_path / name, "shop/t", "step")) == 5
