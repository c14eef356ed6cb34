"""A group of rollouts: the slots that they take, the rewards when all are there, and the seal."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl import rollouts
from tinker_cookbook.rl.rollout_strategy import RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, Metrics, RLDataset, Trajectory, TrajectoryGroup

from keepstep import BadInput, NotFound, Run
from keepstep.adapting import shown

from ._env import SOURCE, RecordedEnv
from ._playback import GROUP_NOTE
from ._restoring import Mode

logger = logging.getLogger(__name__)

_FIELDS = ("observation", "action", "prompt", "response", "tokens", "info", "state")


class Session:
    """One execution of a builder: which rollout has which slot of the group."""

    def __init__(self, builder: RecordedBuilder) -> None:
        self.builder = builder
        self.run = builder.run
        self.task = builder.visited
        self.refs: tuple[str, ...] = ()
        # By sample: the rollout that has it, or had it last.
        self.held: dict[int, RecordedEnv] = {}
        # The recorded rewards of the group, by sample, if there are any.
        self.known: dict[int, Mapping[str, Any]] = {}
        # True once the builder has cleaned up: later environments belong to another session.
        self.is_over = False

    @property
    def asks_environments(self) -> bool:
        """True if the rewards of the group may use the environments of rollouts that are over."""
        asked = type(self.builder.builder).compute_group_rewards
        return not self.known and asked is not EnvGroupBuilder.compute_group_rewards

    async def wrap(self, envs: Sequence[Env]) -> list[RecordedEnv]:
        """The environments, recorded: first all of the group, later those that replace failed ones."""
        if self.refs:
            # A strategy may know that a task is done before its callbacks have run.
            await asyncio.sleep(0)
            return self._stand_ins(envs)
        self.refs = self.run.group(self.task, size=len(envs), iteration=self.builder.iteration).refs
        self.known = await asyncio.to_thread(self._look)
        # A group that was rewarded with fewer members than asked for keeps these.
        return [RecordedEnv(envs[index], self, index) for index in sorted(self.known) or range(len(envs))]

    def _stand_ins(self, envs: Sequence[Env]) -> list[RecordedEnv]:
        """Strategies take the first environment to replace a failed member: so that one gets the failed member's slot."""
        free = [sample for sample in range(len(envs)) if self._is_free(sample)]
        order = free + [sample for sample in range(len(envs)) if sample not in free]
        wrapped = [RecordedEnv(envs[index], self, index) for index in order]
        if free:
            # At once: another member may fail before this one begins.
            self._give(free[0], wrapped[0])
        return wrapped

    def _look(self) -> dict[int, Mapping[str, Any]]:
        """The recorded rewards of the group, if all its members have them."""
        notes: dict[int, Mapping[str, Any]] = {}
        for sample, ref in enumerate(self.refs):
            try:
                note = self.run.store.find(ref).notes.get(GROUP_NOTE)
            except NotFound:
                continue
            if isinstance(note, Mapping):
                notes[sample] = note
        return (
            notes
            if notes and all(sorted(note["members"]) == sorted(notes) for note in notes.values())
            else {}
        )

    async def another(self, index: int) -> Env:
        """A fresh environment in place of one that was used."""
        return (await self.builder.builder.make_envs())[index]

    def _is_free(self, sample: int) -> bool:
        holder = self.held.get(sample)
        return holder is None or (holder.ended is not None and not holder.is_over)

    def _give(self, sample: int, env: RecordedEnv) -> None:
        env.before, self.held[sample] = self.held.get(sample), env

    async def take(self, env: RecordedEnv) -> int:
        """A slot that is free or whose rollout failed; the environment's own one if possible."""
        order: list[int] = [env.prefers, *range(len(self.refs))]
        sample = next((sample for sample in order if self.held.get(sample) is env), None)
        if sample is None:
            sample = next((sample for sample in order if self._is_free(sample)), None)
            if sample is None:
                raise BadInput(
                    f"{self.run.name}/{self.task}: all {len(self.refs)} slots of the group are taken, "
                    "and none of them failed: make_envs() must not return more environments than the first time"
                )
            self._give(sample, env)
        if env.before is not None:
            await env.before.acknowledged()
        return sample

    def member_of(self, trajectory: Trajectory) -> RecordedEnv:
        """The rollout of a trajectory: found by the object itself, since results come in any order."""
        for env in self.held.values():
            if env.trajectory is trajectory:
                return env
        raise BadInput(
            f"{self.run.name}/{self.task}: a trajectory of the group belongs to no recorded rollout: "
            "seal the group that do_group_rollout returned, with its own trajectories"
        )

    async def settle(self, trajectories: Sequence[Trajectory], envs: Sequence[Env]) -> None:
        """Records how each rollout ended, and waits until that is durable. Those without a trajectory are `aborted`."""
        for trajectory, env in zip(trajectories, envs, strict=True):
            if isinstance(env, RecordedEnv):
                env.settle(trajectory)
        for env in self.held.values():
            if env.trajectory is None:
                env.leave()
            await env.acknowledged()


@dataclass
class RecordedBuilder(EnvGroupBuilder):
    """The same group of environments, each rollout of it recorded as a sample of `task` in `run`. It can be pickled.

    Parameters:
        builder: what makes the environments and rewards the group.
        run: the run; one of the null store (`keepstep.open(None)`) records nothing.
        task: what the group is about: one name for each group of an iteration.
        iteration: which visit to the task.
        policy: the version of the policy that samples.
        new_policy: what to do with an interrupted rollout of another policy, see `keepstep.Opts`.
        environment: how an interrupted rollout resumes: `restore` (the default if the environment has `snapshot()` and
            `restore()`), `restart` (the default otherwise), or `replay` (takes the recorded actions in a fresh one).
        state: functions that get and set the state of an environment that has no methods for it.
        text: makes text of tokens. The default is the tokenizer of the environment's renderer, if there is one.
        skip: fields that are not recorded, such as `"prompt"`.
        grades_fresh: True if the rewards of the group do not depend on what happened in its environments: then fresh ones
            may replace those that ended in an earlier process and cannot be restored.
    """

    builder: EnvGroupBuilder
    run: Run
    task: str
    iteration: int = 0
    policy: int | str | None = None
    new_policy: Literal["continue", "restart", "refuse"] = "continue"
    environment: Mode | None = None
    state: tuple[Callable[[Any], Any], Callable[[Any, Any], Any]] | None = None
    text: Callable[[list[int]], str] | None = None
    skip: Collection[str] = ()
    grades_fresh: bool = False
    _session: Session | None = field(default=None, init=False, repr=False, compare=False)
    _visits: int = field(default=0, init=False, repr=False, compare=False)
    _is_to_be_sealed: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.skip) - set(_FIELDS))
        if isinstance(self.skip, str) or unknown:
            raise BadInput(f"skip is {self.skip!r}: give some of {', '.join(_FIELDS)}")

    def __getstate__(self) -> dict[str, Any]:
        # Another process that executes it has a session of its own, and seals groups if this process does.
        return {**self.__dict__, "_session": None, "_is_to_be_sealed": False, "_installs": is_installed()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("_installs", False):
            install()
        self.__dict__.update(state)

    @property
    def records(self) -> bool:
        """False with the null store: then this changes nothing."""
        return self.run.store.where is not None

    @property
    def visited(self) -> str:
        """The task; with a number if this process has sealed the group before and makes another one."""
        return self.task if self._visits == 0 else f"{self.task}+{self._visits}"

    def decoder(self, env: Env) -> Callable[[list[int]], str] | None:
        """What makes text of tokens."""
        if self.text is not None:
            return self.text
        tokenizer = getattr(getattr(env, "renderer", None), "tokenizer", None)
        return getattr(tokenizer, "decode", None)

    async def make_envs(self) -> Sequence[Env]:
        """The environments, recorded. They take their slots when their rollouts begin."""
        envs = await self.builder.make_envs()
        if not self.records:
            return envs
        if self._session is None or self._session.is_over:
            self._session = Session(self)
        return await self._session.wrap(envs)

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """The rewards of the group: the recorded ones, if there are any."""
        session = self._session
        if session is None:
            return await self.builder.compute_group_rewards(trajectory_group, env_group)
        await session.settle(trajectory_group, env_group)
        members = [session.member_of(trajectory) for trajectory in trajectory_group]
        if session.known and all(member.sample in session.known for member in members):
            notes = [session.known[member.sample] for member in members if member.sample is not None]
            return [(float(note["reward"]), dict(note["metrics"])) for note in notes]
        return await self.builder.compute_group_rewards(
            trajectory_group, [member.graded for member in members]
        )

    async def cleanup(self) -> None:
        """Cleans up what the builder made."""
        try:
            await self.builder.cleanup()
        finally:
            session = self._session
            if session is not None:
                session.is_over = True
            if session is not None and not self._is_to_be_sealed:
                logger.warning(
                    "%s/%s is not sealed: call keepstep.adapters.tinker.install() before the first rollout, or call "
                    "do_group_rollout of that package yourself, or give the group to seal()",
                    shown(self.run.name),
                    shown(session.task),
                )

    def logging_tags(self) -> list[str]:
        """The builder's own."""
        return self.builder.logging_tags()

    async def settle(self, result: RolloutResult) -> RolloutResult:
        """The results of a strategy in the order of the samples, once the end of each rollout is durable."""
        session = self._session
        if session is None:
            return result
        await session.settle(result.trajectories, result.envs)
        pairs = [(session.member_of(trajectory), trajectory) for trajectory in result.trajectories]
        for member, trajectory in pairs:
            member.trajectory = member.as_it_was(trajectory)
        members = sorted((member for member, _ in pairs), key=lambda member: member.sample or 0)
        trajectories = [member.trajectory for member in members if member.trajectory is not None]
        return RolloutResult(trajectories, members, result.errors)

    async def give_up(self) -> None:
        """There is no group: waits until the recorded ends are durable. Some rollouts may still be running."""
        await asyncio.sleep(0)
        for env in list(self._session.held.values()) if self._session is not None else []:
            try:
                await env.acknowledged()
            except Exception:
                logger.exception("%s ended, but its end could not be recorded", shown(env.ref))

    async def seal(self, group: TrajectoryGroup) -> None:
        """Seals the group as the trainer gets it from the cookbook, after clamping: durable when it returns."""
        session, self._session = self._session, None
        if session is None:
            return
        members = [session.member_of(trajectory) for trajectory in group.trajectories_G]
        samples = [member.sample for member in members]
        receipts = []
        for member, reward, metrics in zip(members, group.final_rewards_G, group.metrics_G, strict=True):
            note = {"reward": float(reward), "metrics": dict(metrics), "members": samples}
            if session.known.get(member.sample or 0) != note:
                receipts.append(self.run.annotate(member.ref, GROUP_NOTE, note, source=SOURCE))
        for receipt in receipts:
            await receipt
        sealing = self.run.group(session.task, size=len(session.refs), iteration=self.iteration)
        rewards = {
            member.ref: total for member, total in zip(members, group.get_total_rewards(), strict=True)
        }
        await sealing.seal(rewards, source=SOURCE, least=len(members))
        self._visits += 1


class RecordedDataset(RLDataset):
    """The same dataset, each group of a batch recorded: the batch is the iteration, its place in the batch the task.

    `task` may be a function of builder, batch and place; `options` are those of `RecordedBuilder`.
    """

    def __init__(
        self,
        dataset: RLDataset,
        run: Run,
        *,
        task: Callable[[EnvGroupBuilder, int, int], str] | None = None,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        self._run = run
        self._task = task or (lambda builder, batch, place: f"group-{place}")
        self._options = options

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The builders of a batch, recorded."""
        return [
            RecordedBuilder(
                builder, self._run, self._task(builder, index, place), iteration=index, **self._options
            )
            for place, builder in enumerate(self.dataset.get_batch(index))
        ]

    def __len__(self) -> int:
        return len(self.dataset)


_original = rollouts.do_group_rollout


@functools.wraps(_original)
async def do_group_rollout(
    env_group_builder: EnvGroupBuilder,
    policy: TokenCompleter,
    strategy: RolloutStrategy | None = None,
    termination: Any = None,
) -> TrajectoryGroup:
    """The cookbook's own; the group of a `RecordedBuilder` is sealed when it returns."""
    if not isinstance(env_group_builder, RecordedBuilder):
        return await _original(env_group_builder, policy, strategy=strategy, termination=termination)
    env_group_builder._session, env_group_builder._is_to_be_sealed = None, True
    try:
        group = await _original(env_group_builder, policy, strategy=strategy, termination=termination)
        await env_group_builder.seal(group)
    finally:
        env_group_builder._session, env_group_builder._is_to_be_sealed = None, False
    return group


def install() -> None:
    """Lets the cookbook's own loops seal recorded groups: replaces the cookbook's `do_group_rollout` by this one.

    `tinker_cookbook.rl.rollouts.do_group_rollout` is the function that the cookbook names for overriding, and only there is a
    group known as trainers see it. Groups of other builders are passed through. Call it once, before the first rollout;
    calling it again does nothing. A `RecordedBuilder` that is pickled afterwards also installs it in the process that
    unpickles it. Importing this package replaces nothing.
    """
    rollouts.do_group_rollout = do_group_rollout


def is_installed() -> bool:
    """True if the cookbook's own loops seal recorded groups in this process."""
    return rollouts.do_group_rollout is do_group_rollout
