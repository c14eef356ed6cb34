"""Recorded async environments in the style of dm_env, such as those of ARES. The event loop is never blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._null import NullEpisode
from ._callers import AsyncCaller
from ._env_recorder import EnvRecorder
from ._transparent import Transparent, action_of, given_to, tape_of
from .dm_env import FLAVOUR

if TYPE_CHECKING:
    from .._run import Run

_CALLER = AsyncCaller()


class RecordedAsyncDmEnv(Transparent):
    """An async environment with `reset`, `step` and `close` that is recorded."""

    def _tape_of(self, env: Any, run: Run, options: dict[str, Any]) -> EnvRecorder:
        return tape_of(FLAVOUR, _CALLER, env, run, options)

    @classmethod
    def _methods(cls) -> dict[str, Callable[[], Any]]:
        return {"step": _make_step, "reset": _make_reset}

    async def close(self) -> Any:
        """Closes the environment. An episode that is active ends as aborted."""
        try:
            await self._keepstep.close("close")
        finally:
            closed = await self.env.close()
        return closed

    async def __aenter__(self) -> Any:
        await self.env.__aenter__()
        return self

    async def __aexit__(self, kind: Any, raised: BaseException | None, trace: Any) -> Any:
        try:
            await self._keepstep.close("exit", raised)
        finally:
            left = await self.env.__aexit__(kind, raised, trace)
        return left


def _make_step() -> Any:
    async def step(self: Any, *args: Any, **given: Any) -> Any:
        recorder, call = self._keepstep, self.env.step
        if recorder.native.__class__ is NullEpisode:
            return await recorder.astep_unrecorded(call, args, given)
        action = action_of(call, args, given)
        return await recorder.step(action, lambda: call(*args, **given))

    return step


def _make_reset() -> Any:
    async def reset(self: Any, *args: Any, **given: Any) -> Any:
        call = self.env.reset
        return await self._keepstep.begin(call, given_to(call, args, given))

    return reset
