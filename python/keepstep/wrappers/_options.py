"""How an environment is recorded: the arguments of `record`, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from ..errors import BadInput

if TYPE_CHECKING:
    from .._endings import Ending
    from .._run import Run

Mode = Literal["restart", "restore", "replay"]

# Pairs of methods by which common environments get and set their state.
_STATE_METHODS = (
    ("get_state", "set_state"),
    ("export_state", "import_state"),
    ("state_dict", "load_state_dict"),
    ("clone_state", "restore_state"),
)

_FIELDS = ("observation", "action", "reward", "discount", "info", "state")


class Keeper(NamedTuple):
    """What gets and sets the state of an environment."""

    get: Callable[[Any], Any]
    set: Callable[[Any, Any], Any]


class Flavour(Protocol):
    """How the return values of a kind of environment are read, and how it is brought back."""

    def first_of(self, result: Any) -> dict[str, Any]:
        """The fields of the first observation, from what `reset` returned."""

    def result_of(self, result: Any) -> dict[str, Any]:
        """The fields of a step, from what `step` returned."""

    def ending_of(self, env: Any, result: Any) -> Ending | None:
        """How the episode ended with this step, if it did."""

    def as_reset(self, fresh: Any, fields: dict[str, Any]) -> Any:
        """What `reset` returns if the episode resumes from a step with these fields."""

    def layers(self, env: Any) -> list[Any]:
        """The environment and those inside it, as long as the outer ones have no state of their own."""

    def counters(self, env: Any) -> dict[str, Any]:
        """What wrappers of the environment count, and its own state does not include."""

    def set_counters(self, env: Any, counters: dict[str, Any]) -> None:
        """Sets what they count."""

    def randomness(self, env: Any) -> Any:
        """The state of its random generator; None if that is not known."""

    def set_randomness(self, env: Any, saved: Any) -> None:
        """Sets the state of its random generator."""

    def over(self, why: str) -> Exception:
        """What `step` raises after an ending."""


@dataclass(frozen=True)
class RecordOptions:
    """How an environment is recorded."""

    run: Run
    task: str | Callable[[Any, Any], str]
    iteration: int
    sample: int | None
    mode: Mode
    is_mode_asked: bool
    keeper: Keeper | None
    ending: Callable[[Any, Any], Ending | None] | None
    warns: bool
    skip: frozenset[str]


def checked_options(
    flavour: Flavour,
    env: Any,
    run: Run,
    *,
    task: str | Callable[[Any, Any], str],
    iteration: int = 0,
    sample: int | None = None,
    environment: Mode | None = None,
    state: tuple[Callable[[Any], Any], Callable[[Any, Any], Any]] | None = None,
    ending: Callable[[Any, Any], Ending | None] | None = None,
    on_record_error: Literal["raise", "warn"] = "raise",
    skip: Collection[str] = (),
) -> RecordOptions:
    """Checks the arguments of `record`."""
    _check_one_of("environment", environment, (None, "restart", "restore", "replay"))
    _check_one_of("on_record_error", on_record_error, ("raise", "warn"))
    if not isinstance(task, str) and not callable(task):
        raise BadInput(
            f"task is {task!r}: give a string, or a function of the environment and what reset() returned"
        )
    skipped = _skipped(run, skip)
    keeper = _keeper(flavour, env, state)
    lost = skipped & {"observation", "state"}
    if environment in ("restore", "replay") and "observation" in skipped:
        raise BadInput(
            f'skip: has "observation", which environment="{environment}" needs: record it, or give environment="restart"'
        )
    if environment == "restore" and "state" in skipped:
        raise BadInput(
            'skip: has "state", which environment="restore" needs: record it, or give environment="restart"'
        )
    if environment == "restore" and keeper is None:
        names = ", ".join("/".join(pair) for pair in _STATE_METHODS)
        raise BadInput(
            f"environment: {env!r} has no methods to restore it with ({names}): "
            'give state=(get, set), or environment="restart"'
        )
    mode = environment or ("restore" if keeper is not None and not lost else "restart")
    return RecordOptions(
        run=run,
        task=task,
        iteration=iteration,
        sample=sample,
        mode=mode,
        is_mode_asked=environment is not None,
        keeper=keeper if mode == "restore" else None,
        ending=ending,
        warns=on_record_error == "warn",
        skip=skipped,
    )


def _check_one_of(name: str, given: object, allowed: tuple[object, ...]) -> None:
    if given not in allowed:
        raise BadInput(f"{name} is {given!r}: give one of {', '.join(map(repr, allowed))}")


def _skipped(run: Run, skip: Collection[str]) -> frozenset[str]:
    if isinstance(skip, str):
        raise BadInput(f"skip is {skip!r}: give a collection of field names, skip=[{skip!r}]")
    unknown = sorted(set(skip) - set(_FIELDS))
    if unknown:
        raise BadInput(f"skip: {unknown[0]!r} is not a field of a step: give some of {', '.join(_FIELDS)}")
    return frozenset(skip) | frozenset(run.store._options.skip)


def _keeper(flavour: Flavour, env: Any, state: Any) -> Keeper | None:
    if state is not None:
        try:
            keeper = Keeper(*state)
        except TypeError:
            raise BadInput(f"state is {state!r}: give a pair of functions, (get, set)") from None
        if not callable(keeper.get) or not callable(keeper.set):
            raise BadInput(f"state is {state!r}: give a pair of functions, (get, set)")
        return keeper
    for depth, layer in enumerate(flavour.layers(env)):
        for get, set_ in _STATE_METHODS:
            if _takes(layer, get, 0) and _takes(layer, set_, 1):
                return _by_methods(flavour, depth, get, set_)
    return None


def _by_methods(flavour: Flavour, depth: int, get: str, set_: str) -> Keeper:
    def layer(env: Any) -> Any:
        return flavour.layers(env)[depth]

    return Keeper(lambda env: getattr(layer(env), get)(), lambda env, saved: getattr(layer(env), set_)(saved))


def _takes(layer: Any, name: str, arguments: int) -> bool:
    """True if it has a method of that name that takes this many arguments: MuJoCo's set_state(qpos, qvel) is another thing."""
    # Not a method that a wrapper passes through: that belongs to an inner layer.
    if not hasattr(type(layer), name):
        return False
    try:
        inspect.signature(getattr(layer, name)).bind(*[None] * arguments)
    except (TypeError, ValueError):
        return False
    return True
