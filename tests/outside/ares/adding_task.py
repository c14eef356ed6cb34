"""A task for ARES' real CodeEnvironment and its mini-swe-agent, in a MockContainer that can add.

The container has a state, the total so far, that a new one has not: whoever goes on must bring it back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import offline_ares  # noqa: F401
from ares.containers.containers import ExecResult
from ares.environments.code_env import CodeEnvironment
from ares.llms.response import LLMResponse, TextData, Usage
from ares.testing.mock_container import MockContainer
from harbor.models.task.task import Task

WORDS = ["add 1", "add 2", "add 3", "add 4", "submit"]


def answer(command: str) -> LLMResponse:
    """What a model answers that wants a command to be run."""
    text = f"I will do that.\n\n```bash\n{command}\n```"
    return LLMResponse([TextData(text)], cost=0.5, usage=Usage(prompt_tokens=10, generated_tokens=5))


def task(where: Path, name: str = "adding") -> Task:
    """A task in a folder, as Harbor has them."""
    folder = where / name
    (folder / "environment").mkdir(parents=True, exist_ok=True)
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "instruction.md").write_text("Add the numbers up.")
    (folder / "task.toml").write_text('version = "1.0"\n')
    (folder / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (folder / "tests" / "test.sh").write_text("true\n")
    return Task(folder)


class AddingContainer(MockContainer):
    """One that adds; `meet` is called before each command, and may raise or give something to await."""

    meet: Callable[[str], Any] | None = None

    def __init__(self, meet: Callable[[str], Any] | None) -> None:
        super().__init__(exec_handler=self.run)
        self.total = 0
        self.meet = meet

    async def exec_run(self, command: str, **how: Any) -> ExecResult:
        came = None if self.meet is None else self.meet(command)
        if came is not None:
            await came
        return await super().exec_run(command, **how)

    def run(self, command: str) -> ExecResult:
        if command.startswith("add "):
            self.total += int(command.split()[1])
            return ExecResult(f"the total is {self.total}", 0)
        if command == "submit":
            return ExecResult("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n", 0)
        if command.startswith("cat "):
            return ExecResult(str(self.total), 0) if command.endswith(".txt") else ExecResult("", 1)
        return ExecResult("Linux", 0)


class Containers:
    """What makes them."""

    def __init__(self, meet: Callable[[str], Any] | None = None) -> None:
        self.meet = meet
        self.made: list[AddingContainer] = []

    def from_dockerfile(self, **_: Any) -> AddingContainer:
        self.made.append(AddingContainer(self.meet))
        return self.made[-1]

    def from_image(self, **_: Any) -> AddingContainer:
        return self.from_dockerfile()


def environment(where: Path, meet: Callable[[str], Any] | None = None, **how: Any) -> CodeEnvironment:
    """The real environment."""
    return CodeEnvironment([task(where)], container_factory=Containers(meet), **how)
