"""A loop of your own. Kill it at any moment and run it again: it resumes in the turn that it was in."""

import sys
from typing import TypedDict

import keepstep

TURNS_MAX = 30


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


def ask(messages: list[Message]) -> str:
    """Your model. This one guesses a number, and halves what is left."""
    low, high = 1, 1000
    for guess, answer in zip(messages[::2], messages[1::2], strict=True):
        if answer["content"] == "higher":
            low = int(guess["content"]) + 1
        else:
            high = int(guess["content"]) - 1
    return str((low + high) // 2)


def act(secret: int, guess: int) -> tuple[str, float, bool]:
    """Your environment: observation, reward, done."""
    if guess == secret:
        return "right", 1.0, True
    return ("higher" if guess < secret else "lower"), 0.0, False


def play(episode: keepstep.Episode, secret: int) -> None:
    """One episode, from its beginning or from its last durable step."""
    messages: list[Message] = episode.state("messages", [])
    done: bool = episode.state("done", False)
    while not done and episode.turns < TURNS_MAX:
        reply = episode.call("llm", ask, messages)
        with episode.turn(prompt=messages, response=reply, action=int(reply), policy="halving") as turn:
            observation, reward, done = act(secret, turn.said["action"])
            messages = [
                *messages,
                {"role": "assistant", "content": reply},
                {"role": "user", "content": observation},
            ]
            turn.result(
                observation=observation,
                reward=reward,
                reward_terms={"goal": reward},
                state={"messages": messages, "done": done},
            )
    if done:
        episode.end("finished")
    else:
        episode.end("truncated", limit="turns")


def main() -> None:
    """Plays what remains of the plan."""
    where = sys.argv[1] if len(sys.argv) > 1 else "runs"
    with keepstep.open(where) as store:
        run = store.run("guess", config={"turns_max": TURNS_MAX})
        run.plan([f"secret-{secret}" for secret in (7, 73, 730)])
        for job in run.remaining():
            with job.episode() as episode:
                play(episode, secret=int(job.task.removeprefix("secret-")))
                print(f"{episode.ref}: {episode.ended} after {episode.turns} turns")


if __name__ == "__main__":
    main()
