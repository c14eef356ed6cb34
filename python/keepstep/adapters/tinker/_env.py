"""One rollout of a group: its environment and its policy, recorded turn by turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tinker
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    Env,
    InitialObservationOverflow,
    Observation,
    StepResult,
    Trajectory,
)

from keepstep import BadInput, Busy, Ending, Episode, KeepstepError, NotFound, Tokens, Turn, View, Why
from keepstep.adapting import FINAL, shown

from ._playback import ENDING_NOTE, Playback
from ._restoring import STATE, bring_back, keeper_of, mode_of, settled
from ._values import (
    NotRecorded,
    Words,
    action_of,
    chunks_of,
    ending_of,
    model_input_of,
    overflow_fields,
    result_fields,
    text_tokens_of,
)

if TYPE_CHECKING:
    from ._group import Session

logger = logging.getLogger(__name__)

SOURCE = "tinker-cookbook"
_PATIENCE_S = 5.0

# The rollout of the running task: a policy is shared by a whole group, so it cannot know it by itself.
_current: ContextVar[RecordedEnv | None] = ContextVar("keepstep_tinker_rollout", default=None)


class RecordedPolicy(TokenCompleter):
    """The same policy. Each answer is recorded with the turn of the rollout that asks, and is not asked for twice."""

    def __init__(self, policy: TokenCompleter) -> None:
        self.policy = policy

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        # Not every completer takes a budget: it is passed on only if there is one.
        budget = {} if max_tokens is None else {"max_tokens": max_tokens}
        rollout = _current.get()
        if rollout is None:
            return await self.policy(model_input, stop, **budget)
        return await rollout.answer(self.policy, model_input, stop, budget)


class RecordedEnv(Env):
    """The same environment: it takes a slot of its group when it is asked for its first observation."""

    def __init__(self, env: Env, session: Session, prefers: int) -> None:
        self.env = env
        self.prefers = prefers
        self.sample: int | None = None
        # The rollout that had the slot before and failed, if there is one.
        self.before: RecordedEnv | None = None
        self.trajectory: Trajectory | None = None
        # How it ended, once that is known.
        self.ended: str | None = None
        self.playback: Playback | None = None
        self._session = session
        self._keeper = keeper_of(env, session.builder.state)
        self._mode = mode_of(session.builder.environment, self._keeper)
        self._episode: Episode | None = None
        self._turn = 0
        self._answer: dict[str, Any] | None = None
        self._pending: Turn | None = None
        self._injected: Any = None
        self._receipts: list[Any] = []
        self._trouble: BaseException | None = None
        decode = session.builder.decoder(env)
        self._words = None if decode is None else Words(decode)

    def __getattr__(self, name: str) -> Any:
        # Budgets and hooks that the loop looks for are those of the environment.
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def is_over(self) -> bool:
        """True if nothing can be added to it."""
        return self.ended in FINAL

    @property
    def ref(self) -> str:
        """The ref of its episode."""
        assert self.sample is not None
        return self._session.refs[self.sample]

    # What the loop calls

    async def initial_observation(self) -> tuple[Observation, StopCondition] | InitialObservationOverflow:
        """The first observation, from the environment or as an earlier attempt recorded it."""
        if self.sample is not None:
            raise BadInput(
                f"{self.ref}: an environment of the cookbook is for one rollout: make a new environment"
            )
        _current.set(self)
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(self._on_task_done)
        self.sample = await self._session.take(self)
        await self._open()
        if self.playback is not None:
            return self.playback.begin()
        try:
            initial = await self.env.initial_observation()
        except BaseException as raised:
            await self._failed(raised)
            raise
        await self._record_first(initial)
        return initial

    async def answer(
        self,
        policy: TokenCompleter,
        model_input: tinker.ModelInput,
        stop: StopCondition,
        budget: dict[str, int],
    ) -> TokensWithLogprobs:
        """The policy's answer in this turn: the recorded one, if there is one."""
        if self.playback is not None and self._turn < len(self.playback.answers):
            return self.playback.answers[self._turn]
        if self.ended is not None:
            # The rollout is over: the same task asks for something else.
            return await policy(model_input, stop, **budget)
        # Copied now: what the environment does to its history afterwards must not be recorded.
        chunks = chunks_of(model_input)
        try:
            answer = await policy(model_input, stop, **budget)
        except BaseException as raised:
            await self._failed(raised)
            raise
        self._answer = self._said(chunks, answer)
        return answer

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Takes the action. It is durable before the environment gets it, and its result when this returns."""
        if self.playback is not None and self._turn < self.playback.turns:
            result = self.playback.result(self._turn)
            self._turn += 1
            return result
        turn = self._next_turn(action, extra)
        try:
            async with turn:
                result = await self.env.step(action, extra=extra)
                turn.result(**await self._came(result))
        except BaseException as raised:
            await self._failed(raised)
            raise
        self._turn += 1
        self._injected = None
        return result

    async def inject_messages(self, messages: list[Any]) -> tuple[tinker.ModelInput, StopCondition]:
        """Messages of a hook, before a turn. While recorded turns are repeated, returns what was recorded."""
        if self.playback is not None and self._turn < self.playback.turns:
            known = self.playback.injected[self._turn]
            if known is not None:
                return model_input_of(known["observation"]), list(known["stop_condition"])
        inject = getattr(self.env, "inject_messages", None)
        if inject is None:
            raise TypeError(f"{type(self.env).__name__} does not support message injection")
        observation, stop = await inject(messages)
        self._injected = {"observation": chunks_of(observation), "stop_condition": list(stop)}
        return observation, stop

    # Opening: a new episode, or one that an earlier attempt left

    async def _open(self) -> None:
        try:
            await self._resume()
        except NotRecorded as why:
            if self._episode is None:
                raise BadInput(
                    f"{self.ref} is over, but its trajectory cannot be read from the record ({why}): "
                    "record observation, tokens and info, or give another iteration"
                ) from None
            logger.warning("%s begins again from its first turn: %s", shown(self.ref), shown(str(why)))
            # It keeps its slot: no other rollout may take it meanwhile.
            await self._episode.end("aborted", error=f"cannot resume: {why}", said_by="keepstep")
            self.playback = None
            self.env = await self._session.another(self.prefers)
            await self._enter(resume="restart")
        except BaseException as raised:
            await self._failed(raised)
            raise

    def _look(self) -> tuple[View, Ending | None, int | None] | None:
        """The recorded attempt, how it ended, and which turn failed: only the last turn of an attempt can fail."""
        try:
            view = self._session.run.store.find(self.ref)
        except NotFound:
            return None
        last = view.steps[-1] if view.steps else None
        return view, view.ending, None if last is None or last.error is None else last.index

    async def _resume(self) -> None:
        found = await asyncio.to_thread(self._look)
        if found is None:
            return await self._enter()
        view, ending, wrong = found
        if ending is not None and ending.why in FINAL:
            self.playback = await asyncio.to_thread(Playback.of_final, view)
            if self._mode != "restart" and self._session.asks_environments:
                # Here, where a strategy retries failures.
                await bring_back(self.env, self._mode, self._keeper, self.playback)
            self.ended = ending.why
            return
        if self._mode == "restart":
            return await self._enter(resume="restart")
        # A turn whose action failed is not inherited: this attempt samples it again.
        await self._enter(**({} if wrong is None else {"at": wrong}))
        await self._take_up()

    async def _enter(self, **options: Any) -> None:
        builder = self._session.builder
        if builder.policy is not None:
            options.update(policy=builder.policy, new_policy=builder.new_policy)
        patience = time.monotonic() + _PATIENCE_S
        while self._episode is None or self._episode.ended is not None:
            episode = self._session.run.episode(
                self._session.task, sample=self.sample or 0, iteration=builder.iteration, **options
            )
            try:
                self._episode = await episode.__aenter__()
            except Busy:
                # A rollout that failed or was cancelled here releases its episode in a moment; another owner does not.
                if time.monotonic() > patience:
                    raise
                await asyncio.sleep(0.02)

    async def _take_up(self) -> None:
        episode = self._episode
        assert episode is not None
        steps = await asyncio.to_thread(lambda: list(episode.history))
        if not steps:
            return
        self._pending = episode.pending
        self.playback = Playback(steps, None if self._pending is None else self._pending.said)
        await bring_back(self.env, self._mode, self._keeper, self.playback)

    @property
    def graded(self) -> Env:
        """The environment for the rewards of the group: as it was at the end, or one that raises that it is gone."""
        is_gone = self.playback is not None and self.playback.is_final and self._mode == "restart"
        return _Gone(self.ref) if is_gone and not self._session.builder.grades_fresh else self.env

    # Recording

    async def _record_first(
        self, initial: tuple[Observation, StopCondition] | InitialObservationOverflow
    ) -> None:
        episode = self._episode
        assert episode is not None
        state = await self._state()
        if isinstance(initial, InitialObservationOverflow):
            await episode.submit(**self._kept({**overflow_fields(initial), **state}))
            return
        observation, stop = initial
        given = self._kept(
            {"observation": chunks_of(observation), "info": {"stop_condition": list(stop)}, **state}
        )
        await episode.first(given.pop("observation", None), **given)

    def _said(self, chunks: list[dict[str, Any]], answer: TokensWithLogprobs) -> dict[str, Any]:
        tokens = text_tokens_of(chunks)
        said: dict[str, Any] = {
            "action": action_of(answer.tokens, answer.stop_reason),
            "tokens": Tokens(prompt=tokens, ids=list(answer.tokens), logprobs=answer.maybe_logprobs),
        }
        if self._words is not None:
            try:
                said["response"] = self._words.response(answer.tokens)
                if tokens is not None:
                    said["prompt"] = self._words.prompt(tokens)
            except Exception:
                # The text is only for people: a rollout does not fail because its tokens have none.
                logger.warning(
                    "%s is recorded without text: its tokens cannot be decoded",
                    shown(self.ref),
                    exc_info=True,
                )
                self._words = None
        return said

    def _next_turn(self, action: Action, extra: ActionExtra | None) -> Turn:
        episode, said = self._episode, self._answer
        if episode is None:
            raise BadInput(f"{self.ref} is over, so no step can be added: make a new environment")
        pending, self._pending, self._answer = self._pending, None, None
        if pending is not None:
            if pending.said["action"]["tokens"] == list(action):
                return pending
            pending.discard("the loop took another action")
        if said is None or said["action"]["tokens"] != list(action):
            # The action is of a policy that is not recorded: there are no logprobs to keep.
            said = {"action": action_of(action, (extra or {}).get("stop_reason"))}
        if self._session.builder.policy is not None:
            said["policy"] = self._session.builder.policy
        return episode.turn(**self._kept(said))

    async def _came(self, result: StepResult) -> dict[str, Any]:
        fields = result_fields(result)
        if self._injected is not None:
            fields["info"]["injected"] = self._injected
        return self._kept({**fields, **await self._state()})

    async def _state(self) -> dict[str, Any]:
        if self._keeper is None or self._mode != "restore":
            return {}
        return {"state": {STATE: await settled(self._keeper.get(self.env))}}

    def _kept(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name not in self._session.builder.skip}

    # Endings

    async def _failed(self, raised: BaseException) -> None:
        """Records a failure at once. A cancellation is left to the loop, which may use it for a time limit."""
        if isinstance(raised, asyncio.CancelledError):
            task = asyncio.current_task()
            cancelling = getattr(task, "cancelling", None)
            if cancelling is None or cancelling() > 0:
                return
        elif not isinstance(raised, Exception):
            return
        try:
            self._stop("errored", error=raised, said_by="exception")
            await self.acknowledged()
        except Exception:
            logger.exception("%s failed, and its end could not be recorded", shown(self.ref))

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        """The task of this rollout is over: by now the loop has decided what a cancellation means."""
        try:
            if task.cancelled():
                self._stop("cancelled", said_by="cancellation")
            elif (raised := task.exception()) is not None:
                self._stop("errored", error=raised, said_by="exception")
            elif isinstance(trajectory := task.result(), Trajectory):
                self.settle(trajectory)
        except Exception as trouble:
            # Nobody can handle it here: it is raised when the acknowledgement is awaited.
            self._trouble = trouble

    def settle(self, trajectory: Trajectory) -> None:
        """Records how the loop ended the rollout. Returns at once."""
        self.trajectory = trajectory
        if self.ended is not None or self._episode is None:
            return
        last = trajectory.transitions[-1]
        turns = len(trajectory.transitions)
        # The cookbook invents a transition if there was no turn.
        is_made_up = turns == 1 and not last.ac.tokens and not last.ob.chunks
        note = {
            "stop_reason": None if trajectory.stop_reason is None else str(trajectory.stop_reason),
            "transitions": 0 if is_made_up else turns,
            "metrics": dict(last.metrics),
        }
        self._receipts.append(self._episode.note(ENDING_NOTE, note, source=SOURCE))
        why, limit = ending_of(trajectory.stop_reason)
        self._end(why, limit=limit, said_by=SOURCE)

    def leave(self) -> None:
        """Ends a rollout that has no trajectory and no recorded end."""
        if self.ended is None and self._episode is not None:
            self._end("aborted", said_by="the strategy gave no trajectory of it")

    def _stop(self, why: Why, **more: Any) -> None:
        """There will be no trajectory: ends the rollout if it was opened and is not over. Its slot is free."""
        if self._episode is None:
            self.ended = why
        elif self.ended is None:
            self._end(why, **more)

    def _end(self, why: Why, **more: Any) -> None:
        assert self._episode is not None
        self.ended = why
        if self._episode.ended is None:
            self._receipts.append(self._episode.end(why, **more))

    async def acknowledged(self) -> None:
        """Waits until all records are durable."""
        for receipt in self._receipts:
            await receipt
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def as_it_was(self, trajectory: Trajectory) -> Trajectory:
        """The exact trajectory of a rollout that was over before: last metrics and final observation are the recorded ones."""
        if self.playback is None or not self.playback.is_final:
            return trajectory
        *before, last = trajectory.transitions
        last = replace(last, metrics=dict(self.playback.ending["metrics"]))
        return replace(trajectory, transitions=[*before, last], final_ob=self.playback.final_observation)


class _Gone(Env):
    """Takes the place of an environment that ended in an earlier process and cannot be restored."""

    def __init__(self, ref: str) -> None:
        self._ref = ref

    def __getattr__(self, name: str) -> Any:
        raise EnvironmentGone(
            f"the environment of {self._ref} ended in an earlier process, so its {name!r} is not known: give the environment "
            "snapshot() and restore(), or give grades_fresh=True if rewards do not depend on what happened in it"
        )

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        raise EnvironmentGone(f"the environment of {self._ref} is gone")

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        raise EnvironmentGone(f"the environment of {self._ref} is gone")


class EnvironmentGone(KeepstepError, RuntimeError):
    """The rewards of a group use an environment that ended in an earlier process and cannot be restored."""
