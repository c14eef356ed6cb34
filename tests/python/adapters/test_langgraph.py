"""LangGraph's saver on a stand-in of LangGraph: what it keeps, what that costs, and who sees it when."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keepstep
import langgraph_worker
import outside
import pytest
import slow_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from keepstep.adapters.langgraph import KeepstepSaver, _pieces, _thread
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph_worker import checkpoint

WORKER = Path(langgraph_worker.__file__)


@pytest.fixture
def saver(store: keepstep.Store) -> Iterator[KeepstepSaver]:
    with KeepstepSaver(store) as made:
        yield made


def config_of(thread: str = "t", ns: str = "", id: str | None = None) -> Any:
    said = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": said if id is None else {**said, "checkpoint_id": id}}


def grow(saver: KeepstepSaver, count: int, *, thread: str = "t", size: int = 500, ns: str = "") -> list[Any]:
    """A thread whose list grows by a message a step; what the messages are."""
    newest = saver.get_tuple(config_of(thread, ns))
    messages = newest.checkpoint["channel_values"]["messages"] if newest else []
    config = newest.config if newest else config_of(thread, ns)
    for _ in range(count):
        number = len(messages)
        messages = [*messages, {"number": number, "text": os.urandom(size // 2).hex()}]
        made = checkpoint(f"{number:06}", messages)
        config = saver.put(
            config, made, {"step": number, "run_id": f"run-{number % 2}"}, {"messages": number + 1}
        )
    return messages


def ids(saver: KeepstepSaver, config: Any = None, **how: Any) -> list[str]:
    return [found.checkpoint["id"] for found in saver.list(config, **how)]


def bytes_in(store: keepstep.Store) -> int:
    return sum(path.stat().st_size for path in Path(str(store.where)).rglob("*.seg"))


# What is kept.


def test_a_checkpoint_comes_back(saver: KeepstepSaver) -> None:
    """With its parent, its metadata and what was written to it, in the order in which a graph applies it."""
    first = saver.put(config_of(), checkpoint("1", ["a"]), {"step": 0}, {"messages": 1})
    second = saver.put(first, checkpoint("2", ["a", "b"]), {"step": 1}, {"messages": 2})
    saver.put_writes(second, [("x", {"y": [1]}), ("z", None)], "task-b", "path-1")
    saver.put_writes(second, [("x", b"bytes")], "task-a", "path-2")
    found = saver.get_tuple(config_of())
    assert found is not None
    assert found.config == config_of(id="2") == second
    assert found.parent_config == first
    assert found.checkpoint == checkpoint("2", ["a", "b"])
    assert found.metadata == {"step": 1}
    assert found.pending_writes == [
        ("task-b", "x", {"y": [1]}),
        ("task-b", "z", None),
        ("task-a", "x", b"bytes"),
    ]
    older = saver.get_tuple(first)
    assert older is not None and older.checkpoint == checkpoint("1", ["a"]) and older.parent_config is None
    assert saver.get_tuple(config_of(id="3")) is None
    assert saver.get_tuple(config_of(ns="child")) is None


def test_the_first_write_of_a_place_holds_and_the_last_interrupt(saver: KeepstepSaver) -> None:
    """A task that runs again does not change what it wrote; errors, interrupts and answers to them are replaced."""
    config = saver.put(config_of(), checkpoint("1", []), {}, {"messages": 1})
    for value in ("old", "new"):
        saver.put_writes(config, [("x", value), ("__interrupt__", value)], "task")
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes == [("task", "__interrupt__", "new"), ("task", "x", "old")]


def test_checkpoints_are_listed_newest_first(saver: KeepstepSaver) -> None:
    grow(saver, 5)
    grow(saver, 2, thread="other")
    grow(saver, 1, ns="child")
    root = config_of()
    assert ids(saver, root) == ["000004", "000003", "000002", "000001", "000000"]
    assert ids(saver, root, limit=2) == ["000004", "000003"]
    assert ids(saver, root, before=config_of(id="000002"), limit=1) == ["000001"]
    assert ids(saver, root, filter={"run_id": "run-1"}) == ["000003", "000001"]
    assert ids(saver, root, filter={"run_id": "run-1", "step": 2}) == []
    assert ids(saver, config_of(id="000002")) == ["000002"]
    assert len(ids(saver, {"configurable": {"thread_id": "t"}})) == 6
    assert len(ids(saver)) == 8
    assert ids(saver, limit=0) == []


def test_a_channel_that_did_not_change_is_that_of_the_parent(saver: KeepstepSaver) -> None:
    """And one that is gone is gone."""
    made = checkpoint("1", ["a"])
    made["channel_values"]["other"] = ["o" * 600]
    made["channel_versions"]["other"] = 1
    first = saver.put(config_of(), made, {}, {"messages": 1, "other": 1})
    later = checkpoint("2", ["a", "b"])
    later["channel_values"]["other"] = ["o" * 600]
    later["channel_versions"]["other"] = 1
    second = saver.put(first, later, {}, {"messages": 2})
    saver.put(second, checkpoint("3", ["a", "b"]), {}, {})
    values = [found.checkpoint["channel_values"] for found in saver.list(config_of())]
    assert values == [{"messages": ["a", "b"]}, later["channel_values"], made["channel_values"]]


def test_a_version_that_nobody_called_new_is_no_reason_to_lose_a_value(saver: KeepstepSaver) -> None:
    first = saver.put(config_of(), checkpoint("1", ["a"]), {}, {"messages": 1})
    saver.put(first, checkpoint("2", ["a", "b"]), {}, {})
    found = saver.get_tuple(config_of())
    assert found is not None and found.checkpoint["channel_values"]["messages"] == ["a", "b"]


def test_a_coroutine_takes_the_value_when_it_begins(saver: KeepstepSaver) -> None:
    """Not when a thread comes to it: a graph goes on meanwhile."""
    grow(saver, 1)

    async def main() -> None:
        messages = ["as it was"]
        with saver._threads.named("t")._lock:
            putting = asyncio.ensure_future(
                saver.aput(config_of(), checkpoint("1", messages), {}, {"messages": 1})
            )
            await asyncio.sleep(0.05)
            messages[0] = "changed"
        await putting
        found = await saver.aget_tuple(config_of(id="1"))
        assert found is not None and found.checkpoint["channel_values"]["messages"] == ["as it was"]

    asyncio.run(main())


def test_what_is_put_is_the_value_at_the_time_of_the_call(saver: KeepstepSaver) -> None:
    messages = [{"text": "as it was"}]
    saver.put(config_of(), checkpoint("1", messages), {}, {"messages": 1})
    messages[0]["text"] = "changed"
    messages.append({"text": "more"})
    found = saver.get_tuple(config_of())
    assert found is not None and found.checkpoint["channel_values"]["messages"] == [{"text": "as it was"}]
    found.checkpoint["channel_values"]["messages"].append("mine")
    again = saver.get_tuple(config_of())
    assert again is not None and len(again.checkpoint["channel_values"]["messages"]) == 1


def test_the_same_checkpoint_put_again_is_replaced(saver: KeepstepSaver) -> None:
    saver.put(config_of(), checkpoint("1", ["old"]), {"step": 1}, {"messages": 1})
    saver.put(config_of(), checkpoint("1", ["new"]), {"step": 2}, {"messages": 1})
    (found,) = saver.list(config_of())
    assert found.checkpoint["channel_values"]["messages"] == ["new"] and found.metadata == {"step": 2}


def test_odd_names_are_names(saver: KeepstepSaver) -> None:
    names = ["", " ", "a/b", "0 t", "☃", "x" * 2000]
    for name in names:
        saver.put(config_of(name), checkpoint("1", [name]), {}, {"messages": 1})
    for name in names:
        found = saver.get_tuple(config_of(name))
        assert found is not None and found.checkpoint["channel_values"]["messages"] == [name]
    found = saver.get_tuple({"configurable": {"thread_id": 7}})
    assert found is None


# What it costs.


def test_a_history_costs_what_is_new(store: keepstep.Store, saver: KeepstepSaver) -> None:
    """200 steps, a message of 1 KB each: all of them as they were, in less than three times the bytes of the messages."""
    messages = grow(saver, 200, size=1000)
    assert bytes_in(store) < 3 * 200 * 1000
    kept = [found.checkpoint["channel_values"]["messages"] for found in saver.list(config_of())]
    assert kept == [messages[:count] for count in range(200, 0, -1)]


def test_going_on_in_another_process_costs_what_is_new(store: keepstep.Store, saver: KeepstepSaver) -> None:
    """A saver that did not put what was there before takes it from there all the same."""
    messages = grow(saver, 100, size=1000)
    for _ in range(10):
        before = bytes_in(store)
        with KeepstepSaver(Path(str(store.where))) as another:
            messages = grow(another, 1, size=1000)
        assert bytes_in(store) - before < 5000
    found = saver.get_tuple(config_of())
    assert found is not None and found.checkpoint["channel_values"]["messages"] == messages


def test_what_a_checkpoint_names_is_durable_before_it(
    store: keepstep.Store, saver: KeepstepSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's entries can be read before they are synced: they are put again, all that are named, first."""
    grow(saver, 5)
    events: list[tuple[str, str]] = []
    real = _thread.put_waiting

    class Watched:
        def __init__(self, key: str, receipt: keepstep.Receipt) -> None:
            self.key, self.receipt = key, receipt

        def wait(self) -> None:
            self.receipt.wait()
            events.append(("durable", self.key))

    def put(stream: keepstep.Stream, key: str, value: Any) -> Any:
        events.append(("put", key))
        return Watched(key, real(stream, key, value))

    monkeypatch.setattr(_thread, "put_waiting", put)
    with KeepstepSaver(Path(str(store.where))) as another:
        grow(another, 1)
        named = store.run("langgraph").stream("thread 0 t").read().keys() - {key for _, key in events[10:]}
        assert len(named) == 5
        own = next(index for index, (what, key) in enumerate(events) if what == "put" and key not in named)
        assert {key for what, key in events[:own] if what == "durable"} == named
        # Once is enough.
        del events[:]
        grow(another, 1)
        assert not {key for _, key in events} & named


def test_a_big_dict_costs_what_changed(store: keepstep.Store, saver: KeepstepSaver) -> None:
    """Files by name, of which a step changes one, and two lists that grow side by side."""
    files: dict[str, Any] = {f"file-{number}": os.urandom(500).hex() for number in range(50)}
    config, steps = config_of(), []
    for number in range(50):
        files[f"file-{number}"] = os.urandom(500).hex()
        files["log"] = [*files.get("log", []), os.urandom(100).hex()]
        files["nested"] = {"notes": [*files.get("nested", {}).get("notes", []), os.urandom(100).hex()]}
        steps.append(dict(files))
        made = checkpoint(f"{number:06}", [])
        made["channel_values"] = {"files": steps[-1]}
        config = saver.put(config, made, {}, {"files": number})
    assert [found.checkpoint["channel_values"]["files"] for found in saver.list(config_of())] == steps[::-1]
    assert bytes_in(store) < 3 * (50 * 1000 + 50 * 1400)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=12) | st.binary(max_size=12),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=6),
    max_leaves=20,
).filter(lambda value: not _has_bytes_inside(value))


def _has_bytes_inside(value: Any, top: bool = True) -> bool:
    """The stand-in's serializer knows bytes only where they stand alone."""
    if isinstance(value, bytes):
        return not top
    if isinstance(value, list):
        return any(_has_bytes_inside(item, isinstance(item, bytes) and top) for item in value)
    return isinstance(value, dict) and any(_has_bytes_inside(item, top) for item in value.values())


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES)
def test_any_value_is_made_of_its_pieces(one: Any, other: Any) -> None:
    """Whatever the earlier value was."""
    serde = JsonPlusSerializer()
    old, new = _pieces.split(one, serde), _pieces.split(other, serde)
    assert _pieces.join(new, serde) == other
    assert _pieces.patched(old, _pieces.difference(old, new)) == new


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9), max_size=30), st.data())
def test_any_row_is_patched_from_any_other(old: list[bytes], data: st.DataObject) -> None:
    """Rows that have much in common, in any order."""
    new = data.draw(st.lists(st.sampled_from([*old, b"fresh piece", "[", "]"]), max_size=40))
    ops = _pieces.difference(old, new)
    assert _pieces.patched(old, ops) == new


# Who sees it, and when.


def test_acknowledged_means_durable(tmp_path: Path) -> None:
    """Killed right after the last word: whoever reads then finds all of it, and goes on."""
    with outside.start(WORKER, tmp_path, "t", "a", 30, "lingers") as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(30)]
        process.kill()
    with KeepstepSaver(tmp_path) as saver:
        found = list(saver.list(config_of()))
        assert [each.checkpoint["id"] for each in found] == told[::-1]
        assert all(each.pending_writes for each in found)
        grow(saver, 1)
        assert len(ids(saver, config_of())) == 31


def test_processes_on_one_thread_lose_nothing(tmp_path: Path) -> None:
    """Each adds its branch of checkpoints, from the same parent."""
    with KeepstepSaver(tmp_path) as saver:
        grow(saver, 1)
        workers = [outside.start(WORKER, tmp_path, "t", name, 20, "ends") for name in ("a", "b", "c")]
        told = [line for worker in workers for line in worker.communicate(timeout=60)[0].splitlines()]
        assert [worker.returncode for worker in workers] == [0, 0, 0]
        assert sorted(ids(saver, config_of())) == sorted([*told, "000000"]) and len(told) == 60
        for name in ("a", "b", "c"):
            newest = saver.get_tuple(config_of(id=max(id for id in told if id.endswith(name))))
            assert newest is not None
            own = [m for m in newest.checkpoint["channel_values"]["messages"] if str(m).startswith(name)]
            assert len(own) == 20


def test_threads_on_one_thread_lose_nothing(saver: KeepstepSaver) -> None:
    config = saver.put(config_of(), checkpoint("0", ["x" * 500]), {}, {"messages": 1})

    def put(name: str) -> None:
        for number in range(20):
            saver.put(config, checkpoint(f"{name}-{number}", ["x" * 500, name]), {}, {"messages": 2})
            saver.put_writes(config, [("x", number)], f"{name}-{number}")
            saver.get_tuple(config_of())

    threads = [threading.Thread(target=put, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids(saver, config_of())) == 81
    found = saver.get_tuple(config)
    assert found is not None and len(found.pending_writes or ()) == 80


def test_put_returns_when_it_is_durable(saver: KeepstepSaver) -> None:
    """While the disk takes nothing, nothing is acknowledged; nor is anything lost."""
    grow(saver, 1)
    config, done = config_of(id="000000"), threading.Event()

    def put() -> None:
        saver.put(config, checkpoint("1", []), {}, {"messages": 1})
        saver.put_writes(config, [("x", 1)], "task")
        done.set()

    with slow_disk.stopped():
        putting = threading.Thread(target=put)
        putting.start()
        assert not done.wait(0.3)
    putting.join()
    assert done.is_set() and ids(saver, config_of()) == ["1", "000000"]


def test_the_event_loop_goes_on_while_the_disk_does_not(saver: KeepstepSaver) -> None:
    """`aput` and `aput_writes` are awaited, and block nothing."""
    grow(saver, 1)

    async def main() -> None:
        config = config_of(id="000000")
        # If the loop is blocked, this ends all the same.
        rescue = threading.Timer(30, slow_disk.go_on)
        rescue.start()
        slow_disk.stop()
        try:
            putting = asyncio.gather(
                saver.aput(config, checkpoint("1", []), {}, {"messages": 1}),
                saver.aput_writes(config, [("x", 1)], "task"),
            )
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not putting.done()
        finally:
            slow_disk.go_on()
            rescue.cancel()
        await putting
        assert [found.checkpoint["id"] async for found in saver.alist(config_of())] == ["1", "000000"]
        found = await saver.aget_tuple(config)
        assert found is not None and found.pending_writes == [("task", "x", 1)]

    asyncio.run(main())


def test_the_null_store_keeps_nothing() -> None:
    saver = KeepstepSaver(keepstep.open(None))
    saver.put(config_of(), checkpoint("1", ["a"]), {}, {"messages": 1})
    assert saver.get_tuple(config_of()) is None
    saver.delete_thread("t")
    assert ids(saver) == []


# Removing and copying.


def test_a_deleted_thread_begins_anew(store: keepstep.Store, saver: KeepstepSaver) -> None:
    """Also for a process that had it open."""
    with KeepstepSaver(Path(str(store.where))) as another:
        for round in range(3):
            grow(saver, 3)
            grow(another, 2)
            assert len(ids(saver, config_of())) == 5, round
            saver.delete_thread("t")
            assert saver.get_tuple(config_of()) is None
            assert ids(another) == []
        # Put without looking first: as a graph does that was running meanwhile.
        grow(another, 2)
        saver.delete_thread("t")
        another.put(config_of(id="000001"), checkpoint("000002", ["late"]), {}, {"messages": 3})
        assert ids(saver, config_of()) == ["000002"]
        asyncio.run(saver.adelete_thread("t"))
        with KeepstepSaver(Path(str(store.where))) as reader:
            # It had only read the thread so far.
            grow(saver, 1)
            assert ids(reader) == ["000000"]
            saver.delete_thread("t")
            reader.put(config_of(id="000000"), checkpoint("000001", ["late"]), {}, {"messages": 2})
            assert ids(saver, config_of()) == ["000001"]
            saver.delete_thread("t")
        asyncio.run(another.aput(config_of(), checkpoint("000003", ["later"]), {}, {"messages": 3}))
        assert ids(saver, config_of()) == ["000003"]


def test_what_is_pruned_is_hidden_and_what_others_add_is_not(
    store: keepstep.Store, saver: KeepstepSaver
) -> None:
    messages = grow(saver, 5)
    grow(saver, 3, ns="child")
    saver.prune(["t", "none"])
    assert ids(saver, {"configurable": {"thread_id": "t"}}) == ["000004", "000002"]
    found = saver.get_tuple(config_of())
    assert found is not None and found.checkpoint["channel_values"]["messages"] == messages
    with KeepstepSaver(Path(str(store.where))) as another:
        grow(another, 1)
    assert ids(saver, config_of()) == ["000005", "000004"]
    saver.delete_for_runs(["run-0"])
    assert ids(saver) == ["000005"]
    saver.prune(["t"], strategy="delete")
    assert ids(saver) == []
    with pytest.raises(ValueError, match="no such strategy"):
        saver.prune(["t"], strategy="some")


def test_a_copy_is_a_thread_of_its_own(saver: KeepstepSaver) -> None:
    messages = grow(saver, 5)
    saver.put_writes(config_of(id="000004"), [("x", 1)], "task")
    saver.copy_thread("t", "copy")
    # What was copied and removed can be copied again.
    saver.prune(["copy"])
    saver.copy_thread("t", "copy")
    saver.copy_thread("none", "copy")
    saver.delete_thread("t")
    assert ids(saver) == ["000004", "000003", "000002", "000001", "000000"]
    found = saver.get_tuple(config_of("copy"))
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == messages
    assert found.pending_writes == [("task", "x", 1)]
    assert grow(saver, 1, thread="copy")[:-1] == messages


def test_a_delta_channel_is_found_along_the_parents(saver: KeepstepSaver) -> None:
    """Its writes since it was last stored; `prune` keeps the checkpoints that it is made of."""
    config: Any = config_of()
    for number in range(5):
        made = checkpoint(str(number), [])
        # Stored at 0 and 1 only.
        if number > 1:
            made["channel_values"] = {}
        metadata: Any = {"counters_since_delta_snapshot": {"messages": (number, number)}}
        config = saver.put(config, made, metadata, {"messages": number})
        saver.put_writes(config, [("messages", [number]), ("other", 0)], "task")
    expected = {"messages": {"writes": [("task", "messages", [number]) for number in (1, 2, 3)], "seed": []}}
    assert saver.get_delta_channel_history(config=config, channels=["messages"]) == expected
    saver.prune(["t"])
    assert ids(saver, config_of()) == ["4", "3", "2", "1"]
    found = asyncio.run(saver.aget_delta_channel_history(config=config, channels=["messages", "none"]))
    assert found == {**expected, "none": {"writes": []}}


# Round it.


def test_threads_that_are_not_used_are_let_go(saver: KeepstepSaver) -> None:
    """However many threads there are, 64 are held in memory."""
    for number in range(70):
        saver.put(config_of(f"t{number}"), checkpoint("1", [number]), {}, {"messages": 1})
    gc.collect()
    assert len(saver._threads._in_use) <= 64
    found = saver.get_tuple(config_of("t0"))
    assert found is not None and found.checkpoint["channel_values"]["messages"] == [0]


def test_a_forked_child_makes_a_saver_of_its_own(saver: KeepstepSaver) -> None:
    """The parent's raises there, also while its locks are held, and never hangs."""
    grow(saver, 1)
    where = Path(str(saver.store.where))

    def child() -> None:
        with pytest.raises(keepstep.Forked):
            saver.put(config_of(), checkpoint("1", []), {}, {})
        with pytest.raises(keepstep.Forked):
            asyncio.run(saver.aget_tuple(config_of()))
        with KeepstepSaver(where) as own:
            grow(own, 1)

    with saver._threads.named("t")._lock:
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(30)
    assert process.exitcode == 0
    assert len(ids(saver, config_of())) == 2


def test_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['langgraph'] = None; import keepstep.adapters.langgraph"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=outside.environment()
    )
    assert "pip install langgraph-checkpoint" in done.stderr.splitlines()[-1]


def test_keepstep_itself_imports_no_framework() -> None:
    outside.run("import sys, keepstep; assert 'langgraph' not in sys.modules")


def bytes_of_log(where: Path) -> tuple[Path, int]:
    """The only log of a store, and its length."""
    (log,) = where.rglob("*.seg")
    return log, log.stat().st_size


def test_a_damaged_entry_costs_its_checkpoint_and_not_the_thread(tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as store, KeepstepSaver(store) as saver:
        config, lengths = config_of(), list[int]()
        for number in range(4):
            # Without values, so that no checkpoint builds on another.
            said = {"step": number, "noise": os.urandom(400).hex()}
            config = saver.put(config, checkpoint(f"{number:06}", []), said, {})
            lengths.append(bytes_of_log(tmp_path)[1])
    log, _ = bytes_of_log(tmp_path)
    data = bytearray(log.read_bytes())
    data[(lengths[0] + lengths[1]) // 2] ^= 1
    log.write_bytes(data)
    with KeepstepSaver(tmp_path) as saver:
        with pytest.raises(keepstep.Damaged, match="checkpoint_id"):
            saver.get_tuple(config_of())
        assert ids(saver, config_of()) == ["000003", "000002", "000000"]
        found = saver.get_tuple(config_of(id="000003"))
        assert found is not None and found.metadata["step"] == 3
        with pytest.raises(keepstep.Damaged):
            saver.get_tuple(config_of(id="000001"))
        saver.put(found.config, checkpoint("000004", []), {"step": 4}, {})
        assert ids(saver, config_of())[0] == "000004"
        saver.delete_thread("t")
        assert ids(saver, config_of()) == []


def test_what_another_process_puts_is_read_alone(store: keepstep.Store, tmp_path: Path) -> None:
    with KeepstepSaver(store) as mine, KeepstepSaver(str(tmp_path / "runs")) as other:
        for _ in range(3):
            grow(other, 2)
            seen, theirs = mine.get_tuple(config_of()), other.get_tuple(config_of())
            assert seen is not None and theirs is not None and seen.checkpoint == theirs.checkpoint
            assert ids(mine, config_of()) == ids(other, config_of())
            grow(mine, 1)
            assert ids(mine, config_of()) == ids(other, config_of())
