"""Many episodes at once on one event loop. Nothing here blocks it: waiting for the disk is an `await`."""

import asyncio
import sys

import keepstep

TURNS = 5


async def ask(question: str) -> str:
    """Your model, far away."""
    await asyncio.sleep(0.01)
    return f"{question}? yes"


async def play(job: keepstep.Job) -> str:
    """One episode."""
    async with job.episode() as episode:
        if episode.turns == 0 and not episode.history:
            await episode.first(f"you begin {job.task}")
        while episode.turns < TURNS:
            reply = await episode.call("llm", ask, f"go on {episode.turns}")
            async with episode.turn(response=reply, action="walk") as turn:
                turn.result(observation=f"shelf {turn.index}", reward=1.0)
        episode.end("finished")
    return episode.ref


async def play_all(jobs: list[keepstep.Job]) -> None:
    """All at once."""
    for done in asyncio.as_completed([play(job) for job in jobs]):
        print(await done)


def main() -> None:
    """Plays what remains of the plan."""
    where = sys.argv[1] if len(sys.argv) > 1 else "runs"
    with keepstep.open(where) as store:
        run = store.run("async")
        run.plan([f"walk-{number}" for number in range(64)])
        asyncio.run(play_all(list(run.remaining())))


if __name__ == "__main__":
    main()
