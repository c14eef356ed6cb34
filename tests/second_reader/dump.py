"""The canonical form: one JSON line per record, the same from every reader, to be compared byte for byte.

README.md beside this file defines it.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from typing import Any

from .store import Store
from .values import Array, Lost, Media, Pairs, Repr, Typed

EXACT_MAX = 2**53

# Python refuses to print ints of more than 4300 digits, unless it is told to.
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)


def canonical(value: Any) -> Any:
    """The value as what `json` writes."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -EXACT_MAX <= value <= EXACT_MAX else str(value)
        case float():
            return {"$float": struct.pack("<d", value).hex()}
        case bytes():
            return {"$bytes": value.hex()}
        case dict() | Pairs():
            pairs = value.items() if isinstance(value, dict) else value
            return {"$map": [[canonical(k), canonical(v)] for k, v in pairs]}
        case list():
            return [canonical(item) for item in value]
        case Array(dtype, shape, data):
            return {"$array": [dtype, list(shape), data.hex()]}
        case Media(type, data):
            return {"$media": [type, data.hex()]}
        case Typed(name, inner):
            return {"$typed": [name, canonical(inner)]}
        case Repr(name, text):
            return {"$repr": [name, text]}
        case Lost(hash):
            return {"$lost": hash.hex()}
    raise TypeError(f"{type(value).__name__} is not a value")


def lines(store: Store) -> Iterator[str]:
    """Sorted by (id, attempt, writer, seq, what); what is equal in all of these stays in the order of the log."""
    found = [(key, record) for key, log in store.records().items() for record in log]
    found.sort(key=lambda each: (each[0].id, each[0].attempt, each[0].writer, each[1].seq, each[0].what))
    for key, record in found:
        line = {
            "what": key.what,
            "id": key.id.hex(),
            "attempt": key.attempt,
            "writer": key.writer.hex(),
            "seq": record.seq,
            "kind": record.kind,
            "fields": {str(number): canonical(value) for number, value in record.fields.items()},
        }
        yield json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"
