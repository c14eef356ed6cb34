"""WebArena's adapter: what its loop appends is durable, its tasks end truthfully, and what is not done comes back."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import keepstep
import numpy as np
import outside
import pytest
import webarena_loop as loop
from keepstep.adapters import webarena
from webarena.browser_env import ActionTypes, DetachedPage, create_stop_action
from webarena_loop import Agent, Browser, roll

ROOT = Path(__file__).parents[3]
LOOP = Path(loop.__file__)


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The file of task 17."""
    return loop.config_file(tmp_path, 17)


def finish(run: keepstep.Run, config: str, browser: Browser | None = None, **how: Any) -> keepstep.View:
    """Runs a task to its score. What was recorded."""
    with webarena.task(run, config, **how) as task:
        roll(task, browser or Browser(), how.get("agent") or Agent())
        assert task.scored(1.0) == 1.0
    return run.store.find(task.episode.ref)


def interrupt(run: keepstep.Run, config: str, at: int, browser: Browser | None = None, **how: Any) -> None:
    """Runs a task until so many items are there, then fails."""

    class Failing(Agent):
        def next_action(self, trajectory: list[Any], intent: str, meta_data: Any) -> Any:
            if len(trajectory) >= at:
                raise RuntimeError("the network is gone")
            return super().next_action(trajectory, intent, meta_data)

    class FailingBrowser(Browser):
        def step(self, action: Any) -> Any:
            if len(task.trajectory) >= at:
                raise RuntimeError("the network is gone")
            return super().step(action)

    with pytest.raises(RuntimeError, match="gone"), webarena.task(run, config, **how) as task:
        roll(task, FailingBrowser(browser.shift if browser else 0), Failing())


def essence(view: keepstep.View) -> list[Any]:
    """What a rollout says, without the numbers that its browser gave."""
    told = []
    for step in view.steps:
        text = repr(step.value)
        told.append(re.sub(r"\[\d+\]|'\d+': \{|'element_id': '\d+'", "[]", text))
    return told


def identity(path: Path) -> tuple[int, int]:
    """Other numbers if the file was written again."""
    told = path.stat()
    return told.st_ino, told.st_mtime_ns


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_item_is_durable_when_append_returns_and_comes_back_as_itself(
    run: keepstep.Run, config: str
) -> None:
    state, stop = Browser().reset(), create_stop_action("42")
    with webarena.task(run, config) as task:
        for count, item in enumerate((state, stop), 1):
            task.trajectory.append(item)
            assert len(outside.events(run.store.where, "shop/17", "step")) == count
        task.scored(1.0)
    seen, done = (step.value for step in run.store.find("shop/17").steps)
    assert seen["info"]["page"] == state["info"]["page"]
    assert isinstance(seen["info"]["page"], DetachedPage)
    assert np.array_equal(seen["observation"]["image"], state["observation"]["image"])
    assert done["action_type"] is ActionTypes.STOP
    assert done["coords"].dtype == np.float32


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        ("42", ("finished", None, None, "stop action")),
        ("", ("finished", None, None, "stop action")),
        ("Early stop: Reach max steps 30", ("truncated", "steps", None, "early stop")),
        (
            "Early stop: Failed to parse actions for 3 times",
            ("truncated", "parse failures", None, "early stop"),
        ),
        ("Early stop: Same action for 3 times", ("truncated", "repeated actions", None, "early stop")),
        ("Early stop: Same typing action for 3 times", ("truncated", "repeated actions", None, "early stop")),
        ("Early stop: the battery is low", ("truncated", "the battery is low", None, "early stop")),
        (
            "Early stop: Get a numeric reward 0.8, test ends",
            ("finished", None, None, "stop action"),
        ),
        ("ERROR: the prompt is too long", ("errored", None, "the prompt is too long", "agent")),
    ],
)
def test_the_stop_action_says_how_it_ended(
    run: keepstep.Run, config: str, answer: str, ending: tuple[Any, ...]
) -> None:
    with webarena.task(run, config) as task:
        task.trajectory.append(Browser().reset())
        task.trajectory.append(create_stop_action(answer))
        task.scored(0.5)
    view = run.store.find("shop/17")
    assert view.ending == ending
    assert view.notes["score"] == 0.5


def test_a_plain_number_is_a_stop_action_too(run: keepstep.Run, config: str) -> None:
    with webarena.task(run, config) as task:
        task.trajectory.append({**create_stop_action("Early stop: Reach max steps 1"), "action_type": 17})
        task.scored(0.0)
    assert run.store.find("shop/17").state == "truncated"


def test_an_exception_is_recorded_and_reaches_the_caller_as_it_is(run: keepstep.Run, config: str) -> None:
    raised, caught = RuntimeError("the page crashed"), None
    try:
        with webarena.task(run, config) as task:
            task.trajectory.append(Browser().reset())
            raise raised
    except Exception as error:
        caught = error
    assert caught is raised
    ending = run.store.find("shop/17").ending
    assert ending is not None
    assert (ending.why, ending.said_by) == ("errored", "exception")
    assert "the page crashed" in str(ending.error)
    assert webarena.unfinished(run, [config]) == [config]


def test_being_told_to_stop_is_no_failure(run: keepstep.Run, config: str) -> None:
    with pytest.raises(KeyboardInterrupt), webarena.task(run, config) as task:
        task.trajectory.append(Browser().reset())
        raise KeyboardInterrupt
    assert run.store.find("shop/17").state == "aborted"
    assert webarena.unfinished(run, [config]) == [config]


def test_a_failure_after_the_score_does_not_undo_it(run: keepstep.Run, config: str) -> None:
    """run.py saves its trace after the score."""
    with pytest.raises(OSError, match="full"), webarena.task(run, config) as task:
        roll(task, Browser(), Agent())
        task.scored(1.0)
        raise OSError("the disk is full")
    assert run.store.find("shop/17").state == "finished"
    assert webarena.unfinished(run, [config]) == []


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_task_that_nobody_scored_is_not_done(run: keepstep.Run, config: str, is_stopped: bool) -> None:
    missing = "a score" if is_stopped else "a stop action"
    with pytest.warns(RuntimeWarning, match=f"without {missing}"), webarena.task(run, config) as task:
        task.trajectory.append(Browser().reset())
        if is_stopped:
            task.trajectory.append(create_stop_action("42"))
    ending = run.store.find("shop/17").ending
    assert ending == ("aborted", None, f"left without {missing}", "webarena")
    assert webarena.unfinished(run, [config]) == [config]
    assert finish(run, config).state == "finished"
    assert webarena.unfinished(run, [config]) == []


def test_where_nobody_scores_the_stop_action_is_enough(run: keepstep.Run, config: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with webarena.task(run, config, needs_score=False) as task:
            roll(task, Browser(), Agent())
    assert run.store.find("shop/17").state == "finished"
    assert webarena.unfinished(run, [config], needs_score=False) == []
    assert webarena.unfinished(run, [config]) == [config]


def test_a_score_is_a_number(run: keepstep.Run, config: str) -> None:
    with (
        pytest.raises(keepstep.BadInput, match=r"score is '1\.0'"),
        webarena.task(run, config) as task,
    ):
        roll(task, Browser(), Agent())
        task.scored("1.0")  # type: ignore[arg-type]
    assert "score" not in run.store.find("shop/17").notes


def test_unfinished_keeps_the_order_and_leaves_out_what_is_done_or_taken(
    run: keepstep.Run, tmp_path: Path
) -> None:
    new, done, failed, taken, agent_failed = (loop.config_file(tmp_path, number) for number in range(5))
    missing = str(tmp_path / "812.json")
    files = [new, done, missing, failed, taken, agent_failed]
    finish(run, done)
    interrupt(run, failed, 2)
    with webarena.task(run, agent_failed) as task:
        roll(task, Browser(), Agent(fails_at=1))
        task.scored(0.0)
    with webarena.task(run, taken) as task:
        task.trajectory.append(Browser().reset())
        assert webarena.unfinished(run, files) == [new, missing, failed, agent_failed]
        roll(task, Browser(), Agent())
        task.scored(1.0)


def test_a_file_that_is_no_task_is_refused(run: keepstep.Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    with pytest.raises(keepstep.BadInput, match=r"wrong\.json has no task_id"):
        webarena.unfinished(run, [str(wrong)])


def test_what_cannot_be_opened_is_told_where_the_list_is_asked_for(run: keepstep.Run, config: str) -> None:
    finish(run, config)
    reached = False
    with pytest.raises(keepstep.Ended, match="sample=1"), webarena.task(run, config) as task:
        reached = True
        task.trajectory.append(Browser().reset())
    assert reached
    with webarena.task(run, config):
        pass  # who asks for nothing is told nothing
    assert finish(run, config, sample=1).state == "finished"


def test_a_task_that_was_not_entered_records_nothing_in_silence(run: keepstep.Run, config: str) -> None:
    task = webarena.task(run, config)
    for use in (lambda: task.trajectory, lambda: task.scored(1.0)):
        with pytest.raises(keepstep.BadInput, match="was not entered"):
            use()


def test_the_trajectory_is_a_list_that_only_grows(run: keepstep.Run, config: str) -> None:
    with webarena.task(run, config) as task:
        trajectory = task.trajectory
        trajectory += [Browser().reset()]
        trajectory.extend([create_stop_action("42")])
        assert isinstance(trajectory, list)
        assert trajectory[1::2][0]["answer"] == "42"
        for change in (trajectory.pop, trajectory.clear, lambda: trajectory.insert(0, 1)):
            with pytest.raises(TypeError, match="only grow"):
                change()
        assert type(pickle.loads(pickle.dumps(trajectory))) is list
        assert type(copy.copy(trajectory)) is list
        task.scored(1.0)
    assert len(run.store.find("shop/17").steps) == 2


def test_a_page_that_comes_again_is_stored_once(run: keepstep.Run, config: str) -> None:
    html = "".join(f"<p>{number * 7919 % 1000003}</p>" for number in range(40_000))
    image = np.random.default_rng(0).integers(0, 255, (100, 100, 3), np.uint8)
    with webarena.task(run, config) as task:
        for count in range(50):
            state = Browser().reset()
            state["info"]["page"] = DetachedPage(f"http://shop/{count}", html[:-1] + ">")
            state["observation"]["image"] = image.copy()
            task.trajectory.append(state)
        task.trajectory.append(create_stop_action(""))
        task.scored(1.0)
    once = len(html) + image.nbytes
    size = sum(file.stat().st_size for file in Path(str(run.store.where)).rglob("*.seg"))
    assert size < once, f"{size} bytes for a page and a screenshot of {once}, fifty times"


def test_without_a_store_the_loop_runs_as_before(tmp_path: Path, config: str) -> None:
    run = keepstep.open(None).run("off")
    with webarena.task(run, config, results=tmp_path, environment="replay") as task:
        roll(task, Browser(), Agent())
        task.scored(1.0)
    assert len(task.trajectory) == 2 * loop.PAGES + 2
    assert not list(tmp_path.glob("*.jsonl"))
    assert webarena.unfinished(run, [config], results=tmp_path) == [config]


# The mirror.


def test_the_mirror_has_a_line_for_each_step_as_it_happens(tmp_path: Path, config: str) -> None:
    mirror = tmp_path / "17.traj.jsonl"
    with webarena.task(tmp_path, config) as task:
        assert mirror.read_bytes() == b""
        for count in range(1, 4):
            task.trajectory.append(Browser().reset())
            assert [line["step"] for line in lines(mirror)] == list(range(count))
        task.trajectory.append(create_stop_action("42"))
        task.scored(1.0)
    *states, action, end = lines(mirror)
    assert states[0]["observation"]["image"] == {"dtype": "uint8", "shape": [6, 8, 3]}
    assert states[0]["info"]["page"] == {"url": "http://shop/0", "characters": 13 * 500}
    assert action["action"]["action_type"] == "STOP"
    assert action["action"]["coords"] == [0.0, 0.0]
    assert end == {
        "end": "finished",
        "limit": None,
        "error": None,
        "said_by": "stop action",
        "attempt": 0,
        "score": 1.0,
    }


def test_a_mirror_that_was_cut_anywhere_is_made_whole_from_the_store(
    run: keepstep.Run, tmp_path: Path, config: str
) -> None:
    finish(run, config, results=tmp_path)
    mirror = tmp_path / "17.traj.jsonl"
    whole = mirror.read_bytes()
    cuts = [*range(0, len(whole), 97), len(whole) - 1]
    for cut in cuts:
        mirror.write_bytes(whole[:cut])
        assert webarena.unfinished(run, [config], results=tmp_path) == []
        assert mirror.read_bytes() == whole, f"cut at {cut} of {len(whole)}"
    mirror.unlink()
    webarena.unfinished(run, [config], results=tmp_path)
    assert mirror.read_bytes() == whole
    assert not list(tmp_path.glob(".*.new"))


def test_a_mirror_that_is_whole_is_left_alone(run: keepstep.Run, tmp_path: Path, config: str) -> None:
    finish(run, config, results=tmp_path)
    before = identity(tmp_path / "17.traj.jsonl")
    webarena.unfinished(run, [config], results=tmp_path)
    assert identity(tmp_path / "17.traj.jsonl") == before


def test_what_the_store_hides_the_mirror_hides_too(tmp_path: Path, config: str) -> None:
    with keepstep.open(tmp_path / "hidden", redact=["answer"]) as store:
        with webarena.task(store.run("shop"), config, results=tmp_path) as task:
            task.trajectory.append(create_stop_action("my password"))
            task.scored(1.0)
    assert "password" not in (tmp_path / "17.traj.jsonl").read_text()


def test_odd_values_are_still_json(run: keepstep.Run, tmp_path: Path, config: str) -> None:
    state = Browser().reset()
    state["info"]["odd"] = [
        float("nan"),
        float("inf"),
        "\ud83d",
        "\u2028",
        np.float32(0.5),
        (1, 2),
        {3: None},
    ]
    with webarena.task(run, config, results=tmp_path) as task:
        task.trajectory.append(state)
        task.trajectory.append(create_stop_action(""))
        task.scored(1.0)

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    first = (tmp_path / "17.traj.jsonl").read_bytes().split(b"\n")[0]
    odd = json.loads(first, parse_constant=refuse)["info"]["odd"]
    assert odd == ["nan", "inf", "\ud83d", "\u2028", 0.5, [1, 2], {"3": None}]


def test_a_mirror_of_a_store_that_does_not_wait_for_the_disk_is_whole_in_the_end(
    tmp_path: Path, config: str
) -> None:
    """At that level a step is seen some time after it is acknowledged: the mirror lags, and nobody waits for it."""
    with keepstep.open(tmp_path / "runs", level="kill") as store:
        view = finish(store.run("shop"), config, results=tmp_path)
        assert [line.get("step") for line in lines(tmp_path / "17.traj.jsonl")] == [
            *range(len(view.steps)),
            None,
        ]


def test_ctrl_c_between_a_step_and_its_line_leaves_no_hole(
    run: keepstep.Run, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepstep.adapters.webarena import _mirror

    def interrupted(handle: int, line: bytes) -> None:
        monkeypatch.undo()
        os.write(handle, line[:10])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), webarena.task(run, config, results=tmp_path) as task:
        task.trajectory.append(Browser().reset())
        monkeypatch.setattr(_mirror, "_write", interrupted)
        task.trajectory.append(create_stop_action("42"))
    assert [line.get("step") for line in lines(tmp_path / "17.traj.jsonl")] == [0, 1, None]


def test_a_task_that_failed_before_its_first_state_has_a_mirror_of_its_end(
    run: keepstep.Run, tmp_path: Path, config: str
) -> None:
    with pytest.raises(OSError), webarena.task(run, config, results=tmp_path):
        raise OSError("no browser")
    mirror = tmp_path / "17.traj.jsonl"
    before = identity(mirror)
    assert lines(mirror)[0]["end"] == "errored"
    assert webarena.unfinished(run, [config], results=tmp_path) == [config]
    assert identity(mirror) == before


def test_a_mirror_that_cannot_be_written_does_not_end_the_task(
    run: keepstep.Run, tmp_path: Path, config: str
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.warns(RuntimeWarning, match="the recording continues"):
        view = finish(run, config, results=in_the_way / "results")
    assert view.state == "finished"


# Coming back.


@pytest.mark.parametrize("at", range(1, 2 * loop.PAGES + 2))
@pytest.mark.parametrize("environment", ["restart", "replay"])
def test_an_interrupted_task_ends_as_an_uninterrupted_one(
    run: keepstep.Run, tmp_path: Path, config: str, at: int, environment: str
) -> None:
    wanted = essence(finish(run, loop.config_file(tmp_path, 1)))
    interrupt(run, config, at)
    browser, agent = Browser(shift=30), Agent()
    how: dict[str, Any] = {"results": tmp_path}
    if environment == "replay":
        how |= {"environment": "replay", "agent": agent}
        with webarena.task(run, config, **how) as task:
            assert task.is_replaying
            roll(task, browser, agent)
            assert not task.is_replaying
            task.scored(1.0)
        # Recorded actions are not thought of again.
        assert agent.asked == loop.PAGES + 1 - at // 2
    else:
        finish(run, config, browser, **how)
        before, after = run.store.find("shop/17").attempts()
        assert before.last_time is not None
        assert after.steps[0].time > before.last_time, "it begins at step 0"
    view = run.store.find("shop/17")
    assert (view.state, view.attempt) == ("finished", 1)
    assert essence(view) == wanted
    assert browser.steps == loop.PAGES
    mirrored = [line["step"] for line in lines(tmp_path / "17.traj.jsonl")[:-1]]
    assert mirrored == list(range(len(view.steps)))
    # The earlier attempt stays readable.
    assert [len(attempt.steps) for attempt in view.attempts()] == [at, len(view.steps)]


def test_a_replayed_record_names_elements_that_stand_in_the_state_before(
    run: keepstep.Run, config: str
) -> None:
    """A state that was recorded in one browser and acted on in another would name elements that it does not have."""
    for at, shift in ((3, 10), (4, 20), (7, 30)):
        interrupt(run, config, at, Browser(shift), environment="replay")
    agent = Agent()
    view = finish(run, config, Browser(40), environment="replay", agent=agent)
    items = [step.value for step in view.steps]
    for state, action in zip(items[0:-2:2], items[1:-2:2], strict=True):
        assert action["element_id"] in state["info"]["observation_metadata"]["text"]["obs_nodes_info"]


def test_a_replay_that_differs_says_where(run: keepstep.Run, config: str) -> None:
    interrupt(run, config, 5)
    how: dict[str, Any] = {"environment": "replay", "agent": Agent()}
    changed = Browser(pages={1: "another page"})
    with pytest.raises(keepstep.Diverged, match=r"item 2 in 'text'.*page 1.*another page"):
        finish(run, config, changed, **how)
    assert run.store.find("shop/17").state == "errored"
    assert finish(run, config, changed, **how, ignore=["text"]).state == "finished"


def test_without_the_agent_a_replay_compares_what_it_does(run: keepstep.Run, config: str) -> None:
    interrupt(run, config, 5)

    class Lazy(Agent):
        def next_action(self, trajectory: list[Any], intent: str, meta_data: Any) -> Any:
            return create_stop_action("nothing")

    with pytest.raises(keepstep.Diverged, match="item 1 in 'action_type'"):
        with webarena.task(run, config, environment="replay") as task:
            roll(task, Browser(), Lazy())
    assert finish(run, config, Browser(5), environment="replay").state == "finished"


def test_an_agent_that_failed_thinks_again_in_a_replay(run: keepstep.Run, config: str) -> None:
    with webarena.task(run, config) as task:
        roll(task, Browser(), Agent(fails_at=2))
        task.scored(0.0)
    assert run.store.find("shop/17").state == "errored"
    agent = Agent()
    view = finish(run, config, environment="replay", agent=agent)
    assert (view.state, agent.asked) == ("finished", loop.PAGES - 1)
    assert "next_action" not in vars(agent)


def test_an_agents_own_next_action_is_given_back(run: keepstep.Run, config: str) -> None:
    agent = Agent()
    own = agent.next_action = agent.next_action  # type: ignore[method-assign]
    interrupt(run, config, 2)
    finish(run, config, environment="replay", agent=agent)
    assert vars(agent)["next_action"] is own


def test_what_makes_no_sense_is_refused(run: keepstep.Run, config: str) -> None:
    with pytest.raises(keepstep.BadInput, match="cannot be restored"):
        webarena.task(run, config, environment="restore")  # type: ignore[arg-type]
    with pytest.raises(keepstep.BadInput, match="only used in a replay"):
        webarena.task(run, config, agent=Agent())


@pytest.mark.parametrize("environment", ["restart", "replay"])
def test_a_killed_process_costs_no_more_than_the_item_in_flight(
    tmp_path: Path, config: str, environment: str
) -> None:
    results = tmp_path / "results"
    asked = 0
    for shift, kill_at in enumerate((4, 7)):
        with outside.start(LOOP, results, config, environment, kill_at, shift) as process:
            process.communicate(timeout=60)
            assert process.returncode == outside.KILLED
        mirrored = lines(results / "17.traj.jsonl")
        assert [line["step"] for line in mirrored] == list(range(kill_at))
    asked = int(outside.run(LOOP, results, config, environment, -1, 9))
    assert asked == (2 if environment == "replay" else loop.PAGES + 1)
    store = results / "keepstep"
    assert outside.ending(store, "webarena/17")["why"] == "finished"
    with keepstep.open(store) as opened, keepstep.open(tmp_path / "other") as other:
        view = opened.find("webarena/17")
        assert view.attempt == 2
        assert essence(view) == essence(finish(other.run("webarena"), config))
        assert [attempt.state for attempt in view.attempts()] == ["crashed", "crashed", "finished"]


# The diff.


def changed_lines(diff: str) -> int:
    """How many lines a reader has to touch: one that is replaced counts once."""
    touched = added = removed = 0
    for line in [*diff.splitlines(), ""]:
        if line.startswith(("---", "+++")):
            continue
        added += line.startswith("+")
        removed += line.startswith("-")
        if not line.startswith(("+", "-")):
            touched, added, removed = touched + max(added, removed), 0, 0
    return touched


def test_the_diff_to_run_py_has_five_lines_and_the_guide_shows_it() -> None:
    diff = (ROOT / "tests/outside/webarena/run.diff").read_text()
    guide = (ROOT / "docs/guides/webarena.md").read_text()
    assert changed_lines(diff) <= 5
    shown = re.search(r"^```diff\n(.*?)^```$", guide, re.M | re.S)
    assert shown is not None
    changes = [line for line in diff.splitlines()[2:] if line.startswith(("+", "-"))]
    assert [line for line in shown[1].splitlines() if line.startswith(("+", "-"))] == changes


def test_the_ruler_of_the_diff_counts() -> None:
    assert changed_lines("--- a\n+++ b\n@@\n-x\n+y\n+z\n q\n-w\n") == 3


def test_without_webarena_the_import_says_what_to_install() -> None:
    alone = {**os.environ, "PYTHONPATH": str(Path(keepstep.__file__).parent.parent)}
    code = [sys.executable, "-c", "import keepstep.adapters.webarena"]
    done = subprocess.run(code, env=alone, text=True, capture_output=True)
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "pip install libwebarena" in done.stderr
