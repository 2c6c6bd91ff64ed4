"""Rows of a log as rows of the table of changes, and folded rows as typed columns. Pure.

Invariant: one row of the log is one row here, in the log's order.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from storage.columns import Bitmaps, Columns
from storage.lake.casts import cast
from storage.lake.quarantine import Texts, pack
from storage.lake.table_schema import UNCHANGED, TableSchema
from storage.rows import Kind

_NAMES: Final = [None, "insert", "update", "delete", "truncate"]
REFETCH: Final = "refetch"
"""Not a row of a log: from here on the table's rows are those of another log, whose base is in the state."""


class Typed:
    """Rows of a log with their values cast: a column for each of the shape's, and what was quarantined."""

    def __init__(self, batches: Sequence[pa.RecordBatch], schema: TableSchema) -> None:
        self._columns = Columns(batches)
        self.schema = schema
        self.values: dict[str, pa.Array] = {}
        self.quarantined: Texts = {}
        """The texts, by the column's name in the lake."""
        for column in schema.columns:
            texts = self.texts(column.source)
            done = cast(texts, column.type)
            self.values[column.name] = done.values
            if done.count:
                source = np.where(done.quarantined, np.arange(self.count), -1)
                self.quarantined[column.name] = texts.take(pa.array(source, mask=source < 0))
        self.quarantined_count = sum(len(texts) - texts.null_count for texts in self.quarantined.values())

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._columns.count

    @property
    def kinds(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """`Kind`, row by row."""
        return self._columns.kind

    @property
    def absent(self) -> Bitmaps:
        """Which columns a row was sent without, by their place in the log."""
        return self._columns.absent

    def place(self, source: str) -> int:
        """Where the log has a column."""
        return self._columns.names.index(source)

    def texts(self, source: str) -> pa.Array:
        """A column as the log has it."""
        return self._columns.new[self.place(source)]

    def as_changes(self) -> pa.Table:
        """The rows of the table of changes."""
        numbers = [pa.array(values.astype(np.int64)) for values in (self._columns.tx, self._columns.op)]
        kinds = pa.array(_NAMES, pa.string()).take(pa.array(self._columns.kind))
        parts = [*numbers, kinds, *self.values.values(), self._unchanged(), pack(self.count, self.quarantined)]
        return pa.Table.from_arrays(parts, schema=self.schema.changes)

    def _unchanged(self) -> pa.Array:
        """The names of unsent columns of each UPDATE: each distinct bitmap is spelled out once."""
        updates = pa.array(self.kinds == Kind.UPDATE)
        encoded = self.absent.values.dictionary_encode()
        names = {self.place(column.source): column.name for column in self.schema.columns}
        spelled = [_spelled(bitmap, names) for bitmap in encoded.dictionary.to_pylist()]
        source = encoded.indices.fill_null(-1).to_numpy()
        is_listed = (source >= 0) & updates.to_numpy(zero_copy_only=False)
        kind = self.schema.changes.field(UNCHANGED).type
        return pa.array(spelled, kind).take(pa.array(np.where(is_listed, source, -1), mask=~is_listed))


def refetch_row(schema: TableSchema, tx: int, op: int) -> pa.Table:
    """The one row that says that changes are missing up to here."""
    row = {"_tx": tx, "_op": op, "_kind": REFETCH}
    return pa.Table.from_pylist([row], schema.changes)


def _spelled(bitmap: bytes, names: dict[int, str]) -> list[str] | None:
    found = [name for place, name in names.items() if place // 8 < len(bitmap) and bitmap[place // 8] >> place % 8 & 1]
    return found or None
