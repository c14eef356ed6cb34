"""Stand-in: token capture. Its queue drops the newest record when it is full."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any, Protocol

CaptureRecord = dict[str, Any]


class CaptureSink(Protocol):
    def export(self, records: Sequence[CaptureRecord], timeout: float | None = None) -> None: ...


class CaptureExporter:
    def __init__(
        self,
        sink: CaptureSink,
        *,
        max_queue_size: int = 4096,
        max_batch_size: int = 256,
        flush_interval_sec: float = 1.0,
        export_timeout_sec: float = 10.0,
    ) -> None:
        self._sink = sink
        self._max_batch_size = max_batch_size
        self._flush_interval_sec = flush_interval_sec
        self._queue: queue.Queue[CaptureRecord] = queue.Queue(maxsize=max_queue_size)
        self._cond = threading.Condition()
        self._shutdown_event = threading.Event()
        self.dropped = 0
        self._flusher = threading.Thread(target=self._work, daemon=True)
        self._flusher.start()

    def enqueue(self, record: CaptureRecord) -> None:
        with self._cond:
            if self._shutdown_event.is_set() or self._queue.full():
                self.dropped += 1
                return
            self._queue.put_nowait(record)
            self._cond.notify_all()

    def shutdown(self, timeout: float = 5.0) -> None:
        with self._cond:
            self._shutdown_event.set()
            self._cond.notify_all()
        self._flusher.join(timeout)

    def _work(self) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(
                    lambda: self._shutdown_event.is_set() or self._queue.qsize() >= self._max_batch_size,
                    self._flush_interval_sec,
                )
                batch = [self._queue.get_nowait() for _ in range(min(self._queue.qsize(), 256))]
                if not batch and self._shutdown_event.is_set():
                    return
            if batch:
                self._sink.export(batch)
                with self._cond:
                    self._cond.notify_all()
