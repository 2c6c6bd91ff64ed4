"""The rows of some changes, before and after, a column at a time, as far as what Postgres sent tells them.

What is not sent is filled in where the old row has it: a long value that did not change is in a full old tuple, and
the columns of the identity are in a key tuple. The rest is unknown, and nobody takes it for NULL.

What is known of the row before an UPDATE or DELETE depends on its old tuple:

    FULL   every column
    KEY    the columns of the identity
    NONE   the columns of the identity are what they are after the UPDATE: else Postgres had sent a key

Invariants:
    every array has an entry for each change; where a question makes no sense for a kind, the entry says nothing
    a column is taken apart when it is first asked for, then kept, since several views ask
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc.source.fragments import ABSENT, KIND, NEW, OLD, OP, TX, Changes, Kind, OldTuple
from cdc.source.numbers import Flags, Integers, Words
from cdc.source.tuples import numbers
from storage.columns import Bitmaps
from storage.rows import XID_FIELD, column

_INSERT, _UPDATE, _DELETE, _TRUNCATE = map(int, Kind)
_NONE, _KEY, _FULL = map(int, OldTuple)


class RowImages:
    """One table's changes of a fragment; `xids`: who the fragment's transactions are."""

    def __init__(self, changes: Changes, xids: Words) -> None:
        self.rows = changes.rows
        self.relation = changes.relation
        self.ordinals = changes.transaction
        self.names = tuple(field.name for field in self.rows.schema.field(NEW).type)
        self.tx, self.op = column(self.rows, TX), column(self.rows, OP)
        self.kind = column(self.rows, KIND)
        self.is_update: Flags = self.kind == _UPDATE
        self.is_truncate: Flags = self.kind == _TRUNCATE
        self.lacks_old: Flags = (changes.old_tuple != _FULL) & (self.is_update | (self.kind == _DELETE))
        """The whole row before an UPDATE or DELETE was not sent."""
        self.xid: Words = xids[self.ordinals]
        self._old_tuple = changes.old_tuple
        self._identity = {entry.name for entry in changes.relation.columns if entry.in_identity}
        self._new = self.rows.column(NEW)
        self._old = self.rows.column(OLD) if OLD in self.rows.schema.names else None
        self._index = {name: index for index, name in enumerate(self.names)}
        self._after: dict[str, pa.Array] = {}
        self._changed: dict[str, Flags] = {}

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def has_inserts_only(self) -> bool:
        """Whether all changes are INSERTs: then everything is known, and nothing was before."""
        return bool((self.kind == _INSERT).all())

    @cached_property
    def as_logged(self) -> pa.RecordBatch:
        """The changes as they came, as rows of a log; nothing is copied, and all who ask get the same."""
        place = self.rows.schema.get_field_index(KIND) + 1
        return self.rows.add_column(place, XID_FIELD, numbers(XID_FIELD.type, self.xid))

    @cached_property
    def rows_now(self) -> pa.StructArray:
        """The row that each change is about, filled: as it became, of a DELETE as it was; NULL for a TRUNCATE."""
        if self._absent is None:
            return self._new
        return pa.StructArray.from_arrays(
            [self.now(name) for name in self.names], fields=list(self._new.type), mask=self._new.is_null()
        )

    @property
    def rows_before(self) -> pa.StructArray:
        """The row before each UPDATE; NULL where it was not sent."""
        return pa.nulls(len(self), self._new.type) if self._old is None else self._old

    def now(self, name: str) -> pa.Array:
        """A column of the row that each change is about, filled."""
        if name not in self._after:
            values = self._new.field(self._index[name])
            fillable = self._not_sent(name)
            if fillable is not None and self._old is not None:
                values = pc.if_else(pa.array(fillable & self._old_tells(name)), self._before(name), values)
            self._after[name] = values
        return self._after[name]

    def before(self, name: str) -> pa.Array:
        """A column of the row before each UPDATE; NULL where it was not sent."""
        return pa.nulls(len(self), pa.string()) if self._old is None else self._before(name)

    def unknown_now(self, name: str) -> Flags:
        """Where the value was not sent and cannot be filled."""
        unsent = self._not_sent(name)
        if unsent is None:
            return np.zeros(len(self), np.bool_)
        return unsent & ~(self._old_tells(name) & self.is_update)

    def unknown_before(self, name: str) -> Flags:
        """Where an UPDATE or DELETE does not tell the value that it found."""
        return self.lacks_old if name not in self._identity else np.zeros(len(self), np.bool_)

    def changed(self, name: str) -> Flags:
        """Where an UPDATE changed the value, or may have."""
        if name not in self._changed:
            self._changed[name] = self._find_changed(name)
        return self._changed[name]

    def _find_changed(self, name: str) -> Flags:
        unsent = self._not_sent(name)
        may: Flags = self.is_update if unsent is None else self.is_update & ~unsent
        if not may.any():
            return may
        if name in self._identity:
            may = may & (self._old_tuple != _NONE)  # silence says that it is the same
        if self._old is not None:
            differs = _differ(self._new.field(self._index[name]), self._before(name))
            may = may & (differs | ~self._old_tells(name))
        return may

    def _before(self, name: str) -> pa.Array:
        assert self._old is not None
        return self._old.field(self._index[name])

    def _old_tells(self, name: str) -> Flags:
        """Whose old tuple has the column."""
        is_full: Flags = self._old_tuple == _FULL
        return is_full | (self._old_tuple == _KEY) if name in self._identity else is_full

    @cached_property
    def _absent(self) -> Bitmaps | None:
        absent = self.rows.column(ABSENT) if ABSENT in self.rows.schema.names else None
        if absent is None or absent.null_count == len(absent):
            return None
        return Bitmaps(absent.cast(pa.large_binary()))

    def _not_sent(self, name: str) -> Flags | None:
        """Where the value was not sent; None if nowhere."""
        rows: Integers | None = self._absent.rows_without(self._index[name]) if self._absent else None
        if rows is None or not len(rows):
            return None
        flags = np.zeros(len(self), np.bool_)
        flags[rows] = True
        return flags


def _differ(some: pa.Array, others: pa.Array) -> Flags:
    """Where two columns do not have the same value; NULL is a value here."""
    differ = pc.not_equal(some, others)
    if not differ.null_count:
        return _flags(differ)
    both_or_none = pc.equal(some.is_null(), others.is_null())
    return _flags(pc.fill_null(differ, False)) | ~_flags(both_or_none)


def _flags(values: pa.BooleanArray) -> Flags:
    flags: Flags = values.to_numpy(zero_copy_only=False)
    return flags
