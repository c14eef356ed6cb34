"""Lets the real `webarena` package run without a network: Debian's Chromium, pages from a loopback server, no language models.

Import it before anything of `webarena`. What it stands in for is only what the package on PyPI lacks (its prompts) or what
would ask a model somewhere else; environment, actions, processors, agents, evaluators and the renderer are the real ones.
"""

from __future__ import annotations

import os
import shutil
import sys
import types
from typing import Any

SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "MAP", "WIKIPEDIA", "HOMEPAGE")
BROWSER_FLAGS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
    " --disable-sync"
).split()


def _name_the_sites() -> None:
    for site in SITES:
        os.environ.setdefault(site, f"http://{site.lower().replace('_', '-')}.invalid")
        os.environ.setdefault(f"WA_{site}", os.environ[site])


def _stand_in(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def _leave_models_out() -> None:
    """The packages that talk to models or split texts for them: imported by the real modules, never called here."""
    nothing = type("Nothing", (), {})
    _stand_in("openai", OpenAI=nothing, AsyncOpenAI=nothing, RateLimitError=ConnectionError)
    _stand_in("aiolimiter", AsyncLimiter=nothing)
    _stand_in("tqdm")
    _stand_in("tqdm.asyncio", tqdm_asyncio=nothing)
    _stand_in("tiktoken")
    _stand_in("transformers", LlamaTokenizer=nothing)
    _stand_in("text_generation", Client=nothing)
    _stand_in("requests")
    _stand_in("nltk")
    _stand_in("nltk.tokenize", word_tokenize=str.split)
    # The wheel was built without this folder, which the agents and the renderer import.
    _stand_in("webarena.agent.prompts", PromptConstructor=PromptConstructor)


class PromptConstructor:
    """What a real one has, as far as `PromptAgent` and `run.py` use it; the prompt is the page and the last action."""

    def __init__(self) -> None:
        self.instruction: dict[str, Any] = {"meta_data": {"action_splitter": "```"}}

    def construct(self, trajectory: list[Any], intent: str, meta_data: dict[str, Any]) -> list[Any]:
        """The prompt: all that the agent is told."""
        return [intent, trajectory[-1]["observation"]["text"], meta_data["action_history"][-1]]

    def extract_action(self, response: str) -> str:
        """The action within an answer."""
        return response.split("```")[1]


def _use_the_systems_browser() -> None:
    from playwright.sync_api import BrowserType

    launch, chromium = BrowserType.launch, shutil.which("chromium")

    def launch_chromium(self: Any, **options: Any) -> Any:
        return launch(self, **{**options, "executable_path": chromium, "args": BROWSER_FLAGS})

    BrowserType.launch = launch_chromium  # type: ignore[method-assign]


_name_the_sites()
_leave_models_out()
_use_the_systems_browser()
