"""Token capture of the cookbook, recorded in a stream: acknowledged records are durable, and nothing is dropped."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from tinker_cookbook.capture import CaptureExporter

from keepstep import DiskFull, Forked, Run
from keepstep.adapting import put_waiting

_PAUSE_S = 0.05


class StreamSink:
    """A `CaptureSink` that puts each record into a stream of a run. They are durable when `export` returns.

    While the disk is full it waits, whatever the timeout: the cookbook drops a batch that a sink refuses.
    """

    def __init__(self, run: Run, stream: str = "capture") -> None:
        self._stream = run.stream(stream)
        # Many processes share a stream: each has ids of its own, in the order of its records.
        self._nonce = uuid.uuid4().hex[:12]
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def export(self, records: Sequence[dict[str, Any]], timeout: float | None = None) -> None:
        """Keeps a batch of records."""
        if os.getpid() != self._process:
            # The lock may have been held by a thread of the parent.
            raise Forked("this sink was made before a fork: make another one in the child")
        with self._lock:
            receipts = [self._put(f"{self._nonce}-{next(self._numbers):09}", record) for record in records]
        for receipt in receipts:
            receipt.wait()

    def _put(self, id: str, record: dict[str, Any]) -> Any:
        while True:
            try:
                return put_waiting(self._stream.put, id, record)
            except DiskFull:
                time.sleep(_PAUSE_S)


class KeepingExporter(CaptureExporter):
    """The cookbook's exporter, but a full queue makes the caller wait instead of dropping the newest record.

    Records after `shutdown` are recorded too, at once.
    """

    def enqueue(self, record: dict[str, Any]) -> None:
        """Queues a record for the sink."""
        with self._cond:
            self._cond.wait_for(lambda: not self._queue.full() or self._shutdown_event.is_set())
            if not self._shutdown_event.is_set():
                super().enqueue(record)
                return
        self._sink.export([record])
