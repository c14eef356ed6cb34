"""After an error the episode is free: whoever left the `with` may open it again, in the same process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import keepstep
import pytest
import slow_disk


@pytest.fixture
def short(tmp_path: Path) -> Iterator[keepstep.Store]:
    """A store that waits for the disk for a moment only."""
    with keepstep.open(tmp_path / "runs", stall_s=0.2) as opened:
        yield opened


def goes_on(store: keepstep.Store, kept: int) -> None:
    """The episode opens, has what was acknowledged, and comes to its end."""
    with store.run("shop").episode("t") as episode:
        assert len(episode.history) == kept
        episode.step(action="again")
        episode.end("finished")
    view = store.find("shop/t")
    assert (view.state, len(view.steps)) == ("finished", kept + 1)


@pytest.mark.parametrize("how", ["raise", "take", "wait"])
def test_an_episode_whose_end_could_not_be_recorded_is_free(short: keepstep.Store, how: str) -> None:
    """It stayed busy until the store was closed, also for busy="take"."""
    run = short.run("shop")
    kept = None
    with slow_disk.stopped_later() as stop, pytest.raises(keepstep.KeepstepError) as raised:
        with run.episode("t") as kept:
            kept.step(action=1)
            stop()
            kept.step(action=2)
    # The exception has the frames, and they have the episode: it is not for the collector to free it.
    assert raised.value.__traceback__ is not None and kept is not None
    with run.episode("t", busy=how) as episode:
        assert len(episode.history) == 1
        with pytest.raises(keepstep.KeepstepError):
            kept.step(action="too late")
        episode.end("finished")


def test_the_same_without_an_exception_of_the_loop(short: keepstep.Store) -> None:
    """The loop ends it, and that cannot be recorded."""
    run = short.run("shop")
    with slow_disk.stopped_later() as stop, pytest.raises(keepstep.KeepstepError):
        with run.episode("t") as episode:
            episode.step(action=1)
            stop()
            episode.end("finished")
    goes_on(short, 1)


def test_the_same_without_a_word(short: keepstep.Store) -> None:
    """Nobody ends it, and that cannot be recorded: so nothing says that it is recorded as aborted."""
    run = short.run("shop")
    with (
        warnings.catch_warnings(),
        slow_disk.stopped_later() as stop,
        pytest.raises(keepstep.KeepstepError),
    ):
        warnings.simplefilter("error")
        with run.episode("t") as episode:
            episode.step(action=1)
            stop()
    goes_on(short, 1)


def test_the_same_on_a_loop(short: keepstep.Store) -> None:
    """With `async with`, and in many episodes at once."""

    async def one(task: str, stop: asyncio.Event) -> None:
        async with short.run("shop").episode(task) as episode:
            await episode.submit(action=1)
            await stop.wait()
            await episode.submit(action=2)

    async def all_of_them() -> list[BaseException | None]:
        event = asyncio.Event()
        with slow_disk.stopped_later() as stop:
            tasks = [asyncio.create_task(one(f"t{number}", event)) for number in range(4)]
            await asyncio.sleep(0.5)
            stop()
            event.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    raised = asyncio.run(all_of_them())
    assert all(isinstance(it, keepstep.KeepstepError) for it in raised), raised
    for number in range(4):
        with short.run("shop").episode(f"t{number}") as episode:
            assert len(episode.history) == 1
            episode.end("finished")


def test_an_interrupted_wait_leaves_the_episode_free(short: keepstep.Store) -> None:
    """Ctrl-C while the disk takes nothing: the end may be on its way still."""
    run = short.run("shop")
    with slow_disk.stopped_later() as stop, pytest.raises(KeyboardInterrupt):
        with run.episode("t") as episode:
            episode.step(action=1)
            stop()
            raise KeyboardInterrupt
    goes_on(short, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs, which takes root")
def test_a_disk_that_was_full_and_has_room_again(tmp_path: Path) -> None:
    """As a user met it: DiskFull leaves the `with`, space is freed, the loop opens the episode again."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("cannot mount here")
    try:
        with keepstep.open(small / "runs", level="kill", stall_s=0.2) as store:
            (small / "ballast").write_bytes(bytes(16 << 20))
            run = store.run("shop")
            done = 0
            with pytest.raises(keepstep.DiskFull), run.episode("t") as episode:
                while True:
                    episode.step(action=os.urandom(64 << 10))
                    done += 1
            (small / "ballast").unlink()
            goes_on(store, done)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
