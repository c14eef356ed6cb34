"""One logic for blocking and async environments: `BlockingCaller` blocks the thread, `AsyncCaller` does not block the loop.

The logic is written once, as coroutines. Those of the blocking caller never suspend, so one `send` runs them to their end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .._loops import in_thread, warn_if_on_loop

if TYPE_CHECKING:
    from .._episode import Episode

T = TypeVar("T")


class Caller(Protocol):
    """How to call an environment, and how to wait for its recording."""

    async def ask(self, call: Callable[[], Any]) -> Any:
        """Calls the environment."""

    async def open(self, episode: Episode) -> Any:
        """Opens an episode, and returns what records it."""

    async def read(self, work: Callable[[], T]) -> T:
        """Runs something that waits for the disk."""

    async def say(self, native: Any, said: dict[str, Any]) -> None:
        """Records the intent of a turn: durable when it returns."""

    async def result(self, native: Any, given: dict[str, Any]) -> None:
        """Records the result of a turn: durable when it returns."""

    async def settle(self, receipt: Any) -> None:
        """Waits for a receipt."""


class BlockingCaller:
    """Blocks the thread while it waits."""

    async def ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except StopIteration as raised:
            # A coroutine cannot raise StopIteration itself.
            raise Carried(raised) from raised

    async def open(self, episode: Episode) -> Any:
        return episode._opened()

    async def read(self, work: Callable[[], T]) -> T:
        return work()

    async def say(self, native: Any, said: dict[str, Any]) -> None:
        native.say(said, True)

    async def result(self, native: Any, given: dict[str, Any]) -> None:
        native.result(given, True)

    async def settle(self, receipt: Any) -> None:
        receipt.wait()


class AsyncCaller:
    """Does not block the event loop while it waits."""

    async def ask(self, call: Callable[[], Any]) -> Any:
        came = call()
        # Functions that get and set the state may be plain ones.
        return await came if inspect.isawaitable(came) else came

    async def open(self, episode: Episode) -> Any:
        return await episode._aopened()

    async def read(self, work: Callable[[], T]) -> T:
        return await in_thread(work)

    async def say(self, native: Any, said: dict[str, Any]) -> None:
        receipt = native.say(said, False)[3]
        if receipt is not None:
            await receipt

    async def result(self, native: Any, given: dict[str, Any]) -> None:
        await native.result(given, False)

    async def settle(self, receipt: Any) -> None:
        await receipt


class Carried(Exception):
    """A StopIteration on its way through coroutines."""

    def __init__(self, original: StopIteration) -> None:
        super().__init__(original)
        self.original = original


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    warn_if_on_loop(
        "run the loop of the environment in a thread, such as with `asyncio.to_thread`, or record an async environment"
    )
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except Carried as carried:
        original = carried.original
    else:
        work.close()
        raise RuntimeError(
            "a blocking environment returned something to await: make its step() and reset() async"
        )
    raise original
