"""A note has an address: what is not there is refused before anything is written, with the names that are near."""

from __future__ import annotations

from typing import Any

import keepstep
import outside
import pytest


def record(
    run: keepstep.Run, task: str, *, steps: int = 1, end: str | None = "finished", **named: Any
) -> str:
    with run.episode(task, **named) as episode:
        for number in range(steps):
            episode.step(action=number, reward=1.0)
        if end is not None:
            episode.end(end)  # type: ignore[arg-type]
        return episode.ref


def written(store: keepstep.Store) -> int:
    return store.stats()["records"]


def refused(run: keepstep.Run, ref: str, *words: str, **more: Any) -> str:
    """Refused as not found, in these words, and nothing was written."""
    before = written(run.store)
    with pytest.raises(keepstep.NotFound) as raised:
        run.annotate(ref, "score", 1.0, source="judge", **more)
    said = str(raised.value)
    for word in words:
        assert word in said, said
    assert written(run.store) == before
    return said


@pytest.fixture
def noted(store: keepstep.Store) -> keepstep.Run:
    """A run with a finished episode, one with three samples, and a plan."""
    run = store.run("x")
    record(run, "checkout")
    for sample in range(3):
        record(run, "full", sample=sample, steps=2)
    run.plan(["later"], samples=2)
    return run


def test_what_is_not_there_is_refused_with_the_names_that_are_near(noted: keepstep.Run) -> None:
    """A misspelt task, a sample, an attempt and a step that are not there were acknowledged, and never seen again."""
    refused(noted, "x/chekout#0.0", "x/chekout#0.0", "x/checkout#0.0")
    refused(noted, "x/full#0.7", "x/full#0.")
    refused(noted, "x/checkout#0.0~9", "attempt 9 of x/checkout#0.0 is", "its only attempt is 0")
    refused(noted, "x/checkout#0.0@99", "step 99", "1 step")
    refused(noted, "x/checkout#0.0", "step 99", step=99)
    refused(noted, "x/checkout#0.0~0@1", "step 1")
    refused(noted, "0123456789abcdef0123456789abcdef", "0123456789abcdef")
    said = refused(noted, "x/something-quite-different#0.0")
    assert "checkout" not in said
    assert not noted.store.find("x/checkout").notes


def test_planned_episodes_are_told_apart_from_unknown_ones(noted: keepstep.Run) -> None:
    """Whoever notes on what has not begun is early, not wrong."""
    refused(noted, "x/later#0.1", "is planned and has not begun")
    said = refused(noted, "x/later#0.2")
    assert "is planned" not in said


def test_one_rule_for_refs(noted: keepstep.Run) -> None:
    """A task alone means its episode if it has one; of several it says which there are, as `find` does."""
    noted.annotate("x/checkout", "score", 1.0, source="judge").wait()
    assert noted.store.find("x/checkout").notes == {"score": 1.0}
    with pytest.raises(keepstep.BadInput, match=r"any of 3 episodes.*x/full#0\.0"):
        noted.annotate("x/full", "score", 1.0, source="judge")
    with pytest.raises(keepstep.BadInput, match=r"any of 3 episodes"):
        noted.store.find("x/full")
    id = noted.store.find("x/checkout").id
    noted.annotate(id[:12], "score", 2.0, source="judge").wait()
    assert noted.store.find(id[:12]).notes == {"score": 2.0}
    with pytest.raises(keepstep.BadInput, match="step"):
        noted.annotate("x/checkout#0.0@0", "score", 1.0, source="judge", step=3)
    noted.annotate("x/checkout#0.0@0", "mark", 1.0, source="judge", step=0).wait()


def test_rewards_of_a_group_take_whole_names(run: keepstep.Run) -> None:
    """Rewards by a task alone went to sample 0 in silence."""
    group = run.group("g", size=2)
    for _ in range(2):
        episode = group.claim()
        assert episode is not None
        with episode:
            episode.step(action=1)
            episode.end("finished")
    with pytest.raises(keepstep.BadInput, match="any of 2 episodes"):
        group.seal({"shop/g": 1.0}, source="judge")


def test_an_episode_of_another_run_is_not_of_this_one(store: keepstep.Store, noted: keepstep.Run) -> None:
    """By its id it was acknowledged in the wrong run, where nobody looks for it."""
    other = store.run("other")
    record(other, "t")
    refused(noted, store.find("other/t").id, "run 'other'")
    refused(noted, "other/t#0.0", "run 'other'")


@pytest.mark.parametrize("end", [None, "errored", "aborted", "truncated"])
def test_attempts_are_noted_on_however_they_stand(run: keepstep.Run, end: str | None) -> None:
    """Running, ended in any way, resumed."""
    episode = run.episode("t").__enter__()
    episode.step(action=1)
    run.annotate(episode.ref, "live", 1, source="judge").wait()
    run.annotate("shop/t#0.0@0", "live", 1, source="judge").wait()
    episode.submit(action=2)
    run.annotate("shop/t#0.0@1", "live", 2, source="judge").wait()
    turn = episode.turn(action=3).__enter__()
    run.annotate(f"shop/t#0.0@{turn.index}", "said", 3, source="judge").wait()
    refused(run, "shop/t#0.0@3", "step 3")
    turn.result(observation=1)
    if end is not None:
        episode.end(end).wait()  # type: ignore[arg-type]
        run.annotate("shop/t#0.0~0@2", "over", 1, source="judge").wait()
    else:
        episode.end("aborted").wait()
    assert run.store.find("shop/t").notes_on(1)["live"] == 2


def test_the_crashed_and_the_resumed_are_noted_on(store: keepstep.Store, run: keepstep.Run) -> None:
    """By another process, before and after somebody goes on; a note on a step needs an attempt that has it."""
    script = """
        import os, sys, keepstep
        episode = keepstep.open(sys.argv[1]).run("shop").episode("t").__enter__()
        for n in range(3):
            episode.step(action=n)
        os.kill(os.getpid(), 9)
    """
    outside.run(script, store.where, code=outside.KILLED)
    run.annotate("shop/t#0.0~0@2", "score", 1, source="judge").wait()
    refused(run, "shop/t#0.0~1", "attempt 1")
    with run.episode("t", resume="restart") as episode:
        episode.step(action=1)
        episode.end("finished")
    run.annotate("shop/t#0.0~1@0", "score", 1, source="judge").wait()
    refused(run, "shop/t#0.0~1@2", "step 2")
    run.annotate("shop/t#0.0@2", "of the first", 1, source="judge").wait()


def test_a_note_of_an_episode_on_its_own_step_needs_that_step(run: keepstep.Run) -> None:
    """`episode.note(step=7)` of an episode with one step was acknowledged."""
    with run.episode("t") as episode:
        episode.step(action=1)
        episode.note("ok", 1, source="me", step=0).wait()
        with pytest.raises(keepstep.NotFound, match="step 7"):
            episode.note("lost", 1, source="me", step=7)
        with episode.turn(action=2) as turn:
            episode.note("now", 1, source="me", step=turn.index).wait()
            turn.result(observation=1)
        episode.end("finished")


def test_unnamed_episodes_are_noted_on_by_their_ids(run: keepstep.Run) -> None:
    """They have no claim that tells that they began."""
    with run.episode() as episode:
        episode.step(action=1)
        run.annotate(episode.ref, "live", 1, source="judge").wait()
        episode.end("finished")
    run.annotate(episode.id, "score", 1, source="judge").wait()
    run.annotate(f"{episode.id}@0", "score", 1, source="judge").wait()
    refused(run, f"{episode.id}@1", "step 1")
    refused(run, f"{episode.id}~1", "attempt 1")


def test_a_pruned_episode_takes_no_note(noted: keepstep.Run) -> None:
    """It said nothing, and the note was nowhere."""
    store = str(noted.store.where)
    outside.command("prune", "-s", store, "x/checkout", "--reason", "holds a secret")
    for ref in ("x/checkout#0.0", "x/checkout", "x/checkout#0.0@0"):
        refused(noted, ref, "pruned", "holds a secret", "UTC")
