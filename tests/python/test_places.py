"""Where a store may lie, and what is refused before anything is recorded there."""

from __future__ import annotations

import os
import pathlib
import warnings

import keepstep
import pytest


@pytest.mark.parametrize("where", ["s3://bucket/x", "gs://b", pathlib.Path("s3://bucket/x"), "file:///tmp/x"])
def test_an_address_is_refused_and_makes_no_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, where: str | os.PathLike[str]
) -> None:
    """It made a folder called `s3:`: whoever expected a bucket found out when the machine was gone."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(keepstep.BadInput, match="is the address"):
        keepstep.open(where)
    assert os.listdir(tmp_path) == []
    with keepstep.open("./s3:/x") as store:
        assert store.where == str(tmp_path / "s3:" / "x")


def test_a_file_is_no_place_for_a_store(tmp_path: pathlib.Path) -> None:
    """It said "Not a directory (os error 20)", and not what to do."""
    (tmp_path / "agent.py").write_text("")
    with pytest.raises(keepstep.BadInput, match="it is a file: give a directory"):
        keepstep.open(tmp_path / "agent.py")
    with pytest.raises(keepstep.BadInput, match="part of the path is a file: give a directory"):
        keepstep.open(tmp_path / "agent.py" / "runs")


def test_the_most_that_the_storage_gives_is_the_default(tmp_path: pathlib.Path) -> None:
    """A store in memory is opened at `kill`, with one warning; asked for `power` it is refused."""
    memory = pathlib.Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("no /dev/shm")
    where = memory / f"keepstep-{os.getpid()}"
    try:
        with pytest.raises(keepstep.LevelOutOfReach, match="tmpfs"):
            keepstep.open(where, level="power")
        with pytest.warns(RuntimeWarning, match="no power cut") as caught, keepstep.open(where) as store:
            assert store.level == "kill"
            with store.run("r").episode("t") as episode:
                receipt = episode.step(action=1)
                assert receipt.level == "kill"
                with pytest.raises(keepstep.LevelOutOfReach):
                    receipt.wait(level="power")
                episode.end("finished")
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            keepstep.open(where, level="kill").close()
    finally:
        import shutil

        shutil.rmtree(where, ignore_errors=True)


def test_a_store_is_not_made_anew_over_its_recordings(tmp_path: pathlib.Path) -> None:
    """Deleting `keepstep.json` gave the next one who opened it an empty store."""
    with keepstep.open(tmp_path) as store, store.run("r").episode("t") as episode:
        episode.step(action=1)
        episode.end("finished")
    file = tmp_path / "keepstep.json"
    whole = file.read_text()
    file.unlink()
    with pytest.raises(keepstep.Damaged, match="verify --heal"):
        keepstep.open(tmp_path)
    file.write_text(whole.replace('"created":1', '"created":2'))
    with pytest.warns(RuntimeWarning, match=r"keepstep\.json is damaged"), keepstep.open(tmp_path) as store:
        assert len(store.find("r/t").steps) == 1


def test_one_object_twice_in_a_step_is_stored_once(tmp_path: pathlib.Path) -> None:
    """A prompt that is also in the state, and a screenshot that is observation and info: bytes on disk count them once."""
    big, messages = os.urandom(400_000), [{"role": "user", "content": os.urandom(200_000).hex()}]
    with keepstep.open(tmp_path) as store, store.run("r").episode("t") as episode:
        episode.step(
            prompt=messages,
            observation=big,
            info={"again": big, "list": [big, big]},
            state={"messages": messages},
        )
        episode.end("finished")
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*.seg"))
    assert stored < 400_000 + 250_000, stored
    with keepstep.open(tmp_path) as store:
        (step,) = store.find("r/t").steps
        assert step.info == {"again": big, "list": [big, big]} and step.prompt == messages
