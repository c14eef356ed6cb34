"""An agent with tools on an SDK, many rollouts at a time over a plan. Kill it whenever you like, and run it again."""

import asyncio
import json
import os
import sys
from typing import Any

import keepstep
import openai
from openai.types.chat import ChatCompletion

TASKS, SAMPLES, CONCURRENCY, TURNS_MAX = 64, 4, 32, 8
TOOLS: list[Any] = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


async def use_tool(client: openai.AsyncOpenAI, episode: keepstep.Episode, tool_call: Any) -> dict[str, str]:
    async def look_up(shelf: int) -> str:
        """A tool: anything that takes a while, may fail, and should not be called twice for the same answer."""
        answer: Any = await client.get(f"/shelves/{shelf}", cast_to=object)
        return str(answer["found"])

    shelf = json.loads(tool_call.function.arguments)["shelf"]
    # The key tells apart calls that run at the same time, in whatever order they end.
    found = await episode.call("look_up", look_up, shelf, key=tool_call.id)
    return {"role": "tool", "tool_call_id": tool_call.id, "content": found}


async def rollout(client: openai.AsyncOpenAI, job: keepstep.Job) -> None:
    # If a tool fails, the model's answer must not be lost: on_error="keep" keeps it for the next attempt.
    async with job.episode(on_error="keep") as episode:
        messages = episode.state("messages") or [
            {"role": "user", "content": f"{job.task}, sample {job.sample}"}
        ]
        done = episode.state("done", False)
        while not done and episode.turns < TURNS_MAX:
            reply = await episode.call(
                "chat",
                client.chat.completions.create,
                model="m-7b",
                messages=messages,
                tools=TOOLS,
                returns=ChatCompletion,  # the same type when it is asked and when it is resumed
            )
            said = reply.choices[0].message
            async with episode.turn(prompt=messages, response=said.model_dump(exclude_none=True)) as turn:
                tool_calls = said.tool_calls or []
                results = await asyncio.gather(*(use_tool(client, episode, it) for it in tool_calls))
                messages = [*messages, turn.said["response"], *results]
                done = not results
                turn.result(observation=results, state={"messages": messages, "done": done})
        if done:
            episode.end("finished")
        else:
            episode.end("truncated", limit="turns")


async def work(client: openai.AsyncOpenAI, jobs: keepstep.Jobs) -> None:
    async for job in jobs:
        try:
            await rollout(client, job)
        except Exception as error:
            # It is recorded as errored, and yielded again until it failed three times in a row without getting on.
            print(f"{job.ref}: {type(error).__name__}: {error}", file=sys.stderr)


async def tell(run: keepstep.Run) -> None:
    while True:
        # This reads the whole plan: so only now and then, and in a thread.
        progress = await asyncio.to_thread(run.progress)
        print(f"\r{progress.done + progress.unscored} of {progress.planned}", end="", flush=True)
        await asyncio.sleep(1)


async def main(where: str, server: str) -> None:
    store = keepstep.open(where)
    run = store.run("agent", config={"model": "m-7b"})
    run.plan([f"task-{number}" for number in range(TASKS)], samples=SAMPLES, needs=["score"])
    # The SDK waits and tries again: a short outage must not cost an attempt.
    async with openai.AsyncOpenAI(base_url=server, api_key="none", max_retries=4) as client:
        telling, given = asyncio.create_task(tell(run)), True
        while given:  # episodes that failed while the last jobs ran are yielded again
            jobs = run.remaining()
            await asyncio.gather(*(work(client, jobs) for _ in range(CONCURRENCY)))
            given = jobs.given > 0
        telling.cancel()
    print(f"\n{run.progress()}")
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ["OPENAI_BASE_URL"]))
