"""The recorded turns of an earlier attempt: the loop gets them again, one by one, until there are no more.

So the cookbook's own loop counts the turns and tokens, and its trajectory has the inherited transitions, with no code of
keepstep in the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tinker
from tinker_cookbook.completers import StopCondition, TokensWithLogprobs
from tinker_cookbook.rl.types import InitialObservationOverflow, StepResult

from keepstep import Step, View

from ._values import (
    NotRecorded,
    info_of,
    model_input_of,
    overflow_of,
    sampled,
    step_result_of,
    with_stop,
)

# Notes that say how the cookbook's loop saw the end of a rollout, and what its group made of it.
ENDING_NOTE = "rollout"
GROUP_NOTE = "group"


class Playback:
    """The recorded turns, read once."""

    def __init__(self, steps: Iterable[Step], pending: Mapping[str, Any] | None = None) -> None:
        """Raises NotRecorded if the record lacks something."""
        self.steps = list(steps)
        if not self.steps:
            raise NotRecorded("nothing was recorded")
        first, rest = self.steps[0], self.steps[1:]
        self.overflow: InitialObservationOverflow | None = None
        self.initial: tuple[tinker.ModelInput, StopCondition] | None = None
        if first.kind != "FIRST":
            self.overflow, rest = overflow_of(first), []
        else:
            self.initial = (model_input_of(first.observation), list(info_of(first)["stop_condition"]))
        self.answers: list[TokensWithLogprobs] = [sampled(step) for step in rest]
        self.results: list[StepResult] = [step_result_of(step) for step in rest]
        self.injected = [info_of(step).get("injected") for step in rest]
        if pending is not None:
            self.answers.append(sampled(pending))
        # True if the loop must stop after the recorded turns.
        self.is_final = False
        self.ending: Mapping[str, Any] = {}

    @classmethod
    def of_final(cls, view: View) -> Playback:
        """The whole of a rollout that is over, ended as it was."""
        ending = view.notes.get(ENDING_NOTE)
        if not isinstance(ending, Mapping):
            raise NotRecorded("how the loop ended was not noted")
        # The loop never got a step that was recorded while it was being cancelled.
        turns = int(ending["transitions"])
        playback = cls(step for step in view.steps[: 1 + turns] if step.error is None)
        playback.is_final, playback.ending = True, ending
        return playback

    @property
    def turns(self) -> int:
        """How many turns have their result."""
        return len(self.results)

    def begin(self) -> tuple[tinker.ModelInput, StopCondition] | InitialObservationOverflow:
        """What the loop gets first."""
        if self.overflow is not None:
            return self.overflow
        assert self.initial is not None
        if self.is_final and not self.results:
            # The loop was stopped before its first turn: it ends at once again.
            return InitialObservationOverflow(0.0, with_stop({}, self.ending["stop_reason"]))
        return self.initial

    def result(self, turn: int) -> StepResult:
        """The result of a turn. In a rollout that is over, the last one says so, whatever stopped it."""
        result = self.results[turn]
        if self.is_final and turn == self.turns - 1:
            result.episode_done = True
            result.metrics = with_stop(result.metrics, self.ending["stop_reason"])
        return result

    @property
    def final_observation(self) -> tinker.ModelInput:
        """What the environment showed last."""
        if self.results:
            return self.results[-1].next_observation
        return tinker.ModelInput.empty() if self.initial is None else self.initial[0]
