"""What comes round again, as a worker's or a judge's loop meets it: neither in haste nor in circles, and never in silence."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from pathlib import Path

import keepstep
import pyarrow as pa
import pytest


def fail(job: keepstep.Job) -> None:
    with pytest.raises(OSError, match="down"), job.episode():
        raise OSError("the service is down")


def times(run: keepstep.Run, how: str, pause_s: float) -> list[float]:
    """When each job came that failed, until it was given up."""
    came: list[float] = []

    def took(job: keepstep.Job) -> None:
        came.append(time.monotonic())
        fail(job)

    def claims() -> None:
        while (job := run.claim(pause_s=pause_s)) is not None:
            took(job)

    async def asynchronously() -> None:
        async for job in run.remaining(pause_s=pause_s):
            took(job)

    if how == "async":
        asyncio.run(asynchronously())
    elif how == "claim":
        claims()
    else:
        for job in run.remaining(pause_s=pause_s):
            took(job)
    return came


@pytest.mark.parametrize("how", ["for", "async", "claim"])
def test_what_errored_rests_longer_each_time(run: keepstep.Run, how: str) -> None:
    """An outage of a second used up all tries of all episodes."""
    run.plan(["bad"])
    first, second, third = times(run, how, 0.2)
    assert second - first >= 0.2
    assert third - second >= 0.4
    assert run.progress().given_up[0].errors == 3


def test_without_a_pause_it_comes_at_once(run: keepstep.Run) -> None:
    run.plan(["bad"])
    assert len(times(run, "for", 0)) == 3


def test_a_rest_does_not_stop_an_event_loop(run: keepstep.Run) -> None:
    run.plan(["bad"])
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        async for job in run.remaining(pause_s=0.3, max_attempts=2):
            fail(job)
        ticking.cancel()

    asyncio.run(main())
    assert ticks >= 5


@pytest.mark.parametrize("wrong", [-1, "1", None, float("nan"), True])
def test_a_pause_is_a_number_of_seconds(run: keepstep.Run, wrong: object) -> None:
    with pytest.raises(keepstep.BadInput, match="pause_s"):
        run.remaining(pause_s=wrong)  # type: ignore[arg-type]


def test_who_gives_up_says_how_to_get_it_back(run: keepstep.Run, caplog: pytest.LogCaptureFixture) -> None:
    run.plan(["bad"])
    times(run, "for", 0)
    told = [record.getMessage() for record in caplog.records]
    assert any("`max_attempts=4` tries it again" in message for message in told), told
    assert [job.task for job in run.remaining(max_attempts=4)] == ["bad"]


def test_an_end_that_was_forgotten_does_not_go_round_for_ever(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.plan(["forgotten"])
    given = 0
    for _ in range(6):
        for job in run.remaining():
            given += 1
            with job.episode() as episode:
                if not episode.turns:
                    episode.step(action=1)
    assert given == 3
    told = [record.getMessage() for record in caplog.records if "episode.end(" in record.getMessage()]
    assert len(told) == 1, told
    assert "shop/forgotten" in told[0]
    assert run.progress().interrupted == 1


def annotate_all(run: keepstep.Run, name: str) -> int:
    """One pass of a judge; how many it was given."""
    given = 0
    for job in run.unscored():
        given += 1
        run.annotate(job.ref, name, 1.0, source="judge").wait()
    return given


def test_a_judge_that_writes_another_note_stops(run: keepstep.Run, caplog: pytest.LogCaptureFixture) -> None:
    run.plan(["task"], needs=["score"])
    with run.episode("task") as episode:
        episode.end("finished")
    assert sum(annotate_all(run, "scores") for _ in range(6)) == 3
    told = [record.getMessage() for record in caplog.records if "plan needs: score" in record.getMessage()]
    assert len(told) == 1, told
    run.annotate("shop/task#0.0", "score", 1.0, source="judge").wait()
    assert run.progress().done == 1


def test_a_judge_whose_model_is_down_goes_on_trying(run: keepstep.Run) -> None:
    run.plan(["task"], needs=["score"])
    with run.episode("task") as episode:
        episode.end("finished")
    assert sum(1 for _ in range(6) for _ in run.unscored()) == 6


def test_notes_that_are_gone_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A judge's log that is gone: its scores were missing in silence, and all was judged again."""
    where = tmp_path / "runs"
    with keepstep.open(where) as store:
        run = store.run("shop")
        run.plan(["task"], needs=["score"])
        with run.episode("task") as episode:
            episode.end("finished")
        recorder = {path.name for path in (where / "writers").iterdir()}
    with keepstep.open(where) as store:
        store.run("shop").annotate("shop/task", "score", 1.0, source="judge").wait()
    (judge,) = (path for path in (where / "writers").iterdir() if path.name not in recorder)
    shutil.rmtree(judge)
    with keepstep.open(where) as store:
        run = store.run("shop")
        for asks in (
            lambda: store.find("shop/task").notes,
            lambda: pa.table(run.table("notes")),
            lambda: list(run.unscored()),
        ):
            caplog.clear()
            asks()
            told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            assert any(judge.name in message for message in told), told
