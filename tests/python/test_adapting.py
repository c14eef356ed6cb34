"""What adapters need of the package stands in one documented module, and they use nothing else that is private."""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keepstep
import pytest
from keepstep import adapting

ADAPTERS = Path(keepstep.__file__).parent / "adapters"


def private_imports(source: str, depth: int) -> Iterator[str]:
    """What a module of an adapter imports of the package that is neither public nor its own; `depth` is its folders' depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("keepstep.")]
        elif isinstance(node, ast.ImportFrom) and node.level > depth:
            names = [f"keepstep.{node.module or ''}.{alias.name}" for alias in node.names]
        elif (
            isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("keepstep")
        ):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if any(part.startswith("_") for part in name.split(".")))


def test_adapters_import_nothing_private() -> None:
    found = {
        f"{path.relative_to(ADAPTERS)}: {name}"
        for path in ADAPTERS.rglob("*.py")
        for name in private_imports(path.read_text(), len(path.relative_to(ADAPTERS).parts))
    }
    assert found == set()


@pytest.mark.parametrize(
    "line",
    [
        "from keepstep._endings import FINAL",
        "from keepstep import _core",
        "from ..._log import logger",
        "import keepstep._store",
    ],
)
def test_what_is_private_is_found(line: str) -> None:
    assert list(private_imports(line, 2))


def test_a_stream_reader_gives_what_is_new(store: keepstep.Store) -> None:
    stream = store.run("r").stream("s")
    reader = adapting.StreamReader(stream)
    assert reader.look() == ({}, False, [], 0)
    for number in range(3):
        stream.put(f"entry {number}", {"n": number}).wait()
    assert list(reader.look().entries.values()) == [{"n": 0}, {"n": 1}, {"n": 2}]
    stream.put("late", 7).wait()
    assert reader.look() == ({"late": 7}, False, [], 4)
    assert reader.value("entry 1") == {"n": 1}
    with pytest.raises(keepstep.NotFound, match="never put"):
        reader.value("never put")
    reader.forget()
    assert len(reader.look().entries) == 4
    stream.drop()
    assert reader.look() == ({}, True, [], 0)


def test_a_stream_reader_that_raised_gives_everything_again(tmp_path: Path) -> None:
    with keepstep.open(tmp_path) as one, keepstep.open(tmp_path) as other:
        first, second = one.run("r").stream("s"), other.run("r").stream("s")
        first.put("a", 1).wait()
        second.put("b", 2).wait()
        reader = adapting.StreamReader(first)
        assert reader.look().total == 2
        # Neither looks again so soon.
        first.put("x", "one").wait()
        second.put("x", "other").wait()
        with pytest.raises(keepstep.BadInput, match="several values"):
            reader.look()
        news = reader.look(partial=True)
        assert (news.entries, len(news.left_out), news.total) == ({"a": 1, "b": 2}, 1, 2)


def test_a_stream_reader_of_a_store_that_records_nothing() -> None:
    with keepstep.open(None) as nothing:
        reader = adapting.StreamReader(nothing.run("r").stream("s"))
        assert reader.look() == ({}, False, [], 0)
        with pytest.raises(keepstep.NotFound):
            reader.value("x")


def test_all_that_is_offered_is_there_and_documented() -> None:
    for name in adapting.__all__:
        offered = getattr(adapting, name)
        if callable(offered) and not isinstance(offered, type(adapting.Where)):
            assert offered.__doc__, name


class Queue:
    """A queue that is full so often."""

    def __init__(self, full: int) -> None:
        self.full = full

    def put(self, receipt: Any) -> Any:
        self.full -= 1
        if self.full >= 0:
            raise keepstep.Busy("the queue is full")
        return receipt


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    with keepstep.open(tmp_path / "store") as store:
        stream = store.run("r").stream("s")
        first = adapting.put_waiting(Queue(3).put, stream.put("a", 1)).wait()
        assert first.level is not None

        async def both() -> list[Any]:
            async def later(receipt: Any) -> Any:
                return receipt

            plain = await adapting.await_durable(Queue(3).put, stream.put("b", 2))
            return [plain, await adapting.await_durable(later, stream.put("c", 3))]

        assert [receipt.level for receipt in asyncio.run(both())] == [first.level] * 2
        assert stream.read() == {"a": 1, "b": 2, "c": 3}


def test_one_store_for_each_path_closed_by_the_last(tmp_path: Path) -> None:
    one, other = (adapting.SharedStore(tmp_path / "store") for _ in range(2))
    third = adapting.SharedStore(os.path.join(tmp_path, ".", "store"))
    assert one.store is other.store is third.store
    for shared in (one, one, other):
        shared.close()
    stream = third.store.run("r").stream("s")
    stream.put("a", 1).wait()
    third.close()
    with pytest.raises(keepstep.Closed):
        stream.put("b", 2)
    with keepstep.open(tmp_path / "store") as mine:
        passed = adapting.SharedStore(mine)
        assert passed.store is mine and not passed.is_own
        passed.close()
        mine.run("r").stream("s").put("b", 2).wait()


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    shared = adapting.SharedStore(tmp_path / "store")
    child = os.fork()
    if child == 0:
        own = adapting.SharedStore(tmp_path / "store")
        own.store.run("r").stream("s").put("b", 2).wait()
        own.close()
        shared.close()
        os._exit(0 if own.store is not shared.store else 1)
    assert os.waitpid(child, 0)[1] == 0
    shared.store.run("r").stream("s").put("a", 1).wait()
    shared.close()
