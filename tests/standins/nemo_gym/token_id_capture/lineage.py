"""A resolver over any backend that can fetch entries. The matching is simple here: by the text of what the model said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nemo_gym.token_id_capture.protocols import LineageMatch, LineageResolution
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, cumulative_tokens


def assistant_fingerprint(messages: list[dict[str, Any]]) -> str:
    said = [message for message in messages if message.get("role") == "assistant"]
    return json.dumps(said, sort_keys=True) if said else ""


def stamp_continuation(entry: TokenEntry, request_items: list[dict[str, Any]]) -> TokenEntry:
    entry.continuation_fingerprint = assistant_fingerprint([*request_items, *entry.output_items])
    entry.continuation_context_len = len(request_items)
    return entry


class IncrementalLineageStore:
    class CursorReset(Exception):
        pass

    def __init__(self, *, max_cached_rollouts: int = 65536, max_cached_tokens: int = 8_000_000) -> None:
        self._cache: dict[str, tuple[Any, dict[str, list[Any]]]] = {}

    def _fetch_new_entries(self, rollout_id: str, cursor: Any) -> tuple[list[tuple[TokenEntry, Any]], Any]:
        raise NotImplementedError

    def _load_entry(self, rollout_id: str, ref: Any) -> TokenEntry:
        raise NotImplementedError

    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        return await asyncio.to_thread(self._resolve, rollout_id, request_items)

    def _resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        cursor, known = self._cache.get(rollout_id, (None, {}))
        try:
            new, cursor = self._fetch_new_entries(rollout_id, cursor)
        except IncrementalLineageStore.CursorReset:
            known = {}
            new, cursor = self._fetch_new_entries(rollout_id, None)
        for entry, ref in new:
            known.setdefault(entry.continuation_fingerprint, []).append(ref)
        self._cache[rollout_id] = cursor, known
        fingerprint = assistant_fingerprint(request_items)
        if not fingerprint:
            return LineageResolution(ParentResolutionStatus.ROOT)
        refs = known.get(fingerprint, [])
        if len(refs) != 1:
            reason = "ambiguous" if refs else "no_match"
            return LineageResolution(ParentResolutionStatus.UNRESOLVED, reason=reason)
        found = self._load_entry(rollout_id, refs[0])
        match = LineageMatch(found.model_call_id, tuple(cumulative_tokens(found)), found.digest or "")
        return LineageResolution(ParentResolutionStatus.RESOLVED, match)

    def is_process_shared(self) -> bool:
        return True

    async def close(self) -> None:
        self._cache.clear()
