"""Scores episodes that are over, in a process of its own, while the agent runs or after it. Kill it at any time, and run it again."""

import sys
import time

import keepstep


def score(view: keepstep.View) -> float:
    """Your judge: a rubric, a model, a test suite."""
    return len(view.steps) / 10


def main(where: str) -> None:
    store = keepstep.open(where)
    run = store.run("agent", config={"model": "m-7b"})
    while (progress := run.progress()).left or not progress.planned:
        for job in run.unscored():
            run.annotate(job.ref, "score", score(store.find(job.ref)), source="judge").wait()
        time.sleep(0.2)
    print(progress)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
