"""What failed comes back, what was truncated goes on when somebody asks, and a plan tells how far it is."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
import store_files

ROOT = Path(__file__).parents[2]


def walk(episode: keepstep.Episode, turns: int) -> None:
    """A loop with a limit: goes on where it stopped, and says that the limit ended it."""
    for turn in range(episode.turns, turns):
        episode.step(action=turn, reward=1.0, state={"turn": turn})
    episode.end("truncated", limit="turns")


# What failed.


def fail(job: keepstep.Job, message: str = "no browser") -> None:
    with pytest.raises(ValueError, match=message), job.episode() as episode:
        episode.step(action=1)
        raise ValueError(message)


def finish(job: keepstep.Job) -> None:
    with job.episode() as episode:
        episode.step(action=1, reward=1.0)
        episode.end("finished")


def test_what_failed_comes_back_in_the_same_loop(run: keepstep.Run) -> None:
    """One in five fails once: all are finished when the loop is over, and whoever failed came last."""
    run.plan([f"task-{number}" for number in range(20)])
    given: list[tuple[str, str, int]] = []
    for job in run.remaining():
        given.append((job.task, job.why, job.attempts))
        if job.attempts == 0 and job.task.endswith(("0", "5")):
            fail(job)
        else:
            finish(job)
    assert Counter(run_states(run)) == {"finished": 20}
    assert sorted(given[20:]) == [(f"task-{number}", "errored", 1) for number in (0, 10, 15, 5)]


def run_states(run: keepstep.Run) -> list[str]:
    return [view.state for view in run.episodes()]


def test_what_fails_for_good_is_given_up_by_name(run: keepstep.Run, caplog: pytest.LogCaptureFixture) -> None:
    """After `max_attempts` it comes no more; the log says which, how often, and the last error; once."""
    run.plan(["good", "bad"])
    tries = 0
    with caplog.at_level(logging.INFO, logger="keepstep"):
        for job in run.remaining(max_attempts=2):
            if job.task == "bad":
                fail(job, f"no browser on port {tries}")
                tries += 1
            else:
                finish(job)
        assert tries == 2
        assert list(run.remaining(max_attempts=2)) == []
    (told,) = [record for record in caplog.records if "given up" in record.getMessage()]
    assert (told.name, told.levelno) == ("keepstep", logging.WARNING)
    for part in ("shop/bad#0.0", "errored 2 times", "ValueError: no browser on port 1"):
        assert part in told.getMessage(), told.getMessage()
    again = run.claim()
    assert again is not None and (again.why, again.attempts) == ("errored", 2), "3 are allowed by default"


def test_very_many_that_were_given_up_are_counted(
    run: keepstep.Run, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan of which nothing works fills no log: some are named, with bounded messages, and the rest counted."""
    run.plan([f"task-{number}" for number in range(30)])
    with caplog.at_level(logging.INFO, logger="keepstep"):
        for job in run.remaining(max_attempts=1):
            with pytest.raises(ValueError), job.episode():
                raise ValueError("long " * 2000)
    told = [record.getMessage() for record in caplog.records]
    assert sum("given up" in line and "long long" in line for line in told) == 20
    assert any("and 10 more" in line for line in told)
    assert max(map(len, told)) < 500


def test_another_process_tries_what_failed_here(run: keepstep.Run) -> None:
    """Whoever comes next tries again; the failed tries of all are counted."""
    run.plan(["a"])
    job = run.claim()
    assert job is not None
    fail(job)
    out = outside.run(
        """
        import sys, keepstep
        run = keepstep.open(sys.argv[1]).run("shop")
        for job in run.remaining():
            print(job.why, job.attempts)
            try:
                with job.episode() as episode:
                    raise ValueError("again")
            except ValueError:
                pass
        """,
        run.store.where,
    )
    assert out.split() == ["errored", "1", "errored", "2"]
    assert list(run.remaining()) == []


@pytest.mark.parametrize("why", ["errored", "crashed", "aborted", "abandoned", "cancelled", "superseded"])
def test_endings_that_come_back_anyway_may_be_named(run: keepstep.Run, why: Any) -> None:
    run.plan(["a"])
    assert [job.why for job in run.remaining(retry=[why])] == ["new"]


@pytest.mark.parametrize("wrong", ["truncated", ["finished"], ["trunkated"]])
def test_a_wrong_retry_is_refused(run: keepstep.Run, wrong: Any) -> None:
    """A text is no list of endings, and what is finished is finished."""
    run.plan(["a"])
    with pytest.raises(keepstep.BadInput, match="retry"):
        next(run.remaining(retry=wrong))
    with pytest.raises(keepstep.BadInput, match="retry"), run.episode("a", retry=wrong):
        pass


# More of what was truncated.


def test_a_truncated_episode_goes_on_where_it_stopped(run: keepstep.Run) -> None:
    """With a higher limit, and all of what it had; without the word it stays over."""
    run.plan(["a"])
    for job in run.remaining():
        with job.episode() as episode:
            walk(episode, 2)
    assert list(run.remaining()) == []
    with pytest.raises(keepstep.Ended, match="truncated"), run.episode("a"):
        pass
    given = []
    for job in run.remaining(retry=["truncated"]):
        given.append((job.why, job.attempts))
        with job.episode() as episode:
            assert (episode.attempt, episode.turns, episode.state("turn")) == (1, 2, 1)
            walk(episode, 5)
    assert given == [("truncated", 1)], "once, though it was truncated again"
    with run.episode("a", retry=["truncated"]) as episode:
        assert (episode.attempt, episode.turns) == (2, 5)
        episode.step(action="done", reward=1.0)
        episode.end("finished")
    with pytest.raises(keepstep.Ended, match="finished"), run.episode("a", retry=["truncated"]):
        pass
    (view,) = run.episodes()
    assert (view.attempt, view.state, len(view.steps), view.reward) == (2, "finished", 6, 6.0)
    assert [step.kind for step in view.steps] == ["MID"] * 5 + ["LAST"]
    assert [(it.attempt, it.state, len(it.steps)) for it in run.episodes(attempts="all")] == [
        (0, "truncated", 2),
        (1, "truncated", 5),
        (2, "finished", 6),
    ]
    listed = [
        json.loads(line) for line in outside.command("ls", run.store.where, "shop", "--json").splitlines()
    ]
    states = [(it["attempt"], it["state"], it["steps"]) for it in listed if "ref" in it]
    assert states == [(2, "finished", 6)]


def test_a_sealed_group_keeps_what_it_was_sealed_with(run: keepstep.Run) -> None:
    """Nothing goes on behind a seal: opening says so, and what remains passes over it."""
    run.plan(["a"], samples=2)
    for job in run.remaining():
        with job.episode() as episode:
            walk(episode, 2)
    with run.episode("a", sample=1, retry=["truncated"]) as episode:
        walk(episode, 3)
    group = run.group("a", size=2)
    group.seal({ref: 1.0 for ref in group.refs}, source="judge").wait()
    with pytest.raises(keepstep.Ended, match="sealed"), run.episode("a", retry=["truncated"]):
        pass
    assert list(run.remaining(retry=["truncated"])) == []
    (sealed,) = run.groups()
    assert [(view.attempt, len(view.steps)) for view in sealed.members] == [(0, 2), (1, 3)]


def test_a_retry_that_is_killed_leaves_what_was_there(run: keepstep.Run) -> None:
    """Killed with a step of its own, that one stays, and the episode is interrupted: it comes back by itself."""
    run.plan(["a"])
    for job in run.remaining():
        with job.episode() as episode:
            walk(episode, 2)
    outside.run(
        """
        import os, signal, sys, keepstep
        run = keepstep.open(sys.argv[1]).run("shop")
        with run.episode("a", retry=["truncated"]) as episode:
            episode.step(action="more", reward=1.0)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        run.store.where,
        code=outside.KILLED,
    )
    (job,) = run.remaining()
    assert (job.why, job.attempts) == ("crashed", 2)
    with job.episode() as episode:
        assert (episode.attempt, episode.turns) == (2, 3)
        walk(episode, 4)
    assert [view.state for view in run.episodes(attempts="all")] == ["truncated", "crashed", "truncated"]


def test_followers_are_told_of_each_ending_once(run: keepstep.Run) -> None:
    """The truncated end, and then what came of more, behind the same cursor."""
    with run.episode("a") as episode:
        walk(episode, 2)
    (first,) = run.episodes(after="")
    with run.episode("a", retry=["truncated"]) as episode:
        walk(episode, 3)
    told = list(run.episodes(after=first.cursor))
    assert [(view.ref, view.state, len(view.steps)) for view in told] == [("shop/a#0.0~1", "truncated", 3)]
    assert list(run.episodes(after=told[0].cursor)) == []
    assert [view.ref for view in run.episodes(after="", attempts="all")] == ["shop/a#0.0~0", "shop/a#0.0~1"]


# How far it is.


def test_progress_tells_where_a_plan_stands(run: keepstep.Run) -> None:
    """By what each episode is; what was given up by name, with how often and why."""
    assert run.progress().planned == 0
    run.plan(["finished", "truncated", "bad", "retried", "running", "left", "new"], needs=["score"])
    with run.episode("finished") as episode:
        episode.note("score", 1.0, source="itself")
        episode.end("finished")
    with run.episode("truncated") as episode:
        walk(episode, 1)
    for task, times in (("bad", 2), ("retried", 1)):
        for number in range(times):
            with pytest.raises(ValueError), run.episode(task):
                raise ValueError(f"no browser {number}")
    with run.episode("left") as episode:
        episode.end("aborted")
    with run.episode("running") as episode:
        progress = run.progress(max_attempts=2)
        episode.end("cancelled")
    assert (progress.planned, progress.not_begun, progress.running, progress.interrupted) == (7, 1, 1, 1)
    assert dict(progress.ended) == {"finished": 1, "truncated": 1, "errored": 2}
    assert (progress.unscored, progress.pruned, progress.damaged) == (1, 0, 0)
    (given_up,) = progress.given_up
    assert (given_up.ref, given_up.attempts, given_up.errors) == ("shop/bad#0.0", 2, 2)
    assert given_up.error is not None and given_up.error.startswith("ValueError: no browser 1")
    assert (progress.done, progress.left) == (1, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        progress.planned = 3  # type: ignore[misc]
    assert repr(progress) == (
        "<Progress 1 of 7 done, 1 given up: 1 not begun, 1 running, 1 interrupted, 2 errored, 1 finished, "
        "1 truncated, 1 unscored>"
    )
    assert [given.ref for given in run.progress(max_attempts=1).given_up] == [
        "shop/bad#0.0",
        "shop/retried#0.0",
    ]


def test_looking_at_the_progress_claims_nothing(run: keepstep.Run) -> None:
    """As often as a bar asks; what remains stays where it was."""
    run.plan(["a", "b"])
    assert (run.progress().not_begun, run.progress().left) == (2, 2)
    before = store_files.published(run.store.where)
    run.progress()
    assert store_files.published(run.store.where) == before
    for job in run.remaining():
        finish(job)
    assert (run.progress().done, run.progress().left, dict(run.progress().ended)) == (2, 0, {"finished": 2})


def test_the_null_store_has_a_progress_too() -> None:
    run = keepstep.open(None).run("shop")
    run.plan(["a", "b"], samples=2)
    assert (run.progress().planned, run.progress().not_begun) == (4, 4)
    for job in run.remaining():
        finish(job)
    assert (run.progress().planned, run.progress().done, run.progress().left) == (4, 4, 0)
    assert run.progress().given_up == ()


def test_ls_shows_the_progress_of_a_run_with_a_plan(run: keepstep.Run) -> None:
    """A line in 80 columns, and in JSON with the errors of what was given up."""
    run.plan(["good", "bad", "new"])
    for job in run.remaining():
        if job.task == "bad":
            fail(job)
        elif job.task == "good":
            finish(job)
    where = str(run.store.where)
    run.store.run("without")

    def said(*args: str) -> list[str]:
        command = [sys.executable, "-m", "keepstep", "ls", where, *args]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr.splitlines()

    plans = [line for line in said("shop") if line.startswith("plan of")]
    assert plans == ["plan of shop: 1 of 3 done, 1 running, 1 given up"]
    assert not any("plan" in line for line in said("shop/good"))
    rows = [json.loads(line) for line in outside.command("ls", where, "--json").splitlines()]
    assert [row["progress"] for row in rows if row["run"] == "without"] == [None]
    (progress,) = [row["progress"] for row in rows if row["run"] == "shop"]
    assert (progress["planned"], progress["done"], progress["left"]) == (3, 1, 1)
    assert [(it["ref"], it["errors"], it["error"]) for it in progress["given_up"]] == [
        ("shop/bad#0.0", 3, "ValueError: no browser")
    ]


# A plan that needs a score.


def page_loop(marker: str) -> str:
    """The part of the guide about a plan that needs a score, as people copy it."""
    page = (ROOT / "docs/guides/rewards-and-groups.md").read_text()
    section = page[page.index("## An evaluation that needs a score") :]
    code = re.search(r"```python\n(.*?)```", section, re.S)
    assert code is not None and marker in code[1]
    return code[1]


SCORING = """
import sys, keepstep
store = keepstep.open(sys.argv[1])
"""


def test_the_loop_of_the_guide_survives_its_second_pass(tmp_path: Path) -> None:
    """Run again, and again after a kill between the episodes and their scores; everything is scored in the end."""
    loop = page_loop("needs=")
    before_scores = loop[: loop.index("for job in run.unscored()")]
    where = tmp_path / "runs"
    kill = "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    outside.run(SCORING + before_scores + kill, where, code=outside.KILLED)
    assert "shop-1" in outside.run(SCORING + loop, where)
    assert outside.run(SCORING + loop, where).split() == ["[]"]
    store = keepstep.open(where)
    assert store.find("scored/shop-1").notes["score"] == 1.0
    assert [view.state for view in store.run("scored").episodes(attempts="all")] == ["finished"]


def test_two_processes_run_the_loop_of_the_guide_at_once(tmp_path: Path) -> None:
    loop = page_loop("needs=").replace('["shop-1"]', '[f"shop-{n}" for n in range(12)]')
    where = tmp_path / "runs"
    keepstep.open(where).run("scored").plan(["shop-0"])
    both = [outside.start(SCORING + loop, where) for _ in range(2)]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    outside.run(SCORING + loop, where)
    store = keepstep.open(where)
    views = list(store.run("scored").episodes(attempts="all"))
    assert [(view.state, view.notes["score"]) for view in views] == [("finished", 1.0)] * 12


def test_workers_and_judges_get_their_own_jobs(run: keepstep.Run) -> None:
    """A worker is given nothing to score, a judge nothing to run."""
    run.plan(["a", "b"], needs=["score"])
    assert list(run.unscored()) == []
    job = run.claim()
    assert job is not None
    finish(job)
    (unscored,) = run.unscored()
    assert (unscored.task, unscored.why) == (job.task, "unscored")
    with pytest.raises(keepstep.Ended, match="unscored"), unscored.episode():
        pass
    (other,) = run.remaining()
    assert other.why == "new"
    run.annotate(unscored.ref, "score", 1.0, source="judge").wait()
    assert list(run.unscored()) == []


def test_more_of_what_was_scored_needs_its_own_score(run: keepstep.Run) -> None:
    """A score of one attempt is none of the next."""
    run.plan(["a"], needs=["score"])
    for job in run.remaining():
        with job.episode() as episode:
            walk(episode, 1)
    run.annotate("shop/a~0", "score", 1.0, source="judge").wait()
    assert list(run.unscored()) == []
    with run.episode("a", retry=["truncated"]) as episode:
        walk(episode, 2)
    assert [job.ref for job in run.unscored()] == ["shop/a#0.0"]
