"""The live mirror of a task: a JSON line for each durable step, for `tail -F` and `jq`.

It is derived: each line is made from the store, never from the objects of the loop, so that a line that is written again is
the same. At any time the file is a prefix of the complete one. An error here never ends a rollout.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import keepstep
from keepstep.adapting import message_of, warn_caller

# Arrays up to this size are written in full. Of a screenshot only the shape is written, of a page the length.
_ARRAY_MAX = 16
_END_WAIT_MAX_S = 2.0


class Mirror:
    """The file of one attempt, and how far the store was followed for it."""

    def __init__(self, path: Path, store: keepstep.Store, episode: keepstep.Episode) -> None:
        self._path = path
        self._store = store
        self._episode = episode
        self._follow: Iterator[keepstep.Step] | None = None
        self._handle: int | None = None
        # None while a line is being written: after an interruption there (Ctrl-C), no more lines are written.
        self._written: int | None = len(episode.history)
        try:
            self._handle = _replace(path, map(_step_line, episode.history))
        except Exception as why:
            self._give_up(why)

    def catch_up(self) -> None:
        """Writes the lines of the steps that have become durable."""
        if self._handle is None or self._written is None:
            return
        written, self._written = self._written, None
        try:
            for step in self._new_steps(written):
                _write(self._handle, _step_line(step))
                written += 1
            self._written = written
        except Exception as why:
            self._give_up(why)

    def end(self) -> None:
        """Writes how it ended, if it did, and closes the file."""
        if self._handle is None:
            return
        try:
            view = self._ended()
            if view is None:
                pass
            elif self._written != len(view.steps):
                os.close(_replace(self._path, _lines(view)))
            else:
                # A file with an end line has all lines before it, also after a power cut.
                os.fsync(self._handle)
                _write(self._handle, _end_line(view))
        except Exception as why:
            self._give_up(why)
        self._close()

    def _new_steps(self, written: int) -> Iterable[keepstep.Step]:
        if self._store.level == "kill":
            # Steps are seen only after a sync, and nobody waits for that.
            try:
                return self._store.find(self._episode.ref).steps[written:]
            except keepstep.NotFound:
                return []
        if self._follow is None:
            # Not earlier: an attempt without a record is not found.
            self._follow = self._store.find(self._episode.ref).follow()
            for _ in range(written):
                next(self._follow)
        return [next(self._follow)]

    def _ended(self) -> keepstep.View | None:
        """The attempt with its end, if that can be seen yet."""
        waited_s = 0.0
        while True:
            with contextlib.suppress(keepstep.NotFound):
                view = self._store.find(self._episode.ref)
                if view.ending is not None:
                    return view
            if self._store.level != "kill" or waited_s > _END_WAIT_MAX_S:
                return None
            time.sleep(0.02)
            waited_s += 0.02

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _give_up(self, why: Exception) -> None:
        self._close()
        _warn(self._path, why)


def make_whole(path: Path, view: keepstep.View) -> None:
    """Writes the mirror of an attempt again, unless it has its end already."""
    try:
        if not _has_last_line(path, _end_line(view)):
            os.close(_replace(path, _lines(view)))
    except Exception as why:
        _warn(path, why)


def _warn(path: Path, why: Exception) -> None:
    warn_caller(
        f"{path} cannot be written ({type(why).__name__}: {message_of(why)}); the recording continues, and the next call of "
        "webarena.unfinished writes the file again",
        RuntimeWarning,
    )


def _lines(view: keepstep.View) -> Iterator[bytes]:
    yield from map(_step_line, view.steps)
    yield _end_line(view)


def _replace(path: Path, lines: Iterable[bytes]) -> int:
    """Replaces a file by a new one, completely or not at all. Returns its handle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        for line in lines:
            _write(handle, line)
        os.fsync(handle)
        os.replace(made, path)
    except BaseException:
        os.close(handle)
        made.unlink(missing_ok=True)
        raise
    return handle


def _write(handle: int, line: bytes) -> None:
    while line:
        line = line[os.write(handle, line) :]


def _has_last_line(path: Path, line: bytes) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(line) - 1))
            return file.read() in (line, b"\n" + line)
    except FileNotFoundError:
        return False


def _step_line(step: keepstep.Step) -> bytes:
    item = step.value
    if isinstance(item, dict) and "observation" in item:
        named = dict(item)
    else:
        named = {"action": item}
    return _line({"step": step.index, "time": step.time, **named})


def _end_line(view: keepstep.View) -> bytes:
    ending = view.ending
    if ending is None:
        return _line({"end": view.state, "attempt": view.attempt, "score": view.notes.get("score")})
    told = {"end": ending.why, "limit": ending.limit, "error": ending.error, "said_by": ending.said_by}
    return _line({**told, "attempt": view.attempt, "score": view.notes.get("score")})


def _line(told: Mapping[str, Any]) -> bytes:
    text = json.dumps({name: _plain(value) for name, value in told.items()}, ensure_ascii=False)
    # Half of a surrogate pair is not UTF-8, but its escape is JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(held) for held in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        if value.size <= _ARRAY_MAX:
            return _plain(value.tolist())
        return {"dtype": str(value.dtype), "shape": list(value.shape)}
    if hasattr(value, "url") and hasattr(value, "content"):
        return {"url": value.url, "characters": len(value.content)}
    return str(value)
