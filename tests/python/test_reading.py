"""Reading: what was recorded comes back, lazily, filtered, by name, and safe to show."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keepstep
import pytest
from keepstep._steps import Steps, step_of
from keepstep._views import View


@pytest.fixture
def store(tmp_path):
    with keepstep.open(tmp_path / "runs") as store:
        yield store


def record(run, task, *, rewards=(0.5, 0.25), why="finished", policy=1, **names):
    """An episode with a first observation and a step for each reward."""
    with run.episode(task, **names) as episode:
        episode.first(f"{task} begins")
        for at, reward in enumerate(rewards):
            episode.step(action=f"a{at}", observation=f"o{at}", reward=reward, policy=policy)
        episode.end(why, limit="turns" if why == "truncated" else None)
    return episode.ref


def in_another_process(code: str, *args: object) -> None:
    subprocess.run([sys.executable, "-c", "import keepstep, sys\n" + code, *map(str, args)], check=True)


def test_a_view_says_what_was_recorded(store):
    run = store.run("shop")
    before = time.time()
    with run.episode("root") as episode:
        episode.end("finished")
    with run.episode("t", sample=2, iteration=3, parent="shop/root#0.0", meta={"seed": 7}) as episode:
        episode.first("begin", info={"a": 1}, state={"messages": []})
        episode.step(
            action={"click": 3},
            observation="page",
            reward=0.5,
            reward_terms={"format": 0.5},
            discount=0.9,
            prompt=[{"role": "user"}],
            response="click",
            tokens=keepstep.Tokens(prompt=[1, 2], ids=[3], logprobs=[-0.25], arrays={"experts": [1]}),
            policy=7,
            agent="buyer",
            info={"url": "/"},
            state={"messages": ["m"]},
        )
        episode.step(action="stop", observation=None, reward=None, policy="v8")
        episode.end("truncated", limit="turns")
    view = store.find("shop/t#3.2")
    assert (view.ref, view.task, view.sample, view.iteration, view.attempt) == ("shop/t#3.2~0", "t", 2, 3, 0)
    assert view.ref == episode.ref
    assert view.ending == keepstep.Ending("truncated", "turns", None, "loop")
    assert (view.state, view.counts, view.parent, view.meta) == (
        "truncated",
        True,
        "shop/root#0.0",
        {"seed": 7},
    )
    assert (view.reward, view.policies, len(view.steps), view.missing) == (0.5, (7, "v8"), 3, ())
    first, step, last = view.steps
    assert (first.kind, step.kind, last.kind) == ("FIRST", "MID", "LAST")
    assert (first.observation, first.info, first.state) == ("begin", {"a": 1}, {"messages": []})
    assert (step.index, step.action, step.observation, step.reward) == (1, {"click": 3}, "page", 0.5)
    assert (step.reward_terms, step.discount, step.prompt) == ({"format": 0.5}, 0.9, [{"role": "user"}])
    assert (step.response, step.policy, step.agent, step.info) == ("click", 7, "buyer", {"url": "/"})
    assert step.tokens == keepstep.Tokens([1, 2], [3], [-0.25], None, {"experts": [1]})
    assert (step.state, step.error, step.damaged) == ({"messages": ["m"]}, None, ())
    assert before <= first.time <= step.time <= last.time <= time.time()
    assert view.first_time <= first.time and view.last_time >= last.time
    assert (last.reward, last.observation, last.tokens) == (None, None, None)


def test_a_resumed_episode_began_with_its_first_step(store):
    """Its steps and its reward were those of the whole episode, and its first time was that of the last attempt."""
    run = store.run("r")
    with pytest.raises(KeyboardInterrupt), run.episode("t") as episode:
        episode.step(action=1, reward=1.0)
        raise KeyboardInterrupt
    with run.episode("t") as episode:
        episode.step(action=2, reward=float(episode.turns))
        episode.end("finished")
    view = store.find("r/t")
    assert (view.attempt, view.reward) == (1, 2.0)
    assert view.first_time <= view.steps[0].time <= view.steps[1].time <= view.last_time
    with run.episode("t2") as episode:
        episode.end("aborted")
    with run.episode("t2", resume="restart") as episode:
        episode.step(action=2)
        episode.end("finished")
    again = store.find("r/t2")
    assert again.first_time > store.find("r/t2~0").last_time, "a restart begins anew"


def test_steps_are_a_sequence_and_each_is_read_alone(store):
    record(store.run("r"), "t", rewards=[float(it) for it in range(9)])
    view = store.find("r/t")
    assert len(view.steps) == 10 and view.steps[3].action == "a2" and view.steps[-1].action == "a8"
    assert [step.index for step in view.steps[2:8:3]] == [2, 5]
    assert [step.index for step in view.steps[::-1]] == list(range(9, -1, -1))
    assert [step.index for step in view.steps] == list(range(10))
    assert [step.index for step in reversed(view.steps)] == list(range(9, -1, -1))
    assert view.steps == list(store.find("r/t").steps) and view.steps[3] in view.steps
    for wrong in (10, -11):
        with pytest.raises(IndexError, match="there are 10"):
            view.steps[wrong]
    read = []
    counted = Steps(view._core.steps, lambda at: read.append(at) or view._core.step(at))
    assert counted[7].action == "a6" and read == [7]
    assert next(iter(counted)).index == 0 and read == [7, 0]


def test_what_was_read_does_not_change(store):
    ref = record(store.run("r"), "t")
    view = store.find(ref)
    with pytest.raises(AttributeError):
        view.steps[0].reward = 1.0
    with pytest.raises(AttributeError):
        view.reward = 1.0
    with pytest.raises(TypeError):
        view.notes["score"] = 1.0


def test_steps_are_equal_if_they_say_the_same():
    say = {"index": 1, "kind": "MID", "time": 1.0, "observation": {"x": [math.nan, 1]}, "reward": math.nan}
    assert step_of(say) == step_of({**say, "observation": {"x": [float("nan"), 1]}})
    assert hash(step_of(say)) == hash(step_of(dict(say)))
    for other in (
        {"reward": 0.0},
        {"observation": {"x": [math.nan, 2]}},
        {"observation": {"x": [math.nan, 1.0]}},
    ):
        assert step_of(say) != step_of({**say, **other})


def test_arrays_are_compared_element_by_element():
    numpy = pytest.importorskip("numpy")
    say = {"index": 1, "observation": numpy.array([1.0, math.nan])}
    assert step_of(say) == step_of({"index": 1, "observation": numpy.array([1.0, math.nan])})
    assert step_of(say) != step_of({"index": 1, "observation": numpy.array([1.0, 2.0])})
    assert step_of(say) != step_of({"index": 1, "observation": [1.0, math.nan]})


def test_each_filter_gives_what_it_says(store):
    run, other = store.run("r"), store.run("other")
    record(other, "a", rewards=[9.0])
    record(run, "a", rewards=[1.0], policy=1)
    record(run, "a", sample=1, rewards=[2.0], policy=2)
    record(run, "a", iteration=1, rewards=[3.0], policy="v3")
    middle = time.time()
    record(run, "b", rewards=[], why="truncated")
    record(run, "c", rewards=[math.inf], why="aborted")
    for wanted, refs in [
        ({}, ["a#0.0", "a#0.1", "a#1.0", "b#0.0", "c#0.0"]),
        ({"task": "a"}, ["a#0.0", "a#0.1", "a#1.0"]),
        ({"task": "nobody"}, []),
        ({"iteration": 1}, ["a#1.0"]),
        ({"ends": ["truncated", "aborted"]}, ["b#0.0", "c#0.0"]),
        ({"ends": []}, []),
        ({"reward": (2.0, 3.0)}, ["a#0.1", "a#1.0"]),
        ({"reward": (-math.inf, math.inf)}, ["a#0.0", "a#0.1", "a#1.0", "c#0.0"]),
        ({"policy": 2}, ["a#0.1"]),
        ({"policy": "v3"}, ["a#1.0"]),
        ({"policy": "2"}, []),
        ({"since": middle}, ["b#0.0", "c#0.0"]),
        (
            {"task": "a", "policy": 1, "reward": (0.0, 1.0)},
            [
                "a#0.0",
            ],
        ),
    ]:
        listed = [view.ref for view in run.episodes(**wanted)]
        assert listed == [f"r/{ref}~0" for ref in refs], wanted
        ended = [view.ref for view in run.episodes(after="", **wanted)]
        assert sorted(ended) == listed, wanted


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ends": "finished"}, "give a collection"),
        ({"ends": ["done"]}, "give some of"),
        ({"attempts": "newest"}, '"last" or "all"'),
        ({"policy": 1.5}, "a number or a name"),
        ({"after": "1~x"}, "no cursor"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(store, wrong, said):
    with pytest.raises(keepstep.BadInput, match=said):
        list(store.run("r").episodes(**wrong))


def test_a_resumed_attempt_has_what_it_inherited(store):
    run = store.run("r")
    with run.episode("t") as episode:
        episode.first("begin")
        episode.step(action="a", observation="b", reward=1.0, policy=1)
        episode.note("mood", "good", source="judge")
        episode.end("aborted")
    with run.episode("t") as episode:
        assert episode.attempt == 1
        episode.step(action="c", observation="d", reward=2.0, policy=2)
        episode.end("finished")
    [view] = run.episodes()
    assert (view.ref, view.attempt, view.reward, view.policies) == ("r/t#0.0~1", 1, 3.0, (1, 2))
    assert [step.action for step in view.steps] == [None, "a", "c"]
    assert view.notes == {"mood": "good"}
    first, second = view.attempts()
    assert (first.attempt, first.ending.why, first.counts, len(first.steps)) == (0, "aborted", False, 2)
    assert (second, second.counts) == (view, True)
    assert [it.ref for it in run.episodes(attempts="all")] == ["r/t#0.0~0", "r/t#0.0~1"]
    assert store.find("r/t#0.0~0") == first and store.find("r/t").attempt == 1


def test_a_running_episode_shows_what_is_durable(store):
    run = store.run("r")
    with run.episode("t") as episode:
        episode.first("begin")
        episode.step(action="a", observation="b")
        view = store.find("r/t")
        assert (view.state, view.ending, len(view.steps), view.steps[-1].kind) == ("running", None, 2, "MID")
        with episode.turn(action="c") as turn:
            pending = store.find("r/t").pending
            assert (pending.action, pending.index) == ("c", 2)
            turn.result(observation="d")
        assert len(view.steps) == 2
        assert store.find("r/t").pending is None
        episode.end("finished")
    assert (view.state, view.ending) == ("running", None)


def test_how_it_went_wrong_is_told(store):
    run = store.run("r")
    with pytest.raises(ValueError, match="no such page"), run.episode("t") as episode:
        episode.first("begin")
        raise ValueError("no such page")
    ending = store.find("r/t").ending
    assert (ending.why, ending.error.splitlines()[0]) == ("errored", "ValueError: no such page")
    assert "Traceback" in ending.error


def test_a_process_that_was_killed_is_interrupted_then_crashed(store, tmp_path):
    code = """
import os, signal
episode = keepstep.open(sys.argv[1]).run("r").episode("t").__enter__()
episode.first("begin")
episode.step(action="a", observation="b")
os.kill(os.getpid(), signal.SIGKILL)
"""
    with pytest.raises(subprocess.CalledProcessError) as killed:
        in_another_process(code, tmp_path / "runs")
    assert killed.value.returncode == -signal.SIGKILL
    view = store.find("r/t")
    assert (view.state, view.ending, len(view.steps)) == ("interrupted", None, 2)
    assert store.reap() == 1
    assert store.find("r/t").ending == keepstep.Ending("crashed", None, None, "whoever found it")


@pytest.mark.parametrize("task", ["a/b", "#1.2~3@4", "100%", "Käse 🧀", "new\nline", " "])
def test_a_ref_finds_its_episode_whatever_it_is_called(store, task):
    run = store.run("odd/run")
    record(run, task)
    [view] = run.episodes()
    assert view.task == task
    for ref in (view.ref, view.ref.removesuffix("~0"), view.id, view.id[:12]):
        assert store.find(ref) == view, ref


def test_a_ref_that_names_nothing_or_several_says_so(store):
    run = store.run("r")
    record(run, "t")
    record(run, "t", sample=1)
    with pytest.raises(keepstep.BadInput, match=r"r/t#0\.0, r/t#0\.1"):
        store.find("r/t")
    for nothing in ("r/u", "r/t#0.2", "r/t#0.0~1", "q/t#0.0", "f" * 32, "no-such"):
        with pytest.raises(keepstep.NotFound, match=r"an episode called|is not there"):
            store.find(nothing)
    with pytest.raises(keepstep.BadInput, match=r"take steps\[1\]"):
        store.find("r/t#0.0@1")
    with pytest.raises(keepstep.BadInput, match="not a number"):
        store.find("r/t#x")


def test_a_name_means_the_newest_generation(store):
    record(store.run("r"), "t", rewards=[1.0])
    [old] = store.run("r").episodes()
    run = store.run("r", new=True)
    with pytest.raises(keepstep.NotFound):
        store.find("r/t#0.0")
    record(run, "t", rewards=[2.0])
    assert store.find("r/t#0.0").reward == store.find("r/t").reward == 2.0
    assert store.find(old.id).reward == 1.0
    assert [view.reward for view in run.episodes()] == [2.0]


def test_an_episode_without_a_name_is_found_by_its_id(store):
    run = store.run("r")
    with run.episode() as episode:
        episode.step(action="a", observation="b")
        episode.end("finished")
    [view] = run.episodes()
    assert (view.ref, view.task, len(view.steps)) == (view.id, "", 1)
    assert store.find(view.ref) == view and [it.ref for it in view.attempts()] == [view.ref]


def test_the_newest_note_counts_and_each_source_has_its_own(store):
    run = store.run("r")
    ref = record(run, "t")
    for value, source in ((0.1, "judge"), (0.9, "person"), (0.2, "judge")):
        run.annotate(ref, "score", value, source=source).wait()
    run.annotate(ref, "label", {"ok": True}, source="person", step=1).wait()
    run.annotate("r/t#0.0", "whole", 1, source="person").wait()
    run.annotate(record(run, "u"), "score", 5.0, source="judge").wait()
    view = store.find(ref)
    assert view.notes == {"score": 0.2, "whole": 1}
    assert view.notes_by_source == {
        ("score", "judge"): 0.2, ("score", "person"): 0.9, ("whole", "person"): 1,
    }  # fmt: skip
    assert view.notes_on(1) == {"label": {"ok": True}} and view.notes_on(0) == {}


def test_what_compact_moved_reads_the_same(tmp_path):
    """Views that were listed before, and notes that an attempt made on itself, are still there."""
    where = tmp_path / "runs"
    code = """
with keepstep.open(sys.argv[1]) as store:
    run = store.run("r")
    for task in ("a", "b"):
        with run.episode(task) as episode:
            episode.first("begin")
            episode.step(action=task * 300, observation="o", reward=1.0)
            episode.note("own", task, source="loop")
            episode.end("finished")
        run.annotate(episode.ref, "later", task, source="judge").wait()
"""
    in_another_process(code, where)
    with keepstep.open(where) as store:
        run = store.run("r")
        told = [(view.ref, list(view.steps), dict(view.notes), view.ending) for view in run.episodes()]
        assert [notes for _, _, notes, _ in told] == [{"own": it, "later": it} for it in "ab"]
        waiting = list(run.episodes())
        compact(where)
        assert [(it.ref, list(it.steps), dict(it.notes), it.ending) for it in run.episodes()] == told
        assert [(it.ref, list(it.steps), it.ending) for it in waiting] == [(a, b, d) for a, b, _, d in told]
        assert [view.task for view in run.episodes(after="")] == ["a", "b"]


def compact(where: Path) -> None:
    """Twice: the first regroups, the second deletes what was replaced."""
    assert list(where.glob("writers/*/*.seg"))
    for _ in range(2):
        command = [sys.executable, "-W", "ignore", "-m", "keepstep", "compact", str(where), "--grace", "0"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert not list(where.glob("writers/*/*.seg")), done.stdout


def test_damage_is_told_where_it_is_and_the_rest_is_read(tmp_path):
    where = tmp_path / "runs"
    marks = [os.urandom(40).hex() for _ in range(3)]
    code = """
with keepstep.open(sys.argv[1]) as store, store.run("r").episode("t") as episode:
    for mark in sys.argv[2:]:
        episode.step(action="a", observation=mark)
    episode.end("finished")
"""
    in_another_process(code, where, *marks)
    [segment] = where.glob("writers/*/*.seg")
    data = bytearray(segment.read_bytes())
    at = data.index(marks[1].encode())
    data[at + 7] ^= 1
    segment.write_bytes(data)
    with keepstep.open(where) as store:
        steps = list(store.find("r/t").steps)
        assert [step.observation for step in steps] == [marks[0], None, marks[2]]
        assert "observation" in steps[1].damaged and "damaged: " in repr(steps[1])
        assert steps[0].damaged == steps[2].damaged == ()


def test_what_was_recorded_cannot_break_out_of_a_notebook(store):
    run = store.run("r")
    evil = "<script>alert(1)</script>\"'&"
    with run.episode(evil) as episode:
        episode.first({"page": evil})
        episode.step(action=evil, observation=evil, info={evil: evil}, agent=evil)
        episode.note(evil, evil, source=evil)
        episode.end("errored", error=evil)
    [view] = run.episodes()
    shown = [view._repr_html_(), view.steps._repr_html_(), run.table("steps")._repr_html_()]
    shown += [step._repr_html_() for step in view.steps]
    for text in shown:
        assert "<script" not in text and text.startswith("<table>"), text
    assert "&lt;script&gt;" in shown[0] and "&lt;script&gt;" in shown[-1]
    for thing in (view, *view.steps):
        assert "\n" not in repr(thing) and len(repr(thing)) < 300


def test_items_of_a_recording_list_are_told_in_the_readers_terms(store):
    run = store.run("r")
    items = [
        {"observation": {"text": "page"}, "info": {"url": "/"}},
        {"action_type": 6, "coords": [1, 2]},
        "something else",
    ]
    with run.episode("t") as episode:
        trajectory = episode.trajectory()
        trajectory.extend(items)
        episode.end("finished")
    steps = store.find("r/t").steps
    assert [step.value for step in steps] == items
    assert [step.observation for step in steps] == [{"text": "page"}, None, None]
    assert [step.info for step in steps] == [{"url": "/"}, None, None]
    assert [step.action for step in steps] == [None, items[1], None]


def test_the_null_store_has_nothing_to_read():
    store = keepstep.open(None)
    run = store.run("r")
    assert list(run.episodes()) == [] == list(run.groups())
    with pytest.raises(keepstep.NotFound, match="null store"):
        store.find("r/t")


def test_a_view_reads_from_many_threads_at_once(store):
    from concurrent.futures import ThreadPoolExecutor

    record(store.run("r"), "t", rewards=[float(it) for it in range(200)])
    view: View = store.find("r/t")
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda at: view.steps[at].reward, range(1, 201)))
    assert read == [float(it) for it in range(200)]
