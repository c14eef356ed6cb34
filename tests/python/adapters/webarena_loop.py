"""WebArena's loop on stand-ins: a site of four numbered pages, whose elements get other numbers in each browser."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent.parent / "standins"))

import numpy as np
from keepstep.adapters import webarena
from webarena.browser_env import ActionTypes, DetachedPage, StateInfo, create_none_action, create_stop_action

PAGES = 4


class Browser:
    """An environment of WebArena's shape: `shift` is what differs between two browsers, `pages` is the site."""

    def __init__(self, shift: int = 0, pages: dict[int, str] | None = None) -> None:
        self.shift = shift
        self.pages = pages or {}
        self.page = 0
        self.steps = 0

    def reset(self) -> StateInfo:
        """The first page."""
        self.page = 0
        return self.state("")

    def step(self, action: Any) -> StateInfo:
        """Follows the link, if it is the one that stands on the page."""
        self.steps += 1
        if action["element_id"] != str(7 * self.page + self.shift):
            return self.state(f"no element {action['element_id']}")
        self.page += 1
        return self.state("")

    def state(self, failed: str) -> StateInfo:
        """What it shows."""
        link = str(7 * self.page + self.shift)
        said = self.pages.get(self.page, f"page {self.page}")
        image = np.full((6, 8, 3), self.page, np.uint8)
        return {
            "observation": {"text": f"Tab 0\n\n[{link}] link '{said}'", "image": image},
            "info": {
                "page": DetachedPage(f"http://shop/{self.page}", f"<p>{said}</p>" * 500),
                "fail_error": failed,
                "observation_metadata": {"text": {"obs_nodes_info": {link: {"union_bound": [0.5, 1.0]}}}},
            },
        }


class Agent:
    """Clicks the link of each page, then stops. `fails_at` raises at the so-manieth page."""

    def __init__(self, fails_at: int = -1) -> None:
        self.asked = 0
        self.fails_at = fails_at

    def next_action(self, trajectory: list[Any], intent: str, meta_data: Any) -> Any:
        """The next action, from the last page and the last action."""
        self.asked += 1
        page = len(trajectory) // 2
        if page == self.fails_at:
            raise ValueError("the prompt is too long")
        if page == PAGES:
            return create_stop_action("42")
        action = create_none_action()
        number = trajectory[-1]["observation"]["text"].split("[")[1].split("]")[0]
        action.update(action_type=ActionTypes.CLICK, element_id=number, raw_prediction=f"after {meta_data}")
        return action


def roll(
    task: webarena.Task, browser: Browser, agent: Any, *, max_steps: int = 30, kill_at: int = -1
) -> None:
    """What run.py does within its `try`, up to the score."""
    trajectory = task.trajectory

    def append(item: Any) -> None:
        if len(trajectory) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        trajectory.append(item)

    append(browser.reset())
    history = ["None"]
    while True:
        if (len(trajectory) - 1) / 2 >= max_steps:
            action = create_stop_action(f"Early stop: Reach max steps {max_steps}")
        else:
            try:
                action = agent.next_action(trajectory, "find it", meta_data=history[-1])
            except ValueError as failed:
                action = create_stop_action(f"ERROR: {failed}")
        append(action)
        history.append(f"action {len(history)}")
        if action["action_type"] == ActionTypes.STOP:
            return
        append(browser.step(action))


def config_file(folder: Path, task_id: int) -> str:
    """A task's file."""
    path = folder / f"{task_id}.json"
    path.write_text(json.dumps({"task_id": task_id, "intent": "find it"}))
    return str(path)


def main() -> None:
    """usage: webarena_loop.py RESULTS CONFIG_FILE restart|replay KILL_AT SHIFT"""
    results, config, environment, kill_at, shift = sys.argv[1:]
    agent = Agent()
    replayed: dict[str, Any] = {"environment": environment}
    if environment == "replay":
        replayed["agent"] = agent
    for file in webarena.unfinished(results, [config]):
        with webarena.task(results, file, **replayed) as task:
            roll(task, Browser(int(shift)), agent, kill_at=int(kill_at))
            task.scored(1.0)
    print(agent.asked)


if __name__ == "__main__":
    main()
