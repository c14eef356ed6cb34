"""What somebody met who used it for the fourth time: plans and groups that waited, went round in circles or lost a sample."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import warnings
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
from keepstep.errors import BadInput, Damaged, Ended, Fenced


@pytest.fixture
def run(tmp_path: Path) -> Any:
    store = keepstep.open(tmp_path / "store")
    yield store.run("run")
    store.close()


def record(run: keepstep.Run, task: str, *, sample: int = 0, why: str = "finished") -> str:
    with run.episode(task, sample=sample) as episode:
        episode.step(action=1, reward=1.0)
        episode.end(why)
    return episode.ref.split("~")[0]


def test_whoever_scores_does_not_wait_for_itself(run: keepstep.Run, caplog: pytest.LogCaptureFixture) -> None:
    """Asking for the next while a job of it was in hand looked at the store again and again, for ever."""
    run.plan(["a", "b"], needs=["score"])
    refs = [record(run, task) for task in ("a", "b")]
    found: list[Any] = []
    with caplog.at_level(logging.WARNING):
        asking = threading.Thread(target=lambda: found.extend(run.unscored()), daemon=True)
        held = next(run.unscored())
        asking.start()
        asking.join(60)
    assert not asking.is_alive() and [job.ref for job in found] == [ref for ref in refs if ref != held.ref]
    assert f"{held.ref} lacks a note" in caplog.text
    found.clear()
    run.annotate(held.ref, "score", 1.0, source="judge").wait()
    del held
    assert [job.ref for job in run.unscored()] == [refs[1]]


def test_all_that_is_unscored_can_be_in_hand_at_once(run: keepstep.Run) -> None:
    run.plan(["a", "b"], needs=["score"])
    refs = [record(run, task) for task in ("a", "b")]
    jobs = list(run.unscored())
    assert sorted(job.ref for job in jobs) == refs
    assert list(run.unscored()) == []
    jobs.clear()
    assert sorted(job.ref for job in run.unscored()) == refs


def test_a_job_that_fails_before_its_episode_is_not_given_for_ever(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was recorded of it, so nothing counted it: the loop of the guide never came to its end."""
    run.plan(["bad", "good"])
    given: list[str] = []

    def work(jobs: keepstep.Jobs) -> int:
        for job in jobs:
            given.append(job.task)
            if job.task == "bad":
                continue  # as after an exception, which a worker logs
            with job.episode() as episode:
                episode.end("finished")
        return jobs.given

    with caplog.at_level(logging.WARNING):
        assert any(work(run.remaining(max_attempts=2)) == 0 for _ in range(20))
    assert given.count("bad") == 2 and given.count("good") == 1
    assert caplog.text.count("run/bad#0.0 is not given again by this process") == 1
    assert [job.task for job in run.remaining(max_attempts=3)] == ["bad"], "who allows more gets more"


def test_a_job_that_cannot_be_opened_is_not_given_for_ever(run: keepstep.Run) -> None:
    run.plan(["bad"])
    for _ in range(3):
        (job,) = run.remaining()
        with pytest.raises(BadInput), job.episode(policy=[]):
            pass
        del job
    assert list(run.remaining()) == []


def test_another_size_of_a_group_is_refused(run: keepstep.Run) -> None:
    """A seal with fewer samples than were recorded left the others out for good."""
    refs = [record(run, "a", sample=sample) for sample in range(4)]
    smaller = run.group("a", size=2)
    for ask in (lambda: smaller.seal(source="s"), smaller.claim):
        with pytest.raises(BadInput, match="size of group a#0 is 2, and sample 2 of it has begun"):
            ask()
    assert list(run.groups()) == []
    run.group("a", size=4).seal(dict.fromkeys(refs, 1.0), source="s").wait()
    assert run.group("a", size=4).claim() is None
    with pytest.raises(BadInput, match="size of group a#0 is 8, and it was sealed with 4: give size=4"):
        run.group("a", size=8).claim()


def test_another_size_than_is_planned_is_refused(run: keepstep.Run) -> None:
    run.plan(["a"], samples=4, iteration=1)
    for size in (2, 8):
        group = run.group("a", size=size, iteration=1)
        for ask in (lambda group=group: group.seal(source="s", least=1), group.claim):
            with pytest.raises(BadInput, match=f"is {size}, and 4 samples of it are planned"):
                ask()
    assert run.group("a", size=2).claim() is not None, "another iteration is another group"


@pytest.mark.parametrize("how", ["thread", "loop"])
def test_a_reward_that_is_no_number_is_warned_of_where_it_was_given(run: keepstep.Run, how: str) -> None:
    refs = [record(run, "a"), record(run, "b")]

    async def seal(task: str, ref: str) -> None:
        run.group(task, size=1).seal({ref: math.nan}, source="s")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for task, ref in zip("ab", refs, strict=True):
            if how == "loop":
                asyncio.run(seal(task, ref))
            else:
                run.group(task, size=1).seal({ref: math.nan}, source="s")
    assert [(str(it.message).split(":")[0], it.filename) for it in told] == [("reward is NaN", __file__)]


def test_a_value_that_is_kept_as_a_text_is_warned_of_where_it_was_given(run: keepstep.Run) -> None:
    with run.episode("a") as episode, pytest.warns(keepstep.RecordedAsRepr) as told:
        episode.step(observation=object())
        run.annotate("run/a#0.0", "odd", object(), source="s")
        episode.end("finished")
    assert {it.filename for it in told} == {__file__}


def test_what_was_given_up_is_not_called_done(run: keepstep.Run) -> None:
    run.plan(["bad", "good"])
    with pytest.raises(ValueError), run.episode("bad"):
        raise ValueError("no browser")
    record(run, "good")
    progress = run.progress(max_attempts=1)
    assert repr(progress).startswith("<Progress 1 of 2 done, 1 given up: "), progress
    for _ in range(2):
        with pytest.raises(ValueError), run.episode("bad"):
            raise ValueError("no browser")
    told = outside.complaint("ls", str(run.store.where), "run", code=0)
    assert "plan of run: 1 of 2 done, 1 given up" in told


def test_errors_count_over_all_attempts_and_processes(run: keepstep.Run) -> None:
    """The limit is of the episode: what failed in another process, or was gone on with since, counts."""
    run.plan(["a"])
    for number in range(2):
        with pytest.raises(ValueError), run.episode("a"):
            raise ValueError("no browser")
        with run.episode("a") as episode:
            episode.step(action=number)
            episode.end("cancelled")
    with pytest.raises(ValueError), run.episode("a"):
        raise ValueError("no browser")
    assert list(run.remaining(max_attempts=3)) == []
    assert [it.errors for it in run.progress(max_attempts=3).given_up] == [3]


def test_a_seal_that_is_refused_names_refs(run: keepstep.Run) -> None:
    refs = [record(run, "a", sample=sample) for sample in range(2)]
    other = record(run, "b")
    group = run.group("a", size=2)
    for rewards in ({refs[0]: 1.0}, {**dict.fromkeys(refs, 1.0), other: 1.0}):
        with pytest.raises(BadInput) as told:
            group.seal(rewards, source="s")
        assert any(ref in str(told.value) for ref in (refs[1], other)), told.value
        assert not any(run.store.find(ref).id in str(told.value) for ref in (*refs, other)), told.value


def test_a_stream_that_was_frozen_says_so(run: keepstep.Run) -> None:
    stream = run.stream("tokens")
    stream.put("a", 1).wait()
    stream.freeze()
    for again in (stream, run.stream("tokens")):
        with pytest.raises(Fenced, match='stream "tokens" of run "run" was frozen') as told:
            again.put("b", 2).wait()
        assert "attempt" not in str(told.value)


def test_a_damaged_stream_is_told_in_words(run: keepstep.Run) -> None:
    mark = "a value that is long enough to be found again in the log"
    for name in ("a", "b"):
        run.stream("tokens").put(name, mark + name).wait()
    where = Path(str(run.store.where))
    run.store.close()
    (segment,) = where.glob("writers/*/*.seg")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(mark.encode(), mark.upper().encode()))
    with keepstep.open(where) as store, pytest.raises(Damaged) as told:
        store.run("run").stream("tokens").read()
    assert "LostEntry" not in str(told.value) and "{" not in str(told.value), told.value
    assert ".seg at byte" in str(told.value) and "keepstep verify" in str(told.value)


def test_a_note_of_nothing_is_a_note(run: keepstep.Run) -> None:
    """What a plan needs is that somebody said something; None is a value like any other."""
    run.plan(["a"], needs=["score"])
    run.annotate(record(run, "a"), "score", None, source="judge").wait()
    assert list(run.unscored()) == [] and run.progress().done == 1


def test_opening_what_is_over_says_what_to_do(run: keepstep.Run) -> None:
    """A program that was run once more to its end met a traceback, and no advice."""
    record(run, "a")

    async def enter() -> None:
        async with run.episode("a"):
            pass

    for ask in (lambda: record(run, "a"), lambda: asyncio.run(enter())):
        with pytest.raises(Ended, match=r"run/a.* is over \(finished.*sample=.*new=True.*run.remaining\(\)"):
            ask()
