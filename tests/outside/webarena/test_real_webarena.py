"""The real WebArena in Debian's Chromium: `run.py` with the five lines, killed, run again, and compared.

Pages come from the loopback, answers from a script; environment, actions, agent, evaluators and renderer are the package's own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keepstep
import offline
import pytest
import shopsite
import signatures
from beartype.door import is_bearable
from keepstep.adapters import webarena
from outside import KILLED, environment
from webarena.browser_env import ActionTypes, DetachedPage, Trajectory, create_stop_action
from webarena.evaluation_harness import StringEvaluator

HERE = Path(__file__).parent
THINKS = 6
ITEMS = 2 * THINKS


class Place:
    """A folder with a run.py, a task, and what comes of it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.asked = folder / "asked"
        (folder / "config_files").mkdir(parents=True)
        self.add_task(0, address)

    def add_task(self, number: int, address: str) -> None:
        """A task of WebArena's form: find a lamp's price."""
        task = {
            "task_id": number,
            "start_url": f"{address}/",
            "storage_state": None,
            "geolocation": None,
            "intent": "What does a green lamp cost?",
            "eval": {
                "eval_types": ["string_match", "url_match"],
                "reference_answers": {"must_include": ["51"]},
                "reference_url": f"{address}/found",
            },
        }
        (self.folder / "config_files" / f"{number}.json").write_text(json.dumps(task))

    def run(self, trap: str = "no nowhere 0", *arguments: str, script: str = "run.py", code: int = 0) -> None:
        """Runs run.py to its end, or to the trap."""
        process = self.start(trap, *arguments, script=script)
        out, _ = process.communicate(timeout=180)
        assert process.returncode == code, f"exit code {process.returncode}, not {code}\n{out}"

    def start(self, trap: str, *arguments: str, script: str = "run.py") -> subprocess.Popen[str]:
        """Starts run.py."""
        settings = {**environment(), "TRAP": trap, "ASKED": str(self.asked), "PYTHONWARNINGS": "ignore"}
        small = ("--viewport_width", "800", "--viewport_height", "600", "--sleep_after_execution", "0.5")
        said = ("--result_dir", str(self.results), *small, *arguments)
        command = [sys.executable, str(HERE / "drive.py"), script, *said]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.folder, env=settings, text=True, **pipes)

    @property
    def thoughts(self) -> int:
        """How often the model was asked."""
        return len(self.asked.read_text().splitlines()) if self.asked.exists() else 0

    def view(self, ref: str = "webarena/0") -> keepstep.View:
        """What was recorded of a task."""
        return keepstep.open(self.results / "keepstep").find(ref)

    def mirror(self, task: int = 0) -> list[Any]:
        """The lines of the mirror, each of them JSON."""
        text = (self.results / f"{task}.traj.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def patched(how: str = "") -> str:
    """run.py with the diff; `how` are more arguments for `webarena.task`."""
    kept = (HERE / "run.py").read_text().splitlines(keepends=True)
    made, at = [], 0
    for line in (HERE / "run.diff").read_text().splitlines(keepends=True)[2:]:
        if line.startswith("@@"):
            begins = int(line.split()[1].split(",")[0].lstrip("-")) - 1
            made += kept[at:begins]
            at = begins
        elif line.startswith("+"):
            made.append(line[1:])
        else:
            assert kept[at] == line[1:], f"run.diff does not fit line {at + 1}: {line!r}"
            made += kept[at : at + 1] if line.startswith(" ") else []
            at += 1
    return "".join(made + kept[at:]).replace("config_file) as task", f"config_file{how}) as task")


REPLAY = ', environment="replay", agent=agent'


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A shop that all tests share: the same address for all, since it is part of what is recorded."""
    with shopsite.shop() as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path, address: str) -> Place:
    """A folder with the kept run.py."""
    made = Place(tmp_path / "place", address)
    (made.folder / "run.py").write_text(patched())
    (made.folder / "replay.py").write_text(patched(REPLAY))
    (made.folder / "untouched.py").write_text((HERE / "run.py").read_text())
    return made


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, address: str) -> keepstep.View:
    """The record of a task that nobody disturbed."""
    made = Place(tmp_path_factory.mktemp("whole") / "place", address)
    (made.folder / "run.py").write_text(patched())
    made.run()
    assert made.thoughts == THINKS
    return made.view()


def essence(view: keepstep.View) -> list[Any]:
    """What a rollout says. Chromium numbers elements as it meets them, so they are told by their place on the page."""
    told: list[Any] = []
    places: dict[str, int] = {}

    def renumbered(text: str) -> str:
        return re.sub(r"\[(\d+)\]", lambda found: f"[place {places.get(found[1])}]", text)

    for step in view.steps:
        item = step.value
        if "observation" in item:
            nodes = item["info"]["observation_metadata"]["text"]["obs_nodes_info"]
            places = {number: place for place, number in enumerate(nodes)}
            bounds = [(renumbered(node["text"]), node["union_bound"]) for node in nodes.values()]
            image, page = item["observation"]["image"], item["info"]["page"]
            told.append(
                (renumbered(item["observation"]["text"]), hashlib.sha256(image).hexdigest(), page, bounds)
            )
        else:
            told.append(
                {
                    **item,
                    "coords": item["coords"].tolist(),
                    "element_id": places.get(item["element_id"]),
                    # It quotes the action before, on the page before: those numbers have no place here.
                    "raw_prediction": re.sub(r"\[\d+\]", "[]", item["raw_prediction"]),
                }
            )
    return [*told, view.ending, dict(view.notes)]


def test_the_stand_ins_are_like_the_real_types() -> None:
    prelude = f"import sys; sys.path.insert(0, {str(HERE)!r}); import {offline.__name__}"
    names = {
        "webarena.browser_env.actions": ["Action", "ActionTypes", "create_none_action", "create_stop_action"],
        "webarena.browser_env.utils": ["DetachedPage", "StateInfo"],
    }
    for module, compared in names.items():
        assert signatures.differences(module, *compared, prelude=prelude) == []


def test_the_stand_ins_number_actions_as_the_real_ones_do() -> None:
    path = signatures.STANDINS / "webarena" / "browser_env" / "actions.py"
    spec = importlib.util.spec_from_file_location("standin_actions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {kind.name: kind.value for kind in module.ActionTypes} == {
        kind.name: kind.value for kind in ActionTypes
    }
    real, standin = create_stop_action("42"), module.create_stop_action("42")
    assert {name: repr(value) for name, value in standin.items() if name != "action_type"} == {
        name: repr(value) for name, value in real.items() if name != "action_type"
    }


def test_the_real_types_are_accepted_by_the_real_checks(tmp_path: Path) -> None:
    """beartype looks at every call in WebArena; the list that records must pass as a plain one does."""
    config = tmp_path / "3.json"
    config.write_text(json.dumps({"task_id": 3, "eval": {"reference_answers": {"exact_match": "42"}}}))
    with keepstep.open(tmp_path / "runs") as store, webarena.task(store.run("types"), config) as task:
        task.trajectory.append({"observation": {"text": ""}, "info": {"page": DetachedPage("u", "")}})
        task.trajectory.append(create_stop_action("42"))
        assert is_bearable(task.trajectory, Trajectory)
        assert task.scored(StringEvaluator()(task.trajectory, config)) == 1.0


def test_a_whole_run_is_recorded_as_it_happened(uninterrupted: keepstep.View) -> None:
    view = uninterrupted
    items = [step.value for step in view.steps]
    assert (view.state, view.notes["score"], len(items)) == ("finished", 1.0, ITEMS)
    kinds = [item["action_type"] for item in items[1::2]]
    assert kinds == [
        ActionTypes.CLICK,
        ActionTypes.TYPE,
        ActionTypes.SCROLL,
        ActionTypes.SCROLL,
        ActionTypes.CLICK,
        ActionTypes.STOP,
    ]
    assert all(type(kind) is ActionTypes for kind in kinds)
    for state in items[0::2]:
        assert state["observation"]["image"].shape == (600, 800, 3)
        assert isinstance(state["info"]["page"], DetachedPage)
        assert state["info"]["fail_error"] == ""
    assert "Lamp number 59" in items[4]["info"]["page"].content
    assert items[-2]["info"]["page"].url.endswith("/found?q=green+lamp")
    # Screenshots are of the pages that they belong to.
    assert len({state["observation"]["image"].tobytes() for state in items[0::2]}) == 5


KILLS = ["reset 1", "think 1", "step 1", "think 3", "step 5", "score 1"]


@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_task_begins_anew_and_ends_as_an_uninterrupted_one(
    place: Place, uninterrupted: keepstep.View, kill: str
) -> None:
    place.run(f"kill {kill}", code=KILLED)
    place.run()
    view = place.view()
    assert essence(view) == essence(uninterrupted)
    assert view.attempt == 1
    assert [attempt.state for attempt in view.attempts()] == ["crashed", "finished"]
    thoughts = place.thoughts
    place.run()
    assert place.thoughts == thoughts, "what is done is not done again"


@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_task_is_replayed_without_thinking_again(
    place: Place, uninterrupted: keepstep.View, kill: str
) -> None:
    place.run(f"kill {kill}", script="replay.py", code=KILLED)
    place.run(script="replay.py")
    assert essence(place.view()) == essence(uninterrupted)
    assert place.thoughts == THINKS


def test_a_task_that_is_killed_again_and_again_gets_done(place: Place, uninterrupted: keepstep.View) -> None:
    for kill in ("step 2", "think 1", "step 4", "score 1"):
        place.run(f"kill {kill}", script="replay.py", code=KILLED)
    place.run(script="replay.py")
    view = place.view()
    assert essence(view) == essence(uninterrupted)
    assert [attempt.state for attempt in view.attempts()] == ["crashed"] * 4 + ["finished"]
    assert place.thoughts == THINKS


def mirrored_steps(place: Place) -> list[Any]:
    """The complete lines of the mirror that are of steps."""
    mirror = place.results / "0.traj.jsonl"
    if not mirror.exists():
        return []
    told = [json.loads(line) for line in mirror.read_bytes().split(b"\n")[:-1]]
    return [line for line in told if "step" in line]


def test_a_kill_at_any_moment_leaves_a_prefix_and_a_mirror_of_it(
    place: Place, uninterrupted: keepstep.View
) -> None:
    whole = essence(uninterrupted)
    seed = int(os.environ.get("KEEPSTEP_SEED", time.time_ns()))
    print(f"KEEPSTEP_SEED={seed}")
    chance = random.Random(seed)
    for least in (1, 4, 7):
        process = place.start("no nowhere 0", script="replay.py")
        while process.poll() is None and len(mirrored_steps(place)) < least:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 1.5))
        process.kill()
        out, _ = process.communicate()
        assert process.returncode in (KILLED, 0), out
        recorded, mirrored = place.view(), mirrored_steps(place)
        assert len(recorded.steps) >= len(mirrored) >= 1
        for line, step in zip(mirrored, recorded.steps, strict=False):
            assert (line["step"], line["time"]) == (step.index, step.time)
        assert essence(recorded)[: len(recorded.steps)] == whole[: len(recorded.steps)]
    place.run(script="replay.py")
    assert essence(place.view()) == whole
    assert [line.get("step") for line in place.mirror()] == [*range(ITEMS), None]


def test_the_mirror_can_be_followed_while_it_grows(place: Place) -> None:
    process = place.start("no nowhere 0")
    seen: list[int] = []
    mirror = place.results / "0.traj.jsonl"

    def look() -> None:
        while process.poll() is None:
            if mirror.exists():
                complete = mirror.read_bytes().split(b"\n")[:-1]
                count = len([json.loads(line) for line in complete])
                seen.extend([count] if not seen or seen[-1] != count else [])
            time.sleep(0.02)

    looking = threading.Thread(target=look)
    looking.start()
    out, _ = process.communicate(timeout=180)
    looking.join()
    assert process.returncode == 0, out
    assert seen == sorted(seen)
    assert len(seen) >= ITEMS // 2, "it grew with the steps, not all at once"
    assert len(place.mirror()) == ITEMS + 1


def test_untouched_it_takes_a_killed_task_for_done(place: Place) -> None:
    """Why `unfinished` replaces `get_unfinished`."""
    place.results.mkdir()
    place.run("kill step 2", script="untouched.py", code=KILLED)
    thoughts = place.thoughts
    place.run(script="untouched.py")
    assert place.thoughts == thoughts
    place.run()
    assert place.view().state == "finished"


@pytest.mark.parametrize(
    ("trap", "error"), [("raise step 2", "the step failed"), ("raise score 1", "the score failed")]
)
def test_what_run_py_swallows_is_recorded_and_comes_back(
    place: Place, uninterrupted: keepstep.View, trap: str, error: str
) -> None:
    place.run(trap)
    ending = place.view().ending
    assert ending is not None
    assert (ending.why, ending.said_by) == ("errored", "exception")
    assert error in str(ending.error)
    # run.py saw the original.
    assert f"RuntimeError('{error}')" in (place.results / "error.txt").read_text()
    assert place.mirror()[-1]["end"] == "errored"
    place.run()
    assert essence(place.view()) == essence(uninterrupted)


def test_an_agent_that_gives_up_is_errored_and_thinks_again(
    place: Place, uninterrupted: keepstep.View
) -> None:
    place.run("refuse think 4", script="replay.py")
    ending = place.view().ending
    assert ending is not None
    assert (ending.why, ending.error, ending.said_by) == ("errored", "the think failed", "agent")
    place.run(script="replay.py")
    assert essence(place.view()) == essence(uninterrupted)
    assert place.thoughts == THINKS


def test_an_early_stop_is_truncated_by_its_limit(place: Place) -> None:
    place.run("no nowhere 0", "--max_steps", "3")
    view = place.view()
    assert view.ending == ("truncated", "steps", None, "early stop")
    assert view.notes["score"] == 0.0
    assert view.steps[-1].value["answer"] == "Early stop: Reach max steps 3"
    thoughts = place.thoughts
    place.run()
    assert place.thoughts == thoughts, "a task that ran into its limit was scored, and is done"


def test_a_site_that_changed_is_told_in_a_replay(
    place: Place, monkeypatch: pytest.MonkeyPatch, uninterrupted: keepstep.View
) -> None:
    place.run("kill think 3", script="replay.py", code=KILLED)
    with monkeypatch.context() as changed:
        changed.setitem(shopsite.PAGES, "/lamps", shopsite.PAGES["/lamps"].replace("Lamp number 1,", "Gone"))
        place.run(script="replay.py")
    ending = place.view().ending
    assert ending is not None
    assert ending.why == "errored"
    assert re.search(r"Diverged.*differs at item 2 in 'text'", str(ending.error), re.S)
    # The site is as it was: what is recorded still serves.
    place.run(script="replay.py")
    assert essence(place.view()) == essence(uninterrupted)


def test_one_task_that_fails_does_not_stop_the_others(place: Place, address: str) -> None:
    place.add_task(1, address)
    both = ("--test_end_idx", "2")
    place.run("raise step 1", *both)
    assert [place.view(f"webarena/{number}").state for number in (0, 1)] == ["errored", "finished"]
    thoughts = place.thoughts
    place.run("no nowhere 0", *both)
    assert [place.view(f"webarena/{number}").state for number in (0, 1)] == ["finished", "finished"]
    assert place.thoughts == thoughts + THINKS


def test_no_browser_outlives_a_killed_run(place: Place) -> None:
    place.run("kill step 1", code=KILLED)
    deadline = time.monotonic() + 60
    while left := [path for path in Path("/proc").glob("[0-9]*/environ") if str(place.asked) in _read(path)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.2)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
