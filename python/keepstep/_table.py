"""Tables of a run, for programs that read Arrow: nothing is copied, and no more than a batch is held."""

from __future__ import annotations

from typing import Any

from ._steps import table_html


class Table:
    """A table that is read from the store in batches each time it is used: `pyarrow.table(t)`, `polars.DataFrame(t)`,
    `duckdb.sql("from t")`, `t.to_pandas()`; batch by batch with `pyarrow.RecordBatchReader.from_stream(t)`.
    """

    __slots__ = ("_core",)

    def __init__(self, native: Any) -> None:
        self._core = native

    @property
    def of(self) -> str:
        """What it is a table of."""
        return str(self._core.of)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self._core.columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream. It always has the table's own schema: to get another one, cast what you read."""
        return self._core.arrow_stream()

    def __arrow_c_schema__(self) -> object:
        """The Arrow C schema."""
        return self._core.arrow_schema()

    def to_pandas(self) -> Any:
        """The whole table as a pandas DataFrame. Needs pandas and pyarrow."""
        try:
            import pyarrow  # type: ignore[import-untyped]
        except ImportError as missing:
            raise ImportError("to_pandas needs pyarrow: pip install pyarrow pandas") from missing
        return pyarrow.table(self).to_pandas()

    def __repr__(self) -> str:
        return f"<Table of {self.of}: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        return table_html([f"table of {self.of}"], [(name,) for name in self.columns])
