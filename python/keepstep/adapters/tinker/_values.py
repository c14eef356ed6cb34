"""How the cookbook's values are recorded and read back: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import STOP_METRIC_PREFIX, InitialObservationOverflow, StepResult

from keepstep import Lost, Repr, Step, Tokens, Why

Ids = npt.NDArray[np.integer[Any]]

# The names of the cookbook's limits in an ending. All other reasons come from the environment itself.
_LIMITS = {
    "max_turns": "turns",
    "max_tokens": "tokens",
    "max_sampled_tokens": "sampled tokens",
    "max_tool_calls": "tool calls",
    "context_overflow": "context",
    "rollout_timeout": "time",
}


class NotRecorded(Exception):
    """The record lacks what is needed to resume."""


def ending_of(stop_reason: str | None) -> tuple[Why, str | None]:
    """How a rollout ended that stopped for this reason, and by which limit."""
    limit = None if stop_reason is None else _LIMITS.get(str(stop_reason))
    return ("finished", None) if limit is None else ("truncated", limit)


def chunks_of(model_input: tinker.ModelInput) -> list[dict[str, Any]]:
    """A prompt as plain data: a copy, so that later changes by the environment are not in it."""
    return [_chunk(chunk) for chunk in model_input.chunks]


def _chunk(chunk: Any) -> dict[str, Any]:
    if isinstance(chunk, tinker.EncodedTextChunk):
        return {"type": "encoded_text", "tokens": _ids(chunk.tokens)}
    # By attribute: pydantic's own dump would make text of an image's bytes.
    return {name: getattr(chunk, name) for name in type(chunk).model_fields}


def _ids(tokens: Any) -> Ids:
    """As an array: a long prompt is encoded at once, not token by token while the event loop waits."""
    ids: Ids = np.array(tokens, dtype=np.int64)
    small = ids.astype(np.int32)
    return small if np.array_equal(ids, small) else ids


def model_input_of(chunks: Any) -> tinker.ModelInput:
    """The prompt that was recorded as these chunks."""
    if not isinstance(chunks, list):
        raise NotRecorded("an observation was not recorded")
    return tinker.ModelInput.model_validate({"chunks": [_plain(chunk) for chunk in chunks]})


def _plain(chunk: Any) -> dict[str, Any]:
    if not isinstance(chunk, Mapping):
        raise NotRecorded("an observation was not recorded whole")
    return {**chunk, "tokens": _ints(chunk["tokens"])} if "tokens" in chunk else dict(chunk)


def _ints(values: Any) -> list[int]:
    return [int(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def text_tokens_of(chunks: list[dict[str, Any]]) -> Ids | None:
    """The tokens of a prompt of text; None if there are images in it."""
    if any(chunk["type"] != "encoded_text" for chunk in chunks):
        return None
    if len(chunks) == 1:
        only: Ids = chunks[0]["tokens"]
        return only
    return np.concatenate([_ids([]), *(chunk["tokens"] for chunk in chunks)])


class Words:
    """The texts of a growing prompt: each token is decoded once, and the list of texts only grows."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._known = _ids([])
        self._parts: list[str] = []

    def prompt(self, tokens: Ids) -> list[str]:
        """The prompt in parts, each what was new in a turn."""
        known = len(self._known)
        if not np.array_equal(tokens[:known], self._known):
            self._parts, known = [], 0
        if len(tokens) > known:
            self._parts = [*self._parts, self._decode(tokens[known:].tolist())]
        self._known = tokens
        return self._parts

    def response(self, tokens: list[int]) -> str:
        """What was sampled."""
        return self._decode(list(tokens))


def action_of(tokens: list[int], stop_reason: str | None) -> dict[str, Any]:
    """The action of a step, as it is recorded."""
    said: dict[str, Any] = {"tokens": list(tokens)}
    if stop_reason is not None:
        said["stop_reason"] = stop_reason
    return said


def sampled(said: Mapping[str, Any] | Step) -> TokensWithLogprobs:
    """What the policy answered in a recorded turn."""
    fields = said if isinstance(said, Mapping) else {"tokens": said.tokens, "action": said.action}
    tokens, action = fields.get("tokens"), fields.get("action")
    if tokens is None or not isinstance(action, Mapping):
        raise NotRecorded("the tokens of a turn were not recorded")
    # In a step it is a named tuple, in a pending turn plain data.
    known = tokens._asdict() if isinstance(tokens, Tokens) else tokens
    ids, logprobs = known.get("ids"), known.get("logprobs")
    if ids is None:
        raise NotRecorded("the tokens of a turn were not recorded")
    kept = None if logprobs is None else [float(value) for value in logprobs]
    return TokensWithLogprobs(_ints(ids), kept, action.get("stop_reason", "stop"))


def result_fields(result: StepResult) -> dict[str, Any]:
    """The result of an action, as fields of a step. Metrics keep their types."""
    return {
        "observation": chunks_of(result.next_observation),
        "reward": result.reward,
        "info": {
            "episode_done": result.episode_done,
            "stop_condition": list(result.next_stop_condition),
            "metrics": dict(result.metrics),
            "logs": dict(result.logs),
        },
    }


def overflow_fields(initial: InitialObservationOverflow) -> dict[str, Any]:
    """A first prompt that was too long, as the step that the cookbook makes of it."""
    return {
        "action": action_of([], None),
        "reward": initial.reward,
        "info": {
            "initial_overflow": True,
            "episode_done": True,
            "metrics": dict(initial.metrics),
            "logs": dict(initial.logs),
        },
    }


def info_of(step: Step) -> Mapping[str, Any]:
    """The recorded info of a step."""
    if not isinstance(step.info, Mapping):
        raise NotRecorded(f"the info of step {step.index} was not recorded")
    return step.info


def step_result_of(step: Step) -> StepResult:
    """The result that was recorded as this step."""
    info = info_of(step)
    if step.reward is None:
        raise NotRecorded(f"the reward of step {step.index} was not recorded")
    return StepResult(
        reward=step.reward,
        episode_done=bool(info["episode_done"]),
        next_observation=model_input_of(step.observation),
        next_stop_condition=list(info["stop_condition"]),
        metrics=dict(info["metrics"]),
        logs=dict(info["logs"]),
    )


def overflow_of(step: Step) -> InitialObservationOverflow:
    """The overflow that was recorded as this step."""
    info = info_of(step)
    return InitialObservationOverflow(
        reward=0.0 if step.reward is None else step.reward,
        metrics=dict(info["metrics"]),
        logs=dict(info["logs"]),
    )


def with_stop(metrics: Mapping[str, float | int], stop_reason: str | None) -> dict[str, float | int]:
    """The metrics of a last transition, as the cookbook marks it: one reason at most."""
    kept = {name: value for name, value in metrics.items() if not name.startswith(STOP_METRIC_PREFIX)}
    return kept if stop_reason is None else {**kept, f"{STOP_METRIC_PREFIX}{stop_reason}": 1.0}


def is_whole(value: Any) -> bool:
    """False if a part of a recorded value is only a `repr`, or lost: nothing can be restored from that."""
    if isinstance(value, (Repr, Lost)):
        return False
    if isinstance(value, Mapping):
        return all(is_whole(key) and is_whole(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(is_whole, value))
    return True
