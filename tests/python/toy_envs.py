"""Small environments of each flavour: a corridor that is walked to its end, with trouble on the way if wanted.

A trouble is a function that is called when the environment is about to do something: `reset`, or step number so and
so; or when such a step is done, and has not returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dm_env
import gymnasium
import numpy
from dm_env import specs

GOAL = 6
LIMIT = 20

Troubles = Mapping[Any, Callable[[], Any]]


class Corridor:
    """Walks from 0 to the goal."""

    def __init__(self, troubles: Troubles | None = None, goal: int = GOAL) -> None:
        self.troubles = dict(troubles or {})
        self.goal = goal
        self.position = 0
        self.taken = 0
        self.resets = 0
        self.actions: list[int] = []
        self.closed = 0

    def begin(self) -> int:
        self.resets += 1
        self._meet("reset")
        self.position = self.taken = 0
        return 0

    def walk(self, action: int) -> tuple[int, float, bool]:
        self._meet(self.taken)
        self.taken += 1
        self.actions.append(action)
        self.position += action
        self._meet(("done", self.taken - 1))
        return self.position, action * 0.5, self.position >= self.goal

    def _meet(self, what: Any) -> None:
        if what in self.troubles:
            self.troubles[what]()


class GymCorridor(gymnasium.Env):
    """A corridor of Gymnasium's."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Discrete(GOAL + 4)

    def __init__(self, troubles: Troubles | None = None, goal: int = GOAL) -> None:
        self.corridor = Corridor(troubles, goal)
        self.page = "a page"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return self.corridor.begin(), {"options": options}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        position, reward, is_done = self.corridor.walk(int(action))
        return position, reward, is_done, False, {"taken": self.corridor.taken}

    def close(self) -> None:
        self.corridor.closed += 1


class KeptGymCorridor(GymCorridor):
    """One that gives and takes its state."""

    def get_state(self) -> dict[str, int]:
        return {"position": self.corridor.position, "taken": self.corridor.taken}

    def set_state(self, state: dict[str, int]) -> None:
        self.corridor.position, self.corridor.taken = state["position"], state["taken"]


class DmCorridor(dm_env.Environment):  # type: ignore[misc]
    """A corridor of dm_env's, whose last discount can be chosen."""

    def __init__(
        self, troubles: Troubles | None = None, goal: int = GOAL, last_discount: float = 0.0
    ) -> None:
        self.corridor = Corridor(troubles, goal)
        self.last_discount = last_discount
        self.page = "a page"
        self._begins = True

    def reset(self) -> dm_env.TimeStep:
        observation = self.corridor.begin()
        self._begins = False
        return dm_env.restart(observation)

    def step(self, action: int) -> dm_env.TimeStep:
        if self._begins:
            return self.reset()
        position, reward, is_done = self.corridor.walk(int(action))
        self._begins = is_done
        if is_done:
            return dm_env.TimeStep(dm_env.StepType.LAST, reward, self.last_discount, position)
        return dm_env.transition(reward, position)

    def observation_spec(self) -> specs.Array:
        return specs.DiscreteArray(GOAL + 4, dtype=numpy.int64)

    def action_spec(self) -> specs.Array:
        return specs.DiscreteArray(4, dtype=numpy.int64)

    def close(self) -> None:
        self.corridor.closed += 1


class KeptDmCorridor(DmCorridor):
    """One that gives and takes its state."""

    def export_state(self) -> list[int]:
        return [self.corridor.position, self.corridor.taken]

    def import_state(self, state: list[int]) -> None:
        self.corridor.position, self.corridor.taken = state


class TimeStep(NamedTuple):
    """A time step as ARES has it."""

    step_type: str
    reward: float | None
    discount: float | None
    observation: Any


class AsyncCorridor:
    """A corridor in the style of ARES: FIRST has a reward and a discount, troubles may be awaited."""

    def __init__(
        self, troubles: Troubles | None = None, goal: int = GOAL, last_discount: float = 0.0
    ) -> None:
        self.troubles = dict(troubles or {})
        # Those that come when a step is done are not awaited.
        self.corridor = Corridor({at: do for at, do in self.troubles.items() if isinstance(at, tuple)}, goal)
        self.last_discount = last_discount
        self.page = "a page"

    async def reset(self) -> TimeStep:
        await self._meet("reset")
        return TimeStep("FIRST", 0.0, 1.0, self.corridor.begin())

    async def step(self, action: int) -> TimeStep:
        await self._meet(self.corridor.taken)
        position, reward, is_done = self.corridor.walk(int(action))
        if is_done:
            return TimeStep("LAST", reward, self.last_discount, position)
        return TimeStep("MID", reward, 1.0, position)

    async def close(self) -> None:
        self.corridor.closed += 1

    async def __aenter__(self) -> AsyncCorridor:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _meet(self, what: Any) -> None:
        await asyncio.sleep(0)
        if what in self.troubles:
            came = self.troubles[what]()
            if asyncio.iscoroutine(came):
                await came


class KeptAsyncCorridor(AsyncCorridor):
    """One that gives and takes its state, and is awaited for it."""

    async def state_dict(self) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"position": self.corridor.position, "taken": self.corridor.taken}

    async def load_state_dict(self, state: dict[str, int]) -> None:
        await asyncio.sleep(0)
        self.corridor.position, self.corridor.taken = state["position"], state["taken"]


class Flavour(NamedTuple):
    """How a test drives an environment of a flavour."""

    name: str
    make: Callable[..., Any]
    make_kept: Callable[..., Any]
    # What an environment said of its normal end.
    said_by: str

    def reset(self, env: Any, **given: Any) -> Any:
        """Resets it, and gives the observation."""
        return self._observation(self._now(env.reset(**given)))

    def step(self, env: Any, action: Any) -> Any:
        """Steps, and gives the observation."""
        return self._observation(self._now(env.step(action)))

    def close(self, env: Any) -> None:
        self._now(env.close())

    def walk(self, env: Any, steps: int) -> None:
        """Goes so many steps of 2: the third one ends it."""
        for _ in range(steps):
            self.step(env, 2)

    def within(self, env: Any, body: Callable[[], Any]) -> None:
        """Does something inside of `with env`, or `async with env`."""
        if self.name != "async":
            with env:
                body()
            return

        async def inside() -> None:
            async with env:
                came = body()
                if asyncio.iscoroutine(came):
                    await came

        asyncio.run(inside())

    def _now(self, came: Any) -> Any:
        return asyncio.run(came) if self.name == "async" else came

    def _observation(self, came: Any) -> Any:
        return came[0] if self.name == "gymnasium" else came.observation


FLAVOURS = [
    Flavour("gymnasium", GymCorridor, KeptGymCorridor, "terminated flag"),
    Flavour("dm_env", DmCorridor, KeptDmCorridor, "discount"),
    Flavour("async", AsyncCorridor, KeptAsyncCorridor, "discount"),
]
