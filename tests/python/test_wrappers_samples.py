"""Which sample a reset records if nobody says: one that an earlier process left interrupted, else the next number."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import pytest
from toy_envs import FLAVOURS, Flavour, GymCorridor, KeptGymCorridor

each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.name)


def start(body: Callable[[], Any]) -> int:
    """Begins something in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def outcome(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def states(where: Path, task: str = "t") -> dict[int, tuple[int, str]]:
    """The attempt that counts of each sample, and how it stands."""
    with keepstep.open(where) as store:
        return {view.sample: (view.attempt, view.state) for view in store.run("walk").episodes(task=task)}


@each_flavour
def test_each_reset_takes_the_next_number(flavour: Flavour, tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as store:
        env = keepstep.record(flavour.make(), store.run("walk"), task="t")
        for sample in range(3):
            flavour.reset(env)
            assert keepstep.current(env).ref == f"walk/t#0.{sample}~0"
            flavour.walk(env, 3)
    assert states(tmp_path) == dict.fromkeys(range(3), (0, "finished"))


def test_tasks_and_iterations_count_for_themselves(tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as store:
        run = store.run("walk")
        refs = []
        for task, iteration in [("a", 0), ("b", 0), ("a", 1), ("a", 0)]:
            env = keepstep.record(GymCorridor(), run, task=task, iteration=iteration)
            env.reset()
            refs.append(keepstep.current(env).ref)
            env.close()
        assert refs == ["walk/a#0.0~0", "walk/b#0.0~0", "walk/a#1.0~0", "walk/a#0.1~0"]


@each_flavour
def test_it_goes_on_with_what_an_earlier_process_left_interrupted(flavour: Flavour, tmp_path: Path) -> None:
    def killed() -> None:
        with keepstep.open(tmp_path) as store:
            env = keepstep.record(flavour.make_kept(), store.run("walk"), task="t")
            flavour.reset(env)
            flavour.walk(env, 3)
            flavour.reset(env)
            flavour.walk(env, 1)
            os.kill(os.getpid(), signal.SIGKILL)

    assert outcome(start(killed)) == -signal.SIGKILL
    with keepstep.open(tmp_path) as store:
        env = keepstep.record(flavour.make_kept(), store.run("walk"), task="t")
        assert flavour.reset(env) == 2, "where sample 1 stopped"
        assert keepstep.current(env).ref == "walk/t#0.1~1"
        flavour.walk(env, 2)
        assert flavour.reset(env) == 0
        assert keepstep.current(env).ref == "walk/t#0.2~0"
        flavour.walk(env, 3)
    assert states(tmp_path) == {0: (0, "finished"), 1: (1, "finished"), 2: (0, "finished")}


def test_what_was_abandoned_or_failed_is_left_alone(tmp_path: Path) -> None:
    def trouble() -> None:
        raise OSError("out of order")

    def earlier() -> None:
        with keepstep.open(tmp_path) as store:
            env = keepstep.record(inner := KeptGymCorridor(), store.run("walk"), task="t")
            env.reset()
            env.step(1)
            env.reset()
            inner.corridor.troubles[0] = trouble
            try:
                env.step(1)
            except OSError:
                inner.corridor.troubles.clear()
            env.reset()
            env.step(1)
            env.close()

    assert outcome(start(earlier)) == 0
    assert states(tmp_path) == {0: (0, "abandoned"), 1: (0, "errored"), 2: (0, "aborted")}
    with keepstep.open(tmp_path) as store:
        env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
        refs = []
        for _ in range(2):
            env.reset()
            refs.append(keepstep.current(env).ref)
            for _ in range(6 - env.corridor.position):
                env.step(1)
        assert refs == ["walk/t#0.2~1", "walk/t#0.3~0"]


def test_what_this_process_left_itself_is_not_gone_on_with(tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as store:
        for sample in range(3):
            env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
            env.reset()
            env.step(1)
            assert keepstep.current(env).ref == f"walk/t#0.{sample}~0"
            env.close()


def test_environments_of_a_process_do_not_meet(tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as store:
        envs = [keepstep.record(GymCorridor(), store.run("walk"), task="t") for _ in range(5)]
        for env in envs:
            env.reset()
        assert sorted(keepstep.current(env).ref for env in envs) == [f"walk/t#0.{n}~0" for n in range(5)]


def test_processes_do_not_meet(tmp_path: Path) -> None:
    """They look at the same numbers: whoever comes second takes another."""
    processes, episodes = 4, 5

    def worker() -> None:
        with keepstep.open(tmp_path) as store:
            env = keepstep.record(GymCorridor(), store.run("walk"), task="t")
            for _ in range(episodes):
                env.reset()
                for _ in range(3):
                    env.step(2)

    children = [start(worker) for _ in range(processes)]
    assert [outcome(child) for child in children] == [0] * processes
    found = states(tmp_path)
    assert len(found) == processes * episodes
    assert set(found.values()) == {(0, "finished")}, "each was recorded once, by one of them"


def test_an_end_that_was_only_missing_its_record_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepstep.wrappers._recorded_episode import RecordedEpisode

    def die(self: RecordedEpisode, ending: object) -> None:
        self._native.note("seen", True, "test", None).wait()
        os.kill(os.getpid(), signal.SIGKILL)

    def earlier() -> None:
        with keepstep.open(tmp_path) as store:
            env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
            env.reset()
            for _ in range(3):
                env.step(2)

    with monkeypatch.context() as patched:
        patched.setattr(RecordedEpisode, "infer", die)
        assert outcome(start(earlier)) == -signal.SIGKILL
    with keepstep.open(tmp_path) as store:
        env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
        assert env.reset()[0] == 0
        assert keepstep.current(env).ref == "walk/t#0.1~0"
        env.close()
    assert states(tmp_path) == {0: (1, "finished"), 1: (0, "aborted")}
