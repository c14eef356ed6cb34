"""A journal for an agent's `/run`: each turn is durable, and a killed server resumes in the turn it was in.

The model's answer is durable before a tool is called, and what the tools returned before the model is asked again. How far
a rollout can resume depends on its environment, for which NeMo Gym has three classes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import keepstep
from keepstep.adapting import FINAL, SharedStore, Where

from ._capture import KeepstepTokenSink
from ._names import ATTEMPT, EXPLICIT, RolloutName

Environment = Literal["export/restore", "restart-only", "stateless"]
_RESUME: dict[str, Literal["continue", "restart"]] = {
    "export/restore": "continue",
    "restart-only": "restart",
    "stateless": "continue",
}


class RunJournal:
    """Records the rollouts of an agent server.

    Parameters:
        store: a directory, or an open store.
        run: the run in which they are kept.
        environment: how an interrupted rollout resumes. `"export/restore"`: in its last state, which the functions of
            `rollout(export=…, restore=…)` get and set. `"stateless"`: after its last turn, with nothing to restore.
            `"restart-only"`: the next attempt begins with turn 0, and the earlier one stays readable.
        config: what the rollouts share; compared with the config of the run.
        captures: the sink that captures their tokens: a later attempt inherits the captures of the turns it inherits.
        level: what a turn must survive. The default is the highest level that the storage supports.
    """

    def __init__(
        self,
        store: Where,
        *,
        run: str = "rollouts",
        environment: Environment = "restart-only",
        config: Mapping[str, Any] | None = None,
        captures: KeepstepTokenSink | None = None,
        level: keepstep.Level | None = None,
    ) -> None:
        if environment not in _RESUME:
            raise keepstep.BadInput(f"environment is {environment!r}: give one of {', '.join(_RESUME)}")
        self._shared = SharedStore(store, level)
        self.run = self._shared.store.run(run, config=config)
        self.environment: Environment = environment
        self._captures = captures

    def rollout(
        self,
        body: Any,
        *,
        export: Callable[[], Any] | None = None,
        restore: Callable[[Any], Any] | None = None,
        busy: Literal["raise", "wait", "take"] = "raise",
    ) -> JournaledRollout:
        """The rollout that a request is about, to be entered by `async with`.

        Parameters:
            body: the request, or its fields.
            export: returns the environment's state after a turn, as plain data; may be async.
            restore: sets a state that was exported; may be async.
            busy: what to do if a live process has the rollout, see `keepstep.Opts`.
        """
        if self.environment == "export/restore" and (export is None or restore is None):
            raise keepstep.BadInput(
                'environment: "export/restore" needs two functions: give rollout(body, export=…, restore=…)'
            )
        return JournaledRollout(self, body, export, restore, busy)

    async def close(self) -> None:
        """Releases the store."""
        await asyncio.to_thread(self._shared.close)


class JournaledRollout:
    """One attempt at a rollout. `result` is there from the start if an earlier attempt has finished it."""

    result: dict[str, Any] | None
    """What `/run` answers: None until it is known."""
    items: list[Any]
    """The conversation: the input, the model's answers, the tools' results."""

    def __init__(
        self,
        journal: RunJournal,
        body: Any,
        export: Callable[[], Any] | None,
        restore: Callable[[Any], Any] | None,
        busy: Literal["raise", "wait", "take"],
    ) -> None:
        self._journal = journal
        self._body = body
        self._export = export
        self._restore = restore
        self._busy = busy
        self._named = RolloutName.of(body)
        self._episode: keepstep.Episode | None = None
        self.result = None
        self.items = []
        self._input_count = 0

    @property
    def episode(self) -> keepstep.Episode:
        """The episode that records it. There is none if an earlier attempt has finished the rollout."""
        if self._episode is None:
            raise keepstep.Ended(
                f"{self._ref} is over, or was not entered: use `async with journal.rollout(...)`, and look at `result` first"
            )
        return self._episode

    @property
    def attempt(self) -> int:
        """Which attempt at the rollout this is, from 0."""
        return self.episode.attempt

    @property
    def name(self) -> str:
        """`<id>`, or `<id>-a<N>` for a later attempt."""
        if self._named is None:
            return f"unnamed-{self.episode.id}"
        return self._named.attempt(self.attempt)

    @property
    def resumed(self) -> bool:
        """True if it resumes an earlier attempt."""
        return self.episode.resumed

    @property
    def turns(self) -> int:
        """How many turns are complete."""
        return int(self.state("turns", 0))

    @property
    def done(self) -> bool:
        """True if the last turn said that it was the last."""
        return bool(self.state("done", False))

    @property
    def output(self) -> list[Any]:
        """The items after the input."""
        return self.items[self._input_count :]

    @property
    def last_response(self) -> dict[str, Any] | None:
        """The model's newest answer, of a turn that is complete."""
        return self.state("response")  # type: ignore[no-any-return]

    @property
    def body(self) -> dict[str, Any]:
        """The request, with the name under which its tokens are captured: for `url_path_for_run`."""
        # A request leaves its explicit id out of its own dump.
        explicit = getattr(self._body, "capture_rollout_id", None)
        return {**_data(self._body), **({EXPLICIT: explicit} if explicit else {}), **self._renamed()}

    def state(self, name: str, default: Any = None) -> Any:
        """A named value as of the last complete turn."""
        return self.episode.state(name, default)

    def turn(self, ask: Callable[[list[Any]], Awaitable[Any]], **said: Any) -> JournaledTurn:
        """The next turn, to be entered by `async with`: asks the model, unless a killed attempt's answer is on record.

        Parameters:
            ask: returns the model's answer to the items so far: a response, or its fields.
            **said: what else is known before the action, such as `tokens` or `policy`.
        """
        return JournaledTurn(self, ask, said)

    async def finish(self, result: Any, *, limit: str | None = None) -> dict[str, Any]:
        """Records what `/run` answers, and ends the rollout. Repeating it with the same result is fine.

        Parameters:
            result: the verified result, with its `reward`.
            limit: the limit that cut the rollout off, if one did: `"turns"`, `"time"`, `"tokens"`, …
        """
        if self.result is not None:
            if {**_data(result), ATTEMPT: None} != {**self.result, ATTEMPT: None}:
                raise keepstep.Ended(f"{self._ref} has another result already")
            return self.result
        fields = {**_data(result), **self._renamed()}
        state = {"result": fields, "limit": limit}
        await self.episode.submit(action="verify", reward=fields.get("reward"), state=state)
        self.result = fields
        await self._end(limit)
        return fields

    async def _end(self, limit: str | None) -> None:
        if limit is None:
            await self.episode.end("finished")
        else:
            await self.episode.end("truncated", limit=limit)

    async def __aenter__(self) -> JournaledRollout:
        earlier = await asyncio.to_thread(self._earlier)
        if earlier is not None and self._take_result(earlier):
            return self
        resume = _RESUME[self._journal.environment]
        if earlier is not None and "result" in _last_state(earlier):
            # It was verified, and killed before its end was recorded: there is nothing to do again.
            resume = "continue"
        episode = self._opened(resume)
        try:
            await episode.__aenter__()
        except keepstep.Ended:
            await self._wait_for_result()
            return self
        self._episode = episode
        try:
            await self._begin(earlier)
        except BaseException as raised:
            # Nothing was activated; the record says why.
            await episode.__aexit__(type(raised), raised, raised.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._episode is not None:
            await self._episode.__aexit__(kind, raised, trace)

    def _renamed(self) -> dict[str, int]:
        """Makes NeMo Gym call a later attempt `<id>-a<N>`: its collector looks up captures by the name in the result.

        Without a sink that can inherit them, all captures stay under the name that was dispatched.
        """
        if self._journal._captures is None or self._named is None or self._named.dispatch or not self.attempt:
            return {}
        return {ATTEMPT: self.attempt}

    @property
    def _ref(self) -> str:
        return f"rollout {self._named.id}" if self._named is not None else "a rollout without a name"

    def _earlier(self) -> keepstep.View | None:
        """The newest attempt. A request of an older dispatch is refused: it must not resume what a newer one did."""
        if self._named is None:
            return None
        run = self._journal.run
        try:
            found = run.store.find(run.episode(self._named.task, sample=self._named.sample).ref)
        except keepstep.NotFound:
            return None
        newest = max(int((view.meta or {}).get("dispatch", 0)) for view in found.attempts() or [found])
        if self._named.dispatch < newest:
            raise keepstep.Fenced(
                f"{self._ref}: this is dispatch {self._named.dispatch}, but dispatch {newest} has begun already"
            )
        return found

    def _opened(self, resume: Literal["continue", "restart"]) -> keepstep.Episode:
        if self._named is None:
            return self._journal.run.episode()
        return self._journal.run.episode(
            self._named.task,
            sample=self._named.sample,
            resume=resume,
            busy=self._busy,
            meta={"rollout_id": self._named.id, "dispatch": self._named.dispatch},
        )

    async def _wait_for_result(self) -> None:
        """Another process has just finished it. At level "kill", others see that when the log is synced in the background."""
        for _ in range(100):
            earlier = await asyncio.to_thread(self._earlier)
            if earlier is not None and self._take_result(earlier):
                return
            await asyncio.sleep(0.05)
        raise keepstep.Busy(f"{self._ref} is over, but its result cannot be read yet: try again")

    def _take_result(self, view: keepstep.View) -> bool:
        if view.state not in FINAL:
            return False
        self.result = _last_state(view).get("result")
        if self.result is None:
            raise keepstep.Ended(
                f"{self._ref} is {view.state}, but was not recorded by a journal: it has no result"
            )
        return True

    async def _begin(self, earlier: keepstep.View | None) -> None:
        episode = self.episode
        if (result := episode.state("result")) is not None:
            self.result = result
            await self._end(episode.state("limit"))
            return
        items = episode.state("items")
        if items is None:
            items = _input_of(_data(self._body))
            state = {"items": items, "input_count": len(items)}
            await episode.first(items, info=_data(self._body), state=state)
        self.items, self._input_count = list(items), episode.state("input_count", len(items))
        if self.turns and self._journal.environment == "export/restore":
            await self._restore_environment()
        if earlier is not None and (self.turns or episode.pending is not None):
            await self._inherit_captures(earlier)

    async def _restore_environment(self) -> None:
        kept = self.state("environment")
        if kept is None or self._restore is None:
            raise keepstep.NotFound(
                f"{self._ref}: turn {self.turns - 1} kept no state of the environment, so the rollout cannot resume; "
                'to begin again from turn 0, open the journal with environment="restart-only"'
            )
        await _awaited(self._restore(kept["state"]))

    async def _inherit_captures(self, earlier: keepstep.View) -> None:
        if self._journal._captures is None or self._named is None:
            return
        dispatch = int((earlier.meta or {}).get("dispatch", 0))
        before = RolloutName(self._named.id, self._named.task, dispatch=dispatch).attempt(earlier.attempt)
        if before == self.name:
            return
        said = [step.response or {} for step in self.episode.history if step.error is None]
        if (pending := self.episode.pending) is not None:
            said.append(pending.said["response"])
        ids = [response["id"] for response in said if response.get("id")]
        await self._journal._captures.inherit(before, self.name, response_ids=ids)


class JournaledTurn:
    """A turn of a rollout: the model's answer is durable when it is entered, the result when it is left."""

    response: dict[str, Any]
    """What the model answered, as plain data."""

    def __init__(
        self, rollout: JournaledRollout, ask: Callable[[list[Any]], Awaitable[Any]], said: dict[str, Any]
    ) -> None:
        self._rollout = rollout
        self._ask = ask
        self._said = said
        self._turn: keepstep.Turn | None = None
        self._items: list[Any] = []

    @property
    def calls(self) -> list[Any]:
        """The tool calls of the answer."""
        return _calls(self.response)

    @property
    def adopted(self) -> bool:
        """True if a killed attempt had recorded the answer. Its tools may have run already."""
        return self._turn is not None and self._turn.adopted

    async def result(self, outputs: Sequence[Any] = (), *, done: bool = False, **more: Any) -> None:
        """Records the result of the turn.

        Parameters:
            outputs: what the tools returned, as items.
            done: True if this is the last turn of the rollout.
            **more: fields of a step, such as `reward`; `state` has what is needed to resume, besides the items.
        """
        rollout = self._rollout
        assert self._turn is not None, "a turn is entered by `async with`"
        observed = [_data(item) for item in outputs]
        self._items = [*rollout.items, *self.response.get("output", []), *observed]
        state = {
            **more.pop("state", {}),
            "items": self._items,
            "input_count": rollout._input_count,
            "turns": rollout.turns + 1,
            "done": done,
            "response": self.response,
        }
        if rollout._journal.environment == "export/restore":
            assert rollout._export is not None, "checked when the rollout was made"
            state["environment"] = {"state": await _awaited(rollout._export())}
        self._turn.result(observation=observed, state=state, **more)

    async def __aenter__(self) -> JournaledTurn:
        episode = self._rollout.episode
        pending = episode.pending
        if pending is None:
            prompt = list(self._rollout.items)
            self.response = _data(await self._ask(prompt))
            pending = episode.turn(
                prompt=prompt, response=self.response, action=_calls(self.response), **self._said
            )
        self._turn = pending
        await pending.__aenter__()
        self.response = pending.said["response"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._turn is not None, "a turn is entered by `async with`"
        await self._turn.__aexit__(kind, raised, trace)
        if kind is None:
            self._rollout.items = self._items


def _calls(response: Mapping[str, Any]) -> list[Any]:
    return [item for item in response.get("output", []) if item.get("type") == "function_call"]


def _last_state(view: keepstep.View) -> Mapping[str, Any]:
    return (view.steps[-1].state or {}) if len(view.steps) else {}


def _data(value: Any) -> Any:
    """Plain data, as it is sent over the wire: the same on the first try and on a later one."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return dict(value) if isinstance(value, Mapping) else value


def _input_of(body: Mapping[str, Any]) -> list[Any]:
    given = _data(body.get("responses_create_params") or {}).get("input") or []
    return [{"role": "user", "content": given}] if isinstance(given, str) else [_data(item) for item in given]


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
