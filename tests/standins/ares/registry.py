"""Presets by name."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ares.environments import base


@dataclasses.dataclass(frozen=True)
class EnvironmentInfo:
    """What is known of a preset."""

    name: str
    description: str
    num_tasks: int


@dataclasses.dataclass(frozen=True)
class SliceSelector:
    """Some tasks of many."""

    start: int | None
    end: int | None

    def __call__(self, tasks: Sequence[Any]) -> Sequence[Any]:
        return tasks[self.start : self.end]


class EnvironmentSpec(Protocol):
    """A preset."""

    def get_info(self) -> EnvironmentInfo: ...

    def get_env(
        self, *, selector: Any, container_factory: Any, tracker: Any = None
    ) -> base.Environment[Any, Any, Any, Any]: ...


_REGISTRY: dict[str, EnvironmentSpec] = {}


def register_preset(name: str, spec: EnvironmentSpec) -> None:
    if name in _REGISTRY:
        raise ValueError(f"Preset '{name}' is already registered.")
    _REGISTRY[name] = spec


def register_env(
    *, name: str | None = None, description: str | None = None, num_tasks: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        info = EnvironmentInfo(name or function.__name__, description or function.__doc__ or "", num_tasks)

        class Spec:
            def get_info(self) -> EnvironmentInfo:
                return info

            def get_env(self, *, selector: Any, container_factory: Any, tracker: Any = None) -> Any:
                return function(selector=selector, container_factory=container_factory, tracker=tracker)

        register_preset(info.name, Spec())
        return function

    return decorator


def unregister_preset(name: str) -> None:
    del _REGISTRY[name]


def make(
    preset_id: str, *, container_factory: Any = None, tracker: Any = None
) -> base.Environment[Any, Any, Any, Any]:
    name, _, selected = preset_id.partition(":")
    if name not in _REGISTRY:
        raise KeyError(f"Preset '{name}' not found.")
    index = int(selected) if selected else None
    selector = SliceSelector(index, None if index is None else index + 1)
    return _REGISTRY[name].get_env(selector=selector, container_factory=container_factory, tracker=tracker)
