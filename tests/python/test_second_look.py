"""What went wrong in silence when the package was tried anew: each was seen on a built wheel."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keepstep
import pytest


async def slow(number: int, seconds: float, made: list[int]) -> str:
    await asyncio.sleep(seconds)
    made.append(number)
    return f"tool {number}"


def test_a_key_is_one_call_also_while_it_is_on_its_way(store: keepstep.Store) -> None:
    """Three at once under one key gave three answers, and one of them three times when the attempt was resumed."""
    run, made = store.run("r"), []

    async def ask() -> list[str]:
        async with run.episode("t", on_error="keep") as episode:
            async with episode.turn(action=1):
                calls = [episode.call("tool", lambda: slow(0, 0.01, made), key="same") for _ in range(3)]
                answers = await asyncio.gather(*calls)
                if len(made) == 1 and not episode.resumed:
                    raise ConnectionError("away")
                episode.end("finished")
                return answers

    with pytest.raises(ConnectionError):
        asyncio.run(ask())
    assert made == [0]
    assert asyncio.run(again(run)) == ["tool 0"] * 3
    assert made == [0], "a recorded answer was asked for again"


async def again(run: keepstep.Run) -> list[str]:
    async with run.episode("t", on_error="keep") as episode:
        async with episode.turn(action=1) as turn:
            made: list[int] = []
            calls = [episode.call("tool", lambda: slow(0, 0, made), key="same") for _ in range(3)]
            answers = await asyncio.gather(*calls)
            turn.result(observation=answers)
        episode.end("finished")
    return answers


def test_other_arguments_under_a_key_that_is_on_its_way_are_told(store: keepstep.Store) -> None:
    async def ask() -> None:
        async with store.run("r").episode("t") as episode:
            calls = [episode.call("tool", slow, number, 0.01, [], key="same") for number in range(2)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert answers[0] == "tool 0" and isinstance(answers[1], keepstep.Diverged), answers
            episode.end("finished")

    asyncio.run(ask())


def test_whoever_waited_for_a_call_that_failed_makes_it(store: keepstep.Store) -> None:
    tries: list[int] = []

    async def fails_once() -> str:
        await asyncio.sleep(0.01)
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("away")
        return "there"

    async def ask() -> None:
        async with store.run("r").episode("t") as episode:
            calls = [episode.call("tool", fails_once, key="same") for _ in range(2)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(answers[0], ConnectionError) and answers[1] == "there", answers
            episode.end("finished")

    asyncio.run(ask())


@pytest.mark.parametrize("error", [keepstep.Ended, keepstep.Fenced])
def test_an_exception_about_another_episode_is_one_like_any_other(
    store: keepstep.Store, error: type[Exception]
) -> None:
    """The parent of a child that was over stayed `running`, and nobody could have it while the process lived."""
    run = store.run("r")
    with pytest.raises(error), run.episode("parent") as episode:
        episode.step(action=1)
        raise error("the child is over")
    assert store.find("r/parent").state == "errored"


def test_a_need_that_is_added_later_is_seen_by_who_looked_before(store: keepstep.Store) -> None:
    run = store.run("r")
    run.plan(["a"], needs=["score"])
    for job in run.remaining():
        with job.episode() as episode:
            episode.end("finished")
    run.annotate("r/a", "score", 1, source="judge").wait()
    assert run.progress().left == 0
    run.plan(["a"], needs=["other"])
    assert run.progress().unscored == 1
    assert [job.ref for job in run.unscored()] == ["r/a#0.0"]


def test_a_judge_gives_nothing_up(store: keepstep.Store, caplog: pytest.LogCaptureFixture) -> None:
    run = store.run("r")
    run.plan(["a"], needs=["score"])
    with pytest.raises(ConnectionError), run.episode("a"):
        raise ConnectionError("away")
    with caplog.at_level(logging.WARNING, logger="keepstep"):
        assert list(run.unscored()) == []
    assert "given up" not in caplog.text
    assert [job.why for job in run.remaining()] == ["errored"]


def test_a_run_that_became_an_older_generation_says_so(store: keepstep.Store) -> None:
    """A judge read the new generation by the refs that its old run gave, and scored the old one."""
    old = store.run("r")
    old.plan(["a"])
    with old.episode("a") as episode:
        episode.step(action="old")
        episode.end("finished")
    new = store.run("r", new=True)
    with new.episode("a") as episode:
        episode.step(action="new")
        episode.end("finished")
    with old.episode("b") as episode:
        assert episode.ref == "r#0/b#0.0~0"
        episode.end("finished")
    [view] = [view for view in old.episodes() if view.task == "a"]
    assert store.find(view.ref).steps[0].action == "old"
    assert old.group("a", size=1).refs == ["r#0/a#0.0"] or list(old.group("a", size=1).refs) == ["r#0/a#0.0"]


def test_a_field_that_there_is_not_cannot_be_skipped(tmp_path: Path) -> None:
    for field in ("infos", "Info", "", "index"):
        with pytest.raises(keepstep.BadInput, match="skip"):
            keepstep.open(tmp_path / "s", skip=[field])
    with pytest.raises(keepstep.BadInput, match="where"):
        keepstep.open("")


def test_a_key_is_one_call_for_threads_too(store: keepstep.Store) -> None:
    """Three threads made it three times, and got three answers, of which a resumed attempt was given the first."""
    run, made, together = store.run("r"), [], threading.Barrier(3)

    def tool(number: int) -> str:
        time.sleep(0.05)
        made.append(number)
        if len(made) == 1:
            raise ConnectionError("away")
        return f"tool {len(made)}"

    def ask(_: int) -> str:
        together.wait()
        try:
            return str(episode.call("tool", tool, 7, key="same"))
        except ConnectionError:
            return "failed"

    with ThreadPoolExecutor(3) as threads:
        with run.episode("t") as episode:
            assert sorted(threads.map(ask, range(3))) == ["failed", "tool 2", "tool 2"]
            others = threads.map(lambda n: episode.call("other", lambda: n, key=str(n)), range(20))
            assert list(others) == list(range(20))
            episode.end("aborted")
        with run.episode("t") as episode:
            assert list(threads.map(ask, range(3))) == ["tool 2"] * 3
            episode.end("finished")
    assert made == [7, 7]


def test_a_key_is_one_call_in_whatever_order_it_is_awaited(store: keepstep.Store) -> None:
    """Written before the first was recorded, awaited after it; and with arguments that do not compare by themselves."""
    numpy = pytest.importorskip("numpy")

    async def total(numbers: object) -> float:
        made.append(1)
        await asyncio.sleep(0)
        return float(numpy.sum(numbers))

    made: list[int] = []

    async def ask() -> None:
        async with store.run("r").episode("t") as episode:
            given = numpy.arange(3.0)
            later = [episode.call("sum", total, given, key="k") for _ in range(3)]
            assert [await call for call in later] == [3.0] * 3
            assert (
                await asyncio.gather(*(episode.call("sum", total, given, key="j") for _ in range(3)))
                == [3.0] * 3
            )
            episode.end("finished")

    asyncio.run(ask())
    assert len(made) == 2
