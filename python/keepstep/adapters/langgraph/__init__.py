"""LangGraph's checkpoints in a keepstep store: `graph = builder.compile(checkpointer=KeepstepSaver("runs"))`.

A thread of a graph is a stream of keepstep. When `put` or `put_writes` returns, the data is durable at the store's level. It
costs only what is new: a list that grew by one message is stored as one message.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import keepstep
from keepstep.adapting import SharedStore, Where

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
except ImportError as _missing:
    raise ImportError(
        "keepstep.adapters.langgraph needs LangGraph's checkpoint package: pip install langgraph-checkpoint"
    ) from _missing

from ._entries import SAVED, WRITTEN, Entry, Rows, Saved, Written
from ._pieces import join, one_piece, split, whole_of
from ._thread import Found, Thread, names_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from typing_extensions import Self

__all__ = ["KeepstepSaver"]

T = TypeVar("T")

# How many threads are kept in memory, the last used ones; others are read again when they are needed.
_THREADS_KEPT = 64
# Worker threads that wait for the disk for an event loop; receipts are awaited on the loop itself.
_WORKERS = 8


class KeepstepSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of LangGraph's threads in a keepstep store.

    Any number of processes and threads may use the same store and the same thread ids: checkpoints are added, and never
    replace one another. Readers see everything that was acknowledged in any process, and at once what this process put.

    Parameters:
        store: the store, or its path. A store that was opened here is closed by `close`, or by leaving the `with`.
        run: the name of the run that the threads belong to.
        serde: how values become bytes. The default is LangGraph's own serializer.
    """

    def __init__(
        self,
        store: Where,
        *,
        run: str = "langgraph",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._shared = SharedStore(store)
        self.store = self._shared.store
        self._threads = _Threads(self.store.run(run))
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="keepstep-langgraph")

    def close(self) -> None:
        """Closes the store, if it was opened here."""
        self._workers.shutdown()
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        # Not in a worker thread: `close` waits for these.
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version: a number; or a text like the other saver's, in a thread that another saver began."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"
        return super().get_next_version(current, channel)

    # Putting.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint. It is durable when this returns."""
        thread, make = self._saving(config, checkpoint, metadata, new_versions)
        thread.add(make)
        return _config(thread.name, _ns(config), checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`, without blocking the event loop."""
        thread, make = self._saving(config, checkpoint, metadata, new_versions)
        await self._add(thread, make)
        return _config(thread.name, _ns(config), checkpoint["id"])

    def _saving(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[Thread, Callable[[int], Entry]]:
        """A function that makes the entry of a checkpoint. All that changed is serialized when this returns."""
        thread, ns, parent = self._threads.of(config), _ns(config), get_checkpoint_id(config)
        saved = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        rows = Rows(checkpoint["channel_values"], self.serde)
        rows.serialize(new_versions)
        versions = dict(checkpoint["channel_versions"])
        rest = one_piece(saved, self.serde)
        said = one_piece(get_checkpoint_metadata(config, metadata), self.serde)

        def make(number: int) -> Entry:
            before = thread.known(ns, parent) if parent and versions.keys() - new_versions.keys() else None
            had = whole_of(before.saved.rest, self.serde)["channel_versions"] if before else {}
            unchanged = {name for name in had if name not in new_versions and had[name] == versions.get(name)}
            values = thread.channels(ns, parent, rows, unchanged)
            return Saved(SAVED, number, ns, checkpoint["id"], parent, rest, said, values)

        return thread, make

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores what a task wrote. It is durable when this returns."""
        thread, make = self._writing(config, writes, task_id, task_path)
        thread.add(make)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`, without blocking the event loop."""
        await self._add(*self._writing(config, writes, task_id, task_path))

    def _writing(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[Thread, Callable[[int], Entry]]:
        ns, id = _ns(config), config["configurable"]["checkpoint_id"]
        rows = [
            (WRITES_IDX_MAP.get(channel, place), channel, split(value, self.serde))
            for place, (channel, value) in enumerate(writes)
        ]
        return self._threads.of(config), lambda number: Written(
            WRITTEN, number, ns, id, task_id, task_path, rows
        )

    async def _add(self, thread: Thread, make: Callable[[int], Entry]) -> None:
        """As `Thread.add`, without blocking the event loop."""
        while True:
            placed = await self._beside(thread.place, make)
            try:
                for receipt in placed.receipts:
                    await receipt
            except keepstep.Fenced as fenced:
                await self._beside(thread.leave, placed.generation, fenced)
                continue
            return thread.arrive(placed)

    async def _beside(self, work: Callable[..., T], *args: Any) -> T:
        self._threads.check_process()
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, *args)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of its thread and namespace."""
        thread = self._threads.of(config)
        thread.refresh()
        found = thread.find(_ns(config), get_checkpoint_id(config))
        return None if found is None else self._tuple(thread.name, found)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`, without blocking the event loop."""
        return await self._beside(self.get_tuple, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of the config's thread, or of all threads without a config."""
        for thread, found in self._newest_first(config, before):
            if limit is not None and limit <= 0:
                return
            if filter and not _fits(whole_of(found.saved.metadata, self.serde), filter):
                continue
            if limit is not None:
                limit -= 1
            yield self._tuple(thread.name, found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`, without blocking the event loop."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (tuple_ := await self._beside(next, found, None)) is not None:
            yield tuple_

    def _newest_first(
        self, config: RunnableConfig | None, before: RunnableConfig | None
    ) -> Iterator[tuple[Thread, Found]]:
        threads = self._threads.all() if config is None else [self._threads.of(config)]
        ns = None if config is None else config["configurable"].get("checkpoint_ns")
        wanted = None if config is None else get_checkpoint_id(config)
        end = None if before is None else get_checkpoint_id(before)
        found = []
        for thread in threads:
            thread.refresh()
            found += [(one.saved.id, thread, one) for one in thread.newest_first(ns)]
        found.sort(key=lambda each: each[0], reverse=True)
        for id, thread, one in found:
            if (not wanted or id == wanted) and (not end or id < end):
                yield thread, one

    def _tuple(self, thread: str, found: Found) -> CheckpointTuple:
        saved, serde = found.saved, self.serde
        checkpoint = whole_of(saved.rest, serde)
        checkpoint["channel_values"] = {name: join(row, serde) for name, row in found.rows().items()}
        return CheckpointTuple(
            config=_config(thread, saved.ns, saved.id),
            checkpoint=checkpoint,
            metadata=whole_of(saved.metadata, serde),
            parent_config=_config(thread, saved.ns, saved.parent) if saved.parent else None,
            pending_writes=_pending(found, serde),
        )

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to channels since they were last stored completely, along the parents of a checkpoint."""
        thread = self._threads.of(config)
        thread.refresh()
        history: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        open_channels = set(channels)
        for ancestor in _ancestors(thread, thread.find(_ns(config), get_checkpoint_id(config))):
            if not open_channels:
                break
            for write in reversed(_pending(ancestor, self.serde, open_channels)):
                history[write[1]]["writes"].insert(0, write)
            stored = {channel.name for channel in ancestor.saved.values} & open_channels
            for name in stored:
                history[name]["seed"] = join(ancestor.entries.row(ancestor.key, name), self.serde)
            open_channels -= stored
        return history

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`, without blocking the event loop."""

        def look() -> Mapping[str, DeltaChannelHistory]:
            return self.get_delta_channel_history(config=config, channels=channels)

        return await self._beside(look)

    # Removing and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Hides a thread. A later `put` begins it again, empty."""
        self._threads.named(thread_id).delete()

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`, without blocking the event loop."""
        await self._beside(self.delete_thread, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hides the checkpoints that these runs of a graph made, in all threads. Reads them all."""
        gone = set(run_ids)
        for thread in self._threads.all() if gone else ():
            thread.refresh()
            thread.remove(
                [
                    found
                    for found in thread.newest_first()
                    if whole_of(found.saved.metadata, self.serde).get("run_id") in gone
                ]
            )

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`, without blocking the event loop."""
        await self._beside(self.delete_for_runs, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints and writes of a thread to another."""
        self._threads.named(source_thread_id).copy_to(self._threads.named(target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`, without blocking the event loop."""
        await self._beside(self.copy_thread, source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Hides all checkpoints of threads (`delete`), or all but the newest of each namespace (`keep_latest`).

        Ancestors that a `DeltaChannel` of these needs are kept too.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"no such strategy: {strategy!r}: give 'keep_latest' or 'delete'")
        for name in thread_ids:
            if strategy == "delete":
                self.delete_thread(name)
                continue
            thread = self._threads.named(name)
            thread.refresh()
            checkpoints = thread.newest_first()
            kept = {
                key for ns in {found.saved.ns for found in checkpoints} for key in self._needed(thread, ns)
            }
            thread.remove([found for found in checkpoints if found.key not in kept])

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`, without blocking the event loop."""
        await self._beside(lambda: self.prune(thread_ids, strategy=strategy))

    def _needed(self, thread: Thread, ns: str) -> Iterator[str]:
        """The newest checkpoint of a namespace, and the ancestors that its channels need."""
        newest = thread.find(ns)
        if newest is None:
            return
        yield newest.key
        deltas = whole_of(newest.saved.metadata, self.serde).get("counters_since_delta_snapshot") or {}
        missing = deltas.keys() - {channel.name for channel in newest.saved.values}
        for ancestor in _ancestors(thread, newest):
            if not missing:
                return
            yield ancestor.key
            missing -= {channel.name for channel in ancestor.saved.values}


class _Threads:
    """The threads that this process works on."""

    def __init__(self, run: keepstep.Run) -> None:
        self._run = run
        self._process = os.getpid()
        self._lock = threading.Lock()
        # One object for each thread, as long as it is used.
        self._in_use: weakref.WeakValueDictionary[str, Thread] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[str, Thread] = OrderedDict()

    def check_process(self) -> None:
        """Refuses a forked child: it would wait for ever for the locks and workers of its parent."""
        if os.getpid() != self._process:
            raise keepstep.Forked("this KeepstepSaver was made before a fork: make another one in the child")

    def of(self, config: RunnableConfig) -> Thread:
        return self.named(config["configurable"]["thread_id"])

    def named(self, name: object) -> Thread:
        self.check_process()
        name = str(name)
        with self._lock:
            thread = self._in_use.get(name)
            if thread is None:
                self._in_use[name] = thread = Thread(self._run, name)
            self._recent[name] = thread
            self._recent.move_to_end(name)
            if len(self._recent) > _THREADS_KEPT:
                self._recent.popitem(last=False)
            return thread

    def all(self) -> Iterator[Thread]:
        return map(self.named, names_of(self._run))


def _ns(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def _fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == value for name, value in wanted.items())


def _pending(
    found: Found, serde: SerializerProtocol, channels: Collection[str] | None = None
) -> list[PendingWrite]:
    """What was written to a checkpoint's channels, or to some of them."""
    return [
        (write.task, write.channel, join(write.row, serde))
        for write in found.writes
        if channels is None or write.channel in channels
    ]


def _ancestors(thread: Thread, found: Found | None) -> Iterator[Found]:
    """The parents of a checkpoint, the nearest first."""
    seen = set()
    while found is not None and found.saved.parent and found.saved.parent not in seen:
        seen.add(found.saved.parent)
        found = thread.find(found.saved.ns, found.saved.parent)
        if found is not None:
            yield found
