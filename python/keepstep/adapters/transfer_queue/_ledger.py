"""Which value a key has: computed from the records of all processes, in whatever order these are seen.

The record with the highest version wins, whichever process made it. A record that was rewound does not count any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a value is."""

    writer: str
    step: int
    position: int


class Record(NamedTuple):
    """Keys that were put or cleared at once; or the record that all processes go back to an earlier version."""

    version: int
    writer: str
    puts: Mapping[str, Place] | None = None
    clears: tuple[str, ...] = ()
    back_to: int | None = None

    @classmethod
    def read(cls, writer: str, said: Mapping[str, Any]) -> Record:
        """A record from what its writer recorded."""
        version = said["version"]
        if "put" in said:
            return cls(version, writer, puts=_places(writer, said["first_step"], said["counts"], said["put"]))
        if "clear" in said:
            return cls(version, writer, clears=tuple(said["clear"]))
        return cls(version, writer, back_to=said["back_to"])


def _places(writer: str, first_step: int, counts: list[int], keys: list[str]) -> dict[str, Place]:
    at = (Place(writer, first_step + n, place) for n, count in enumerate(counts) for place in range(count))
    return dict(zip(keys, at, strict=True))


class Ledger:
    """The newest place of each key, and the keys that were cleared."""

    def __init__(self) -> None:
        self.version = 0
        self._places: dict[str, tuple[tuple[int, str], Place | None]] = {}
        self._went_back = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Ledger:
        """The ledger that all these records make."""
        in_order = sorted(records, key=lambda record: (record.version, record.writer))
        ledger = cls()
        for record in _counting(in_order):
            ledger.add(record)
        ledger.version = max((record.version for record in in_order), default=0)
        ledger._went_back = max((it.version for it in in_order if it.back_to is not None), default=0)
        return ledger

    def add(self, record: Record) -> bool:
        """Adds a record. False if that needs all records: then the ledger must be made again from them."""
        self.version = max(self.version, record.version)
        if record.back_to is not None or record.version <= self._went_back:
            return False
        rank = record.version, record.writer
        for key, place in (record.puts or dict.fromkeys(record.clears)).items():
            known = self._places.get(key)
            if known is None or known[0] <= rank:
                self._places[key] = rank, place
        return True

    def place(self, key: str) -> Place | None:
        """Where the value of a key is; None if it has none."""
        known = self._places.get(key)
        return known[1] if known else None

    def live(self) -> dict[str, Place]:
        """All keys that have a value."""
        return {key: place for key, (_, place) in self._places.items() if place is not None}


def _counting(in_order: list[Record]) -> list[Record]:
    """The records that count: those after the last one that goes back, and those that counted at the version it names."""
    for index in reversed(range(len(in_order))):
        back_to = in_order[index].back_to
        if back_to is not None:
            earlier = [record for record in in_order[:index] if record.version <= back_to]
            return _counting(earlier) + in_order[index + 1 :]
    return in_order
