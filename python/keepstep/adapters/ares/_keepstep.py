"""A collector that makes each step durable, so that a rollout of a dead process is on record, and can resume."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal, TypeVar, overload

from ... import BadInput, Busy, Closed, Diverged, Ended, Ending, Episode, Fenced, Receipt, Run, Step, Turn
from ...adapting import (
    ENDING,
    AsyncCaller,
    BlockingCaller,
    Caller,
    in_thread,
    is_on_loop,
    run_blocking,
    samples_of,
)
from ._records import EpisodeTrajectory, StepRecord

T = TypeVar("T")

_AWAITING, _BLOCKING = AsyncCaller(), BlockingCaller()


class KeepstepTrajectoryCollector:
    """Records each episode in a run, under its task; the action of a step is durable before it is taken.

    On an event loop its methods return awaitables; elsewhere the record is durable when they return. Without a `sample`, an
    episode resumes a sample of its task that another process left interrupted, or else takes the next number.

    Parameters:
        run: the run that the episodes belong to.
        iteration: which visit to its tasks.
        sample: which sample of the task, if that is fixed.
        environment: how an interrupted episode resumes: `restart` begins again at step 0 and leaves the earlier attempt
            readable, `replay` takes its actions again and compares the results.
    """

    def __init__(
        self,
        run: Run,
        *,
        iteration: int = 0,
        sample: int | None = None,
        environment: Literal["restart", "replay"] = "restart",
    ) -> None:
        if not isinstance(run, Run):
            raise BadInput(f"run is {run!r}: give a run of a store, as keepstep.open({str(run)!r}).run(name)")
        if environment not in ("restart", "replay"):
            raise BadInput(f"environment is {environment!r}: give 'restart' or 'replay'")
        self._run = run
        self._iteration = iteration
        self._sample = sample
        self._resume: Literal["restart", "continue"] = "restart" if environment == "restart" else "continue"
        self._episode: Episode | None = None
        self._turn: Turn | None = None
        self._task_name = ""
        self._abandoned: str | None = None
        self._start_time = 0.0
        self._reward: float | None = None
        self._num_steps = 0
        self._is_over = True

    @property
    def episode(self) -> Episode:
        """The episode that is recorded now, or was last."""
        if self._episode is None:
            raise RuntimeError("No episode in progress. Call begin_episode() first.")
        return self._episode

    # The methods of the protocol

    def begin_episode(self, *, task_name: str) -> Awaitable[None] | None:
        """Opens an episode of the task. Without a task name, the episode gets a unique name."""
        return _through(lambda caller: self._begin(caller, task_name))

    def record_step(self, record: StepRecord, *, ending: Ending | None = None) -> Awaitable[object] | None:
        """Records a step, together with the ending that it brings, if any, so that a crash cannot come between them."""
        episode = self._active()
        self._reward = record.reward
        self._num_steps += 1
        state = {} if ending is None else {"state": {ENDING: list(ending)}}
        if record.step_type == "FIRST":
            return _settled(episode.first(record.observation))
        came = {
            "observation": record.observation,
            "reward": record.reward,
            "discount": record.discount,
            **state,
        }
        if self._turn is None:
            return _settled(episode.submit(action=record.action, **came))
        self._turn.result(**came)
        # Durable when the turn is left.
        return None

    def end_episode(
        self, *, truncated: bool = False, ending: Ending | None = None
    ) -> EpisodeTrajectory | Awaitable[EpisodeTrajectory]:
        """Records how it ended. The steps of the returned trajectory are read when they are used."""
        episode = self._active()
        said = ending or Ending("truncated" if truncated else "finished", said_by="end_episode")
        self._is_over = True
        self._abandoned = self._task_name if said.why == "abandoned" else None
        receipt = episode.end(said.why, limit=said.limit, error=said.error, said_by=said.said_by)
        trajectory = EpisodeTrajectory(
            episode_id=episode.ref,
            task_name=self._task_name,
            steps=StoredSteps(self._run, episode.ref, self._num_steps),
            start_time=self._start_time,
            end_time=time.time(),
            total_reward=self._reward,
            num_steps=self._num_steps,
            truncated=said.why == "truncated",
            ending=said,
        )

        async def settle(caller: Caller) -> EpisodeTrajectory:
            await caller.settle(receipt)
            return trajectory

        return _through(settle)

    # What makes it durable

    @asynccontextmanager
    async def turn(self, action: Any) -> AsyncIterator[Turn]:
        """Records the action: durable when the turn is entered. The result is durable when it is left."""
        async with AsyncExitStack() as stack:
            self._turn = await self._say(stack, action)
            try:
                yield self._turn
            finally:
                self._turn = None

    async def recorded(self) -> AsyncIterator[StepRecord]:
        """The steps that the episode inherited, without those that raised: they have no result."""
        history = self._active().history
        for index in range(len(history)):
            step = await in_thread(history.__getitem__, index)
            if step.error is None:
                yield _record_of(step)

    # How

    def _active(self) -> Episode:
        if self._is_over:
            raise RuntimeError(
                "No episode in progress. Call begin_episode() first, and await what it returns."
            )
        return self.episode

    async def _say(self, stack: AsyncExitStack, action: Any) -> Turn:
        episode = self._active()
        turn = episode.turn(action=action)
        try:
            return await stack.enter_async_context(turn)
        except Diverged:
            # The action of the pending turn was not taken again: the environment is in the state before it.
            pending = episode.pending
            assert pending is not None
            pending.discard("another action was taken when the episode was resumed")
            return await stack.enter_async_context(episode.turn(action=action))
        except Exception:
            raise
        except BaseException:
            # Cancelled before the environment got the action.
            with suppress(Exception):
                turn.discard("the action was not taken")
            raise

    async def _begin(self, caller: Caller, task_name: str) -> None:
        await self._leave(caller)
        resume = self._resume
        if not task_name:
            await self._open(caller, None, 0, "restart")
        elif self._sample is not None:
            # An episode that the loop itself has just abandoned begins again from step 0.
            resume = "restart" if self._abandoned == task_name else resume
            if not await self._open(caller, task_name, self._sample, resume):
                raise Ended(
                    f"{self.episode.ref} is over ({self.episode.ended}): give another sample= to the collector"
                )
        else:
            await self._open_any(caller, task_name, resume)
        self._task_name, self._start_time = task_name, time.time()
        self._num_steps, self._reward = len(self.episode.history), None
        self._is_over = False

    async def _leave(self, caller: Caller) -> None:
        """Ends an episode that was not ended, unless another process owns it by now, or the store is closed."""
        if self._is_over:
            return
        self._is_over = True
        with suppress(Fenced, Ended, Closed):
            await caller.settle(self.episode.end("abandoned", said_by="begin_episode"))

    async def _open_any(self, caller: Caller, task_name: str, resume: Literal["restart", "continue"]) -> None:
        run: Any = self._run
        samples = await caller.read(lambda: samples_of(run, task_name, self._iteration))
        while True:
            try:
                if await self._open(caller, task_name, samples.take(), resume):
                    return
            except (Busy, Ended):
                # Another process has taken or finished it since it was looked at.
                continue

    async def _open(
        self, caller: Caller, task_name: str | None, sample: int, resume: Literal["restart", "continue"]
    ) -> bool:
        """Opens a sample. False if its last step says that it is over: then only the end was missing."""
        episode = self._run.episode(task_name, sample=sample, iteration=self._iteration, resume=resume)
        opened: Any = episode
        await caller.open(opened)
        self._episode = episode
        said = await caller.read(lambda: episode.state(ENDING))
        if said is None:
            return True
        ending = Ending(*said)
        await caller.settle(
            episode.end(ending.why, limit=ending.limit, error=ending.error, said_by=ending.said_by)
        )
        return False


class StoredSteps(Sequence[StepRecord]):
    """The steps of an episode, read from the store when they are used."""

    def __init__(self, run: Run, ref: str, count: int) -> None:
        self._run = run
        self._ref = ref
        # The null store has none.
        self._count = 0 if run.store.where is None else count
        self._steps: Sequence[Step] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> StepRecord: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[StepRecord]: ...
    def __getitem__(self, at: int | slice) -> StepRecord | Sequence[StepRecord]:
        if self._steps is None:
            self._steps = self._run.store.find(self._ref).steps if self._count else ()
        # A step that raised is there too, after those that were reported.
        told = range(self._count)[at]
        if isinstance(told, range):
            return [_record_of(self._steps[index]) for index in told]
        return _record_of(self._steps[told])

    def __repr__(self) -> str:
        return f"<{self._count} {'step' if self._count == 1 else 'steps'} of {self._ref}>"


def _record_of(step: Step) -> StepRecord:
    return StepRecord(
        step_index=step.index,
        step_type=step.kind,
        observation=step.observation,
        action=step.action,
        reward=step.reward,
        discount=step.discount,
        timestamp=step.time,
    )


def _settled(receipt: Receipt) -> Receipt:
    """A receipt that is durable, unless waiting for that would block an event loop."""
    return receipt if is_on_loop() else receipt.wait()


def _through(work: Callable[[Caller], Coroutine[Any, Any, T]]) -> T | Coroutine[Any, Any, T]:
    """Runs something that waits for the disk; on an event loop, returns an awaitable of it."""
    return work(_AWAITING) if is_on_loop() else run_blocking(work(_BLOCKING))
