"""The captured tokens of a rollout are a stream: entries by model call, frozen once, then retired.

What must stay true: every acknowledged entry is in the snapshot; every later snapshot shows a loss that was marked, and no
snapshot is retired that does not show it.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keepstep
from keepstep.adapting import SharedStore, StreamReader, Where, await_durable

from ._entries import packed, size_of, unpacked

# After _entries, which says what to install if NeMo Gym is missing.
from nemo_gym.token_id_capture.lineage import IncrementalLineageStore  # isort: skip
from nemo_gym.token_id_capture.protocols import LineageResolution, TokenCaptureSnapshot  # isort: skip
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry  # isort: skip

# A sink is never told that a rollout is over: it keeps this many open, the newest, and opens others again.
_OPEN_MAX = 4096
# Packing and encoding this many numbers takes a millisecond: too long for the thread of the event loop.
_LARGE = 50_000

_CALL, _INTENT = "call/", "intent/"


class _Client:
    """A run of a store, in which each rollout has its streams."""

    def __init__(
        self, store: Where, *, run: str = "token-capture", level: keepstep.Level | None = None
    ) -> None:
        self._shared = SharedStore(store, level)
        self._run = self._shared.store.run(run)

    def _tokens(self, rollout_id: str) -> keepstep.Stream:
        return self._run.stream(f"tokens/{rollout_id}")

    def _losses(self, rollout_id: str, generation: int) -> keepstep.Stream:
        """Marks of lost calls. They may come after the freeze, so they have streams of their own.

        A closed generation with marks is followed by the next one. A closed generation without marks means that the
        rollout is retired. So nothing comes after the first empty one.
        """
        return self._run.stream(f"losses/{rollout_id}/{generation}")

    def _retired(self, rollout_id: str) -> keepstep.Stream:
        return self._run.stream(f"retired/{rollout_id}")

    async def close(self) -> None:
        """Releases the store. Nothing is left to write: each entry was durable before `put` returned."""
        await asyncio.to_thread(self._shared.close)


class KeepstepTokenSink(_Client):
    """NeMo Gym's `TokenSink`: an entry is durable, and seen by every process, when `put` returns.

    Parameters:
        store: a directory, or an open store.
        run: the run in which the captures are kept.
        level: what an entry must survive. The default is the highest level that the storage supports.
    """

    def __init__(
        self, store: Where, *, run: str = "token-capture", level: keepstep.Level | None = None
    ) -> None:
        super().__init__(store, run=run, level=level)
        self._open: OrderedDict[str, keepstep.Stream] = OrderedDict()

    async def put(self, entry: TokenEntry) -> None:
        """Adds an entry. Repeating one is fine. Another one under its ids is `BadInput`, one after a freeze is `Fenced`."""
        rollout_id, id = entry.rollout_id, _CALL + entry.model_call_id
        stream = self._known(rollout_id)
        if stream is not None and size_of(entry) < _LARGE:
            # On this thread: handing it to another would take more of the loop's time than this does.
            fields = packed(entry)
            try:
                await stream.put(id, fields)
            except keepstep.Busy:
                await await_durable(stream.put, id, fields)
            return
        fields = await asyncio.to_thread(packed, entry)
        if stream is None:
            await self._claim(rollout_id, id, fields)
        else:
            await await_durable(asyncio.to_thread, stream.put, id, fields)

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        """Records the intent of a call: a rollout with an intent that has no entry is incomplete."""
        await self._keep(rollout_id, _INTENT + model_call_id, None)

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        """Marks that a call was lost, before the freeze or after it. Raises `Ended` if the rollout was retired."""
        # Each mark counts, also a second one for the same call: it changes the version.
        mark = uuid.uuid4().hex
        generation = 0
        while True:
            losses = self._losses(rollout_id, generation)
            try:
                await await_durable(asyncio.to_thread, losses.put, mark, model_call_id)
                return
            except keepstep.Fenced:
                if not await asyncio.to_thread(losses.freeze):
                    raise keepstep.Ended(f"the token capture of rollout {rollout_id} is retired") from None
            generation += 1

    async def inherit(self, earlier: str, later: str, *, response_ids: Collection[str] | None = None) -> int:
        """Copies the entries of an earlier attempt to a later one. The earlier one is frozen, and gets no more entries.

        Parameters:
            earlier: the rollout id of the attempt that was interrupted.
            later: the rollout id of the attempt that resumes it.
            response_ids: only entries of these responses, and those that name none.

        Returns:
            How many entries were inherited.
        """
        try:
            frozen = await asyncio.to_thread(self._tokens(earlier).freeze)
        except keepstep.Ended:
            # It was retired. Calls that continue it are unresolved, and their builder says so.
            return 0
        kept = {
            id: {**fields, "rollout_id": later}
            for id, fields in frozen.items()
            if id.startswith(_CALL)
            and (
                response_ids is None or fields["response_id"] is None or fields["response_id"] in response_ids
            )
        }
        await asyncio.gather(*(self._keep(later, id, fields) for id, fields in kept.items()))
        return len(kept)

    async def _keep(self, rollout_id: str, id: str, value: Any) -> None:
        if (stream := self._known(rollout_id)) is None:
            await self._claim(rollout_id, id, value)
        else:
            await await_durable(stream.put, id, value)

    async def _claim(self, rollout_id: str, id: str, value: Any) -> None:
        """The first entry of a stream claims it, which waits for the disk."""
        stream = self._tokens(rollout_id)
        await await_durable(asyncio.to_thread, stream.put, id, value)
        self._remember(rollout_id, stream)

    def _known(self, rollout_id: str) -> keepstep.Stream | None:
        stream = self._open.get(rollout_id)
        if stream is not None:
            self._open.move_to_end(rollout_id)
        return stream

    def _remember(self, rollout_id: str, stream: keepstep.Stream) -> None:
        self._open[rollout_id] = stream
        while len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)

    async def close(self) -> None:
        """Releases the store. Nothing is left to write: each entry was durable before `put` returned."""
        self._open.clear()
        await super().close()


class KeepstepTokenSource(_Client):
    """NeMo Gym's `TokenSource`: freezes the entries of a rollout, and retires exactly what was frozen."""

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """Returns the entries; no more can be added. Raises `Ended` if it was retired, `BadInput` on a conflict."""
        return await asyncio.to_thread(self._freeze, rollout_id)

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Hides the rollout if nothing changed since that snapshot. Repeating it returns the same."""
        return await asyncio.to_thread(self._drop, rollout_id, snapshot_id, version)

    def _freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        frozen = self._tokens(rollout_id).freeze()
        _, marks = self._frontier(rollout_id)
        calls = {id.removeprefix(_CALL): value for id, value in frozen.items() if id.startswith(_CALL)}
        intents = {id.removeprefix(_INTENT) for id in frozen if id.startswith(_INTENT)}
        return TokenCaptureSnapshot(
            rollout_id=rollout_id,
            entries=tuple(map(unpacked, calls.values())),
            incomplete=marks > 0 or not intents <= calls.keys(),
            snapshot_id=_snapshot_id(rollout_id, frozen),
            version=_version(frozen, marks),
        )

    def _frontier(self, rollout_id: str) -> tuple[int, int]:
        """The first generation without marks, and how many marks there are before it."""
        generation = marks = 0
        while found := len(self._losses(rollout_id, generation).read()):
            generation, marks = generation + 1, marks + found
        return generation, marks

    def _drop(self, rollout_id: str, snapshot_id: str, version: int) -> bool:
        tokens, retired = self._tokens(rollout_id), self._retired(rollout_id)
        meant = {"snapshot_id": snapshot_id, "version": version}
        if (before := retired.read()) and before != {"snapshot": meant}:
            return False
        if not before:
            # Only a snapshot that was really taken is closed: reading alone closes nothing.
            if _snapshot_id(rollout_id, tokens.read()) != snapshot_id:
                return False
            if not self._close_losses(rollout_id, tokens.freeze(), version):
                return False
            retired.put("snapshot", meant).wait()
        tokens.drop()
        return True

    def _close_losses(self, rollout_id: str, frozen: Mapping[str, Any], version: int) -> bool:
        """Refuses further marks, if the version includes all that there are."""
        frontier, marks = self._frontier(rollout_id)
        if _version(frozen, marks) != version:
            return False
        marks = sum(len(self._losses(rollout_id, generation).freeze()) for generation in range(frontier))
        return _version(frozen, marks) == version and not self._losses(rollout_id, frontier).freeze()


class KeepstepLineage(_Client, IncrementalLineageStore):
    """NeMo Gym's `LineageResolver`: finds the call that a request continues, by its own matcher, among the entries of sinks."""

    def __init__(
        self,
        store: Where,
        *,
        run: str = "token-capture",
        level: keepstep.Level | None = None,
        max_cached_rollouts: int = 65536,
        max_cached_tokens: int = 8_000_000,
    ) -> None:
        _Client.__init__(self, store, run=run, level=level)
        IncrementalLineageStore.__init__(
            self, max_cached_rollouts=max_cached_rollouts, max_cached_tokens=max_cached_tokens
        )
        self._read = _ReadCalls()

    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        """The call that the request continues; unresolved unless exactly one is proven."""
        try:
            return await super().resolve(rollout_id, request_items)
        except keepstep.BadInput:
            # One call with several payloads: none of them is a parent.
            return LineageResolution(ParentResolutionStatus.UNRESOLVED, reason="conflict")

    def is_process_shared(self) -> bool:
        """True: every process sees the entries of all."""
        return True

    async def close(self) -> None:
        """Releases the store."""
        await IncrementalLineageStore.close(self)
        await _Client.close(self)

    def _fetch_new_entries(self, rollout_id: str, cursor: Any) -> tuple[list[tuple[TokenEntry, Any]], Any]:
        calls = self._read.of(rollout_id, self._tokens)
        # Entries that another thread was given just now are new for this one too.
        new, cursor = calls.since(cursor)
        return [(unpacked(value), id) for id, value in new.items()], cursor

    def _load_entry(self, rollout_id: str, ref: Any) -> TokenEntry:
        return unpacked(self._read.of(rollout_id, self._tokens).value(ref))


class _Calls:
    """The calls of one rollout, in the order in which they were seen. A cursor is a place in that order."""

    def __init__(self, stream: keepstep.Stream) -> None:
        self._stream = stream
        self._reader = StreamReader(stream)
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._ids: list[str] = []
        # Another object each time: cursors of before are told from those of now.
        self._begun = object()

    def since(self, cursor: tuple[object, int] | None) -> tuple[Mapping[str, Any], tuple[object, int]]:
        """The calls that came after a cursor, and the next cursor."""
        with self._lock:
            try:
                news = self._reader.look()
            except keepstep.KeepstepError:
                self._begin()
                raise
            if news.is_from_start:
                self._begin()
            self._ids += (id for id in news.entries if id.startswith(_CALL))
            begun, first = cursor or (self._begun, 0)
            if begun is not self._begun:
                raise IncrementalLineageStore.CursorReset
            ids, after = self._ids[first:], (self._begun, len(self._ids))
        values = news.entries if all(id in news.entries for id in ids) else self._stream.read()
        # One that is gone by now begins the next look from the start.
        return {id: values[id] for id in ids if id in values}, after

    def value(self, id: str) -> Any:
        """The value of a call."""
        return self._reader.value(id)


class _ReadCalls:
    """What was read of rollouts: of those that were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[str, _Calls] = OrderedDict()

    def of(self, rollout_id: str, open: Callable[[str], keepstep.Stream]) -> _Calls:
        with self._lock:
            calls = self._of.pop(rollout_id, None) or _Calls(open(rollout_id))
            self._of[rollout_id] = calls
            if len(self._of) > _OPEN_MAX:
                self._of.popitem(last=False)
            return calls


def _snapshot_id(rollout_id: str, entries: Mapping[str, Any]) -> str:
    """Names what was frozen. An entry never changes, so its id is enough."""
    named = hashlib.sha256(rollout_id.encode())
    for id in sorted(entries):
        encoded = id.encode()
        named.update(len(encoded).to_bytes(4, "big") + encoded)
    return named.hexdigest()[:32]


def _version(entries: Mapping[str, Any], marks: int) -> int:
    return 1 + len(entries) + marks
