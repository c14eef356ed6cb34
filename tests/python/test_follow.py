"""Following: what comes in is told once, in order, also across restarts, and nobody is blocked by waiting."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time

import keepstep
import pytest


@pytest.fixture
def where(tmp_path):
    return tmp_path / "runs"


# Records a step for each line that it reads, says so, and ends when there are no more.
RECORDER = """
import sys, warnings
warnings.simplefilter("ignore")
import keepstep
store = keepstep.open(sys.argv[1])
with store.run("r").episode("t") as episode:
    episode.first("begin").wait()
    print("ready", flush=True)
    for line in sys.stdin:
        episode.step(action=line.strip(), observation="o")
        print("done", flush=True)
    episode.end("finished")
"""


class Recorder:
    """A process that records what it is told to."""

    def __init__(self, where):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", RECORDER, str(where)], **pipes)
        assert self.process.stdout.readline() == "ready\n"

    def step(self, action):
        self.process.stdin.write(f"{action}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


def find(store, ref="r/t", steps=1):
    """What another process made durable shows a moment later: when its log says that it is synced."""
    for _ in range(3000):
        with contextlib.suppress(keepstep.NotFound):
            view = store.find(ref)
            if len(view.steps) >= steps:
                return view
        time.sleep(0.01)
    raise AssertionError(f"{ref} does not show")


@pytest.fixture
def recorder(where):
    recorder = Recorder(where)
    yield recorder
    if recorder.process.poll() is None:
        recorder.kill()


def test_steps_come_as_another_process_makes_them_durable(where, recorder):
    with keepstep.open(where) as store:
        coming = find(store).follow()
        assert next(coming).observation == "begin"
        for at in range(3):
            recorder.step(f"a{at}")
            step = next(coming)
            assert (step.index, step.action) == (at + 1, f"a{at}")
        recorder.end()
        assert list(coming) == []
        assert [step.kind for step in store.find("r/t").follow()] == ["FIRST", "MID", "MID", "LAST"]


def test_following_ends_when_the_recorder_was_killed(where, recorder):
    with keepstep.open(where) as store:
        coming = find(store).follow()
        recorder.step("a")
        assert [next(coming).index, next(coming).index] == [0, 1]
        recorder.kill()
        assert list(coming) == []


def test_following_an_attempt_ends_when_another_takes_its_place(where, recorder):
    recorder.step("a")
    with keepstep.open(where) as store:
        run = store.run("r")
        first = find(store).follow()
        assert [next(first).index, next(first).index] == [0, 1]
        with run.episode("t", busy="take") as episode:
            assert list(first) == []
            second = store.find("r/t").follow()
            assert [(next(second).action), next(second).action] == [None, "a"]
            episode.step(action="b", observation="o")
            assert next(second).action == "b"
            episode.end("finished")
            assert list(second) == []


def test_an_adopted_turn_is_followed_as_one_step(where):
    """Its intent is in the attempt before, its result in this one."""
    code = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import keepstep
episode = keepstep.open(sys.argv[1]).run("r").episode("t").__enter__()
episode.first("begin")
episode.turn(action="pay").__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code, str(where)]).returncode == -signal.SIGKILL
    with keepstep.open(where) as store, store.run("r").episode("t") as episode:
        with episode.turn(action="pay") as turn:
            assert turn.adopted
            turn.result(observation="paid")
        coming = store.find("r/t").follow()
        assert [(it.action, it.observation) for it in (next(coming), next(coming))] == [
            (None, "begin"), ("pay", "paid"),
        ]  # fmt: skip
        episode.end("finished")
        assert list(coming) == []


def test_following_in_async_code_does_not_block_the_loop(where, recorder):
    async def follow(store, seen):
        async for step in store.find("r/t").afollow():
            seen.append(step.action)

    async def main(store):
        seen, ticks = [], 0
        await asyncio.to_thread(find, store)
        following = asyncio.create_task(follow(store, seen))
        for at in range(3):
            recorder.step(f"a{at}")
            while f"a{at}" not in seen:
                ticks += 1
                await asyncio.sleep(0.001)
        # Nothing comes now: the loop goes on all the same.
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not following.done()
        await asyncio.to_thread(recorder.end)
        await following
        return seen, ticks

    with keepstep.open(where) as store:
        seen, ticks = asyncio.run(asyncio.wait_for(main(store), 60))
    assert seen == [None, "a0", "a1", "a2"] and ticks > 0


def test_a_task_that_follows_can_be_cancelled(where, recorder):
    async def main(store):
        seen = asyncio.Event()

        async def follow():
            async for _ in store.find("r/t").afollow():
                seen.set()

        await asyncio.to_thread(find, store)
        following = asyncio.create_task(follow())
        await seen.wait()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    with keepstep.open(where) as store:
        asyncio.run(asyncio.wait_for(main(store), 60))


@pytest.mark.parametrize(
    "waits", ["store.find('r/t').follow()", "run.episodes(follow=True)", "run.groups(follow=True)"]
)
def test_ctrl_c_is_heard_while_waiting(where, recorder, waits):
    with keepstep.open(where) as store:
        find(store)
    code = f"""
import sys, warnings
warnings.simplefilter("ignore")
import keepstep
store = keepstep.open(sys.argv[1])
run = store.run("r")
print("ready", flush=True)
for _ in {waits}:
    pass
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code, str(where)], **pipes)
    assert process.stdout.readline() == "ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in told and process.returncode != 0


def record(run, task, *, why="finished", policy=1, **names):
    with run.episode(task, **names) as episode:
        episode.step(action="a", observation="o", reward=1.0, policy=policy)
        episode.end(why)
    return episode.ref


def test_whoever_starts_again_from_a_cursor_misses_nothing_and_sees_nothing_twice(where):
    """Whatever the place where a trainer stops, and whatever its filter."""
    with keepstep.open(where) as store:
        run = store.run("r")
        refs = [record(run, f"t{at}", why="truncated" if at % 3 == 0 else "finished") for at in range(9)]
        for wanted in ({}, {"ends": ["finished"]}):
            views = list(run.episodes(after="", **wanted))
            told = [view.ref for view in views]
            assert told == [ref for at, ref in enumerate(refs) if at % 3 or not wanted]
            for at, view in enumerate(views):
                rest = [it.ref for it in run.episodes(after=view.cursor, **wanted)]
                assert told[: at + 1] + rest == told, at
        late = record(run, "late")
        assert [it.ref for it in run.episodes(after=views[-1].cursor)] == [late]
    with keepstep.open(where) as store:
        run = store.run("r")
        assert [it.ref for it in run.episodes(after=views[3].cursor, ends=["finished"])] == [*told[4:], late]


def test_a_list_goes_on_with_everything_that_ended(where):
    """Its cursor stands before all ends: a trainer that stops in the middle of a list loses none."""
    with keepstep.open(where) as store:
        run = store.run("r")
        refs = [record(run, f"t{at}") for at in range(3)]
        first = next(run.episodes())
        assert first.cursor == "" and [it.ref for it in run.episodes(after=first.cursor)] == refs


def test_episodes_come_as_they_end(where, recorder):
    with keepstep.open(where) as store:
        run = store.run("r")
        before = record(run, "before")
        coming = run.episodes(follow=True)
        assert next(coming).ref == before
        ended = threading.Timer(0.3, recorder.end)
        ended.start()
        view = next(coming)
        ended.join()
        assert (view.ref, view.ending.why, len(view.steps)) == ("r/t#0.0~0", "finished", 1)
        after = record(run, "after")
        run.annotate(after, "score", 1.0, source="judge").wait()
        view = next(coming)
        assert (view.ref, view.notes) == (after, {"score": 1.0})


def test_an_attempt_that_was_gone_on_from_is_not_the_last(where):
    with keepstep.open(where) as store:
        run = store.run("r")
        record(run, "t", why="aborted")
        record(run, "t")
        assert [it.ref for it in run.episodes(after="")] == ["r/t#0.0~1"]
        assert [it.ref for it in run.episodes(after="", attempts="all")] == ["r/t#0.0~0", "r/t#0.0~1"]


def test_sealed_groups_come_once_with_their_rewards(where):
    with keepstep.open(where) as store:
        run = store.run("r")
        for iteration in range(3):
            for sample in range(2):
                record(run, "t", iteration=iteration, sample=sample, policy=iteration * 10 + sample)
        assert list(run.groups()) == []
        for iteration in range(3):
            group = run.group("t", size=3 if iteration == 2 else 2, iteration=iteration)
            rewards = {ref: float(at) for at, ref in enumerate(group.refs[:2])} if iteration else None
            group.seal(rewards, source="trainer", least=2).wait()
        groups = list(run.groups())
        assert [it.ref for it in groups] == ["r/t#0", "r/t#1", "r/t#2"]
        assert [it.rewards for it in groups] == [(1.0, 1.0), (0.0, 1.0), (0.0, 1.0)]
        assert [dict(it.missing) for it in groups] == [{}, {}, {2: "not begun"}]
        assert [[it.sample for it in group.members] for group in groups] == [[0, 1]] * 3
        assert groups[1].members[1].steps[0].action == "a" and groups[1].source == "trainer"
        assert "<script" not in groups[0]._repr_html_() and "2 members" in repr(groups[0])
        for at, group in enumerate(groups):
            assert [it.ref for it in run.groups(after=group.cursor)] == [it.ref for it in groups[at + 1 :]]
        assert [it.ref for it in run.groups(min_policy=10)] == ["r/t#1", "r/t#2"]
        assert [it.ref for it in run.groups(min_policy=11)] == ["r/t#2"]
        with pytest.raises(AttributeError):
            groups[0].members = ()


def test_a_group_comes_when_it_is_sealed(where):
    with keepstep.open(where) as store:
        run = store.run("r")
        record(run, "t")
        coming = run.groups(follow=True)
        sealing = threading.Timer(0.3, lambda: run.group("t", size=1).seal(source="s"))
        sealing.start()
        assert next(coming).ref == "r/t#0"
        sealing.join()


def test_stop_ends_a_wait_in_another_thread(where, recorder):
    """A cancelled `afollow` left its thread waiting, and that kept asking without a pause."""
    with keepstep.open(where) as store:
        follow = find(store)._core.follow()
        assert follow.next(10)["observation"] == "begin"
        waiting = threading.Thread(target=follow.next, args=(10,), daemon=True)
        waiting.start()
        follow.stop()
        waiting.join(5)
        assert not waiting.is_alive()
        assert follow.is_over
