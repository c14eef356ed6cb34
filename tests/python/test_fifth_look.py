"""What somebody met who used it for the fifth time: answers that were swapped, endings that were lost, text that moved a cursor."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import signal
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest
from keepstep import _flights, _log

PATIENCE_S = 60
HOSTILE = "\x1b[2Jgone\r\x07\x9b31m\u202etxt.exe\u2066\u200b\u200f\u2028\u2029\ufeff"


@pytest.fixture
def run(tmp_path: Path) -> Any:
    store = keepstep.open(tmp_path / "store")
    yield store.run("run")
    store.close()


def in_tasks(episode: keepstep.Episode, name: str, calls: list[tuple[Callable[..., Any], Any]]) -> None:
    """Each call by a task of its own, one after the other."""

    async def use(tool: Callable[..., Any], *args: Any) -> None:
        await episode.call(name, tool, *args)

    async def main() -> None:
        for tool, args in calls:
            await asyncio.create_task(use(tool, *args))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a blocking keepstep call")
        asyncio.run(main())


def in_threads(episode: keepstep.Episode, name: str, calls: list[tuple[Callable[..., Any], Any]]) -> None:
    for tool, args in calls:
        asking = threading.Thread(target=lambda tool=tool, args=args: episode.call(name, tool, *args))
        asking.start()
        asking.join(PATIENCE_S)


def tool_of(how: Any, value: Any) -> Callable[..., Any]:
    async def asynchronous(*_: Any) -> Any:
        return value

    return asynchronous if how is in_tasks else lambda *_: value


@pytest.mark.parametrize("how", [in_tasks, in_threads])
@pytest.mark.parametrize("between", [0, 2])
def test_calls_that_a_resumed_attempt_could_swap_are_warned_of(
    run: keepstep.Run, how: Any, between: int
) -> None:
    """Same name, same arguments, other functions, one after the other: only calls without arguments were warned of."""
    name = f"swapped-{how.__name__}-{between}"
    others = [(tool_of(how, "o"), (f"other {number}",)) for number in range(between)]
    calls = [(tool_of(how, "a"), ("same", [1])), *others, (tool_of(how, "b"), ("same", [1]))]
    with run.episode("t") as episode:
        with pytest.warns(RuntimeWarning, match=f"'{name}'.*key=") as told:
            how(episode, name, calls)
            how(episode, name, calls)
        assert [warning.filename for warning in told] == [__file__], "once, and at the line of the caller"
        episode.end("finished")


@pytest.mark.parametrize("how", [in_tasks, in_threads])
def test_calls_that_cannot_be_swapped_are_not_warned_of(run: keepstep.Run, how: Any) -> None:
    """Other arguments are `Diverged`, the same function may give either answer, and another turn is another place."""
    same = tool_of(how, "s")
    with run.episode("t") as episode, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "a blocking keepstep call")
        how(episode, "other", [(tool_of(how, number), (number,)) for number in range(3)])
        how(episode, "same", [(same, ("it",)) for _ in range(3)])
        how(episode, "turns", [(tool_of(how, "a"), ("it",))])
        episode.step(action=1)
        how(episode, "turns", [(tool_of(how, "b"), ("it",))])
        for number in range(3):
            episode.call("one caller", lambda _, number=number: number, "it")
        episode.end("finished")


def test_what_is_refused_is_not_warned_of_too(run: keepstep.Run) -> None:
    async def slow(_: Any) -> str:
        await asyncio.sleep(0.05)
        return "slow"

    async def use(episode: keepstep.Episode) -> Any:
        return await episode.call("refused", lambda it: slow(it), "same")

    async def main() -> None:
        async with run.episode("t") as episode:
            came = await asyncio.gather(use(episode), use(episode), return_exceptions=True)
            assert came[0] == "slow" and isinstance(came[1], keepstep.BadInput)
            episode.end("finished")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


def test_what_is_remembered_of_the_calls_of_a_turn_is_bounded(run: keepstep.Run) -> None:
    with run.episode("t") as episode:
        for number in range(_flights.COMPARED_MAX + 10):
            episode.call("many", lambda it: it, number)
        flights = episode._flights
        assert len(flights._written["many"]) == _flights.COMPARED_MAX
        episode.step(action=1)
        episode.call("another", lambda it: it, 1)
        assert list(flights._written) == ["another"]
        episode.end("finished")


class Slow:
    """A tool that is under way, held so that it is not collected."""

    task: Any = None


async def fails_beside_a_tool(episode: keepstep.Episode, slow: Slow, begun: asyncio.Event) -> None:
    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    slow.task = asyncio.ensure_future(episode.call("tool", never, key="k"))
    await begun.wait()
    raise RuntimeError("the true ending")


def assert_errored(run: keepstep.Run) -> None:
    view = run.store.find("run/t")
    assert view.state == "errored"
    assert view.ending.error is not None and view.ending.error.startswith("RuntimeError: the true ending")
    assert view.ending.said_by == "exception"
    assert run.progress(max_attempts=1).given_up[0].errors == 1


@pytest.mark.parametrize("ends", ["cancel", "interrupt"])
def test_an_error_is_the_ending_although_the_wait_behind_it_is_cut_short(
    run: keepstep.Run, ends: str
) -> None:
    """It was recorded as cancelled, without the error, and did not count for `max_attempts`."""
    run.plan(["t"])
    slow = Slow()

    async def attempt(begun: asyncio.Event) -> None:
        async with run.episode("t") as episode:
            await fails_beside_a_tool(episode, slow, begun)

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(attempt(begun))
        await begun.wait()
        await asyncio.wait([task], timeout=0.05)
        if ends == "interrupt":
            signal.raise_signal(signal.SIGINT)
        else:
            task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError if ends == "cancel" else KeyboardInterrupt):
        asyncio.run(main())
    assert_errored(run)


def test_an_error_is_the_ending_although_ctrl_c_cuts_the_wait_short(run: keepstep.Run) -> None:
    """The same for threads."""
    run.plan(["t"])
    go, begun = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go.wait(PATIENCE_S)
        return "slow"

    main = threading.get_ident()
    try:
        with pytest.raises(KeyboardInterrupt) as stopped, run.episode("t") as episode:
            asking = threading.Thread(target=lambda: episode.call("tool", slow, key="k"))
            asking.start()
            assert begun.wait(PATIENCE_S)
            threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
            raise RuntimeError("the true ending")
    finally:
        go.set()
    asking.join(PATIENCE_S)
    assert isinstance(stopped.value.__context__, RuntimeError)
    assert_errored(run)


def test_a_silent_leave_that_is_cut_short_is_cancelled(run: keepstep.Run) -> None:
    """Without an error, what cuts the wait short is how it ended."""
    slow = Slow()

    async def attempt(begun: asyncio.Event) -> None:
        async with run.episode("t") as episode:
            with pytest.raises(RuntimeError):
                await fails_beside_a_tool(episode, slow, begun)

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(attempt(begun))
        await begun.wait()
        await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert run.store.find("run/t").state == "cancelled"


def hostile_in(text: str) -> list[str]:
    return [it for it in HOSTILE if not it.isprintable() and it in text]


def test_what_could_move_a_cursor_is_escaped() -> None:
    seen = _log.shown(HOSTILE)
    assert seen.startswith("\\u{1b}[2Jgone\\r\\u{7}\\u{9b}31m\\u{202e}txt.exe\\u{2066}") and not hostile_in(
        seen
    )
    assert _log.shown("Käse 🧀 日本\ta\nb") == "Käse 🧀 日本\\ta b"
    assert _log.shown("pass\xadword\u180e") == "pass\\u{ad}word\\u{180e}"


def test_the_log_and_the_command_escape_the_same_characters() -> None:
    """The soft hyphen and its like came through: each of the two tables lacked what the other had."""
    source = (Path(__file__).parents[2] / "crates/keepstep/src/export/json.rs").read_text()
    table = source.split("fn is_hostile", 1)[1].split("\n}\n", 1)[0]
    ranges = re.findall(r"'\\u\{(\w+)\}'(?:\.\.='\\u\{(\w+)\}')?", table)
    assert len(ranges) > 10, table
    of_the_command = {
        code for first, last in ranges for code in range(int(first, 16), int(last or first, 16) + 1)
    }
    of_the_log = {code for code in range(sys.maxunicode + 1) if _log._HOSTILE.match(chr(code))}
    controls = {code for code in range(0xA0) if unicodedata.category(chr(code)) == "Cc"}
    assert of_the_log == of_the_command | controls


def test_what_was_given_up_is_logged_so_that_a_terminal_can_show_it(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that a page or a model wrote could clear the screen of whoever reads the log."""
    run.plan(["t"])
    with pytest.raises(RuntimeError), run.episode("t"):
        raise RuntimeError(HOSTILE + "\nsecond line")
    with caplog.at_level(logging.WARNING):
        assert list(run.remaining(max_attempts=1)) == []
    (told,) = [it.getMessage() for it in caplog.records if "is given up" in it.getMessage()]
    assert "gone" in told and not hostile_in(told) and "\n" not in told, told
    (given_up,) = run.progress(max_attempts=1).given_up
    assert given_up.error is not None and HOSTILE[:4] in given_up.error, "the record is as it is"


def test_names_are_logged_and_warned_of_so_that_a_terminal_can_show_them(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(RuntimeWarning, match="left without end") as told, run.episode(HOSTILE):
        pass
    assert not hostile_in(str(told[0].message)), told[0].message
    go, begun = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go.wait(PATIENCE_S)
        return "slow"

    with caplog.at_level(logging.WARNING):
        with run.episode(HOSTILE, sample=1) as episode:
            asking = threading.Thread(target=lambda: episode.call(HOSTILE, slow, key=HOSTILE))
            asking.start()
            assert begun.wait(PATIENCE_S)
            episode.end("finished")
        go.set()
        asking.join(PATIENCE_S)
    (late,) = [it.getMessage() for it in caplog.records if "too late" in it.getMessage()]
    assert not hostile_in(late), late
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        _log.warn_of_troubles([HOSTILE])
    assert not hostile_in(caplog.records[0].getMessage())


def test_done_is_what_is_called_done(run: keepstep.Run) -> None:
    """It counted what was given up and pruned, while its text said: 0 of 2 done, 2 given up."""
    run.plan(["a", "b", "c", "d"])
    for task in ("a", "b"):
        with pytest.raises(RuntimeError), run.episode(task):
            raise RuntimeError("away")
    with run.episode("c") as episode:
        episode.end("finished")
    progress = run.progress(max_attempts=1)
    assert (progress.done, progress.left, len(progress.given_up)) == (1, 1, 2)
    assert repr(progress).startswith("<Progress 1 of 4 done, 2 given up")
    pruned = keepstep.Progress(planned=3, pruned=1, done=2)
    assert repr(pruned).startswith("<Progress 2 of 3 done, 1 pruned")


def test_a_plain_with_on_a_loop_does_not_wait_for_its_tasks(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot: the loop stands still meanwhile. The guide says so, and the log what was lost."""
    slow = Slow()

    async def tool(go: asyncio.Event) -> str:
        await go.wait()
        return "slow"

    async def main() -> None:
        go = asyncio.Event()
        with pytest.raises(RuntimeError), run.episode("t") as episode:
            slow.task = asyncio.ensure_future(episode.call("tool", lambda: tool(go), key="k"))
            await asyncio.sleep(0)
            raise RuntimeError("away")
        go.set()
        assert await slow.task == "slow"

    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(main())
    assert "too late to be recorded" in caplog.text


def test_a_thread_that_is_given_the_context_is_told_that_it_would_wait_for_ever(run: keepstep.Run) -> None:
    """As `asyncio.to_thread` does; a plain thread has none, and cannot be told."""
    with run.episode("t") as episode:
        told: list[Any] = []

        def ask() -> None:
            try:
                episode.call("tool", lambda: "inner", key="k")
            except keepstep.BadInput as refused:
                told.append(refused)

        def outer() -> str:
            inner = threading.Thread(target=contextvars.copy_context().run, args=(ask,), daemon=True)
            inner.start()
            inner.join(PATIENCE_S)
            return "outer"

        assert episode.call("tool", outer, key="k") == "outer"
        assert "asks for itself" in str(told[0])
        episode.end("finished")
