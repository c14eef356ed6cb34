"""The adapter on the real ARES: its CodeEnvironment with a MockContainer, its TwentyQuestions, its presets, its own tests."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.forkserver
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import adding_to_kill
import ares
import keepstep
import outside
import pytest
from adding_task import WORDS, Containers, answer, environment, task
from ares.environments.code_env import CodeEnvironment
from ares.environments.twenty_questions import TwentyQuestionsEnvironment
from ares.llms.response import LLMResponse, TextData, Usage
from ares.testing.mock_llm import MockLLMClient
from docs_pages import run_page
from keepstep.adapters import ares as adapter
from keepstep.adapters.ares import (
    EpisodeTrajectory,
    JsonTrajectoryCollector,
    KeepstepTrajectoryCollector,
    TrajectoryCollectingEnvironment,
)
from signatures import differences

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with keepstep.open(tmp_path / "runs") as store:
        yield store.run("code")


def ends(run: keepstep.Run) -> list[tuple[str, str, str]]:
    views = sorted(run.episodes(), key=lambda view: view.first_time or 0.0)
    return [(view.task, view.ending.why, view.ending.said_by) for view in views if view.ending]


# The real CodeEnvironment, with its mini-swe-agent


def test_a_normal_end(run: keepstep.Run, tmp_path: Path) -> None:
    async def loop() -> Any:
        collector = KeepstepTrajectoryCollector(run)
        async with TrajectoryCollectingEnvironment(environment(tmp_path), collector) as env:
            first = await env.reset()
            assert (first.reward, first.discount) == (0.0, 1.0), "it is given on as it is"
            for word in WORDS:
                time_step = await env.step(answer(word))
            assert (time_step.reward, time_step.discount, time_step.observation) == (10.0, 0.0, None)
            return env.last_trajectory

    trajectory = asyncio.run(loop())
    assert ends(run) == [("adding", "finished", "discount")]
    assert (trajectory.task_name, trajectory.total_reward, trajectory.truncated) == ("adding", 10.0, False)
    # The agent goes on writing to the list that it sent: each step keeps what was there then.
    assert [len(step.observation["messages"]) for step in trajectory.steps[:-1]] == [1, 3, 5, 7, 9]
    assert trajectory.steps[4].observation["messages"][-1]["content"].count("the total is 10") == 1
    assert [step.reward for step in trajectory.steps] == [None, 0.0, 0.0, 0.0, 0.0, 10.0]


def test_the_step_limit(run: keepstep.Run, tmp_path: Path) -> None:
    async def loop() -> None:
        inner = environment(tmp_path, step_limit=2)
        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            await env.reset()
            await env.step(answer("add 1"))
            time_step = await env.step(answer("add 2"))
            assert time_step.last() and time_step.discount == 1.0
            with pytest.raises(RuntimeError, match="must be reset"):
                await env.step(answer("add 3"))

    asyncio.run(loop())
    assert ends(run) == [("adding", "truncated", "discount")]
    assert run.store.find("code/adding").steps[-1].observation is not None


def test_an_end_at_the_limit_is_an_end(run: keepstep.Run, tmp_path: Path) -> None:
    async def loop() -> None:
        inner = environment(tmp_path, step_limit=2)
        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            await env.reset()
            await env.step(answer("add 1"))
            await env.step(answer("submit"))

    asyncio.run(loop())
    assert ends(run) == [("adding", "finished", "discount")]


def test_an_agent_that_fails(run: keepstep.Run, tmp_path: Path) -> None:
    def meet(command: str) -> None:
        if command == "add 2":
            raise OSError("the container is gone")

    async def loop() -> None:
        async with TrajectoryCollectingEnvironment(
            environment(tmp_path, meet), KeepstepTrajectoryCollector(run)
        ) as env:
            await env.reset()
            await env.step(answer("add 1"))
            with pytest.raises(RuntimeError, match="Code agent task failed") as raised:
                await env.step(answer("add 2"))
            assert isinstance(raised.value.__cause__, OSError), "as the environment raised it"

    asyncio.run(loop())
    assert ends(run) == [("adding", "errored", "step")]
    view = run.store.find("code/adding")
    assert view.ending is not None and "the container is gone" in (view.ending.error or "")
    assert "add 2" in view.steps[2].action["data"][0]["content"], "what was answered is kept"


def test_an_agent_that_is_cancelled_inside_failed(run: keepstep.Run, tmp_path: Path) -> None:
    """The environment raises CancelledError, though nobody cancelled the loop."""

    async def loop() -> None:
        inner = environment(tmp_path, lambda command: trap() if command == "add 1" else None)

        def trap() -> None:
            inner._code_agent_task.cancel()  # type: ignore[union-attr]

        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            await env.reset()
            with pytest.raises(asyncio.CancelledError):
                await env.step(answer("add 1"))

    asyncio.run(loop())
    assert ends(run) == [("adding", "errored", "step")]


def test_a_step_that_is_cancelled(run: keepstep.Run, tmp_path: Path) -> None:
    async def loop() -> None:
        running = asyncio.Event()

        def meet(command: str) -> Any:
            if command != "add 2":
                return None
            running.set()
            return asyncio.sleep(600)

        async with TrajectoryCollectingEnvironment(
            environment(tmp_path, meet), KeepstepTrajectoryCollector(run)
        ) as env:
            await env.reset()
            await env.step(answer("add 1"))
            step = asyncio.ensure_future(env.step(answer("add 2")))
            await running.wait()
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            with pytest.raises(keepstep.Ended, match=r"cancelled.*reset"):
                await env.step(answer("add 2"))

    asyncio.run(loop())
    assert ends(run) == [("adding", "cancelled", "step")]
    view = run.store.find("code/adding")
    assert len(view.steps) == 2
    assert view.pending is not None and "add 2" in view.pending.action["data"][0]["content"]


def test_a_reset_while_active(run: keepstep.Run, tmp_path: Path) -> None:
    async def loop() -> None:
        inner = environment(tmp_path)
        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            await env.reset()
            await env.step(answer("add 1"))
            await env.reset()
            for word in WORDS:
                await env.step(answer(word))

    asyncio.run(loop())
    assert ends(run) == [("adding", "abandoned", "reset"), ("adding", "finished", "discount")]


@pytest.mark.parametrize("how", ["close", "exit", "exception"])
def test_a_close_while_active(run: keepstep.Run, tmp_path: Path, how: str) -> None:
    inner = environment(tmp_path)

    async def loop() -> None:
        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            await env.reset()
            await env.step(answer("add 1"))
            if how == "close":
                await env.close()
            if how == "exception":
                raise ZeroDivisionError

    if how == "exception":
        with pytest.raises(ZeroDivisionError):
            asyncio.run(loop())
    else:
        asyncio.run(loop())
    assert ends(run) == [("adding", "aborted", "close" if how == "close" else "exit")]
    (container,) = inner._container_factory.made  # type: ignore[attr-defined]
    assert container.stopped


def test_a_reset_that_fails(run: keepstep.Run, tmp_path: Path) -> None:
    """The task is known by then, so the episode has its name."""

    async def loop() -> None:
        inner = environment(tmp_path, lambda command: 1 / 0)
        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            with pytest.raises(RuntimeError, match="Code agent task failed"):
                await env.reset()
        with pytest.raises(RuntimeError, match="not active"):
            await env.reset()

    asyncio.run(loop())
    assert ends(run) == [("adding", "errored", "reset"), ("", "errored", "reset")]


def test_many_tasks_are_named_as_they_are_drawn(run: keepstep.Run, tmp_path: Path) -> None:
    names = ["one", "two", "three"]
    random.seed(7)
    tasks = [task(tmp_path, name) for name in names]
    inner = CodeEnvironment(tasks, container_factory=Containers())

    async def loop() -> list[str]:
        drawn = []
        async with TrajectoryCollectingEnvironment(inner, KeepstepTrajectoryCollector(run)) as env:
            for _ in range(6):
                await env.reset()
                await env.step(answer("submit"))
                drawn.append(inner._current_task.name)  # type: ignore[union-attr]
        return drawn

    drawn = asyncio.run(loop())
    assert [name for name, _, _ in ends(run)] == drawn and len(set(drawn)) > 1


def test_a_file_of_it(tmp_path: Path) -> None:
    collector = JsonTrajectoryCollector(tmp_path / "files")

    async def loop() -> Any:
        async with TrajectoryCollectingEnvironment(environment(tmp_path), collector) as env:
            await env.reset()
            for word in WORDS:
                await env.step(answer(word))
            return env.last_trajectory

    trajectory = asyncio.run(loop())
    (path,) = collector.output_dir.iterdir()
    assert EpisodeTrajectory.load(path) == trajectory
    assert trajectory.num_steps == 6


# TwentyQuestions: its limit has discount 0, like its end


def question(text: str) -> LLMResponse:
    return LLMResponse([TextData(text)], cost=0.0, usage=Usage(1, 1))


def out_of_questions(env: Any, time_step: Any) -> keepstep.Ending | None:
    """A guess that was right has reward 0, every other question costs 1."""
    return (
        keepstep.Ending("truncated", limit="questions") if time_step.last() and time_step.reward < 0 else None
    )


@pytest.mark.parametrize(
    ("guess", "told", "wanted"),
    [
        ("Is it big?", out_of_questions, ("truncated", "ending=")),
        ("Is it a Piano?", out_of_questions, ("finished", "discount")),
        ("Is it big?", None, ("finished", "discount")),
    ],
    ids=["limit", "right", "not told"],
)
def test_the_limit_of_twenty_questions(guess: str, told: Any, wanted: Any, run: keepstep.Run) -> None:
    inner = TwentyQuestionsEnvironment(objects=("Piano",), step_limit=2)
    inner._oracle_client = MockLLMClient(default_response="No.")  # type: ignore[assignment]

    async def loop() -> None:
        collector = KeepstepTrajectoryCollector(run)
        async with TrajectoryCollectingEnvironment(inner, collector, ending=told) as env:
            await env.reset()
            await env.step(question("Is it alive?"))
            time_step = await env.step(question(guess))
            assert time_step.last() and time_step.discount == 0.0

    asyncio.run(loop())
    assert ends(run) == [("Piano", *wanted)]


# Presets


def test_a_preset_of_its_own_is_wrapped(run: keepstep.Run) -> None:
    env = adapter.make("20q:3", trajectory_collector=KeepstepTrajectoryCollector(run))
    assert isinstance(env.env, TwentyQuestionsEnvironment)

    async def loop() -> None:
        async with env:
            await env.reset()
            await env.step(question(f"Is it a {env._hidden_object}?"))

    asyncio.run(loop())
    assert [(why, said_by) for _, why, said_by in ends(run)] == [("finished", "discount")]


def test_a_third_party_spec_stays_as_it_is(run: keepstep.Run, tmp_path: Path) -> None:
    """One that takes what ARES gives to specs today, and not a word more."""

    class Spec:
        def get_info(self) -> Any:
            return ares.EnvironmentInfo("adding", "adds", 1)

        def get_env(self, *, selector: Any, container_factory: Any, tracker: Any = None) -> Any:
            return CodeEnvironment(selector([task(tmp_path)]), container_factory=container_factory)

    ares.register_preset("adding", Spec())
    try:
        env = adapter.make(
            "adding:0", trajectory_collector=KeepstepTrajectoryCollector(run), container_factory=Containers()
        )
    finally:
        ares.registry.unregister_preset("adding")

    async def loop() -> None:
        async with env:
            await env.reset()
            for word in WORDS:
                await env.step(answer(word))

    asyncio.run(loop())
    assert ends(run) == [("adding", "finished", "discount")]


# Killed


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    """ARES takes seconds to import: once, in a process from which the others are forked."""
    _processes.set_forkserver_preload(["adding_to_kill"])
    with pytest.MonkeyPatch.context() as patch:
        # The server does not look where this process looks, and says nothing if it finds nothing.
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        multiprocessing.forkserver.ensure_running()


_processes = multiprocessing.get_context("forkserver")


def roll(where: Path, mode: str, point: str) -> tuple[int | None, str]:
    """A rollout in a process of its own: its exit code, and what it said."""
    said = where / "said"
    said.unlink(missing_ok=True)
    process = _processes.Process(target=adding_to_kill.main, args=(where, mode, point))
    process.start()
    process.join(120)
    return process.exitcode, said.read_text() if said.exists() else ""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    where = tmp_path_factory.mktemp("never")
    assert roll(where, "restart", "never") == (0, "asked the model 5 times")
    return outside.essence(where / "runs", "code/adding")


# Where it dies, and how many answers the model need not give again in a replay.
POINTS = {
    "in uname -a": 0,
    "in add 1": 0,
    "after add 1": 1,
    "in add 3": 2,
    "after add 4": 4,
    "in bash /tests/test.sh": 4,
    "end": 5,
}


@pytest.mark.parametrize("mode", ["restart", "replay"])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_rollout_goes_on_to_the_same_record(
    point: str, mode: str, uninterrupted: list[dict[str, Any]], tmp_path: Path
) -> None:
    """At the first command of the agent, in a step, between two, while it is graded, before its end is said."""
    assert roll(tmp_path, mode, point) == (-signal.SIGKILL, "")
    saved = POINTS[point] if mode == "replay" else 0
    wanted = "done before" if saved == len(WORDS) else f"asked the model {len(WORDS) - saved} times"
    assert roll(tmp_path, mode, "never") == (0, wanted)
    assert outside.essence(tmp_path / "runs", "code/adding") == uninterrupted


def test_what_a_killed_process_left_is_true(tmp_path: Path) -> None:
    assert roll(tmp_path, "restart", "in add 3")[0] == -signal.SIGKILL
    with keepstep.open(tmp_path / "runs") as store:
        assert store.reap() == 1
        view = store.find("code/adding")
        assert view.ending is not None and view.ending.why == "crashed"
        assert len(view.steps) == 3, "what step() returned is there"
        assert view.pending is not None and "add 3" in view.pending.action["data"][0]["content"]


def test_a_container_that_does_not_repeat_itself_is_told(tmp_path: Path, run: keepstep.Run) -> None:
    """A replay compares: it never goes on from another state than the recorded one."""

    async def loop(collector: Any, meet: Any) -> Any:
        async with TrajectoryCollectingEnvironment(environment(tmp_path, meet), collector) as env:
            await env.reset()
            await env.step(answer("add 1"))

    asyncio.run(loop(KeepstepTrajectoryCollector(run, sample=0), None))
    made = []

    def meet(command: str) -> None:
        container = made[-1] if made else None
        if container is not None and command == "add 1":
            container.total += 100

    inner = environment(tmp_path, meet)
    made = inner._container_factory.made  # type: ignore[attr-defined]
    env = TrajectoryCollectingEnvironment(
        inner, KeepstepTrajectoryCollector(run, sample=0, environment="replay")
    )

    async def again() -> None:
        async with env:
            await env.reset()

    with pytest.raises(
        keepstep.Diverged, match=r"step 1, observation.*the total is 1.*now.*the total is 101"
    ):
        asyncio.run(again())


# Its likeness, its own tests, our tests and our page on the real thing


OFFLINE = f"import sys; sys.path.insert(0, {str(HERE)!r}); import offline_ares"


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("ares", ["TimeStep", "Environment", "EnvironmentInfo", "make", "register_env", "register_preset"]),
        ("ares.llms", ["LLMRequest", "LLMResponse", "TextData", "Usage"]),
        ("ares.registry", ["EnvironmentSpec", "SliceSelector", "unregister_preset"]),
    ],
)
def test_the_stand_ins_are_like_it(module: str, names: list[str]) -> None:
    assert differences(module, *names, prelude=OFFLINE) == []


def pytest_in_process(tmp_path: Path, *arguments: object) -> dict[str, int]:
    """Runs tests with ARES offline, and counts."""
    report = tmp_path / "report.xml"
    known = [str(HERE), outside.environment()["PYTHONPATH"]]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, arguments), "-q", f"--junitxml={report}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(known)},
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert report.exists(), done.stderr[-4000:]
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    assert counts["failures"] == counts["errors"] == 0 and done.returncode == 0, done.stdout[-4000:]
    return counts


def test_its_own_tests_pass_with_our_make_in_place(tmp_path: Path, suite: Any) -> None:
    """Its registry's tests make presets through `keepstep.adapters.ares.make`."""
    package = Path(ares.__file__).parent
    # All but those of contrib/, which need torch.
    parts = ("registry_test.py", "config_test.py", "code_agents", "containers", "llms", "testing")
    suites = [package / part for part in parts]
    counts = pytest_in_process(tmp_path, "-p", "our_make", "-p", "no:cacheprovider", *suites)
    suite("ares", counts["tests"] - counts["skipped"], counts["tests"])
    assert counts["tests"] > 150 and counts["skipped"] == 0


def test_the_tests_of_the_stand_ins_pass_on_it(tmp_path: Path) -> None:
    ours = ROOT / "tests" / "python" / "adapters"
    counts = pytest_in_process(
        tmp_path, "-p", "offline_ares", "-p", "no:cacheprovider", *ours.glob("test_ares*.py")
    )
    assert counts["tests"] > 70 and counts["skipped"] == 0


def test_the_examples_of_the_page_run_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE / "offline"))
    page = ROOT / "docs" / "guides" / "ares.md"
    assert run_page(page.read_text(), page.name, tmp_path) > 2
