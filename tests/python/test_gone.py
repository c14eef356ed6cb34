"""A store of which a file is gone, or cannot be read: whoever reads is told, and the rest is read all the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import keepstep
import pytest

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """Three finished episodes in groups of their own, planned with a note that they need; a new one, and one taken over."""
    path = tmp_path / "store"
    for attempt in range(2):
        with keepstep.open(path) as store:
            run = store.run("shop")
            if attempt == 0:
                run.plan(["hit", "well", "fine", "new"], needs=["score"])
                for task in ("hit", "well", "fine"):
                    with run.episode(task) as episode:
                        episode.step(action=1, reward=1.0)
                        episode.end("finished")
                    run.group(task, size=1).seal(source="test").wait()
            with pytest.warns(Warning), run.episode("half") as episode:
                episode.step(action=attempt, reward=1.0)
    return path


def card(where: Path, task: str, ending: str) -> Path:
    """A card of an episode."""
    with keepstep.open(where) as store:
        id = store.find(f"shop/{task}").id
    return where / "claims" / id[:2] / f"{id}.{ending}"


def flip(path: Path) -> None:
    """Damages the last byte of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 0x10]))


def loop(path: Path) -> None:
    """Makes a file one that the system refuses to open."""
    path.unlink()
    path.symlink_to(path)


def damage(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of damage; then it is forgotten."""
    told = [it.getMessage() for it in caplog.records if it.levelno == logging.WARNING]
    caplog.clear()
    return [it for it in told if it.startswith("damaged: ")]


def test_a_claim_that_is_gone_is_told_by_lists_and_plans(
    where: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card(where, "hit", "0.claim").unlink()
    with keepstep.open(where) as store:
        run = store.run("shop")
        views = {view.task: view for view in run.episodes()}
        assert len(damage(caplog)) == 1
        assert views["hit"].trouble is not None and ".0.claim" in views["hit"].trouble
        assert views["well"].trouble is None
        assert len(pa.table(run.table("episodes"))) == 4
        assert len(damage(caplog)) == 1
        assert store.find("shop/hit").trouble is not None
        progress = run.progress()
        assert (progress.damaged, progress.not_begun) == (1, 1), "what was recorded is not new"
        given: list[str] = []
        with pytest.raises(keepstep.Damaged, match=r"\.0\.claim"):
            given.extend(job.task for job in run.remaining())
        assert "hit" not in given


def test_a_return_is_never_of_a_part(where: Path, caplog: pytest.LogCaptureFixture) -> None:
    with keepstep.open(where) as store:
        first = store.find("shop/half~0")
        assert store.find("shop/half").reward == 2.0
        writers = {it.parent.name: it for it in (where / "writers").glob("*/0.seg")}
    logs = sorted(writers.values(), key=lambda path: path.stat().st_mtime)
    logs[0].unlink()
    assert first.attempt == 0
    with keepstep.open(where) as store:
        view = store.find("shop/half")
        assert (view.reward, view.trouble is None) == (None, False)
        assert damage(caplog)
        assert len(view.steps) == 2 and view.missing
        assert view.steps[0].damaged and not view.steps[1].damaged, "numbers stay what they were"
        assert view.steps[1].action == 1


@pytest.mark.parametrize("wound", [flip, loop])
def test_one_card_that_cannot_be_read_costs_its_own_episode_only(
    where: Path, caplog: pytest.LogCaptureFixture, wound: Any
) -> None:
    wound(card(where, "hit", "0.claim"))
    with keepstep.open(where) as store:
        run = store.run("shop")
        assert {view.task for view in run.episodes()} == {"hit", "well", "fine", "half"}
        caplog.clear()
        steps = pa.table(run.table("steps")).to_pydict()
        assert len(steps["ref"]) == 4 and not any("hit" in ref for ref in steps["ref"])
        assert len(damage(caplog)) == 1
        ended = {view.task for view in run.episodes(after="")}
        assert {"well", "fine"} <= ended and damage(caplog)
        assert [group.ref for group in run.groups()] == ["shop/hit#0", "shop/well#0", "shop/fine#0"]
        assert damage(caplog)
        tasks: set[str] = set()
        try:
            tasks.update(job.task for job in run.unscored())
        except keepstep.KeepstepError as error:
            assert ".0.claim" in str(error)
        assert {"well", "fine"} <= tasks


@pytest.mark.parametrize("wound", [flip, loop])
def test_a_seal_that_cannot_be_read_costs_its_own_group_only(
    where: Path, caplog: pytest.LogCaptureFixture, wound: Any
) -> None:
    with keepstep.open(where) as store:
        first = next(iter(store.run("shop").groups()))
        seals = {it: it.read_bytes() for it in (where / "groups").glob("*/*.seal")}
    hit = min(seals, key=lambda path: path.stat().st_mtime)
    wound(hit)
    with keepstep.open(where) as store:
        run = store.run("shop")
        left = list(run.groups())
        assert len(left) == 2 and first.ref not in {group.ref for group in left}
        assert len(damage(caplog)) == 1, "it is told once"
        hit.unlink()
        hit.write_bytes(seals[hit])
        # What could not be decided is in the cursor, and is told when it can be read again.
        assert [group.ref for group in run.groups(after=left[-1].cursor)] == [first.ref]


def test_a_sealed_member_that_is_gone_is_told(where: Path, caplog: pytest.LogCaptureFixture) -> None:
    with keepstep.open(where) as recording:
        with recording.run("shop").episode("late") as episode:
            episode.step(action=1)
            episode.end("finished")
    newest = max((where / "writers").glob("*/0.seg"), key=lambda path: path.stat().st_mtime)
    # Sealed by another process: whoever announced it has another log.
    with keepstep.open(where) as sealing:
        sealing.run("shop").group("late", size=1).seal(source="test").wait()
    newest.unlink()
    with keepstep.open(where) as store:
        group = next(it for it in store.run("shop").groups() if it.ref.startswith("shop/late"))
        assert not group.members and group.missing[0].startswith("damaged: ")
        assert any("is sealed" in it for it in damage(caplog))
