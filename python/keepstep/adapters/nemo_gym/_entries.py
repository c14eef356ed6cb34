"""A token entry as it is recorded: all its fields, the long lists of numbers as typed arrays.

If a prompt begins like an earlier one, the store keeps only what is new in it; for that it needs the whole array. Every
number is read back as it was: 32 bits are used only if nothing is lost by it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import keepstep
from keepstep.adapting import float32_bytes, int32_bytes

try:
    from nemo_gym.token_id_capture.records import TokenEntry
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "nemo_gym":
        raise
    raise ImportError("keepstep.adapters.nemo_gym needs NeMo Gym: pip install nemo-gym") from missing

_CODES = {"int32": "i", "int64": "q", "float32": "f", "float64": "d"}


def packed(entry: TokenEntry) -> dict[str, Any]:
    """What is recorded of an entry. Equal for entries whose JSON is equal."""
    fields = dict(vars(entry))
    if entry.model_extra:
        fields.update(sorted(entry.model_extra.items()))
    if (status := fields["parent_resolution"]) is not None:
        # An enum or its text: the same entry.
        fields["parent_resolution"] = str(getattr(status, "value", status))
    fields["prompt_token_ids"] = _whole_numbers(fields["prompt_token_ids"])
    fields["generation_token_ids"] = _whole_numbers(fields["generation_token_ids"])
    fields["generation_log_probs"] = _reals(fields["generation_log_probs"])
    fields["routed_experts"] = _table(fields["routed_experts"])
    return fields


def unpacked(fields: dict[str, Any]) -> TokenEntry:
    """The entry again."""
    return TokenEntry.model_validate({name: _plain(value) for name, value in fields.items()})


def size_of(entry: TokenEntry) -> int:
    """About how many numbers it holds."""
    prompt, generated = len(entry.prompt_token_ids), len(entry.generation_token_ids)
    # Experts are a table of layers and choices for each token.
    return prompt + generated if entry.routed_experts is None else 100 * (prompt + generated)


def _whole_numbers(numbers: Sequence[int]) -> Any:
    if (data := int32_bytes(numbers)) is not None:
        return keepstep.Array("int32", (len(numbers),), data)
    for dtype in ("int32", "int64"):
        try:
            return _array(dtype, numbers)
        except struct.error:
            continue
    return list(numbers)


def _reals(numbers: Sequence[float]) -> Any:
    if (data := float32_bytes(numbers)) is not None:
        return keepstep.Array("float32", (len(numbers),), data)
    try:
        narrow = struct.pack(f"<{len(numbers)}f", *numbers)
        # An engine computes them in 32 bits; numbers that were rounded in decimal need 64.
        if struct.unpack(f"<{len(numbers)}f", narrow) == tuple(numbers):
            return keepstep.Array("float32", (len(numbers),), narrow)
    except OverflowError:
        pass
    except struct.error:
        return list(numbers)
    return _array("float64", numbers)


def _array(dtype: str, numbers: Sequence[float], shape: tuple[int, ...] | None = None) -> keepstep.Array:
    data = struct.pack(f"<{len(numbers)}{_CODES[dtype]}", *numbers)
    return keepstep.Array(dtype, shape or (len(numbers),), data)


def _table(value: Any) -> Any:
    """Nested lists of whole numbers, all of one shape, as an array; anything else as it is."""
    shape: list[int] = []
    level: list[Any] = [value]
    while level and all(type(part) is list for part in level):
        sizes = {len(part) for part in level}
        if len(sizes) != 1:
            return value
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
    if not level or not all(type(number) is int for number in level):
        return value
    try:
        return _array("int32", level, tuple(shape))
    except struct.error:
        return value


def _plain(value: Any) -> Any:
    if isinstance(value, keepstep.Array):
        # numpy is not installed here.
        count = len(value.data) // struct.calcsize(_CODES[value.dtype])
        return _nested(struct.unpack(f"<{count}{_CODES[value.dtype]}", value.data), value.shape)
    return value.tolist() if hasattr(value, "tolist") else value


def _nested(numbers: Iterable[Any], shape: tuple[int, ...]) -> list[Any]:
    parts = list(numbers)
    for size in reversed(shape[1:]):
        parts = [parts[at : at + size] for at in range(0, len(parts), size)]
    return parts
