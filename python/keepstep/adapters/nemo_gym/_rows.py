"""NeMo Gym's rollout files: one finished rollout per line, written from a run and read into one."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keepstep
from keepstep.adapting import FINAL

from ._names import RolloutName


@dataclass(frozen=True)
class Written:
    """What was written to a file."""

    rows: int
    """How many rollouts were written."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many were not written, by reason."""


def write_rollouts(
    run: keepstep.Run, path: str | os.PathLike[str], *, ends: Collection[str] = tuple(sorted(FINAL))
) -> Written:
    """Writes the rollouts of a run as JSON Lines. The file is there completely, or not at all.

    Parameters:
        run: a run that a `RunJournal` or `read_rollouts` made.
        path: the file; an existing one is replaced.
        ends: only rollouts with one of these endings.
    """
    target = Path(path)
    left_out: Counter[str] = Counter()
    rows = 0
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
    ) as file:
        try:
            for view in sorted(run.episodes(), key=_in_order):
                line, why_not = _line(view, ends)
                if line is None:
                    left_out[why_not] += 1
                    continue
                file.write(line + "\n")
                rows += 1
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise
    _sync_folder(target.parent)
    return Written(rows, dict(left_out))


def read_rollouts(path: str | os.PathLike[str], run: keepstep.Run) -> int:
    """Records the rollouts of a file, turn by turn, as a journal would have. Those that the run has already are left out.

    Parameters:
        path: the file.
        run: the run that they become episodes of.

    Returns:
        How many were new.
    """
    new = 0
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as wrong:
                raise keepstep.BadInput(f"{path}, line {number}: is not JSON: {wrong}") from None
            # A row without a name is named after its line.
            named = RolloutName.of(row) or RolloutName(id=f"line-{number}", task=f"line-{number}")
            new += _record(run, named, row, f"{path}, line {number}")
    return new


def _line(view: keepstep.View, ends: Collection[str]) -> tuple[str | None, str]:
    if view.state not in ends:
        return None, view.state
    result = (view.steps[-1].state or {}).get("result") if len(view.steps) else None
    if result is None:
        return None, "no result"
    try:
        return json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":")), ""
    except ValueError:
        return None, "a number that JSON does not have"


def _record(run: keepstep.Run, named: RolloutName, row: dict[str, Any], where: str) -> bool:
    try:
        episode = run.episode(named.task, sample=named.sample, resume="restart").__enter__()
    except keepstep.Ended:
        known = [view for view in run.episodes(task=named.task) if view.sample == named.sample]
        if known and (known[0].steps[-1].state or {}).get("result") == row:
            return False
        raise keepstep.BadInput(
            f"{where}: rollout {named.id} is in run {run.name!r} already, with another result: give another run"
        ) from None
    with episode:
        given = row.get("responses_create_params", {}).get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        count = len(items)
        episode.first(items, state={"items": items, "input_count": count})
        for turn, (said, observed) in enumerate(_turns((row.get("response") or {}).get("output") or []), 1):
            prompt, items = items, [*items, *said, *observed]
            episode.submit(
                prompt=prompt,
                response={"output": said},
                action=[item for item in said if _of(item, "type") == "function_call"],
                observation=observed,
                state={"items": items, "input_count": count, "turns": turn},
            )
        episode.submit(action="verify", reward=row.get("reward"), state={"result": row})
        episode.end("finished", said_by="a rollout file")
    return True


def _turns(output: Iterable[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Pairs of what the model said and what the environment answered."""
    said: list[Any] = []
    observed: list[Any] = []
    for item in output:
        is_models = _of(item, "type") != "function_call_output" and _of(item, "role") in (None, "assistant")
        if is_models and observed:
            yield said, observed
            said, observed = [], []
        (said if is_models else observed).append(item)
    if said or observed:
        yield said, observed


def _of(item: Any, name: str) -> Any:
    # Some environments have other things than items there.
    return item.get(name) if isinstance(item, Mapping) else None


def _in_order(view: keepstep.View) -> tuple[list[tuple[int, str]], int]:
    """Tasks in the order of their numbers: 2 before 10."""
    parts = [
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", view.task) if part
    ]
    return parts, view.sample


def _sync_folder(folder: Path) -> None:
    """The file's name is durable only when its folder is synced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
