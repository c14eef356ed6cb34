"""The protocol of environments."""

from types import TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar

from typing_extensions import NamedTuple, Self

StepType = Literal["FIRST", "MID", "LAST"]

Action = TypeVar("Action", contravariant=True)
Observation = TypeVar("Observation", covariant=True)
Reward = TypeVar("Reward", covariant=True)
Discount = TypeVar("Discount", covariant=True)


class TimeStep(NamedTuple, Generic[Observation, Reward, Discount]):
    """What `reset` and `step` give."""

    step_type: StepType
    reward: Reward | None
    discount: Discount | None
    observation: Observation

    def first(self) -> bool:
        return self.step_type == "FIRST"

    def mid(self) -> bool:
        return self.step_type == "MID"

    def last(self) -> bool:
        return self.step_type == "LAST"


class Environment(Protocol[Action, Observation, Reward, Discount]):
    """An environment."""

    async def reset(self) -> TimeStep[Observation, Reward, Discount]: ...

    async def step(self, action: Action) -> TimeStep[Observation, Reward, Discount]: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        await self.close()
