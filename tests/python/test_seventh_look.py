"""What a first user and an attacker found: a receipt that promised too much, jobs that fell between two tasks, rollouts twice."""

from __future__ import annotations

import ast
import asyncio
import logging
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keepstep
import pytest
from keepstep import _loops, _progress
from test_wrappers_samples import outcome, start
from toy_envs import AsyncCorridor, GymCorridor, KeptGymCorridor

PACKAGE = Path(keepstep.__file__).parent
LEVELS = ("kill", "power", "machine")
PATIENCE_S = 60


# What a receipt says that it survives.


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory that no sync reaches a disk of."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    where = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield where
    shutil.rmtree(where)


def receipts(run: keepstep.Run, *, on_loop: bool) -> list[Any]:
    """A receipt of each kind."""

    async def sealed_on_loop() -> Any:
        return await run.group("t", size=1).seal({"r/t#0.0": 1.0}, source="judge")

    with run.episode("t") as episode:
        step = episode.step(action=1)
        turn = episode.note("seen", 1, source="me").wait()
        end = episode.end("finished")
    note = run.annotate("r/t", "score", 1.0, source="judge").wait()
    entry = run.stream("s").put("1", 1).wait()
    group = run.group("t", size=1)
    seal = asyncio.run(sealed_on_loop()) if on_loop else group.seal({"r/t#0.0": 1.0}, source="judge")
    return [step, turn, end, note, entry, seal]


def outcome_of(wait: Callable[[], Any]) -> str:
    try:
        return str(wait().level)
    except keepstep.LevelOutOfReach:
        return "out of reach"


@pytest.mark.parametrize("level", ["kill", "power", None])
@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_every_receipt_survives_what_the_store_reaches(
    place: str, level: Any, on_loop: bool, tmp_path: Path, memory: Path
) -> None:
    """A seal said that it survives a power cut, in memory too."""
    where = memory / "runs" if place == "memory" else tmp_path
    if place == "memory" and level == "power":
        with pytest.raises(keepstep.LevelOutOfReach):
            keepstep.open(where, level=level)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = keepstep.open(where, level=level)
    with store:
        strongest = "kill" if place == "memory" else "power"
        for receipt in receipts(store.run("r"), on_loop=on_loop):
            assert LEVELS.index(receipt.wait().level) >= LEVELS.index(store.level or "")
            assert LEVELS.index(receipt.level) <= LEVELS.index(strongest), receipt
            for asked in LEVELS:
                is_reached = LEVELS.index(asked) <= LEVELS.index(strongest)
                came = outcome_of(lambda asked=asked, receipt=receipt: receipt.wait(level=asked))
                assert (came != "out of reach") == is_reached, (receipt, asked, came)
                if is_reached:
                    assert LEVELS.index(came) >= LEVELS.index(asked), receipt
            with pytest.raises(keepstep.BadInput, match="level"):
                receipt.wait(level="strong")


def test_a_seal_of_the_null_store_survives_nothing() -> None:
    """As its other receipts: it said `power`, and nobody recorded anything."""
    sealing = keepstep.open(None).run("r").group("t", size=1).seal(source="judge")
    assert sealing.wait(level="machine").level is None
    assert "sealed" in repr(sealing)


def test_who_stops_waiting_for_a_seal_does_not_withdraw_it(run: keepstep.Run) -> None:
    """A seal that waited for a thread was cancelled with the task that awaited it."""
    with run.episode("t") as episode:
        episode.end("finished")
    may_go = threading.Event()

    async def main() -> Any:
        busy = [_loops.submit_in_thread(may_go.wait) for _ in range(_loops._THREADS_MAX)]
        sealing = run.group("t", size=1).seal({"shop/t#0.0": 1.0}, source="judge")

        async def wait() -> None:
            await sealing

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        may_go.set()
        await asyncio.gather(*map(asyncio.wrap_future, busy))
        return await sealing

    assert asyncio.run(main()).level == "power"


# Jobs.


class Slow:
    """What remains, taken when it may be."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.is_asked, self.may_take = threading.Event(), threading.Event()

    def take(self) -> Any:
        self.is_asked.set()
        assert self.may_take.wait(PATIENCE_S)
        return self.native.take()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


async def cancelled_in_mid_take(jobs: keepstep.Jobs, then: str) -> None:
    """A task that asks for a job, and is cancelled while a thread takes it."""
    jobs._native = slow = Slow(jobs._native)  # type: ignore[attr-defined]
    asking = asyncio.create_task(jobs.__anext__())
    assert await asyncio.to_thread(slow.is_asked.wait, PATIENCE_S)
    if then == "take":
        asking.cancel()
        await asyncio.wait([asking])
    slow.may_take.set()
    if then == "cancel":
        # The thread has it, and the loop has not heard of that yet.
        while not jobs.given:
            pass
        asking.cancel()
        await asyncio.wait([asking])
    assert asking.cancelled()
    jobs._native = slow.native  # type: ignore[attr-defined]


@pytest.mark.parametrize("then", ["take", "cancel"])
@pytest.mark.parametrize("by", ["thread", "task"])
def test_a_job_that_a_cancelled_task_asked_for_is_given_to_the_next(
    run: keepstep.Run, by: str, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was dropped, counted as let go, and after three such not given again."""
    run.plan(["a"])

    async def main() -> Any:
        # One that was let go once would not be given again.
        jobs = run.remaining(max_attempts=1)
        await cancelled_in_mid_take(jobs, then)
        job = await (asyncio.to_thread(next, jobs, None) if by == "thread" else anext(jobs, None))
        return jobs, job

    jobs, job = asyncio.run(main())
    assert (job.ref, jobs.given) == ("shop/a#0.0", 1)
    with job.episode() as episode:
        episode.end("finished")
    assert list(jobs) == [] and run.progress().done == 1
    assert jobs._native.returned() == [] and not caplog.records


def test_nobody_is_told_that_nothing_is_left_while_a_job_is_on_its_way(run: keepstep.Run) -> None:
    """Whoever asks while a thread takes the last job for a cancelled task waits for it."""
    run.plan(["a"])

    async def main() -> Any:
        jobs = run.remaining()
        jobs._native = slow = Slow(jobs._native)  # type: ignore[attr-defined]
        asking = asyncio.create_task(anext(jobs))
        assert await asyncio.to_thread(slow.is_asked.wait, PATIENCE_S)
        asking.cancel()
        await asyncio.wait([asking])
        slow.is_asked.clear()
        another = asyncio.create_task(anext(jobs, None))
        assert await asyncio.to_thread(slow.is_asked.wait, PATIENCE_S)
        slow.may_take.set()
        return await another

    job = asyncio.run(main())
    assert job is not None and job.ref == "shop/a#0.0"


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        pytest.param(lambda run: list(run.remaining()), "async for", id="remaining"),
        pytest.param(lambda run: list(run.unscored()), "async for", id="unscored"),
        pytest.param(lambda run: run.claim(), "await anext", id="claim"),
        pytest.param(lambda run: run.group("t", size=1).claim().end("finished"), "to_thread", id="group"),
    ],
)
def test_waiting_for_a_job_on_an_event_loop_is_warned_of(
    run: keepstep.Run, ask: Any, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept for seconds, all tasks with it, and nobody was told."""
    run.plan(["a"])

    async def main() -> None:
        ask(run)

    monkeypatch.setattr(_loops, "_has_warned", False)
    with pytest.warns(RuntimeWarning, match=f"event loop.*{instead}") as told:
        asyncio.run(main())
    assert told[0].filename == __file__


def test_answers_that_are_kept_do_not_count_as_getting_on(run: keepstep.Run) -> None:
    """Each attempt gets one answer more, and none a step: it is given up all the same."""
    run.plan(["a"])
    asked = []
    for job in run.remaining(pause_s=0):
        with pytest.raises(OSError), job.episode(on_error="keep") as episode, episode.turn(action=1):
            for number in range(job.attempts + 1):
                episode.call("tool", lambda it: asked.append(it), number, key=str(number))
            raise OSError
    assert asked == [0, 1, 2]
    assert [it.ref for it in run.progress().given_up] == ["shop/a#0.0"]


# Exceptions whose text cannot be made.


class Mute(Exception):
    """It does not say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class MuteValue:
    """As little."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class GymMute(GymCorridor):
    """One that raises it."""

    def step(self, action: int) -> Any:
        raise Mute


def in_turn(run: keepstep.Run, on_error: Any) -> None:
    with run.episode("t", on_error=on_error) as episode, episode.turn(action=1):
        raise Mute


def in_async_turn(run: keepstep.Run, on_error: Any) -> None:
    async def main() -> None:
        async with run.episode("t", on_error=on_error) as episode, episode.turn(action=1):
            raise Mute

    asyncio.run(main())


def in_call(run: keepstep.Run, on_error: Any) -> None:
    def ask() -> None:
        raise Mute

    with run.episode("t", on_error=on_error) as episode, episode.turn(action=1):
        episode.call("llm", ask)


def in_env(run: keepstep.Run, on_error: Any) -> None:
    env = keepstep.record(GymMute(), run, task="t", sample=0)
    env.reset()
    env.step(1)


@pytest.mark.parametrize("on_error", ["fail", "keep"])
@pytest.mark.parametrize("raises", [in_turn, in_async_turn, in_call, in_env])
def test_an_exception_without_a_text_reaches_the_caller_and_the_record(
    run: keepstep.Run, raises: Any, on_error: str
) -> None:
    """It left the turn pending, and the caller got another exception than was raised."""
    with pytest.raises(Mute):
        raises(run, on_error)
    view = run.store.find("shop/t")
    assert view.state == "errored"
    assert "could not be made" in (view.ending.error or "")
    if on_error == "fail" or raises is in_env:
        assert view.steps[-1].failed and "Mute" in (view.steps[-1].error or "")


def test_a_turn_says_what_it_can_of_an_exception_without_a_text(run: keepstep.Run) -> None:
    with run.episode("t") as episode:
        with pytest.raises(Mute), episode.turn(action=1) as turn:
            raise Mute
        assert turn.error == "Mute: (its text could not be made)"
        episode.end("finished")


def test_arguments_without_a_text_are_refused_as_others_are(run: keepstep.Run) -> None:
    with pytest.raises(keepstep.BadInput, match="sample is the MuteValue"):
        run.episode("t", sample=MuteValue())  # type: ignore[arg-type]


def formatted_foreign(source: str) -> list[int]:
    """The lines that make a text of an exception of somebody else's by themselves."""
    found = []
    for function in ast.walk(ast.parse(source)):
        names = set()
        if isinstance(function, ast.ExceptHandler) and function.name and function.type is not None:
            caught = ast.unparse(function.type)
            names = {function.name} if caught in ("Exception", "BaseException") else set()
        elif isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = [*function.args.args, *function.args.kwonlyargs]
            kinds = {it.arg: ast.unparse(it.annotation) for it in given if it.annotation}
            names = {name for name, kind in kinds.items() if kind.startswith(("Exception", "BaseException"))}
        for node in ast.walk(function) if names else ():
            text = None
            if isinstance(node, ast.FormattedValue):
                text = node.value
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("str", "repr") and node.args:
                text = node.args[0]
            if isinstance(text, ast.Name) and text.id in names:
                found.append(text.lineno)
    return found


def test_only_one_place_makes_a_text_of_a_foreign_exception() -> None:
    control = (
        "try: f()\nexcept Exception as e:\n    log(f'{e}')\ndef g(raised: BaseException | None): str(raised)"
    )
    assert sorted(formatted_foreign(control)) == [3, 4]
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if path.name != "_foreign.py" and (lines := formatted_foreign(path.read_text()))
    }
    assert found == {}


# Troubles of jobs are told once, and each of them is.


class Remains:
    """What came to nothing of a plan, as the engine tells it."""

    def __init__(self, **found: list[Any]) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._found.get(name, [])


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What a plan that came to its end logs, each time that it does."""
    monkeypatch.setattr(_progress, "_told", set())
    caplog.set_level(logging.WARNING, "keepstep")

    def tell(run: keepstep.Run, **found: list[Any]) -> list[str]:
        caplog.clear()
        for tell_end in (_progress.log_given_up, _progress.log_held):
            tell_end(run, Remains(**found))
        return [record.getMessage() for record in caplog.records]

    return tell


EACH = {
    "returned": lambda number: (f"shop/task-{number}#0.0", 3),
    "left": lambda number: (f"shop/task-{number}#0.0", 3),
    "held_here": lambda number: f"shop/task-{number}#0.0",
    "unread_notes": lambda number: f"segment {number} is gone: task-{number}#",
    "scored_in_vain": lambda number: (f"shop/task-{number}#0.0", ["score"]),
}


@pytest.mark.parametrize("kind", EACH)
def test_each_trouble_is_told_once_however_many_there_are(
    kind: str, run: keepstep.Run, told: Callable[..., list[str]]
) -> None:
    """All were marked as told, and the first twenty were."""
    found = [EACH[kind](number) for number in range(47)]
    lines = [line for _ in range(3) for line in told(run, **{kind: found})]
    for number in range(47):
        assert sum(f"task-{number}#" in line for line in lines) == 1, number
    assert told(run, **{kind: found}) == []


def test_troubles_of_different_kinds_and_places_do_not_hide_one_another(
    tmp_path: Path, told: Callable[..., list[str]]
) -> None:
    """Two stores have the same names in them; so has a copy of one."""
    with keepstep.open(tmp_path / "one") as one:
        one.run("shop")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    for where in ("one", "copy", "other"):
        with keepstep.open(tmp_path / where) as store:
            for run in (store.run("shop"), store.run("shop", new=True)):
                for kind, each in EACH.items():
                    assert len(told(run, **{kind: [each(1)]})) == 1, (where, run, kind)


# Seeds.


def seeds_until_killed(where: Path, make: Any, environment: Any, **how: Any) -> None:
    def body() -> None:
        with keepstep.open(where) as store:
            env = keepstep.record(make(), store.run("walk"), task="t", environment=environment, **how)
            env.reset(seed=0)
            for _ in range(3):
                env.step(2)
            env.reset(seed=1, options={"level": 2})
            env.step(1)
            os.kill(os.getpid(), 9)

    assert outcome(start(body)) == -9


MODES = [
    ("restore", KeptGymCorridor),
    ("replay", GymCorridor),
    ("restart", GymCorridor),
    (None, KeptGymCorridor),
]


@pytest.mark.parametrize("task", ["t", lambda env, reset: "t"], ids=["named", "named after reset"])
@pytest.mark.parametrize(
    "given",
    [{"seed": 0}, {"seed": 1, "options": {"level": 3}}, {"options": {}}],
    ids=["seed", "options", "empty"],
)
@pytest.mark.parametrize(("environment", "make"), MODES, ids=lambda it: str(it))
def test_a_reset_with_another_seed_is_not_the_episode_that_was_interrupted(
    tmp_path: Path, environment: Any, make: Any, given: Any, task: Any
) -> None:
    """The loop over seeds went on with the seed that was killed, whatever it asked for: rollouts were there twice."""
    seeds_until_killed(tmp_path, make, environment)
    for _ in range(2):
        # Also the second time: what was refused is as interrupted as before.
        with keepstep.open(tmp_path) as store:
            env = keepstep.record(make(), store.run("walk"), task=task, environment=environment)
            if environment == "restart":
                with pytest.warns(RuntimeWarning, match="begins again in place of walk/t#0.1~.*sample="):
                    env.reset(**given)
                return
            with pytest.raises(
                keepstep.Diverged, match=r"walk/t#0.1~\d is resumed, but it was reset with .*sample="
            ):
                env.reset(**given)
            env.close()
    with keepstep.open(tmp_path) as store:
        env = keepstep.record(make(), store.run("walk"), task="t", environment=environment)
        assert env.reset(seed=1, options={"level": 2})[0] == 1
        assert keepstep.current(env).ref == "walk/t#0.1~3"


@pytest.mark.parametrize(("environment", "make"), MODES, ids=lambda it: str(it))
@pytest.mark.parametrize("given", [{}, {"seed": 1}, {"seed": 1, "options": {"level": 2}}])
def test_a_reset_that_contradicts_nothing_goes_on(
    tmp_path: Path, environment: Any, make: Any, given: Any
) -> None:
    seeds_until_killed(tmp_path, make, environment)
    with keepstep.open(tmp_path) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "this keepstep is a debug build")
        env = keepstep.record(make(), store.run("walk"), task="t", environment=environment)
        assert env.reset(**given)[0] == (0 if environment == "restart" else 1)
        assert keepstep.current(env).ref == "walk/t#0.1~1"


def test_a_seed_for_the_first_reset_alone_is_told_to_be_of_no_use(tmp_path: Path) -> None:
    """As Gymnasium's own loops give it: what was killed was reset without one, and goes on."""

    def body() -> None:
        with keepstep.open(tmp_path) as store:
            env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
            env.reset()
            env.step(1)
            os.kill(os.getpid(), 9)

    assert outcome(start(body)) == -9
    with keepstep.open(tmp_path) as store:
        env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
        with pytest.warns(RuntimeWarning, match="was reset without seed"):
            assert env.reset(seed=7)[0] == 1


def test_a_hidden_seed_is_not_another_one(tmp_path: Path) -> None:
    """Neither does what cannot be recorded contradict anything: such an episode restarts."""
    for hidden in ({"redact": ["level"]}, {}):
        where = tmp_path / str(bool(hidden))
        options = {"level": "secret" if hidden else object()}

        def body(where: Path = where, hidden: Any = hidden, options: Any = options) -> None:
            with keepstep.open(where, **hidden) as store:
                env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
                env.reset(seed=1, options=options)
                env.step(1)
                os.kill(os.getpid(), 9)

        assert outcome(start(body)) == -9
        with keepstep.open(where, **hidden) as store, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = keepstep.record(KeptGymCorridor(), store.run("walk"), task="t")
            assert env.reset(seed=1, options=options)[0] == (1 if hidden else 0)
            assert keepstep.current(env).ref.startswith("walk/t#0.0~")


def test_an_async_environment_is_held_to_its_seed_too(tmp_path: Path) -> None:
    class Seeded(AsyncCorridor):
        async def reset(self, seed: int | None = None) -> Any:
            return await super().reset()

        def get_state(self) -> Any:
            return {"position": self.corridor.position}

        def set_state(self, state: Any) -> None:
            self.corridor.position = state["position"]

    async def begun(where: Path, seed: int) -> Any:
        store = keepstep.open(where)
        env = keepstep.record(Seeded(), store.run("walk"), task="t")
        await env.reset(seed=seed)
        await env.step(1)
        return env

    def body() -> None:
        asyncio.run(begun(tmp_path, 1))
        os.kill(os.getpid(), 9)

    assert outcome(start(body)) == -9
    with pytest.raises(keepstep.Diverged, match="seed=1, now with seed=2"):
        asyncio.run(begun(tmp_path, 2))


# Arguments.


@pytest.mark.parametrize("record", [lambda it: it.step(), lambda it: it.submit()], ids=["step", "submit"])
@pytest.mark.parametrize("is_null", [False, True])
def test_a_step_of_nothing_is_refused(store: keepstep.Store, record: Any, is_null: bool) -> None:
    """It counted as a turn, and nobody could tell what had been done."""
    run = keepstep.open(None).run("shop") if is_null else store.run("shop")
    with run.episode("t") as episode:
        with pytest.raises(keepstep.BadInput, match=r"has no fields: give some of action, .*reward"):
            record(episode)
        assert episode.turns == 0
        episode.step(reward=None)
        assert episode.turns == 1
        episode.end("finished")


@pytest.mark.parametrize("name", ["redact", "skip"])
def test_a_name_in_place_of_names_is_told_how_to_give_it(
    tmp_path: Path, name: str, run: keepstep.Run
) -> None:
    """It said that a text is not a sequence, which it is."""
    with pytest.raises(keepstep.BadInput, match=rf"{name} is 'info': .*{name}=\['info'\]"):
        keepstep.open(tmp_path, **{name: "info"})
    with pytest.raises(keepstep.BadInput, match=r"skip=\['info'\]"):
        keepstep.record(GymCorridor(), run, task="t", skip="info")
