"""Rows of a log, folded by key: what is left of each key that they touch. Pure, in columns.

The result has the form of rows again, sorted by key, so results of neighbouring ranges can be folded like rows:

    INSERT   the row is exactly this, whatever it was before
    UPDATE   the columns that were sent are these, the others are what they were before
    DELETE   the row is gone
    TRUNCATE as the first row: nothing of what was before is left

Invariants:
    fold(fold(a) + b) == fold(a + b)
    a column has the last value that was *sent* in the key's present life, which an INSERT or DELETE begins anew
    NULL is a value and replaces an earlier one; absent is none
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.columns import Columns, Picked, PickedStruct, assemble, encode_bitmaps
from storage.fold import Groups
from storage.lake.errors import LakeDamage
from storage.lake.keys import Key, keys_of_texts, place_of
from storage.lake.table_schema import TableSchema
from storage.rows import ABSENT, KIND, NEW, OP, TX, Flags, Integers, Kind, row_schema


@dataclass(frozen=True, slots=True)
class Lives:
    """Folded rows, and the key of each."""

    is_emptied: bool
    """There was a TRUNCATE: only what is here is left."""
    rows: list[pa.RecordBatch]
    keys: pa.Array
    """Ascending, none twice."""

    def stored(self) -> list[pa.RecordBatch]:
        """As rows of a log, with the TRUNCATE in front."""
        if not self.is_emptied:
            return self.rows
        names = [field.name for field in self.rows[0].schema.field(NEW).type]
        return [_truncate(names), *self.rows]

    def between(self, low: Key | None, high: Key | None) -> "Lives":
        """Those with low <= key < high; None is no bound."""
        keys = self.keys
        start = 0 if low is None else place_of(keys, low)
        stop = len(keys) if high is None else place_of(keys, high)
        table = pa.Table.from_batches(self.rows).slice(start, stop - start)
        return Lives(self.is_emptied, table.to_batches() or [self.rows[0].slice(0, 0)], keys.slice(start, stop - start))


def folded_already(batches: Sequence[pa.RecordBatch], schema: TableSchema) -> Lives:
    """What a fold gave, sorted as it was then."""
    columns = Columns(batches)
    keys = keys_of_texts(schema, lambda column: columns.new[columns.names.index(column.source)])
    return Lives(False, list(batches), keys)


def fold_lives(batches: Sequence[pa.RecordBatch], schema: TableSchema) -> Lives:
    """Fold rows of a log, or results of this function one behind the other."""
    columns = Columns(batches)
    truncates = np.flatnonzero(columns.kind == Kind.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    keys = keys_of_texts(schema, lambda column: columns.new[columns.names.index(column.source)].slice(start))
    if keys.null_count:
        at = columns.offset(start + int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0]))
        raise LakeDamage("a row has no value in a key column", at=at)
    order = pc.sort_indices(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    lives, kinds = _present(columns, _begins(keys.take(pa.array(order))), order + start)
    last = lives.last if len(lives.starts) else np.empty(0, np.int64)
    return Lives(bool(len(truncates)), _rows(columns, lives, last, kinds), keys.take(pa.array(last - start)))


def _begins(keys: pa.Array) -> Flags:
    """Where a sorted key differs from the one before it."""
    begins = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        begins[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
    return begins


def _present(columns: Columns, of_key: Flags, order: Integers) -> tuple[Groups, Integers]:
    """Each key's present life, and the kind of change that it comes to."""
    kinds = columns.kind[order]
    begins = of_key | (kinds == Kind.INSERT)
    begins[1:] |= kinds[:-1] == Kind.DELETE
    starts = np.flatnonzero(begins)
    groups = Groups(order, starts)
    of_life = of_key[starts]
    is_latest = np.append(of_life[1:], True)[: len(of_life)]
    lives = groups.only(is_latest)
    last = columns.kind[lives.last] if len(lives.starts) else np.empty(0, np.uint8)
    is_whole = (kinds[starts] == Kind.INSERT) | ~of_life  # a life after another in these rows has no row before
    became = np.where(last == Kind.DELETE, Kind.DELETE, np.where(is_whole[is_latest], Kind.INSERT, Kind.UPDATE))
    return lives, became


def _rows(columns: Columns, lives: Groups, last: Integers, kinds: Integers) -> list[pa.RecordBatch]:
    count = len(last)
    sent = [_last_sent(columns, lives, index) for index in range(len(columns.names))]
    new = [Picked(values, rows) for values, rows in zip(columns.new, sent, strict=True)]
    bitmaps = encode_bitmaps((rows < 0 for rows in sent), count)
    picked: dict[str, Picked | PickedStruct] = {
        NEW: PickedStruct(new, np.ones(count, np.bool_)),
        ABSENT: Picked(bitmaps, np.arange(count)),
    }
    schema = row_schema(columns.names)
    if not count:
        return [pa.RecordBatch.from_pylist([], schema)]
    numbers: dict[str, npt.NDArray[Any]] = {TX: columns.tx[last], OP: columns.op[last], KIND: kinds.astype(np.uint8)}
    return assemble(schema, numbers, picked)


def _last_sent(columns: Columns, lives: Groups, index: int) -> Integers:
    if not len(lives.starts):
        return np.empty(0, np.int64)
    return lives.last_except(columns.absent.rows_without(index), columns.count)


def _truncate(names: list[str]) -> pa.RecordBatch:
    schema = row_schema(names)
    row = {TX: 0, OP: 0, KIND: int(Kind.TRUNCATE), ABSENT: None, NEW: None}
    return pa.RecordBatch.from_pylist([row], schema)
