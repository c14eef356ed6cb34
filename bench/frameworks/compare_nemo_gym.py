"""Measures NeMo Gym's own store of captured tokens as `compare_kill.py` measures the others.

usage: python bench/frameworks/compare_nemo_gym.py nemo-gym [--dir DIR] [--repeat N] [--think-ms N]

Needs nemo-gym (`nemo_gym.token_id_capture` of it), pydantic and orjson. NeMo Gym dispatches a rollout
that wrote no row again, from its first turn; so does this.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path

from compare_kill import TURNS, Toy, main
from nemo_gym.token_id_capture import TokenCaptureStore, TokenEntry


class NemoGym:
    """Its file store, an entry for each answer of the model. A rollout that was cut off is a new attempt."""

    def __init__(self, store: Path) -> None:
        self.captures = TokenCaptureStore(store)

    def run(self, name: str, toy: Toy) -> None:
        rollout = f"{name}-a1" if self.captures.path_for(name).exists() else name
        said, seen = ([tokens(text) for text in texts] for texts in (toy.answers, toy.observations))
        prompt: list[int] = []
        for turn in range(TURNS):
            reply = toy.ask(turn)
            self.captures.append(
                TokenEntry(
                    rollout_id=rollout,
                    model_call_id=f"call-{turn}",
                    model="toy",
                    prompt_token_ids=prompt,
                    generation_token_ids=said[turn],
                    generation_log_probs=[-0.5] * len(said[turn]),
                    output_items=[{"type": "message", "role": "assistant", "content": reply}],
                    token_item_index=0,
                    created_at=time.time(),
                )
            )
            toy.act(turn)
            prompt = prompt + said[turn] + seen[turn]

    def kept(self, name: str) -> tuple[int, int]:
        """An observation is part of the prompt after it."""
        answers = len(self.captures.path_for(name).read_bytes().splitlines())
        return answers, answers - (answers < TURNS)


def tokens(text: str) -> list[int]:
    """Four letters a token, about what a tokenizer makes of English."""
    return [zlib.crc32(text[at : at + 4].encode()) % 150_000 for at in range(0, len(text), 4)]


if __name__ == "__main__":
    main({"nemo-gym": NemoGym})
