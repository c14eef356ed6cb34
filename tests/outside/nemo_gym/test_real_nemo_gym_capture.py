"""Token capture of the real NeMo Gym on a keepstep store: its own suite, its own builder, kill -9."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepstep
import outside
import pytest
import signatures
from keepstep.adapters.nemo_gym import (
    KeepstepLineage,
    KeepstepTokenSink,
    KeepstepTokenSource,
    RolloutName,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.token_id_capture import (
    CaptureContext,
    TokenCaptureStore,
    TokenIdCaptureConfig,
    capture_tokens,
    register_call_intent,
    reset_token_sink,
    resolve_parent,
    set_token_sink,
)
from nemo_gym.token_id_capture.conformance import ConformanceError, run_conformance
from nemo_gym.token_id_capture.delivery import finalize_rollout_token_capture, retire_rollout_token_capture
from nemo_gym.token_id_capture.lineage import stamp_continuation
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, stamp_lineage
from nemo_remote import Process, RemoteLineage, RemoteSink, RemoteSource

CHECKS = 10
Suite = Callable[[str, int, int], None]


def conformance(suite: Suite, name: str, *factories: Any) -> None:
    passed: list[str] = []
    try:
        passed = asyncio.run(run_conformance(*factories))
    finally:
        suite(name, len(passed), CHECKS)
    assert len(passed) == CHECKS, passed


def test_its_conformance_suite_in_one_process(tmp_path: Path, suite: Suite) -> None:
    conformance(
        suite,
        "conformance",
        lambda: KeepstepTokenSink(tmp_path),
        lambda: KeepstepTokenSource(tmp_path),
        lambda: KeepstepLineage(tmp_path),
    )


def test_its_conformance_suite_with_sink_source_and_resolver_in_three_processes(
    tmp_path: Path, suite: Suite
) -> None:
    sink, source, lineage = (Process(kind, tmp_path) for kind in ("sink", "source", "lineage"))
    conformance(
        suite,
        "conformance, 3 processes",
        lambda: RemoteSink(sink),
        lambda: RemoteSource(source),
        lambda: RemoteLineage(lineage),
    )
    for process in (sink, source, lineage):
        process.end()


def test_the_suite_fails_a_sink_that_forgets(tmp_path: Path) -> None:
    """The suite can fail: its word is worth something."""

    class Forgets(KeepstepTokenSink):
        async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
            pass

    with pytest.raises(ConformanceError, match="mark_incomplete"):
        asyncio.run(run_conformance(lambda: Forgets(tmp_path), lambda: KeepstepTokenSource(tmp_path)))


def test_its_configuration_builds_them(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    text = f"""
    token_id_capture:
      enabled: true
      sink: "keepstep.adapters.nemo_gym:KeepstepTokenSink"
      sink_kwargs: {{store: {tmp_path}, run: captures}}
      lineage_store: "keepstep.adapters.nemo_gym:KeepstepLineage"
      lineage_store_kwargs: {{store: {tmp_path}, run: captures}}
    """
    config = TokenIdCaptureConfig.model_validate(OmegaConf.to_container(OmegaConf.create(text)))
    sink, lineage = config.build_sink(), config.build_lineage_store()
    assert isinstance(sink, KeepstepTokenSink) and isinstance(lineage, KeepstepLineage)
    assert lineage.is_process_shared()
    asyncio.run(sink.close())
    asyncio.run(lineage.close())


def test_the_stand_ins_are_like_the_real_ones() -> None:
    capture = "nemo_gym.token_id_capture"
    found = [
        *signatures.differences(f"{capture}.records", "TokenEntry", "cumulative_tokens"),
        *signatures.differences(
            f"{capture}.protocols", "TokenCaptureSnapshot", "LineageMatch", "LineageResolution"
        ),
        *signatures.differences(
            f"{capture}.lineage", "IncrementalLineageStore", "stamp_continuation", "assistant_fingerprint"
        ),
    ]
    assert found == []


@pytest.mark.parametrize(
    "body",
    [
        {"_ng_task_index": 3, "_ng_rollout_index": 2},
        {"_ng_task_index": 3, "_ng_rollout_index": 2, "_ng_attempt_index": 2},
        {"_ng_task_index": 3, "_ng_rollout_index": 2, "_ng_rollout_id": "x.y_z-1", "_ng_attempt_index": 1},
        {"_ng_task_index": 3},
        {"_ng_rollout_id": "a", "_ng_attempt_index": 0},
    ],
)
def test_rollouts_have_the_names_that_it_gives_them(body: dict[str, Any]) -> None:
    named = RolloutName.of(body)
    assert (named and named.attempt(0)) == maybe_rollout_id_from_run_body(body)


def response(turn: int, prompt: list[int], generated: list[int]) -> dict[str, Any]:
    call = {
        "type": "function_call",
        "id": f"fc-{turn}",
        "call_id": f"call-{turn}",
        "name": "look",
        "arguments": json.dumps({"turn": turn}),
        "prompt_token_ids": prompt,
        "generation_token_ids": generated,
        "generation_log_probs": [-0.5] * len(generated),
    }
    return {"id": f"resp-{turn}", "model": "m", "output": [call]}


class Rollout:
    """A rollout as its model server sees it: resolve, begin, generate, capture; the prompt grows."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = [{"role": "user", "content": "look around"}]
        self.prompt = list(range(100))
        self.turn = 0
        self.statuses: list[ParentResolutionStatus] = []

    async def calls(self, rollout_id: str, count: int, sink: Any, lineage: Any) -> None:
        for _ in range(count):
            context = CaptureContext(rollout_id, f"{rollout_id}-{self.turn}", sink, lineage, "m")
            token = set_token_sink(context)
            try:
                await resolve_parent(self.items)
                await register_call_intent()
                generated = list(range(1000 + 10 * self.turn, 1010 + 10 * self.turn))
                answer = response(self.turn, self.prompt, generated)
                await capture_tokens(answer, self.items)
            finally:
                reset_token_sink(token)
            assert context.committed and context.parent_resolution is not None
            self.statuses.append(context.parent_resolution.status)
            call = {key: answer["output"][0][key] for key in ("type", "id", "call_id", "name", "arguments")}
            seen = {
                "type": "function_call_output",
                "call_id": f"call-{self.turn}",
                "output": f"shelf {self.turn}",
            }
            self.items = [*self.items, call, seen]
            self.prompt = [*self.prompt, *generated, 7, 7, 7]
            self.turn += 1


def finished(rollout: Rollout, **name: Any) -> dict[str, Any]:
    output = [item for item in rollout.items[1:] if item["type"] == "function_call"]
    return {"response": {"model": "m", "id": "resp-5", "output": output}, "reward": 1.0, **name}


def test_its_builder_makes_one_chain_of_what_was_captured(tmp_path: Path) -> None:
    async def scene() -> None:
        sink, source, lineage = (
            KeepstepTokenSink(tmp_path),
            KeepstepTokenSource(tmp_path),
            KeepstepLineage(tmp_path),
        )
        rollout = Rollout()
        await rollout.calls("7-0", 6, sink, lineage)
        assert rollout.statuses == ["root"] + ["resolved"] * 5
        result = finished(rollout, _ng_task_index=7, _ng_rollout_index=0)
        built = await finalize_rollout_token_capture(result, source)
        assert built is not None and not built["mask_sample"], built
        tokens = [item for item in result["response"]["output"] if item.get("generation_token_ids")]
        assert [item["generation_token_ids"][0] for item in tokens] == [1000 + 10 * turn for turn in range(6)]
        assert await retire_rollout_token_capture("7-0", source, built)
        assert await retire_rollout_token_capture("7-0", source, built), "again, with the same answer"

    asyncio.run(scene())


def test_a_resumed_attempt_is_one_chain_with_what_it_inherited(tmp_path: Path) -> None:
    """Attempt 1 goes on after three calls of attempt 0, and its builder sees six, resolved, under `7-0-a1`."""

    async def scene() -> None:
        sink, source, lineage = (
            KeepstepTokenSink(tmp_path),
            KeepstepTokenSource(tmp_path),
            KeepstepLineage(tmp_path),
        )
        rollout = Rollout()
        await rollout.calls("7-0", 3, sink, lineage)
        # A call whose answer never reached the journal.
        lost = Rollout()
        lost.items, lost.prompt, lost.turn = list(rollout.items), list(rollout.prompt), 99
        await lost.calls("7-0", 1, sink, lineage)
        await sink.inherit("7-0", "7-0-a1", response_ids=["resp-0", "resp-1", "resp-2"])
        await rollout.calls("7-0-a1", 3, sink, lineage)
        assert rollout.statuses == ["root"] + ["resolved"] * 5
        result = finished(rollout, _ng_task_index=7, _ng_rollout_index=0, _ng_attempt_index=1)
        built = await finalize_rollout_token_capture(result, source)
        assert built is not None and not built["mask_sample"], built
        assert built["metrics"]["n_calls"] == 6

    asyncio.run(scene())


PUTTER = """
    import asyncio, sys
    sys.path.insert(0, sys.argv[3])
    from keepstep.adapters.nemo_gym import KeepstepTokenSink
    from test_real_nemo_gym_capture import numbered

    async def main():
        sink = KeepstepTokenSink(sys.argv[1])
        numbers = iter(range(int(sys.argv[2])))

        async def some():
            for number in numbers:
                await sink.begin_call(f"r{number % 3}", f"c{number}")
                await sink.put(numbered(number))
                print(number, flush=True)

        await asyncio.gather(*(some() for _ in range(16)))
        await sink.close()

    asyncio.run(main())
"""
PUTS = 600


def numbered(number: int) -> TokenEntry:
    """An entry that every process makes alike."""
    rng = random.Random(number % 3)
    prompt = [rng.randrange(120_000) for _ in range(300 + 4 * number)]
    made = TokenEntry(
        rollout_id=f"r{number % 3}",
        model_call_id=f"c{number}",
        prompt_token_ids=prompt,
        generation_token_ids=[number, number + 1],
        generation_log_probs=[-0.1 * number, -1.0],
        output_items=[{"type": "message", "role": "assistant", "content": f"number {number}"}],
        created_at=1.7e9 + number,
    )
    stamp_continuation(made, [{"role": "user", "content": "count"}])
    return stamp_lineage(made, None, parent_resolution=ParentResolutionStatus.ROOT)


@pytest.mark.parametrize("acknowledged_first", [1, 40, 200, 450])
def test_what_a_sink_acknowledged_survives_kill_9(tmp_path: Path, acknowledged_first: int) -> None:
    here = Path(__file__).parent
    process = outside.start(PUTTER, tmp_path, PUTS, here)
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(acknowledged_first)]
    time.sleep(random.Random(acknowledged_first).random() * 0.02)
    process.kill()
    rest, complaints = process.communicate()
    assert process.returncode == outside.KILLED, complaints
    acknowledged = {int(line) for line in [*told, *rest.splitlines()] if line.strip()}

    with keepstep.open(tmp_path) as store:
        run = store.run("token-capture")
        survived = {
            id: value
            for name in ("r0", "r1", "r2")
            for id, value in run.stream(f"tokens/{name}").read().items()
        }
    missing = {number for number in acknowledged if f"call/c{number}" not in survived}
    assert not missing, (
        f"of {len(acknowledged)} acknowledged entries {len(missing)} are gone: {sorted(missing)[:10]}"
    )

    # Run again, it puts all of them once more: what is there is the same, what is missing comes in.
    outside.run(PUTTER, tmp_path, PUTS, here, timeout_s=240)

    async def frozen() -> list[Any]:
        source = KeepstepTokenSource(tmp_path)
        snapshots = [await source.freeze(name) for name in ("r0", "r1", "r2")]
        await source.close()
        return snapshots

    snapshots = asyncio.run(frozen())
    assert not any(snapshot.incomplete for snapshot in snapshots)
    found = {entry.model_call_id: entry for snapshot in snapshots for entry in snapshot.entries}
    assert found == {f"c{number}": numbered(number) for number in range(PUTS)}


def test_a_rollout_whose_prompt_grows_costs_a_tenth_of_its_file_store(tmp_path: Path) -> None:
    rng = random.Random(5)
    files, store = tmp_path / "files", tmp_path / "store"

    async def scene() -> None:
        sinks = [TokenCaptureStore(files), KeepstepTokenSink(store)]
        prompt = [rng.randrange(120_000) for _ in range(2000)]
        for call in range(50):
            made = numbered(call)
            made.rollout_id = "r"
            made.prompt_token_ids = list(prompt)
            made.generation_token_ids = [rng.randrange(120_000) for _ in range(200)]
            made.generation_log_probs = [round(-rng.random(), 6) for _ in range(200)]
            for sink in sinks:
                await sink.put(made)
            prompt += [*made.generation_token_ids, *(rng.randrange(120_000) for _ in range(100))]
        await sinks[1].close()

    asyncio.run(scene())
    theirs, ours = (
        sum(path.stat().st_size for path in where.rglob("*") if path.is_file()) for where in (files, store)
    )
    assert ours * 10 <= theirs, (ours, theirs)
