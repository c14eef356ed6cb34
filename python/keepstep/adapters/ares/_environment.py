"""An environment that reports each episode to a collector: that it began, its steps, and how it really ended.

The environment's own exceptions always reach the caller: failures while reporting them are logged.
"""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ... import BadInput, Closed, Ended, Ending, Fenced
from ...adapting import check_same, diverged, ending_by, logger, shown, text_of, why_left, why_of
from ...wrappers.dm_env import FLAVOUR
from ._collectors import DurableTrajectoryCollector, NullTrajectoryCollector, TrajectoryCollector
from ._records import EpisodeTrajectory, StepRecord, snapshot

try:
    import ares
    from ares.environments import base
    from ares.llms import response
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.split(".")[0] != "ares":
        raise
    raise ImportError(
        "keepstep.adapters.ares needs ARES: pip install martian-ares (Python 3.12 or newer)"
    ) from missing

if TYPE_CHECKING:
    from typing_extensions import Self

A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
R = TypeVar("R")
D = TypeVar("D")

# Which environment a collector is used by now: it could not tell the steps of two environments apart.
_in_use: weakref.WeakValueDictionary[int, TrajectoryCollectingEnvironment[Any, Any, Any, Any]] = (
    weakref.WeakValueDictionary()
)


class TrajectoryCollectingEnvironment(base.Environment[A, O, R, D]):
    """The same environment, whose episodes are reported to a collector. All else passes through.

    Parameters:
        env: any environment of ARES, or one that follows its protocol.
        trajectory_collector: the collector. If its methods return awaitables, `reset` and `step` await them.
        task_name: the name of each task, or a function of the environment that is called after each reset. The default is
            to look for the name where the environments of ARES keep it.
        ending: a function of the environment and a time step that returns how the episode ended with that step, if the
            time step itself does not say it. If it returns None, step type and discount decide.
    """

    def __init__(
        self,
        env: base.Environment[A, O, R, D],
        trajectory_collector: TrajectoryCollector,
        *,
        task_name: str | Callable[[Any], str] | None = None,
        ending: Callable[[Any, base.TimeStep[O, R, D]], Ending | None] | None = None,
    ) -> None:
        self.env = env
        self.trajectory_collector = trajectory_collector
        self.last_trajectory: EpisodeTrajectory | None = None
        """What the collector returned at the end of the last episode."""
        self._durable: DurableTrajectoryCollector | None = None
        if isinstance(trajectory_collector, DurableTrajectoryCollector):
            self._durable = trajectory_collector
        self._task_name = task_name
        self._ask_ending: Any = ending
        self._is_active = False
        self._index = 0
        # How the last episode failed, if it did: the environment must be reset then.
        self._failed: Ending | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<Collecting {self.env!r}>"

    # The protocol of ARES

    async def reset(self) -> base.TimeStep[O, R, D]:
        """Resets the environment; an episode that is active ends as abandoned."""
        await self._leave(Ending("abandoned", said_by="reset"))
        self._failed = None
        task = task_of(self.env)
        try:
            first = await self.env.reset()
        except BaseException as raised:
            await self._reset_failed(raised, task)
            raise
        return await self._begin(first)

    async def step(self, action: A) -> base.TimeStep[O, R, D]:
        """Takes a step. The collector has recorded it when this returns."""
        if not self._is_active:
            return await self._step_beyond(action)
        said_by = "recording"
        try:
            async with self._turn(action):
                said_by = "step"
                time_step = await self.env.step(action)
                said_by = "recording"
                ending = self._ending_of(time_step)
                await self._tell_step(time_step, action, ending)
            if ending is not None:
                await self._end(ending)
        except BaseException as raised:
            await self._raised(raised, said_by)
            raise
        return time_step

    async def close(self) -> None:
        """Closes the environment; an episode that is active ends as aborted."""
        try:
            await self._leave(Ending("aborted", said_by="close"))
        finally:
            await self.env.close()

    async def __aenter__(self) -> Self:
        await self.env.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        try:
            await self._leave(Ending(why_left(exc_value), said_by="exit"), exc_value)
        finally:
            left = await self.env.__aexit__(exc_type, exc_value, traceback)
        return left

    # Beginning

    async def _begin(self, first: base.TimeStep[O, R, D]) -> base.TimeStep[O, R, D]:
        """Reports that an episode begins or resumes, and returns the time step that its loop begins with."""
        said_by = "recording"
        try:
            await self._open(self._name())
            if self._durable is not None:
                said_by = "replay"
                now = await self._replay(first, self._durable)
                if now is not None:
                    return now
                said_by = "recording"
            await self._tell_step(first, None, None)
        except BaseException as raised:
            await self._raised(raised, said_by)
            raise
        return first

    async def _open(self, name: str) -> None:
        collector = self.trajectory_collector
        if not isinstance(collector, NullTrajectoryCollector):
            if _in_use.setdefault(id(collector), self) is not self:
                raise BadInput(
                    f"trajectory_collector: {collector!r} is recording an episode of another environment: "
                    "give each environment a collector of its own"
                )
        try:
            await _done(collector.begin_episode(task_name=name))
        except BaseException:
            self._release()
            raise
        self._is_active, self._index = True, 0

    def _release(self) -> None:
        self._is_active = False
        _in_use.pop(id(self.trajectory_collector), None)

    async def _reset_failed(self, raised: BaseException, task_before: Any) -> None:
        """Reports an episode that failed before its first step."""
        # If the task is the same object as before, it may not be the one of the failed reset.
        is_known = isinstance(self._task_name, str) or task_of(self.env) is not task_before
        try:
            await self._open(self._name() if is_known else "")
        except Exception:
            logger.exception("a reset that failed could not be recorded")
            return
        await self._raised(raised, "reset")

    def _name(self) -> str:
        if isinstance(self._task_name, str):
            return self._task_name
        return (self._task_name or task_name_of)(self.env)

    async def _replay(
        self, first: base.TimeStep[O, R, D], collector: DurableTrajectoryCollector
    ) -> base.TimeStep[O, R, D] | None:
        """Takes the recorded actions again and compares the results. None if there are no recorded steps."""
        now, last = first, None
        async for last in collector.recorded():
            is_first = last.step_type == "FIRST"
            now = first if is_first else await self.env.step(_action_of(last))
            ending = None if is_first else self._ending_of(now)
            if ending is not None:
                raise diverged(
                    f"step {last.step_index}, its end: the recorded episode continued, now it is {ending.why}"
                )
            check_same(last.step_index, _compared(last), _compared(self._record(now, None)))
        if last is None:
            return None
        self._index = last.step_index + 1
        # reset() returns a first step, also in the middle of an episode.
        return first._replace(observation=now.observation)

    # Stepping

    async def _step_beyond(self, action: A) -> base.TimeStep[O, R, D]:
        """A step outside an episode: the environment decides what that means. It may begin the next episode."""
        if self._failed is not None:
            raise Ended(f"the episode has ended ({self._failed.why}): call reset() first")
        time_step = await self.env.step(action)
        return await self._begin(time_step) if time_step.first() else time_step

    def _turn(self, action: A) -> AbstractAsyncContextManager[object]:
        return nullcontext() if self._durable is None else self._durable.turn(snapshot(action))

    async def _tell_step(self, time_step: base.TimeStep[O, R, D], action: Any, ending: Ending | None) -> None:
        tell = self.trajectory_collector.record_step
        given = {"ending": ending} if ending is not None and _takes_ending(tell) else {}
        await _done(tell(self._record(time_step, action), **given))
        self._index += 1

    def _record(self, time_step: base.TimeStep[Any, Any, Any], action: Any) -> StepRecord:
        # Only the observation of a first step means something, but CodeEnvironment adds a reward and a discount.
        is_first = time_step.first()
        return StepRecord(
            step_index=self._index,
            step_type=time_step.step_type,
            observation=snapshot(time_step.observation),
            action=snapshot(action),
            reward=None if is_first else time_step.reward,
            discount=None if is_first else time_step.discount,
            timestamp=time.time(),
        )

    # Ending

    def _ending_of(self, time_step: base.TimeStep[O, R, D]) -> Ending | None:
        """How the episode ended with this step, if it did: from the function `ending`, else from the step itself."""
        ending: Any = ending_by(self._ask_ending, self.env, time_step)
        return ending if ending is not None else FLAVOUR.ending_of(self.env, time_step)  # type: ignore[return-value]

    async def _end(self, ending: Ending) -> None:
        if not self._is_active:
            return
        self._release()
        collector: Any = self.trajectory_collector
        end = getattr(collector, "aend_episode", None) or collector.end_episode
        given = {"ending": ending} if _takes_ending(end) else {}
        self.last_trajectory = await _done(end(truncated=ending.why == "truncated", **given))

    async def _leave(self, ending: Ending, raised: BaseException | None = None) -> None:
        """Ends the episode if it is active. If an exception left the loop, the caller gets that one."""
        if raised is not None:
            ending = ending._replace(error=text_of(raised))
        try:
            await self._end(ending)
        except (Fenced, Ended, Closed):
            # Another process owns it, or the store is closed: its end cannot be recorded here.
            pass
        except Exception:
            if raised is None:
                raise
            logger.exception("the end of an episode could not be recorded (%s)", shown(ending.why))

    async def _raised(self, raised: BaseException, said_by: str) -> None:
        """Reports how an exception ended the episode. Raises nothing itself: the caller must get that exception."""
        ending = Ending(why_of(raised), error=text_of(raised), said_by=said_by)
        self._failed = ending
        if isinstance(raised, (Fenced, Ended, Closed)):
            # Another process owns it, or the store is closed: its end cannot be recorded here.
            self._release()
            return
        try:
            await self._end(ending)
        except Exception:
            logger.exception("the end of an episode could not be recorded (%s)", shown(ending.why))


def make(
    preset_id: str,
    *,
    trajectory_collector: TrajectoryCollector | None = None,
    task_name: str | Callable[[Any], str] | None = None,
    ending: Callable[[Any, Any], Ending | None] | None = None,
    **given: Any,
) -> TrajectoryCollectingEnvironment[Any, Any, Any, Any]:
    """As `ares.make`, with episodes reported to a collector: presets and third-party specs stay as they are.

    Parameters:
        preset_id: as for `ares.make`, with its selector.
        trajectory_collector: the collector; without one, nothing is reported.
        task_name: as for `TrajectoryCollectingEnvironment`.
        ending: as for `TrajectoryCollectingEnvironment`.
        **given: passed on to `ares.make`: `container_factory`, `tracker`.
    """
    env = ares.make(preset_id, **given)
    collector = NullTrajectoryCollector() if trajectory_collector is None else trajectory_collector
    return TrajectoryCollectingEnvironment(env, collector, task_name=task_name, ending=ending)


def task_name_of(env: Any) -> str:
    """The name of the task that an environment was reset to; the name of its class, if it has none."""
    task = task_of(env)
    if task is None:
        return type(_layers(env)[-1]).__name__
    return str(getattr(task, "name", task))


def task_of(env: Any) -> Any:
    """The task of an environment, where the environments of ARES keep it: a task of Harbor, a hidden object."""
    for layer in _layers(env):
        for name in ("_current_task", "_hidden_object"):
            task = vars(layer).get(name) if hasattr(layer, "__dict__") else getattr(layer, name, None)
            if task is not None:
                return task
    return None


def _layers(env: Any) -> list[Any]:
    """An environment, and those inside it."""
    layers = [env]
    while True:
        inside = getattr(layers[-1], "__dict__", {})
        inner = inside.get("env", inside.get("_env"))
        if inner is None or any(inner is layer for layer in layers):
            return layers
        layers.append(inner)


def _action_of(record: StepRecord) -> Any:
    """The action of a recorded step, to take it again: responses are recorded as plain data."""
    plain = record.action
    if not isinstance(plain, dict) or plain.keys() != {"data", "cost", "usage"}:
        return plain
    return response.LLMResponse(
        data=[response.TextData(**block) for block in plain["data"]],
        cost=plain["cost"],
        usage=response.Usage(**plain["usage"]),
    )


def _compared(record: StepRecord) -> dict[str, Any]:
    return {"observation": record.observation, "reward": record.reward, "discount": record.discount}


def _takes_ending(method: Callable[..., Any]) -> bool:
    """True if a collector's method takes an ending: those of ARES pull request 86 do not."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(it.name == "ending" or it.kind is it.VAR_KEYWORD for it in parameters)


async def _done(told: Any) -> Any:
    """The result of a collector's method, awaited if it is an awaitable."""
    return await told if inspect.isawaitable(told) else told
