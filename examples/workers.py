"""A plan that several processes share. Kill one, or all, and run it again: the rest of the plan is done."""

import multiprocessing
import sys

import keepstep


def work(run: keepstep.Run, worker: int) -> None:
    """Runs jobs until none is left. The run was sent to this process, where it opened its store again."""
    for job in run.remaining():
        with job.episode() as episode:
            while episode.turns < 10:
                episode.step(action="walk", observation=f"shelf {episode.turns}", reward=0.1)
            episode.end("finished")
            print(f"worker {worker}: {job.ref} ({job.why})", flush=True)


def main() -> None:
    """Plans, and starts the workers."""
    where = sys.argv[1] if len(sys.argv) > 1 else "runs"
    run = keepstep.open(where).run("evaluation", config={"model": "m-7b"})
    run.plan([f"shop-{number}" for number in range(8)], samples=4)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(run, worker)) for worker in range(3)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()


if __name__ == "__main__":
    main()
