"""Each exception, provoked: what can go wrong, told by what the caller can do next."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
import slow_disk

HOLD = """
    import sys, keepstep
    episode = keepstep.open(sys.argv[1]).run("shop").episode("t").__enter__()
    episode.step(action=1, state={"n": 1})
    print("held", flush=True)
    sys.stdin.readline()
    try:
        episode.step(action=2)
    except keepstep.Fenced as raised:
        print("fenced", flush=True)
"""


@pytest.mark.parametrize(
    ("child", "parents"),
    [
        ("Poisoned", (OSError,)),
        ("BadInput", (ValueError,)),
        ("ConfigChanged", (keepstep.BadInput, ValueError)),
        ("Damaged", (ValueError,)),
        ("DiskFull", (OSError,)),
        ("LevelOutOfReach", (OSError,)),
        ("NewerFormat", (ValueError,)),
        ("NotFound", (LookupError,)),
        ("OutOfFiles", (OSError,)),
        ("Closed", (ValueError,)),
        ("Busy", ()),
        ("Forked", ()),
        ("Fenced", ()),
        ("Ended", ()),
        ("Diverged", ()),
    ],
)
def test_exceptions_have_the_parents_that_fit(child: str, parents: tuple[type, ...]) -> None:
    """All under KeepstepError, with a builtin second parent where one fits."""
    kind = getattr(keepstep, child)
    assert issubclass(kind, keepstep.KeepstepError)
    assert all(issubclass(kind, parent) for parent in parents)
    assert kind.__doc__


def test_a_live_owner_is_busy_and_named(store: keepstep.Store, run: keepstep.Run) -> None:
    """Another process has it: refused with its number; taken when that is asked for, and then it is fenced."""
    with outside.start(HOLD, store.where) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            keepstep.Busy, match=f'process {holder.pid}.*busy="wait" waits for it, busy="take" takes it over'
        ):
            run.episode("t").__enter__()
        with run.episode("t", busy="take") as episode:
            assert (episode.attempt, episode.state("n")) == (1, 1)
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == "fenced\n"
            episode.end("finished")
        holder.stdin.close()
        assert holder.wait(60) == 0


def test_busy_wait_gets_it_when_the_owner_dies(store: keepstep.Store, run: keepstep.Run) -> None:
    """The waiting one goes on where the dead one stopped."""
    with outside.start(HOLD, store.where) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        async def main() -> None:
            async with run.episode("t", busy="wait") as episode:
                assert (episode.attempt, episode.turns) == (1, 1)
                await episode.end("finished")

        async def kill_later() -> None:
            await asyncio.sleep(0.1)
            holder.kill()

        async def both() -> None:
            await asyncio.gather(main(), kill_later())

        asyncio.run(both())


def test_one_process_cannot_open_an_episode_twice(run: keepstep.Run) -> None:
    """Not even to take it from itself by accident."""
    with run.episode("t") as episode:
        with pytest.raises(keepstep.Busy, match="shop/t"):
            run.episode("t").__enter__()
        episode.end("finished")


def test_another_config_is_refused_with_the_difference(store: keepstep.Store) -> None:
    """The message names the keys; `new` begins another generation of the name."""
    store.run("configured", config={"model": "m-7b", "seed": 1})
    with pytest.raises(keepstep.ConfigChanged, match=r"model.*m-7b.*m-70b"):
        store.run("configured", config={"model": "m-70b", "seed": 1})
    new = store.run("configured", config={"model": "m-70b", "seed": 1}, new=True)
    assert (new.generation, new.config["model"]) == (1, "m-70b")
    assert [run.generation for run in store.runs() if run.name == "configured"] in ([0, 1], [1, 0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"reward": "0.100"}, "reward"),
        ({"reward": b"1"}, "reward"),
        ({"reward": [1.0]}, "reward"),
        ({"reward_terms": {"goal": "0.5"}}, "goal"),
        ({"reward_terms": {"goal": None}}, "goal"),
        ({"reward_terms": 3}, "reward_terms"),
        ({"discount": "1"}, "discount"),
        ({"agent": 3}, "agent"),
        ({"state": [1]}, "state"),
        ({"state": {1: 2}}, "state"),
        ({"tokens": {"idz": [1]}}, "tokens.idz"),
        ({"observaton": 1}, "observaton.*give some of .*observation"),
        ({"error": "x"}, "error"),
    ],
)
def test_a_bad_field_is_named(run: keepstep.Run, given: dict[str, Any], message: str) -> None:
    """Which field, what it is, and what to give instead; nothing is recorded of it."""
    with run.episode("t") as episode:
        for record in (episode.submit, episode.step):
            with pytest.raises(keepstep.BadInput, match=message):
                record(**given)
        assert episode.turns == 0
        episode.end("finished")


@pytest.mark.parametrize("reward", [1, True, 0.5, float("inf"), float("-inf"), None])
def test_numbers_stay_numbers(store: keepstep.Store, run: keepstep.Run, reward: Any) -> None:
    """What is a number is taken; None is no reward, and not 0."""
    with run.episode("t") as episode:
        episode.step(action=1, reward=reward)
        episode.end("aborted")
    with run.episode("t") as episode:
        found = episode.history[0].reward
        assert found == reward
        assert reward is None or type(found) is float
        episode.end("finished")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": "perhaps"}, "resume"),
        ({"busy": 3}, "busy"),
        ({"at": -1}, "at"),
        ({"parent": 3}, "parent"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_option_is_named(run: keepstep.Run, options: dict[str, Any], message: str) -> None:
    """Said when the episode is entered, with what to give."""
    with pytest.raises(keepstep.BadInput, match=message):
        run.episode("t", **options).__enter__()


@pytest.mark.parametrize(
    ("why", "limit", "message"),
    [("done", None, "why"), ("crashed", None, "why"), ("finished", "turns", "limit")],
)
def test_a_bad_end_is_refused(run: keepstep.Run, why: Any, limit: str | None, message: str) -> None:
    """Only reasons that somebody may give; a limit only with `truncated`. The episode stays open."""
    with run.episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match=message):
            episode.end(why, limit=limit)
        episode.end("finished")


@pytest.mark.parametrize(
    ("given", "message"),
    [({"level": "high"}, "level"), ({"lease_s": -1.0}, "lease_s"), ({"stall_s": float("nan")}, "stall_s")],
)
def test_a_store_that_makes_no_sense_is_refused(tmp_path: Path, given: Any, message: str) -> None:
    """Each argument of open() by its name."""
    with pytest.raises(keepstep.BadInput, match=message):
        keepstep.open(tmp_path / "x", **given)


def test_skip_takes_a_collection(store: keepstep.Store, tmp_path: Path) -> None:
    """A text would be taken letter by letter: refused. What is skipped is not recorded."""
    with pytest.raises(keepstep.BadInput, match="skip"):
        keepstep.open(tmp_path / "x", skip="info")
    with keepstep.open(tmp_path / "y", skip=["info"]) as skipping:
        with skipping.run("shop").episode("t") as episode:
            episode.step(action=1, info={"secret": 1})
            episode.end("finished")
    (step,) = outside.events(tmp_path / "y", "shop/t", "step")
    assert "info" not in step


def test_what_is_something_else_is_not_a_store(tmp_path: Path) -> None:
    """A file, or a folder whose card is of another program: refused, and left as it is."""
    (tmp_path / "keepstep.json").write_text('{"dear": "diary"}')
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(keepstep.BadInput, match="not a keepstep store"):
        keepstep.open(tmp_path)
    with pytest.raises(keepstep.KeepstepError):
        keepstep.open(tmp_path / "letters.txt")
    assert sorted(os.listdir(tmp_path)) == ["keepstep.json", "letters.txt"]
    assert (tmp_path / "letters.txt").read_text() == "dear"


def crc32c(data: bytes) -> int:
    """The checksum of the format, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def test_a_newer_format_is_told(tmp_path: Path) -> None:
    """A store of tomorrow is not misread today."""
    keepstep.open(tmp_path / "runs").close()
    card = tmp_path / "runs" / "keepstep.json"
    said = json.loads(card.read_text())

    def check(version: int) -> str:
        text = f"{version}:{said['store']}:{said['created']}"
        return f"{crc32c(text.encode()):08x}"

    assert said["check"] == check(said["format"]), "the check is known"
    card.write_text(json.dumps({**said, "format": 999, "check": check(999)}))
    with pytest.raises(keepstep.NewerFormat, match="999"):
        keepstep.open(tmp_path / "runs")


def test_a_closed_store_says_so(run: keepstep.Run, store: keepstep.Store) -> None:
    """Recording after close is refused; closing twice is fine; the open episode ended as aborted."""
    episode = run.episode("t").__enter__()
    episode.step(action=1)
    store.close()
    store.close()
    for late in (lambda: episode.step(action=2), lambda: run.episode("u").__enter__()):
        with pytest.raises((keepstep.Closed, keepstep.Ended)):
            late()
    assert outside.ending(store.where, "shop/t")["why"] == "aborted"


def test_a_disk_that_takes_nothing_is_told_and_recording_goes_on(tmp_path: Path) -> None:
    """After `stall_s` the waiting call raises an OSError; when the disk takes writes again, a new episode is recorded."""
    with keepstep.open(tmp_path / "runs", stall_s=0.3) as store:
        run = store.run("shop")
        episode = run.episode("t").__enter__()
        episode.step(action=1)
        with slow_disk.stopped():
            with pytest.raises(OSError, match="nothing acknowledged is lost") as raised:
                episode.step(action=2)
        assert isinstance(raised.value, (keepstep.Poisoned, keepstep.DiskFull))
        with run.episode("u") as other:
            other.step(action=1)
            other.end("finished")
        del episode
    assert [step["action"] for step in outside.events(tmp_path / "runs", "shop/t", "step")][:1] == [1]


def test_a_deleted_store_is_told(tmp_path: Path) -> None:
    """What would be lost is not acknowledged."""
    with keepstep.open(tmp_path / "runs", stall_s=0.3) as store:
        with pytest.raises(keepstep.Poisoned):
            with store.run("shop").episode("t") as episode:
                episode.step(action=1)
                shutil.rmtree(tmp_path / "runs")
                for number in range(1000):
                    episode.step(action=number)


def test_damage_is_told_and_never_returned(tmp_path: Path) -> None:
    """A flipped byte, wherever it is: the state is the one that was recorded, or an error. Never an older one, or none."""
    with keepstep.open(tmp_path / "runs") as store:
        with store.run("shop").episode("t") as episode:
            for number in range(3):
                episode.step(action=number, state={"n": number})
            episode.end("aborted")
    (segment,) = (tmp_path / "runs" / "writers").glob("*/*.seg")
    whole = segment.read_bytes()
    told = 0
    for at in range(0, len(whole), 16):
        segment.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(tmp_path / "runs", copy)
        with keepstep.open(copy) as store:
            try:
                found = store.run("shop").episode("t").state("n", "nothing")
                assert found == 2, f"byte {at} flipped"
            except keepstep.Damaged:
                told += 1
        shutil.rmtree(copy)
    assert told > 0


def test_damage_in_what_would_be_inherited_is_an_error_and_one_can_go_on_before_it(tmp_path: Path) -> None:
    """Nobody goes on behind a hole: what cannot be read is told, and `at` and `restart` are offered, and work."""
    script = """
        import os, signal, sys, keepstep
        episode = keepstep.open(sys.argv[1]).run("shop").episode("t").__enter__()
        for number in range(20):
            episode.step(action=os.urandom(300).hex(), state={"n": number})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    outside.run(script, tmp_path / "runs", code=outside.KILLED)
    (segment,) = (tmp_path / "runs" / "writers").glob("*/*.seg")
    whole = segment.read_bytes()
    middle = len(whole.rstrip(bytes(1))) // 2
    segment.write_bytes(whole[:middle] + bytes(50) + whole[middle + 50 :])
    with keepstep.open(tmp_path / "runs") as store:
        run = store.run("shop")
        for given in ({}, {"at": 15}):
            with pytest.raises(keepstep.Damaged, match="open it with `at` to go on before the damage"):
                run.episode("t", **given).__enter__()
        with run.episode("t", at=5) as episode:
            assert (episode.turns, episode.state("n")) == (5, 4)
            episode.end("aborted")
        with run.episode("t", resume="restart") as episode:
            assert episode.turns == 0
            episode.end("finished")


def test_a_pruned_episode_says_so(tmp_path: Path) -> None:
    """It was deleted because somebody asked for it: opening it tells, and records nothing."""
    with keepstep.open(tmp_path / "runs") as store:
        with store.run("shop").episode("t") as episode:
            episode.step(action=1)
            episode.end("finished")
    outside.command("prune", "-s", tmp_path / "runs", "shop/t#0.0", "--reason", "the user asked")
    with keepstep.open(tmp_path / "runs") as store:
        with pytest.raises(keepstep.NotFound, match="the user asked"):
            store.run("shop").episode("t").__enter__()


def test_what_ours_raises_never_hides_the_callers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The loop failed, and then the record of that failed too: the loop's exception comes out, ours is in the log."""
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as store:
        with caplog.at_level(logging.ERROR, logger="keepstep"):
            with pytest.raises(ZeroDivisionError), slow_disk.stopped_later() as stop:
                with store.run("shop").episode() as episode:
                    episode.step(action=1)
                    stop()
                    _ = 1 / 0
    told = [record.message for record in caplog.records if record.name == "keepstep"]
    assert any("could not be recorded" in message for message in told)


def test_an_interrupt_is_heard_while_waiting(store: keepstep.Store) -> None:
    """Ctrl-C ends a wait for a busy episode."""
    script = """
        import sys, keepstep
        run = keepstep.open(sys.argv[1]).run("shop")
        print("waiting", flush=True)
        with run.episode("t", busy="wait"):
            pass
    """
    with outside.start(HOLD, store.where) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with outside.start(script, store.where) as waiter:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == "waiting\n"
            waiter.send_signal(signal.SIGINT)
            _, err = waiter.communicate(timeout=30)
        assert "KeyboardInterrupt" in err
        holder.kill()
