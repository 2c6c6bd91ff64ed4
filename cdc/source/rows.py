"""The changes of one relation: a run of its row messages becomes one table.

    'I' relation u32 'N' new  |  'U' relation u32 [('K' | 'O') old] 'N' new  |  'D' relation u32 ('K' | 'O') old

Invariants:
    the table has a row for each message, in the same order
    every message ends exactly where its last tuple ends
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from cdc.source.errors import ProtocolError
from cdc.source.fragments import ABSENT, KIND, NEW, OLD, OP, TX, Kind, OldTuple
from cdc.source.numbers import Bytes, Flags, Integers, Unsigned
from cdc.source.relations import Relation
from cdc.source.tuples import NULL, UNCHANGED, Cells, bitmaps, numbers, to_struct, walk

INSERT, UPDATE, DELETE = map(ord, "IUD")

_NEW_TUPLE: Final = ord("N")
_TUPLE_TAG_AT: Final = 5
"""After the tag and the relation."""

# Plain numbers: members of an enumeration cost a microsecond at each use, and there are a dozen in a batch.
_INSERTED, _UPDATED, _DELETED, _TRUNCATED = map(int, Kind)
_NO_OLD, _OLD_KEY, _OLD_FULL = map(int, OldTuple)

_KINDS: Final = np.zeros(256, np.uint8)
_KINDS[[INSERT, UPDATE, DELETE]] = [_INSERTED, _UPDATED, _DELETED]


@dataclass(frozen=True, slots=True)
class RowMessages:
    """Row messages of one relation, in order, and where they stand in the stream."""

    buffer: Bytes
    starts: Integers
    ends: Integers
    tx: Unsigned
    op: Unsigned


class Layout:
    """How the rows of one version of a relation are laid out; made once for each version."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.values = pa.struct([pa.field(column.name, pa.string()) for column in relation.columns])
        fields = [
            pa.field(TX, pa.uint64(), False),
            pa.field(OP, pa.uint64(), False),
            pa.field(KIND, pa.uint8(), False),
            pa.field(ABSENT, pa.binary()),
            pa.field(NEW, self.values),
        ]
        self.schema = pa.schema(fields)
        self.schema_with_old = pa.schema([*fields, pa.field(OLD, self.values)])
        self._outside_identity = np.array([not column.in_identity for column in relation.columns], np.bool_)

    def decode(self, rows: RowMessages) -> tuple[pa.RecordBatch, Bytes]:
        """The table (its columns are described at `fragments.Changes`), and for each row its `OldTuple`."""
        kinds = _KINDS[rows.buffer[rows.starts]]
        old_tuple = _old_tuples(rows, kinds)
        has_old = old_tuple != _NO_OLD
        is_delete = kinds == _DELETED
        old = None
        new_at = rows.starts + (_TUPLE_TAG_AT + 1)
        if has_old.any():
            old, after = walk(rows.buffer, new_at[has_old], len(self.relation.columns))
            if (old.tags == UNCHANGED).any():
                raise ProtocolError("a row as it was has a value that was not sent", relation=str(self.relation))
            _check_ends(rows.ends[is_delete], after[is_delete[has_old]])
            new_at[has_old] = after + 1
            _check_new_tags(rows, has_old & ~is_delete, new_at)
        new = self._rows_now(rows, ~is_delete, new_at)
        absent = new.tags == UNCHANGED
        if old is not None and is_delete.any():
            new.put(is_delete, old[is_delete[has_old]])
            # In a key, what is not of the identity is sent as NULL, whatever it is.
            keys = is_delete & (old_tuple == _OLD_KEY)
            absent[keys] = self._outside_identity & (new.tags[keys] == NULL)
        columns = [
            numbers(pa.uint64(), rows.tx),
            numbers(pa.uint64(), rows.op),
            numbers(pa.uint8(), kinds),
            bitmaps(absent),
            to_struct(rows.buffer, new, self.values),
        ]
        was_sent = has_old & ~is_delete
        if old is None or not was_sent.any():
            return pa.RecordBatch.from_arrays(columns, schema=self.schema), old_tuple
        before = Cells.all_null(rows.starts, len(self.relation.columns))
        before.put(was_sent, old[~is_delete[has_old]])
        columns.append(to_struct(rows.buffer, before, self.values, was_sent))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema_with_old), old_tuple

    def truncated(self, tx: int, op: int) -> pa.RecordBatch:
        """The table of one TRUNCATE."""
        columns = [
            pa.array([tx], pa.uint64()),
            pa.array([op], pa.uint64()),
            pa.array([_TRUNCATED], pa.uint8()),
            pa.nulls(1, pa.binary()),
            pa.nulls(1, self.values),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rows_now(self, rows: RowMessages, is_new: Flags, new_at: Integers) -> Cells:
        """The cells of the rows as they became; NULLs for the others."""
        width = len(self.relation.columns)
        if is_new.all():
            cells, after = walk(rows.buffer, new_at, width)
            _check_ends(rows.ends, after)
            return cells
        cells = Cells.all_null(rows.starts, width)
        if is_new.any():
            found, after = walk(rows.buffer, new_at[is_new], width)
            _check_ends(rows.ends[is_new], after)
            cells.put(is_new, found)
        return cells


def _old_tuples(rows: RowMessages, kinds: Bytes) -> Bytes:
    """Which old tuple each message starts with; that the one its kind needs is there."""
    found = rows.buffer.take(rows.starts + _TUPLE_TAG_AT, mode="clip")
    is_new = found == _NEW_TUPLE
    is_old = (found == _OLD_KEY) | (found == _OLD_FULL)
    fits = (is_new & (kinds != _DELETED)) | (is_old & (kinds != _INSERTED))
    if not fits.all():
        raise ProtocolError("a change has another tuple than its kind allows", tag=int(found[~fits][0]))
    old_tuple: Bytes = np.where(is_new, np.uint8(_NO_OLD), found)
    return old_tuple


def _check_ends(ends: Integers, after: Integers) -> None:
    if (after != ends).any():
        raise ProtocolError("a change does not end where its message ends")


def _check_new_tags(rows: RowMessages, which: Flags, new_at: Integers) -> None:
    if (rows.buffer.take(new_at[which] - 1, mode="clip") != _NEW_TUPLE).any():
        raise ProtocolError("an update has no new row after its old one")
