"""One line around a Gymnasium environment. Kill it and run it again: the interrupted episode resumes after its last step."""

import sys
from typing import Any

import gymnasium
import keepstep

Lake = gymnasium.Env[Any, Any]


def get_state(env: Lake) -> Any:
    """The state of FrozenLake: one number."""
    return int(env.unwrapped.s)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def set_state(env: Lake, state: Any) -> None:
    """Sets the state."""
    env.unwrapped.s = state  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def main() -> None:
    """Walks to the goal, three times."""
    where = sys.argv[1] if len(sys.argv) > 1 else "runs"
    run = keepstep.open(where).run("frozen-lake")
    way = (1, 1, 2, 1, 2, 2)
    for sample in range(3):
        lake: Lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
        env = keepstep.record(lake, run, task="lake-4x4", sample=sample, state=(get_state, set_state))
        try:
            env.reset(seed=7)
        except keepstep.Ended:
            continue  # an earlier process finished it
        for action in way[keepstep.current(env).turns :]:
            env.step(action)
        print(f"{keepstep.current(env).ref} is {keepstep.current(env).ended}")
        env.close()


if __name__ == "__main__":
    main()
