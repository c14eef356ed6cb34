"""Groups whose rewards come when all samples are there, and a trainer that resumes where it stopped."""

import sys
from pathlib import Path

import keepstep

SAMPLES = 4


def roll_out(run: keepstep.Run, task: str, iteration: int) -> None:
    """Plays what the group still needs, then rewards the samples by comparing them."""
    group = run.group(task, size=SAMPLES, iteration=iteration)
    lengths: dict[str, int] = {}
    while (episode := group.claim()) is not None:
        with episode:
            while episode.turns < 3:
                episode.step(action="walk", observation="a shelf", reward=None, policy=iteration)
            episode.end("finished")
    for ref in group.refs:
        lengths[ref] = len(run.store.find(ref).steps)
    mean = sum(lengths.values()) / SAMPLES
    group.seal({ref: mean - length for ref, length in lengths.items()}, source="brevity").wait()


def train(run: keepstep.Run, seen: Path) -> None:
    """Takes each sealed group once, also after a restart."""
    after = seen.read_text() if seen.exists() else None
    for group in run.groups(after=after):
        print(f"train on {group.ref}: {group.rewards}")
        seen.write_text(group.cursor)


def main() -> None:
    """Two iterations of two tasks."""
    where = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    with keepstep.open(where) as store:
        run = store.run("training")
        for iteration in range(2):
            for task in ("shop-1", "shop-2"):
                roll_out(run, task, iteration)
            train(run, where / "trainer.cursor")


if __name__ == "__main__":
    main()
