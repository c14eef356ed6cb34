"""Runs a `run.py` as a user would, with a model that is a script, and stops it where the test says.

usage: python drive.py RUN.PY [its arguments]
`TRAP="kill step 2"` acts at the second `env.step`: after the browser has acted, before the loop hears of it. The places are
`reset`, `think` (before the model answers), `step` and `score`; the acts are `kill`, `raise` and `refuse` (a ValueError).
`ASKED` names a file that gets a line for each question to the model.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import offline
from webarena import agent as agents
from webarena import evaluation_harness
from webarena.agent import agent as thinking
from webarena.browser_env import ScriptBrowserEnv
from webarena.llms.lm_config import LMConfig

_ACT, _PLACE, _COUNT = os.environ.get("TRAP", "no nowhere 0").split()
_seen: Counter[str] = Counter()


def trap(place: str) -> None:
    """Acts if this is the place and the time."""
    _seen[place] += 1
    if (place, _seen[place]) != (_PLACE, int(_COUNT)):
        return
    if _ACT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise {"raise": RuntimeError, "refuse": ValueError}[_ACT](f"the {place} failed")


def trapped(place: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the trap behind it."""

    def with_trap(*args: Any, **kwargs: Any) -> Any:
        came = function(*args, **kwargs)
        trap(place)
        return came

    return with_trap


def answer(lm_config: LMConfig, prompt: list[str]) -> str:
    """What the model says to a page and the action before it."""
    trap("think")
    _, page, previous = prompt
    with Path(os.environ.get("ASKED", os.devnull)).open("a") as asked:
        asked.write(f"{previous}\n")

    def element(begins: str) -> str:
        found = re.search(rf"\[(\d+)\] {begins}", page)
        assert found is not None, f"no {begins} in {page}"
        return found[1]

    if "heading 'Shop'" in page:
        action = f"click [{element('link .All lamps')}]"
    elif "heading 'Found'" in page:
        action = "stop [51 euros]"
    elif "heading 'Lamps'" not in page:
        action = "scroll [up]"
    elif "StaticText 'green lamp'" not in page:
        action = f"type [{element('textbox')}] [green lamp] [0]"
    elif "scroll" not in previous:
        action = "scroll [down]"
    else:
        action = f"click [{element('button .Search')}]"
    return f"After {previous} I do ```{action}```"


def construct_agent(args: Any) -> agents.PromptAgent:
    """The real PromptAgent; only its model and its prompts are ours."""
    config = LMConfig(provider="script", model="script", gen_config={"max_retry": 1})
    return agents.PromptAgent("id_accessibility_tree", config, offline.PromptConstructor())


thinking.call_llm = answer
agents.construct_agent = construct_agent
ScriptBrowserEnv.reset = trapped("reset", ScriptBrowserEnv.reset)  # type: ignore[method-assign]
ScriptBrowserEnv.step = trapped("step", ScriptBrowserEnv.step)  # type: ignore[method-assign]
evaluation_harness.evaluator_router = trapped("score", evaluation_harness.evaluator_router)

if __name__ == "__main__":
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_path(script, run_name="__main__")
