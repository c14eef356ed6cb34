"""TransferQueue's backend on stand-ins: plain values and arrays, many processes, kills. Tensors: tests/outside/transfer_queue."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keepstep
import numpy as np
import pytest
from outside import command, run, start

adapter = pytest.importorskip("keepstep.adapters.transfer_queue")
from keepstep.adapters.transfer_queue._ledger import Ledger, Place, Record  # noqa: E402
from keepstep.adapters.transfer_queue._shelf import ABSENT, Shelf  # noqa: E402
from keepstep.adapters.transfer_queue._values import decode, encode, size_of  # noqa: E402

Client = adapter.KeepstepStorageClient
STANDINS = Path(__file__).parent.parent.parent / "standins"


def client(where: Path, **more: Any) -> Any:
    return Client({"store": str(where), **more})


def test_what_is_put_is_there_for_another_client(tmp_path: Path) -> None:
    one, other = client(tmp_path), client(tmp_path)
    words = one.put(["0@a", "1@a"], [[1, 2], "text"])
    assert other.get(["1@a", "0@a", "2@a"], None, None, [words[1], words[0], None]) == ["text", [1, 2], None]
    assert other.get(["1@a"]) == ["text"]


def test_a_newer_value_replaces_an_older_one_whoever_puts_it(tmp_path: Path) -> None:
    one, other = client(tmp_path), client(tmp_path)
    for turn in range(6):
        (one if turn % 2 else other).put(["0@a"], [turn])
        assert one.get(["0@a"]) == other.get(["0@a"]) == [turn]


def test_what_is_cleared_is_gone_for_all_and_can_be_put_again(tmp_path: Path) -> None:
    one, other = client(tmp_path), client(tmp_path)
    words = one.put(["0@a", "1@a"], [1, 2])
    assert one.get(["0@a"], None, None, words[:1]) == [1]
    other.clear(["0@a", "never@a"], [words[0], None])
    assert other.get(["0@a"], None, None, words[:1]) == [None]
    assert one.get(["0@a", "1@a"]) == [None, 2]
    one.clear(["1@a"], words[1:])
    assert one.get(["1@a"], None, None, words[1:]) == [None]
    other.put(["0@a"], [3])
    assert one.get(["0@a"]) == [3]


def test_a_clear_that_comes_late_does_not_take_a_newer_value(tmp_path: Path) -> None:
    """Records of several processes are seen in any order; their versions decide."""
    put = Record(3, "w", puts={"k": Place("w", 0, 0)})
    for records in ([Record(2, "v", clears=("k",)), put], [put, Record(2, "v", clears=("k",))]):
        ledger = Ledger()
        assert all([ledger.add(record) for record in records])
        assert ledger.place("k") == Place("w", 0, 0)


def test_any_order_of_records_makes_the_same_ledger() -> None:
    """Also when some go back to earlier versions, and when they come in one by one."""
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    for _ in range(300):
        records = [_some_record(dice, version) for version in range(1, 13)]
        expected = Ledger.of(records).live()
        dice.shuffle(records)
        assert Ledger.of(records).live() == expected, f"seed {seed}"
        ledger, seen = Ledger(), list[Record]()
        for record in records:
            seen.append(record)
            if not ledger.add(record):
                ledger = Ledger.of(seen)
        assert ledger.live() == expected, f"seed {seed}"


def _some_record(dice: random.Random, version: int) -> Record:
    writer, keys = dice.choice("vw"), dice.sample("abc", 2)
    kind = dice.choice(("put", "put", "clear", "back"))
    if kind == "put":
        return Record(version, writer, puts={key: Place(writer, version, 0) for key in keys})
    if kind == "clear":
        return Record(version, writer, clears=tuple(keys))
    return Record(version, writer, back_to=dice.randrange(version))


def test_going_back_brings_back_what_was_cleared_and_hides_what_was_put(tmp_path: Path) -> None:
    one, other = Shelf(str(tmp_path), "r"), Shelf(str(tmp_path), "r")
    one.put(["a", "b"], [1, 2])
    mark = one.mark()
    other.put(["b", "c"], [3, 4])
    later = other.mark()
    other.clear(["a"])
    assert one.fetch(["a", "b", "c"]) == [ABSENT, 3, 4]
    other.go_back(mark)
    assert one.fetch(["a", "b", "c"]) == other.fetch(["a", "b", "c"]) == [1, 2, ABSENT]
    one.put(["c"], [5])
    assert other.fetch(["a", "b", "c"]) == [1, 2, 5]
    one.go_back(later)
    assert Shelf(str(tmp_path), "r").fetch(["a", "b", "c"]) == [1, 3, 4]


PLAIN = [
    None,
    True,
    -(1 << 70),
    float("inf"),
    "text",
    b"bytes",
    [1, [2, ("a", None)]],
    {"a": {"b": [1.5]}, "tensor": "a key like ours", "list": []},
    {1: "x", (2, 3): {"y"}, None: frozenset({b"z"})},
    [],
    {},
    complex(1, 2),
    Path("/a/b"),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_as_themselves(tmp_path: Path, value: object) -> None:
    store = client(tmp_path)
    store.put(["k"], [value])
    (got,) = client(tmp_path).get_all(["k"])
    assert got == value and repr(got) == repr(value)


def test_arrays_come_back_with_their_type_and_can_be_written(tmp_path: Path) -> None:
    nested = np.array(["x", {"a": np.arange(3)}], dtype=object)
    arrays = [np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2], np.zeros((0, 3)), np.array(["ab", "c"])]
    store = client(tmp_path)
    store.put(["0", "1", "2", "scalar", "objects"], [*arrays, np.float32(1.5), nested])
    *got, scalar, objects = client(tmp_path).get(["0", "1", "2", "scalar", "objects"])
    for mine, theirs in zip(got, arrays, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape and (mine == theirs).all()
    got[0][0, 0] = 7
    assert type(scalar) is np.float32 and scalar == 1.5
    assert objects[0] == "x" and (objects[1]["a"] == np.arange(3)).all()


class Odd:
    """Of no class that comes back as itself."""


@pytest.mark.parametrize("value", [Odd(), [1, {"a": Odd()}], print, keepstep.Ending("finished")])
def test_what_would_need_pickling_is_refused_and_nothing_of_the_put_is_there(
    tmp_path: Path, value: object
) -> None:
    store = client(tmp_path)
    with pytest.raises(TypeError, match=r"value of 'b' has a .*pickling"):
        store.put(["a", "b"], [1, value])
    assert store.get(["a", "b"]) == [None, None]


def test_encoded_sizes_are_about_right() -> None:
    data = encode({"a": np.zeros(1000), "b": ["x" * 500, b"y" * 500]}, "it")
    assert 9000 < size_of(data) < 9500
    assert (decode(data)["a"] == 0).all()


def test_small_values_share_steps_and_large_ones_do_not(tmp_path: Path) -> None:
    store = client(tmp_path)
    values = [np.full(1000 if index % 10 else 100_000, index) for index in range(200)]
    keys = [f"{index}@x" for index in range(200)]
    store.put(keys, values)
    for got, value in zip(client(tmp_path).get(keys[::-1]), values[::-1], strict=True):
        assert (got == value).all()
    views = {view.sample: view for view in keepstep.open(tmp_path).run("transfer_queue").episodes()}
    assert len(views[0].steps) == 1 and 20 <= len(views[1].steps) < 60


def test_threads_and_full_logs_lose_nothing(tmp_path: Path) -> None:
    """Each log takes some 50 kB here, so that threads change logs under one another."""
    store = client(tmp_path, log_bytes_max=50_000)
    failed = list[BaseException]()

    def work(name: int) -> None:
        try:
            for turn in range(12):
                words = store.put([f"{name}@{turn}"], [np.full(1000, name * 100 + turn)])
                assert store.get([f"{name}@{turn}"], None, None, words)[0][0] == name * 100 + turn
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    got = client(tmp_path).get([f"{name}@{turn}" for name in range(4) for turn in range(12)])
    assert [int(value[0]) for value in got] == [name * 100 + turn for name in range(4) for turn in range(12)]
    assert len({view.task for view in keepstep.open(tmp_path).run("transfer_queue").episodes()}) >= 6


def test_a_write_that_fails_is_told_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepstep.adapters.transfer_queue import _shelf

    store = client(tmp_path)
    store.put(["a"], [1])
    with monkeypatch.context() as broken:
        broken.setattr(_shelf._Writer, "say", lambda *_: (_ for _ in ()).throw(keepstep.DiskFull("no room")))
        with pytest.raises(keepstep.DiskFull, match="no room"):
            store.put(["a", "b"], [2, 2])
    assert store.get(["a", "b"]) == [1, None]
    store.put(["b"], [3])
    other = client(tmp_path)
    assert other.get(["a", "b"]) == [1, 3] and sorted(other.keys()) == ["a", "b"]
    ends = [view.state for view in keepstep.open(tmp_path).run("transfer_queue").episodes()]
    assert sorted(ends) == ["aborted", "aborted", "running", "running"]


def test_put_and_clear_return_when_all_is_safe_from_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepstep.adapters.transfer_queue import _shelf

    handed_over, settle = list[Any](), _shelf._Writer.settle

    def settle_and_keep(writer: Any, receipts: list[Any]) -> None:
        handed_over.extend(receipts)
        settle(writer, receipts)

    monkeypatch.setattr(_shelf._Writer, "settle", settle_and_keep)
    store = client(tmp_path)
    for turn in range(20):
        words = store.put(["a", "b"], [turn, np.zeros(100_000)])
        store.clear(["a"], words[:1])
        assert {receipt.level for receipt in handed_over} == {"power"}
    assert len(handed_over) == 60


def test_wrong_arguments_are_said(tmp_path: Path) -> None:
    store = client(tmp_path)
    with pytest.raises(ValueError, match="must be lists"):
        store.put(("a",), ("b",))
    with pytest.raises(ValueError, match="must match"):
        store.put(["a"], [])
    with pytest.raises(ValueError, match="must be a list"):
        store.get("a")
    with pytest.raises(ValueError, match="Missing store"):
        Client({})
    assert store.put([], []) == [] and store.get([]) == []
    store.clear([])


def test_a_word_about_another_store_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepstep.adapters.transfer_queue import _shelf

    monkeypatch.setattr(_shelf, "_SEEN_WITHIN_S", 0.05)
    words = client(tmp_path / "one").put(["a"], [1])
    with pytest.raises(keepstep.NotFound, match="lacks lines of these writers"):
        client(tmp_path / "other").get(["a"], None, None, words)


def meta(*indexes: int, fields: tuple[str, ...] = ("a", "b")) -> Any:
    return SimpleNamespace(
        global_indexes=list(indexes),
        field_names=list(fields),
        _custom_backend_meta=[dict[str, Any]() for _ in indexes],
    )


def test_the_manager_gives_back_columns_and_says_what_was_cleared(tmp_path: Path) -> None:
    from transfer_queue.storage.managers.base import StorageManagerFactory
    from transfer_queue.storage.simple_storage import StorageKeyNotFoundError

    async def flow() -> None:
        manager: Any = StorageManagerFactory.create("Keepstep", None, {"store": str(tmp_path)})
        batch = meta(4, 5)
        await manager.put_data({"a": [1, None], "b": ["x", "y"]}, batch)
        assert await manager.get_data(batch) == {"a": [1, None], "b": ["x", "y"]}
        await manager.clear_data(meta(5))
        with pytest.raises(StorageKeyNotFoundError, match="2 of 4 keys have no value, such as '5@a'"):
            await manager.get_data(batch)
        assert await manager.get_data(meta(4, fields=("b",))) == {"b": ["x"]}
        manager.close()

    asyncio.run(flow())


def test_a_checkpoint_holds_no_data_and_brings_all_back(tmp_path: Path) -> None:
    async def flow() -> None:
        config = {"store": str(tmp_path / "store"), "run": "grpo"}
        manager = adapter.KeepstepStorageManager(None, config)
        batch = meta(0, 1)
        await manager.put_data({"a": [1, 2], "b": [3, 4]}, batch)
        await manager.save_checkpoint(str(tmp_path))
        assert (tmp_path / "keepstep_storage.json").stat().st_size < 500
        await manager.put_data({"a": [9]}, meta(1, fields=("a",)))
        await manager.clear_data(meta(0))
        again = adapter.KeepstepStorageManager(None, config)
        await again.load_checkpoint(str(tmp_path))
        assert await again.get_data(batch) == {"a": [1, 2], "b": [3, 4]}
        other = adapter.KeepstepStorageManager(None, {**config, "run": "ppo"})
        with pytest.raises(ValueError, match="of run 'grpo', but this is run 'ppo'"):
            await other.load_checkpoint(str(tmp_path))

    asyncio.run(flow())


def test_the_shared_configuration_has_a_whole_path_and_registers_the_backend_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    class Section(dict[str, Any]):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__  # type: ignore[assignment]

    monkeypatch.chdir(tmp_path)
    own = Section(store="runs")
    adapter._prepare(SimpleNamespace(backend={"Keepstep": own}))
    assert own["store"] == str(tmp_path / "runs")
    assert b"keepstep.adapters.transfer_queue" in pickle.dumps(own["registered"])


def test_what_is_spent_can_be_pruned_and_gives_its_bytes_back(tmp_path: Path) -> None:
    store = client(tmp_path, log_bytes_max=1)
    store.put(["a"], [np.random.default_rng(1).random(100_000)])
    store.put(["b"], [np.arange(2000)])
    assert adapter.spent(tmp_path) == []
    store.clear(["a"])
    (ref,) = adapter.spent(tmp_path)
    before = _bytes_of(tmp_path)
    command("prune", "-s", tmp_path, ref, "--reason", "cleared", "--grace", 0)
    command("compact", tmp_path, "--grace", 0)
    assert before > 500_000 and _bytes_of(tmp_path) < 50_000
    again = client(tmp_path)
    assert again.get(["a"]) == [None] and (again.get(["b"])[0] == np.arange(2000)).all()
    assert adapter.spent(tmp_path) == []


def _bytes_of(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*.seg"))


KILLED_IN_MID_PUT = """
    import json, sys, threading
    import numpy as np
    sys.path.append(sys.argv[2])
    from keepstep.adapters.transfer_queue import KeepstepStorageClient

    store, first = KeepstepStorageClient({"store": sys.argv[1]}), int(sys.argv[3])

    def say(*what):
        with lock:
            sys.stdout.write(json.dumps(what) + "\\n")
            sys.stdout.flush()

    def work(thread):
        turn = first
        while True:
            keys = [f"{turn}@{thread}.{part}" for part in range(3)]
            say("begin", *keys)
            words = store.put(keys, [np.full(20_000, turn) for _ in keys])
            say("put", *keys)
            if turn % 3 == 0:
                store.clear(keys[:2], words[:2])
                say("clear", *keys[:2])
            turn += 1

    lock = threading.Lock()
    for thread in range(2):
        threading.Thread(target=work, args=(thread,)).start()
"""


def test_acknowledged_puts_and_clears_survive_kills_and_torn_ones_are_absent(tmp_path: Path) -> None:
    """Several times over on one store; the oracle is what the process said before it died."""
    said: dict[str, list[list[str]]] = {"begin": [], "put": [], "clear": []}
    for turn in range(4):
        with start(KILLED_IN_MID_PUT, tmp_path, STANDINS, turn * 1000) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(20 + 7 * turn)]
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        for line in lines:
            # The last one may be torn: what it says was not heard.
            if line.endswith("\n"):
                what, *keys = json.loads(line)
                said[what].append(keys)
        kept = set(Shelf(str(tmp_path), "transfer_queue").keys())
        assert kept.isdisjoint(key for keys in said["clear"] for key in keys), "what was cleared is there"
        for keys in said["begin"]:
            left = [key for key in keys if key in kept]
            # Two of them may be cleared, and nobody heard of it.
            may_be_left = [keys, keys[2:]] if _is_cleared_later(keys) else [keys]
            assert left in may_be_left or (left == [] and keys not in said["put"]), f"{left} of {keys}"
    for key, value in zip(kept, client(tmp_path).get_all(list(kept)), strict=True):
        assert value.shape == (20_000,) and (value == int(key.partition("@")[0])).all()


def _is_cleared_later(keys: list[str]) -> bool:
    return int(keys[0].partition("@")[0]) % 3 == 0


def test_processes_see_at_once_what_another_one_put(tmp_path: Path) -> None:
    """By key alone, right after the acknowledgement: nothing is told but that it is there."""
    reader = """
        import sys
        sys.path.append(sys.argv[2])
        from keepstep.adapters.transfer_queue import KeepstepStorageClient
        store = KeepstepStorageClient({"store": sys.argv[1]})
        for key in sys.stdin:
            print(store.get([key.strip()])[0], flush=True)
    """
    store = client(tmp_path)
    with start(reader, tmp_path, STANDINS) as process:
        assert process.stdin is not None and process.stdout is not None
        for turn in range(60):
            store.put([f"{turn}@a"], [turn])
            process.stdin.write(f"{turn}@a\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == str(turn)
        process.stdin.close()


def test_a_forked_child_has_a_log_of_its_own(tmp_path: Path) -> None:
    forking = """
        import os, sys
        sys.path.append(sys.argv[2])
        from keepstep.adapters.transfer_queue import KeepstepStorageClient
        store = KeepstepStorageClient({"store": sys.argv[1]})
        store.put(["parent"], [1])
        child = os.fork()
        if child == 0:
            store.put(["child"], store.get(["parent"]))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(store.get(["parent", "child"]))
    """
    assert run(forking, tmp_path, STANDINS).strip() == "[1, 1]"
