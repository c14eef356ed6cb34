"""What the pages promise about resuming is shown by a test: `tests/promises.toml` names it, sentence by sentence.

First the table: every sentence in it stands in its page, every test that it names is there, and no sentence about resuming is
left out. Then the promises that no other file shows.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
from promised import ROOT, missing, page_of, places, sentences, unlisted
from toy_envs import KeptGymCorridor

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = tomllib.loads((ROOT / "tests" / "promises.toml").read_text())
# The help of the command is in the table too; it stands between code, so it is not searched.
SEARCHED = [
    "README.md",
    "docs/design.md",
    "docs/index.md",
    "docs/tutorial.md",
    *sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/[cg]*/*.md")),
    "python/keepstep/__init__.pyi",
    "python/keepstep/errors.py",
]


@pytest.mark.parametrize("path", TABLE)
def test_each_sentence_of_the_table_stands_in_its_page(path: str) -> None:
    for words in TABLE[path]:
        assert places(path, words) == 1, f"{path}: {places(path, words)} sentences begin with {words!r}"


@pytest.mark.parametrize("path", TABLE)
def test_each_promise_names_tests_that_are_there(path: str) -> None:
    for words, entry in TABLE[path].items():
        if entry == {"kind": "explains"}:
            continue
        assert set(entry) == {"tests"} and entry["tests"], f"{path}: {words!r} names no test"
        assert not [wrong for test in entry["tests"] if (wrong := missing(test))], words


@pytest.mark.parametrize("path", SEARCHED)
def test_no_sentence_about_resuming_is_left_out(path: str) -> None:
    left_out = unlisted(page_of(path), list(TABLE.get(path, {})))
    assert not left_out, (
        f"name the tests of these in tests/promises.toml, or say that they explain: {left_out}"
    )


def test_the_checks_of_the_table_notice() -> None:
    """The negative controls: a sentence that nobody listed, one that says something else, tests that are not there."""
    page = "# Again\n\n```python\nagain()\n```\nIt goes on. It never stops.\n\n- A dead one is\n  *killed* again.\n\n| a | crash |\n|---|---|\n"
    assert sentences(page) == [
        "It goes on.",
        "It never stops.",
        "A dead one is *killed* again.",
        "| a | crash |",
    ]
    assert unlisted(page, ["It goes", "| a |"]) == ["A dead one is *killed* again."]
    assert unlisted(page, ["It went on", "A dead", "| a |"]) == ["It goes on."]
    for wrong in ("test_kill.py::test_nothing", "test_nothing.py::test_kill", "test_kill.py"):
        assert missing(wrong), wrong
    assert missing("test_kill.py::test_killed_after_its_end_it_stays_over") is None
    assert missing("crates/keepstep/tests/episodes.rs::what_is_final_says_ended") is None


# How an episode stands, and what the next one finds.

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
BEGIN = """
import asyncio, os, signal, sys, time
import keepstep
store = keepstep.open(sys.argv[1])
run = store.run("shop")
"""


def killed(store: keepstep.Store, script: str, *args: object) -> None:
    """Does something in a process that kills itself with -9."""
    outside.run(BEGIN + script, store.where, *args, code=outside.KILLED)


def holding(store: keepstep.Store, script: str) -> Any:
    """A process that does something and goes on when it is told to."""
    process = outside.start(BEGIN + script, store.where)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def tell(process: Any) -> str:
    """Lets it go on; what it says then."""
    process.stdin.write("\n")
    process.stdin.flush()
    said: str = process.stdout.readline()
    return said.strip()


TWO_STEPS = """
episode = run.episode("t").__enter__()
for number in range(2):
    episode.step(action=number, state={"n": number})
"""


def leave(store: keepstep.Store, why: Any) -> None:
    """Leaves an attempt of two steps that ended so."""
    if why == "crashed":
        killed(store, TWO_STEPS + KILL)
    elif why == "superseded":
        with holding(store, TWO_STEPS + "print('ready', flush=True)\nsys.stdin.readline()") as owner:
            with store.run("shop").episode("t", busy="take") as taker:
                taker.end("aborted")
            owner.kill()
    else:
        with store.run("shop").episode("t") as episode:
            for number in range(2):
                episode.step(action=number, state={"n": number})
            episode.end(why, limit="turns" if why == "truncated" else None)


NOT_OVER = ["abandoned", "aborted", "errored", "cancelled", "crashed", "superseded"]


@pytest.mark.parametrize("why", NOT_OVER)
def test_what_did_not_come_to_its_end_goes_on(store: keepstep.Store, why: str) -> None:
    """The next attempt has the steps and the state; the old one stays readable, and says how it ended."""
    leave(store, why)
    with store.run("shop").episode("t") as episode:
        assert (episode.resumed, episode.turns, episode.state("n")) == (True, 2, 1)
        assert [step.action for step in episode.history] == [0, 1]
        episode.end("finished")
    first, *_ = store.find("shop/t").attempts()
    assert (first.state, len(first.steps)) == (why, 2)


@pytest.mark.parametrize("why", ["finished", "truncated"])
def test_what_came_to_its_end_is_over(store: keepstep.Store, why: str) -> None:
    leave(store, why)
    for busy in ("raise", "wait", "take"):
        with pytest.raises(keepstep.Ended, match=why), store.run("shop").episode("t", busy=busy):
            pass
    assert [view.attempt for view in store.find("shop/t").attempts()] == [0]


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("why", NOT_OVER[:4])
def test_what_did_not_come_to_its_end_comes_back_in_a_plan(
    store: keepstep.Store, why: str, where: str
) -> None:
    """By itself, from its last durable step: before what is new if another process left it, else behind, and last if it failed."""
    run = store.run("shop")
    run.plan(["new", "t"])
    if where == "here":
        leave(store, why)
    else:
        outside.run(BEGIN + TWO_STEPS + f"episode.end({why!r}).wait()", store.where)
    jobs = list(run.remaining())
    is_first = where == "elsewhere" and why != "errored"
    assert [job.why for job in jobs] == ([why, "new"] if is_first else ["new", why])
    (job,) = [job for job in jobs if job.task == "t"]
    with job.episode() as episode:
        assert (episode.turns, episode.state("n")) == (2, 1)
        episode.end("finished")


def test_resuming_records_that_the_dead_crashed_and_how_it_is_known(store: keepstep.Store) -> None:
    killed(store, TWO_STEPS + KILL)
    assert store.find("shop/t").state == "interrupted", "nobody has found it yet"
    with store.run("shop").episode("t") as episode:
        episode.end("finished")
    assert store.find("shop/t~0").ending == keepstep.Ending("crashed", said_by="whoever found it")
    assert "lock" in str(outside.ending(store.where, "shop/t~0")["evidence"])
    assert store.reap() == 0, "there is nothing left to be said"


@pytest.mark.parametrize("how", ["step", "submit"])
def test_what_was_acknowledged_at_kill_survives_a_kill(tmp_path: Path, how: str) -> None:
    """The last receipt covers the earlier ones."""
    script = """
import os, signal, sys, keepstep
episode = keepstep.open(sys.argv[1], level="kill").run("shop").episode("t").__enter__()
for number in range(50):
    receipt = getattr(episode, sys.argv[2])(action=number)
receipt.wait()
"""
    outside.run(script + KILL, tmp_path / "runs", how, code=outside.KILLED)
    with keepstep.open(tmp_path / "runs") as store, store.run("shop").episode("t") as episode:
        assert [step.action for step in episode.history] == list(range(50))
        episode.end("finished")


def test_a_recording_list_is_there_again_after_a_kill(store: keepstep.Store) -> None:
    script = 'items = run.episode("t").__enter__().trajectory()\nfor n in range(3): items.append({"n": n})\n'
    killed(store, script + KILL)
    with store.run("shop").episode("t") as episode:
        assert episode.trajectory() == [{"n": 0}, {"n": 1}, {"n": 2}]
        episode.end("finished")


def test_a_clean_end_on_sigterm_is_resumed_alike(store: keepstep.Store) -> None:
    """As the guide for Slurm says: SIGTERM becomes SystemExit, and the episode is aborted."""
    page = (ROOT / "docs/guides/slurm.md").read_text()
    (handler,) = re.findall(r"^signal\.signal\(.*$", page, re.M)
    script = f"{handler}\nwith run.episode('t') as episode:\n    episode.step(action=1)\n    print('ready', flush=True)\n    time.sleep(60)"
    with holding(store, script) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert store.find("shop/t").state == "aborted"
    with store.run("shop").episode("t") as episode:
        assert (episode.attempt, episode.turns) == (1, 1)
        episode.end("finished")


def test_a_store_that_is_closed_aborts_what_is_open(tmp_path: Path) -> None:
    with keepstep.open(tmp_path / "runs") as store:
        store.run("shop").episode("t").step(action=1)
    with keepstep.open(tmp_path / "runs") as store:
        assert store.find("shop/t").state == "aborted"
        with store.run("shop").episode("t") as episode:
            assert episode.turns == 1
            episode.end("finished")


# One owner.

SAYING = {
    "step": "episode.step(action=9)",
    "submit": "episode.submit(action=9).wait()",
    "turn": "episode.turn(action=9).__enter__()",
    "first": "episode.first('x').wait()",
    "call": "episode.call('llm', lambda: 9)",
    "note": "episode.note('score', 9, source='x').wait()",
    "end": "episode.end('finished').wait()",
    "append": "episode.trajectory().append(9)",
    "result": "turn.result(observation=9); turn.__exit__(None, None, None)",
}


@pytest.mark.parametrize("what", SAYING)
def test_an_owner_that_lost_its_episode_says_nothing_more(store: keepstep.Store, what: str) -> None:
    """Whatever it calls next is fenced, and no word of it is in the record, then or later."""
    begin = "turn = episode.turn(action=2).__enter__()\n" if what == "result" else ""
    script = f"""
episode = run.episode("t").__enter__()
episode.note("begun", 1, source="x").wait()
{begin}print("ready", flush=True)
sys.stdin.readline()
try:
    {SAYING[what]}
    print("went through", flush=True)
except keepstep.Fenced:
    print("fenced", flush=True)
sys.stdin.readline()
os._exit(0)
"""
    with holding(store, script) as owner:
        with store.run("shop").episode("t", busy="take") as episode:
            assert tell(owner) == "fenced"
            assert (episode.pending is not None) == (what == "result")
            if episode.pending is not None:
                episode.pending.discard("taken")
            episode.step(action="mine")
            episode.end("truncated", limit="turns")
        owner.stdin.close()
        owner.wait(60)
    view = store.find("shop/t")
    assert ([step.action for step in view.steps], view.state) == (["mine"], "truncated")
    assert not [note for note in outside.events(store.where, "shop/t", "note") if note["name"] != "begun"]
    assert not outside.events(store.where, "shop/t", "call")
    assert store.find("shop/t~0").state == "superseded"


def test_who_was_taken_for_dead_opens_its_episode_again(store: keepstep.Store) -> None:
    """Stopped for a while beside a store whose lock slipped: `reap` calls it dead, it is fenced, and goes on in the same process."""
    episode = store.run("shop").episode("t")
    episode.step(action=0)
    told = ""
    while "its lock is free" not in told:
        # Opening and closing the lock file in this process frees the lock, until its heartbeat takes it again.
        for lock in Path(str(store.where)).glob("writers/*/lock"):
            lock.open("rb").close()
        told = outside.command("reap", store.where)
    with pytest.raises(keepstep.Fenced):
        episode.step(action=1)
    with store.run("shop").episode("t") as again:
        assert [step.action for step in again.history] == [0]
        again.step(action=1)
        again.end("finished")
    assert [view.state for view in store.find("shop/t").attempts()] == ["crashed", "finished"]


def test_a_child_of_a_killed_owner_does_not_hold_its_episode(store: keepstep.Store) -> None:
    """A forked worker of a data loader outlives its parent: the lock went with the parent."""
    script = (
        TWO_STEPS
        + "print('ready', flush=True)\nif os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\ntime.sleep(60)"
    )
    with holding(store, script) as owner:
        children = Path(f"/proc/{owner.pid}/task/{owner.pid}/children")
        while not (child := children.read_text().split()):
            time.sleep(0.01)
        owner.kill()
        owner.wait()
        try:
            with store.run("shop").episode("t") as episode:
                assert episode.turns == 2
                episode.end("finished")
            assert Path(f"/proc/{child[0]}").exists(), "this is what is tested"
        finally:
            os.kill(int(child[0]), signal.SIGKILL)


@pytest.mark.parametrize("point", ["claimed", "opened", "stepped"])
def test_what_a_killed_worker_had_claimed_is_given_to_the_next(store: keepstep.Store, point: str) -> None:
    """Nobody else is given it while that one lives; then it comes first, and is done once."""
    run = store.run("shop")
    run.plan(["a", "b"])
    does = {
        "claimed": "",
        "opened": "episode = job.episode().__enter__()",
        "stepped": "episode = job.episode().__enter__(); episode.step(action=1)",
    }
    script = f"job = run.claim()\n{does[point]}\nprint('ready', flush=True)\nsys.stdin.readline()"
    with holding(store, script) as worker:
        (mine,) = run.remaining()
        with mine.episode() as episode:
            episode.end("finished")
        assert run.claim() is None
        assert run.progress().running == 1
        worker.kill()
        worker.wait()
    run.plan(["c"])
    assert (run.progress().interrupted, run.progress().not_begun) == (1, 1)
    job, new = run.remaining()
    assert (job.why, job.attempts, new.task) == ("crashed", 1, "c")
    for each in (job, new):
        with each.episode() as episode:
            assert episode.turns == (point == "stepped" and each is job)
            episode.end("finished")
    assert list(run.remaining()) == []
    assert {view.state for view in run.episodes()} == {"finished"}
    if point == "claimed":
        assert [view.attempt for view in store.find(job.ref).attempts()] == [1], "the first one never began"


# Calls and turns.


def test_a_call_is_told_apart_by_its_order_or_by_its_key(run: keepstep.Run) -> None:
    """Within an attempt the same call without a key is another one; a resumed attempt is given both, in their order."""
    made: list[str] = []

    def ask(text: str) -> str:
        made.append(text)
        return f"{text} {len(made)}"

    def play(episode: keepstep.Episode) -> list[str]:
        by_order = [episode.call("llm", ask, "a") for _ in range(2)]
        return by_order + [episode.call("tool", ask, "b", key="k") for _ in range(2)]

    for _ in range(2):
        with run.episode("t") as episode:
            assert play(episode) == ["a 1", "a 2", "b 3", "b 3"]
            episode.end("aborted")
    assert made == ["a", "a", "b"]


ASKING = """
def ask():
    with open(sys.argv[2], "a") as file:
        file.write("asked ")
    return f"answer {time.time_ns()}"
with run.episode("t") as episode:
    turn = episode.pending or episode.turn(response=ask())
    with turn:
        if not turn.adopted:
            os.kill(os.getpid(), signal.SIGKILL)
        turn.result(observation="acted")
    episode.end("finished")
"""


def test_an_answer_that_no_call_asked_for_is_found_pending(store: keepstep.Store, tmp_path: Path) -> None:
    """A model that never says the same twice, killed in the turn: its answer is taken up, and not asked for again."""
    killed(store, ASKING, tmp_path / "asked")
    outside.run(BEGIN + ASKING, store.where, tmp_path / "asked")
    assert (tmp_path / "asked").read_text() == "asked "
    assert [step.observation for step in store.find("shop/t").steps] == ["acted"]


def test_the_first_observation_is_recorded_once_over_all_attempts(store: keepstep.Store) -> None:
    """The loop of the guide, killed when the first of its tasks asks a second time: each goes on, and none enters twice."""
    page = (ROOT / "docs/guides/own-loop.md").read_text()
    (loop,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "async def rollout" in code]
    assert 'return "look"' in loop
    die = """tasks.append(asyncio.current_task())
    if tasks.count(tasks[-1]) == 2 and len(sys.argv) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return "look"
"""
    script = "tasks = []\n" + loop.replace('return "look"', die)
    killed(store, script, "kill")
    assert outside.run(BEGIN + script, store.where).strip() == str([2] * 8)
    for view in store.run("shop").episodes():
        assert [step.kind for step in view.steps] == ["FIRST", "MID", "LAST"]
    with store.run("shop").episode("t") as episode:
        episode.first("a").wait()
        with pytest.raises(keepstep.BadInput, match="once"):
            episode.first("a")
        episode.end("finished")


@pytest.mark.parametrize("other", ["says something else", "gives it up first"])
def test_another_answer_than_the_pending_one_needs_a_word(store: keepstep.Store, other: str) -> None:
    """In a loop of one's own it is `Diverged`, unless the pending turn was given up, on record."""
    killed(store, f'turn = run.episode("t").__enter__().turn(action="a").__enter__()\n{KILL}')
    with store.run("shop").episode("t") as episode:
        if other == "gives it up first":
            assert episode.pending is not None
            episode.pending.discard("asked again")
            episode.step(action="b")
        else:
            with pytest.raises(keepstep.Diverged):
                episode.turn(action="b").__enter__()
        episode.end("finished")
    assert ("asked again" in str(outside.lines(store.where, "shop/t"))) == (other == "gives it up first")


TOOLS = """
def tool(name, fails):
    with open(sys.argv[2], "a") as file:
        file.write(name + " ")
    if fails == "raises":
        raise ConnectionError(name)
    if fails == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return name
with run.episode("t", on_error="keep") as episode:
    fails = "" if episode.resumed else sys.argv[3]
    reply = episode.call("llm", tool, "llm", "")
    with episode.turn(response=reply) as turn:
        found = [episode.call("tool", lambda name=name: tool(name, fails * (name == "b")), key=name) for name in "abc"]
        turn.result(observation=found)
    episode.end("finished")
"""


@pytest.mark.parametrize("fails", ["raises", "is killed"])
def test_only_the_tools_that_had_not_answered_are_called_again(
    store: keepstep.Store, tmp_path: Path, fails: str
) -> None:
    """Of three tools the second fails: the model and the first are not asked again, by the next process."""
    outside.run(
        BEGIN + TOOLS, store.where, tmp_path / "made", fails, code=1 if fails == "raises" else outside.KILLED
    )
    outside.run(BEGIN + TOOLS, store.where, tmp_path / "made", fails)
    assert (tmp_path / "made").read_text().split() == ["llm", "a", "b", "b", "c"]
    view = store.find("shop/t")
    assert [step.observation for step in view.steps] == [["a", "b", "c"]]
    first, _ = view.attempts()
    assert first.state == ("errored" if fails == "raises" else "crashed")


def test_a_turn_that_is_kept_by_itself_is_kept_each_time_that_it_is_said(run: keepstep.Run) -> None:
    """`on_error="keep"` of one turn, in an episode that does not: whoever says it again says so again."""
    asked: list[int] = []
    with run.episode("t") as episode:
        for _ in range(3):
            reply = episode.call("llm", lambda: asked.append(1) or "pay")
            with pytest.raises(OSError), episode.turn(response=reply, on_error="keep"):
                raise OSError("the till is jammed")
            assert (episode.turns, len(asked)) == (0, 1)
        assert episode.pending is not None
        episode.pending.result(observation="paid")
        assert (episode.turns, len(episode.history)) == (1, 0)
        episode.end("finished")
    assert [step.failed for step in run.store.find("shop/t").steps] == [False]


def test_more_of_what_was_truncated_has_its_calls_too(run: keepstep.Run) -> None:
    """Steps, state, and what was asked after the last step."""
    with run.episode("t") as episode:
        episode.step(action=0, state={"n": 1})
        assert episode.call("llm", lambda: "answer") == "answer"
        episode.end("truncated", limit="tokens")
    with run.episode("t", retry=["truncated"]) as episode:
        assert (episode.turns, episode.state("n")) == (1, 1)
        assert episode.call("llm", lambda: "another") == "answer"
        episode.end("finished")


def test_a_score_without_an_attempt_is_shown_with_all_and_asked_for_again(run: keepstep.Run) -> None:
    run.plan(["t"], needs=["score"])
    with run.episode("t") as episode:
        episode.end("truncated", limit="turns")
    run.annotate("shop/t", "score", 1.0, source="judge").wait()
    with run.episode("t", retry=["truncated"]) as episode:
        episode.end("truncated", limit="turns")
    assert [job.ref for job in run.unscored()] == ["shop/t#0.0"]
    assert run.store.find("shop/t").notes == {"score": 1.0}
    run.annotate("shop/t", "score", 2.0, source="judge").wait()
    assert list(run.unscored()) == []
    assert run.store.find("shop/t").notes == {"score": 2.0}
    run.annotate("shop/t~0", "only", 1.0, source="judge").wait()
    assert "only" not in run.store.find("shop/t").notes
    assert run.store.find("shop/t~0").notes["only"] == 1.0


# Generations and environments.


def test_a_new_generation_inherits_nothing_and_the_old_one_goes_on(store: keepstep.Store) -> None:
    killed(store, TWO_STEPS + KILL)
    with store.run("shop", new=True).episode("t") as episode:
        assert (episode.attempt, episode.resumed, episode.turns) == (0, False, 0)
        episode.end("finished")
    with store.run("shop", generation=0).episode("t") as episode:
        assert (episode.attempt, episode.turns, episode.state("n")) == (1, 2, 1)
        episode.end("finished")
    with pytest.raises(keepstep.Ended), store.run("shop").episode("t"):
        pass


ENV = """
from toy_envs import GymCorridor, KeptGymCorridor
def trouble(): raise OSError("out of order")
env = keepstep.record(inner := KeptGymCorridor(), run, task="t")
env.reset()
env.step(1)
"""
LEFT: dict[str, str] = {
    "abandoned": "env.reset(); env.close()",
    "errored": "inner.corridor.troubles[1] = trouble\ntry: env.step(1)\nexcept OSError: pass",
    "cancelled": "keepstep.current(env).end('cancelled')",
    "aborted": "env.close()",
    "crashed": KILL,
}


@pytest.mark.parametrize("why", LEFT)
def test_a_sample_that_is_named_goes_on_however_it_was_left(store: keepstep.Store, why: str) -> None:
    """Without a name only what was interrupted does; the others are left alone."""
    outside.run(BEGIN + ENV + LEFT[why], store.where, code=outside.KILLED if why == "crashed" else 0)
    run = store.run("shop")
    first = store.find("shop/t#0.0")
    assert first.state in (why, "interrupted")
    named = keepstep.record(KeptGymCorridor(), run, task="t", sample=0)
    assert named.reset()[0] == 1
    assert (keepstep.current(named).attempt, keepstep.current(named).turns) == (1, 1)
    named.close()


@pytest.mark.parametrize("mode", ["restart", "restore"])
def test_killed_before_its_end_is_recorded_only_a_restart_begins_again(
    store: keepstep.Store, mode: Any
) -> None:
    """The last step says how it ended; who restarts does not look at it."""
    script = f"""
from keepstep.wrappers._recorded_episode import RecordedEpisode
from toy_envs import KeptGymCorridor
def die(self, ending):
    self._native.note("seen", True, "test", None).wait()
    {KILL}
RecordedEpisode.infer = die
env = keepstep.record(KeptGymCorridor(), run, task="t", sample=0, environment="{mode}")
env.reset()
for _ in range(6): env.step(1)
"""
    killed(store, script)
    env = keepstep.record(KeptGymCorridor(), store.run("shop"), task="t", sample=0, environment=mode)
    if mode == "restart":
        assert env.reset()[0] == 0
        assert (keepstep.current(env).attempt, keepstep.current(env).turns) == (1, 0)
        env.close()
    else:
        with pytest.raises(keepstep.Ended):
            env.reset()
        assert store.find("shop/t").state == "finished"
