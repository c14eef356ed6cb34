"""The stand-ins of tinker and its cookbook are like the real ones."""

from __future__ import annotations

import pytest
from signatures import differences


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("tinker.types", ["ModelInput", "EncodedTextChunk", "ImageChunk"]),
        ("tinker_cookbook.completers", ["TokensWithLogprobs", "TokenCompleter"]),
        ("tinker_cookbook.exceptions", ["AllTrajectoriesFailedError"]),
        (
            "tinker_cookbook.rl.types",
            [
                "ActionExtra",
                "Env",
                "EnvGroupBuilder",
                "InitialObservationOverflow",
                "RLDataset",
                "RolloutError",
                "STOP_METRIC_PREFIX",
                "StepResult",
                "Trajectory",
                "TrajectoryGroup",
                "Transition",
            ],
        ),
        (
            "tinker_cookbook.rl.rollout_strategy",
            ["FailFast", "MinViableGroup", "RetryOnFailure", "RolloutResult", "RolloutStrategy"],
        ),
        ("tinker_cookbook.rl.rollouts", ["do_single_rollout", "do_group_rollout"]),
        ("tinker_cookbook.capture", ["CaptureExporter", "CaptureSink"]),
    ],
)
def test_the_stand_ins_are_like_the_real_ones(module: str, names: list[str]) -> None:
    assert differences(module, *names) == []
