"""What WebArena's run.py does, shortened: it is not in the package on PyPI. The loop, the names and the traps are its own.

`run.diff` is what a user changes in it. That the resume looks for files which are made when a task begins is one of the traps.
"""

from __future__ import annotations

import argparse
import glob
import json
import logging
import os
from pathlib import Path
from typing import Any

from webarena.agent import Agent, PromptAgent, construct_agent
from webarena.browser_env import (
    Action,
    ActionTypes,
    ScriptBrowserEnv,
    StateInfo,
    Trajectory,
    create_stop_action,
)
from webarena.browser_env.actions import is_equivalent
from webarena.browser_env.helper_functions import RenderHelper, get_action_description
from webarena.evaluation_harness import evaluator_router

logger = logging.getLogger("logger")


def early_stop(trajectory: Trajectory, max_steps: int, thresholds: dict[str, int]) -> tuple[bool, str]:
    """Whether to give up, and why."""
    if (len(trajectory) - 1) / 2 >= max_steps:
        return True, f"Reach max steps {max_steps}"
    actions: list[Action] = trajectory[1::2]  # type: ignore[assignment]
    k = thresholds["parsing_failure"]
    if len(actions) >= k and all(action["action_type"] == ActionTypes.NONE for action in actions[-k:]):
        return True, f"Failed to parse actions for {k} times"
    k = thresholds["repeating_action"]
    if len(actions) >= k and all(is_equivalent(action, actions[-1]) for action in actions[-k:]):
        return True, f"Same action for {k} times"
    return False, ""


def test(args: argparse.Namespace, agent: Agent, config_file_list: list[str]) -> None:
    """Runs the tasks one after another; one that fails is written to a file, and the next one begins."""
    scores = []
    thresholds = {"parsing_failure": 3, "repeating_action": 3}
    env = ScriptBrowserEnv(
        headless=True,
        observation_type="accessibility_tree",
        current_viewport_only=True,
        viewport_size={"width": args.viewport_width, "height": args.viewport_height},
        sleep_after_execution=args.sleep_after_execution,
    )

    for config_file in config_file_list:
        try:
            render_helper = RenderHelper(config_file, args.result_dir, "id_accessibility_tree")
            with open(config_file) as f:
                intent = json.load(f)["intent"]

            logger.info(f"[Config file]: {config_file}")
            logger.info(f"[Intent]: {intent}")

            agent.reset(config_file)
            trajectory: Trajectory = []
            obs, info = env.reset(options={"config_file": config_file})
            state_info: StateInfo = {"observation": obs, "info": info}
            trajectory.append(state_info)

            meta_data: dict[str, Any] = {"action_history": ["None"]}
            while True:
                early_stop_flag, stop_info = early_stop(trajectory, args.max_steps, thresholds)
                if early_stop_flag:
                    action = create_stop_action(f"Early stop: {stop_info}")
                else:
                    try:
                        action = agent.next_action(trajectory, intent, meta_data=meta_data)
                    except ValueError as e:
                        action = create_stop_action(f"ERROR: {e!s}")

                trajectory.append(action)

                action_str = get_action_description(
                    action,
                    state_info["info"]["observation_metadata"],
                    action_set_tag="id_accessibility_tree",
                    prompt_constructor=agent.prompt_constructor if isinstance(agent, PromptAgent) else None,
                )
                render_helper.render(action, state_info, meta_data, args.render_screenshot)
                meta_data["action_history"].append(action_str)

                if action["action_type"] == ActionTypes.STOP:
                    break

                obs, _, terminated, _, info = env.step(action)
                state_info = {"observation": obs, "info": info}
                trajectory.append(state_info)

                if terminated:
                    # add a action place holder
                    trajectory.append(create_stop_action(""))
                    break

            evaluator = evaluator_router(config_file)
            score = evaluator(
                trajectory=trajectory,
                config_file=config_file,
                page=env.page,
                client=env.get_page_client(env.page),
            )

            scores.append(score)

            logger.info(f"[Result] ({'PASS' if score == 1 else 'FAIL'}) {config_file}")

        except Exception as e:
            logger.info(f"[Unhandled Error] {e!r}")
            with open(Path(args.result_dir) / "error.txt", "a") as f:
                f.write(f"[Config file]: {config_file}\n[Unhandled Error] {e!r}\n")

        render_helper.close()

    env.close()
    logger.info(f"Average score: {sum(scores) / max(len(scores), 1)}")


def get_unfinished(config_files: list[str], result_dir: str) -> list[str]:
    """The tasks without a page of results."""
    done = [os.path.basename(f).split(".")[0].split("_")[1] for f in glob.glob(f"{result_dir}/*.html")]
    return [f for f in config_files if os.path.basename(f).split(".")[0] not in done]


def config() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--viewport_width", type=int, default=1280)
    parser.add_argument("--viewport_height", type=int, default=720)
    parser.add_argument("--sleep_after_execution", type=float, default=2.0)
    parser.add_argument("--render_screenshot", action="store_true")
    parser.add_argument("--max_steps", type=int, default=30)
    parser.add_argument("--result_dir", type=str, required=True)
    parser.add_argument("--config_dir", type=str, default="config_files")
    parser.add_argument("--test_start_idx", type=int, default=0)
    parser.add_argument("--test_end_idx", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    args = config()
    Path(args.result_dir).mkdir(parents=True, exist_ok=True)
    test_file_list = []
    for i in range(args.test_start_idx, args.test_end_idx):
        test_file_list.append(f"{args.config_dir}/{i}.json")
    if "debug" not in args.result_dir:
        test_file_list = get_unfinished(test_file_list, args.result_dir)

    if len(test_file_list) == 0:
        logger.info("No task left to run")
    else:
        agent = construct_agent(args)
        test(args, agent, test_file_list)
