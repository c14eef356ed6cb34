"""Rolls a toy group out with the real cookbook, in a process that kills itself at the n-th thing that happens.

usage: rollouts_to_kill.py STORE TASK KIND KILL_AT SEED      KIND: restore, replay or restart; KILL_AT 0: not at all
"""

from __future__ import annotations

import asyncio
import random
import sys

import keepstep
import tinker_toys as toys
from keepstep.adapters.tinker import RecordedBuilder, RecordedStrategy, install
from tinker_cookbook.rl import rollouts
from tinker_cookbook.rl.rollout_strategy import RetryOnFailure


def roll_out(store: str, task: str, kind: str, kill_at: int, seed: int) -> None:
    """Members fail at random turns, too."""
    dice = random.Random(seed)
    toys.TROUBLE = toys.Trouble(kill_at=kill_at or None)
    places = [(member, turn) for member in range(toys.SIZE) for turn in range(toys.turns_of(member))]
    toys.TROUBLE.env_fails = set(dice.sample(places, 3))
    toys.TROUBLE.policy_fails = set(dice.sample(places, 3))
    talks = toys.Talks(is_restorable=kind == "restore", asks_env=kind != "restart")
    install()
    with keepstep.open(store) as opened:
        environment = "replay" if kind == "replay" else None
        builder = RecordedBuilder(talks, opened.run("training"), task, environment=environment)
        strategy = RecordedStrategy(RetryOnFailure(max_retries=100))
        group = asyncio.run(rollouts.do_group_rollout(builder, toys.Model(), strategy))
        toys.check_group(group)


if __name__ == "__main__":
    roll_out(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
