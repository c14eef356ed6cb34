"""What is recorded of one environment: an episode for each reset, a turn for each step, and how each episode ended.

The environment's own exceptions always reach the caller: failures while recording them are logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._endings import Ending, Why, ending_by, error_of, why_left, why_of
from .._foreign import message_of
from .._log import logger, shown
from .._loops import warn_caller
from .._null import NullEpisode
from ..errors import BadInput, Busy, Closed, Diverged, Ended, Fenced
from ._callers import Caller, Carried
from ._options import Flavour, RecordOptions
from ._recorded_episode import RecordedEpisode
from ._reset_again import check_reset, warn_of_other_reset
from ._resuming import (
    COUNTERS,
    ENDING,
    STATE,
    CannotResume,
    check_recordable,
    replay,
    reset_said,
    restore,
)
from ._samples import samples_of

_NOTHING = object()


class EnvRecorder:
    """What is recorded of one environment."""

    __slots__ = (
        "_caller",
        "_ending_of",
        "_env",
        "_flavour",
        "_is_closed",
        "_keeper",
        "_options",
        "_sample",
        "_task",
        "episode",
        "native",
    )

    def __init__(self, env: Any, options: RecordOptions, flavour: Flavour, caller: Caller) -> None:
        self._env = env
        self._options = options
        self._flavour = flavour
        self._caller = caller
        # Called after every step: no detour if the caller gave no `ending=`.
        self._ending_of = flavour.ending_of if options.ending is None else self._ending_by_loop
        self._keeper = None if options.run.store.where is None else options.keeper
        self._is_closed = False
        self._task: str | None = None
        self._sample = 0
        self.episode: RecordedEpisode | None = None
        # What records the episode; None before the first reset.
        self.native: Any = None

    @property
    def current(self) -> RecordedEpisode:
        """The episode that is recorded now, or was last."""
        if self.episode is None:
            raise BadInput("env: nothing is recorded before the first reset(): call it first")
        return self.episode

    @property
    def is_active(self) -> bool:
        """True between a reset and an ending."""
        return self.episode is not None and not self.episode.is_over

    @property
    def may_begin_by_step(self) -> bool:
        """True if the environment may begin an episode by itself: nothing was begun, or the last one ran to its end."""
        if self.is_active or self._is_closed:
            return False
        return self.episode is None or self.episode.inferred is not None

    def refusal(self) -> Exception:
        """What `step` raises if there is no episode to record it in."""
        if self.episode is None:
            return self._flavour.over("the environment was not reset yet: call reset() first")
        return self._flavour.over(f"{self.episode.ref} has ended ({self.native.ended}): call reset() first")

    # Resetting

    async def begin(self, call: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Resets the environment by `call`, and records the episode that begins or resumes."""
        given_up = self._task if self.is_active else None
        await self.leave("abandoned", "reset")
        self._is_closed = False
        said = reset_said(self._flavour, self._env, self._options, given)
        result = _NOTHING
        if callable(self._options.task):
            result = await self._reset_unnamed(call, given)
            task = self._options.task(self._env, result)
        else:
            task = self._options.task
        try:
            await self._open(task, given_up)
        except Exception as failed:
            self._forget(f"{self._options.run.name}/{task}")
            self._warn_or_raise(failed)
            return await self._caller.ask(lambda: call(**given)) if result is _NOTHING else result
        if self.native.steps:
            return await self._resume(call, given, said, result)
        await warn_of_other_reset(self._options, self._caller, self.native, given)
        return await self._start(call, given, said, result)

    async def _reset_unnamed(self, call: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Resets before the name of the episode is known. If that fails, the error goes to an episode without a name."""
        try:
            return await self._caller.ask(lambda: call(**given))
        except BaseException as raised:
            try:
                episode = RecordedEpisode(
                    f"{self._options.run.name}/(unnamed)", self._opener(None, 0, "restart")
                )
                self.native = await self._caller.open(episode)
                self.episode = episode
            except Exception:
                logger.exception("a reset that failed could not be recorded")
            else:
                await self._raised(raised, "reset")
            raise

    async def _open(self, task: str, given_up: str | None) -> None:
        """Opens the episode that is to be recorded: an interrupted one, or a new one."""
        options = self._options
        resume = "restart" if options.mode == "restart" else "continue"
        if options.sample is not None:
            # An episode that the loop itself has just abandoned begins again from step 0.
            resume = "restart" if given_up == task else resume
            if not await self._open_sample(task, options.sample, resume):
                raise Ended(
                    f"{self.current.ref} is over ({self.native.ended}): give another sample= to keepstep.record(...)"
                )
            return
        samples = await self._caller.read(lambda: samples_of(options.run, task, options.iteration))
        while True:
            try:
                if await self._open_sample(task, samples.take(), resume):
                    return
            except (Busy, Ended):
                # Another process has taken or finished it since it was looked at.
                continue

    async def _open_sample(self, task: str, sample: int, resume: str) -> bool:
        """Opens a sample. False if its last step says that it is over: then only the end was missing."""
        ref = self._options.run.episode(task, sample=sample, iteration=self._options.iteration).ref
        episode = RecordedEpisode(ref, self._opener(task, sample, resume))
        self.native = await self._caller.open(episode)
        self.episode, self._task, self._sample = episode, task, sample
        if not self.native.steps:
            return True
        ending = await self._caller.read(lambda: episode.state(ENDING))
        if ending is None:
            return True
        await self._caller.settle(episode.infer(Ending(*ending)))
        return False

    def _opener(self, task: str | None, sample: int, resume: str) -> Callable[[], Any]:
        options = self._options
        return lambda: options.run._core.open(task, options.iteration, sample, {"resume": resume})

    def _forget(self, ref: str, *, why: Why | None = None, steps: int = 0) -> None:
        """Continues without recording until the next reset. If a reason is given, the episode is over."""
        null: Any = NullEpisode(ref)
        null.steps, null._has_first = steps, steps > 0
        self.episode = RecordedEpisode(ref, lambda: null)
        # It is open already: nothing waits for a disk.
        self.native = self.episode._native_episode = null
        if why is not None:
            self.episode.end(why)

    async def _start(
        self, call: Callable[..., Any], given: dict[str, Any], said: dict[str, Any], result: Any
    ) -> Any:
        """Begins the episode with its first observation."""
        try:
            if result is _NOTHING:
                result = await self._caller.ask(lambda: call(**given))
        except BaseException as raised:
            await self._raised(raised, "reset")
            raise
        try:
            fields = self._flavour.first_of(result)
            state = said | await self._snapshot(is_first=True)
            if state:
                fields["state"] = state
            await self._caller.settle(self.native.first(self._kept(fields)))
        except BaseException as failed:
            await self._not_recorded(failed)
        return result

    async def _resume(
        self, call: Callable[..., Any], given: dict[str, Any], said: dict[str, Any], result: Any
    ) -> Any:
        """Brings the environment to where the record stops."""
        bring = restore if self._options.mode == "restore" else replay
        fresh = None if result is _NOTHING else result
        try:
            await check_reset(self._options, self._caller, self.native, given)
        except Diverged:
            # It stays interrupted: a reset with the recorded arguments still resumes it.
            await self.leave("aborted", "reset with other arguments")
            raise
        except BaseException as raised:
            await self._raised(raised, "reset")
            raise
        try:
            return await bring(
                self._env, self._options, self._flavour, self._caller, self.native, call, fresh
            )
        except CannotResume as reason:
            await self.leave("aborted", f"cannot {self._options.mode}: {reason}")
            if self._options.is_mode_asked:
                raise BadInput(
                    f'environment: {self.current.ref} cannot {self._options.mode}: {reason}; give environment="restart"'
                ) from None
            logger.warning("%s begins again from step 0: %s", shown(self.current.ref), shown(str(reason)))
        except BaseException as raised:
            await self._raised(raised, self._options.mode if isinstance(raised, Diverged) else "reset")
            raise
        assert self._task is not None
        await self._open_sample(self._task, self._sample, "restart")
        return await self._start(call, given, said, result)

    # Stepping

    async def step(self, action: Any, call: Callable[[], Any]) -> Any:
        """Records the action, takes it by `call`, and records the result."""
        if not self.is_active:
            raise self.refusal()
        try:
            await self._say(action)
        except BaseException as failed:
            if not isinstance(failed, Exception):
                self._give_up_turn("the action was not taken")
            await self._not_recorded(failed)
        try:
            result = await self._caller.ask(call)
        except BaseException as raised:
            await self._raised(raised, "step")
            raise
        try:
            await self._record(result)
        except BaseException as failed:
            await self._not_recorded(failed)
        return result

    def step_unrecorded(self, call: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """A step that is not recorded: the same endings, as cheap as possible."""
        episode = self.episode
        if episode is None or episode.is_over:
            raise self.refusal()
        try:
            result = call(*args, **given)
        except BaseException as raised:
            episode.end(why_of(raised))
            raise
        self.native.steps += 1
        ending = self._ending_of(self._env, result)
        if ending is not None:
            episode.infer(ending)
        return result

    async def astep_unrecorded(
        self, call: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
    ) -> Any:
        """As `step_unrecorded`, of an async environment."""
        if not self.is_active:
            raise self.refusal()
        try:
            result = await call(*args, **given)
        except BaseException as raised:
            self.current.end(why_of(raised))
            raise
        return self.step_unrecorded(lambda: result, (), {})

    async def _say(self, action: Any) -> None:
        said = self._kept({"action": action})
        try:
            await self._caller.say(self.native, said)
        except Diverged:
            # The action of the pending turn was not taken again: the environment is in the state before it.
            await self._caller.settle(
                self.native.discard("another action was taken when the episode was resumed")
            )
            await self._caller.say(self.native, said)

    def _give_up_turn(self, reason: str) -> None:
        try:
            if self.native.is_pending:
                self.native.discard(reason)
        except Exception:
            logger.exception("a turn of %s could not be discarded", shown(self.current.ref))

    async def _record(self, result: Any) -> None:
        fields = self._flavour.result_of(result)
        ending = self._ending_of(self._env, result)
        if ending is None:
            state = await self._snapshot()
            if state:
                fields["state"] = state
            await self._caller.result(self.native, self._kept(fields))
            return
        # Part of the step: after a crash before the end is recorded, the episode is still over.
        fields["state"] = {ENDING: list(ending)}
        self.native.result(self._kept(fields), False)
        await self._caller.settle(self.current.infer(ending))

    def _ending_by_loop(self, env: Any, result: Any) -> Ending | None:
        said = ending_by(self._options.ending, env, result)
        return self._flavour.ending_of(env, result) if said is None else said

    async def _snapshot(self, is_first: bool = False) -> dict[str, Any]:
        """The state of the environment as of this step, if it is kept."""
        keeper = self._keeper
        if keeper is None:
            return {}
        get = keeper.get
        state = await self._caller.ask(lambda: get(self._env))
        if is_first:
            try:
                check_recordable(state)
            except BadInput as refused:
                if self._options.is_mode_asked:
                    raise
                self._keeper = None
                warn_caller(
                    f"{refused}; the state is not recorded, so an interrupted episode begins again from step 0",
                    RuntimeWarning,
                )
                return {}
        counters = self._flavour.counters(self._env)
        return {STATE: state, COUNTERS: counters} if counters else {STATE: state}

    def _kept(self, fields: dict[str, Any]) -> dict[str, Any]:
        skip = self._options.skip
        return {name: value for name, value in fields.items() if name not in skip} if skip else fields

    # Ending

    async def leave(self, why: Why, said_by: str, raised: BaseException | None = None) -> None:
        """Ends the episode if it is active, and waits until its end is durable."""
        if self.episode is None:
            return
        try:
            # If the loop has recorded the end, that may still be in flight.
            said = (
                self.episode._last
                if self.episode.is_over
                else self.episode.end(why, error=raised, said_by=said_by)
            )
            if said is not None:
                await self._caller.settle(said)
        except (Fenced, Ended, Closed):
            # Another process owns it, or the store is closed: its end cannot be recorded here.
            self._forget(self.current.ref, why=why)
        except Exception as failed:
            self._forget(self.current.ref, why=why)
            self._warn_or_raise(failed)

    async def close(self, said_by: str, raised: BaseException | None = None) -> None:
        """Ends the episode, if it is active, because the environment is closed or left."""
        self._is_closed = True
        await self.leave(why_left(raised), said_by, raised)

    async def _raised(self, raised: BaseException, said_by: str) -> None:
        """Records what the environment raised. Raises nothing itself: the caller must get that exception."""
        if isinstance(raised, Carried):
            raised = raised.original
        why = why_of(raised)
        try:
            if why == "errored" and self.native.is_pending:
                self.native.result({"error": error_of(raised)}, False)
            # Cancelled or told to stop: nobody knows what the action did, so the turn stays pending.
            await self._caller.settle(self.current.end(why, error=raised, said_by=said_by))
        except Exception:
            logger.exception("%s: its end could not be recorded", shown(self.current.ref))
            self._forget(self.current.ref, why=why)

    async def _not_recorded(self, failed: BaseException) -> None:
        """Recording failed or was interrupted: raises, or continues without recording if the caller wants that."""
        ref, steps = self.current.ref, self.native.steps
        if isinstance(failed, (Fenced, Ended, Closed)):
            self._forget(ref, why="superseded")
        else:
            await self._raised(failed, "recording")
        if not isinstance(failed, Exception):
            raise failed
        self._warn_or_raise(failed)
        self._forget(ref, steps=steps)

    def _warn_or_raise(self, failed: Exception) -> None:
        if not self._options.warns:
            raise failed
        ref = self.current.ref
        logger.warning("%s is not recorded from here on", shown(ref), exc_info=failed)
        text = f"{ref} is not recorded until the next reset(): {type(failed).__name__}: {message_of(failed)}"
        warn_caller(text, RuntimeWarning)
