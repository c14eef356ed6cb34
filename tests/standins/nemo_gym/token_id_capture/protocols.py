"""What a sink, a source and a resolver exchange."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry


@dataclass(frozen=True)
class TokenCaptureSnapshot:
    rollout_id: str
    entries: tuple[TokenEntry, ...]
    incomplete: bool
    snapshot_id: str
    version: int


@dataclass(frozen=True)
class LineageMatch:
    model_call_id: str
    cumulative_token_ids: tuple[int, ...]
    digest: str
    staging_chain: tuple[str, ...] = ()
    prev_len: int = 0
    chain_hash: str = ""


@dataclass(frozen=True)
class LineageResolution:
    status: ParentResolutionStatus
    match: LineageMatch | None = None
    reason: str = ""
