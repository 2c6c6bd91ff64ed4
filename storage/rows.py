"""What a row of a log is: the columns that every table handed to storage has, and what can be asked of them.

    tx      uint64   commit LSN of the transaction (0 in a snapshot)
    op      uint64   position in the transaction (the chunk's number in a snapshot)
    kind    uint8    `Kind`
    xid     uint32   optional: who the transaction was to Postgres. NULL where nobody said.
    absent  binary   optional: a bitmap, lowest bit first, of the columns of `new` that Postgres did not send.
                     NULL or short means that the rest was sent. Absent is not NULL: the value is what it was.
    new     struct   the row's values as text, a string column each
    old     struct   optional: the values before the change, where the shape asks for them

Rows of one table are in ascending order of (tx, op), no two alike, except that the rows of a snapshot chunk share one.
"""

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import InvalidRows
from storage.limits import COMBINE_BYTES_MAX, ROW_WIRE_OVERHEAD_BYTES, SCHEMAS_KEPT
from storage.offset import LogOffset

TX: Final = "tx"
OP: Final = "op"
KIND: Final = "kind"
XID: Final = "xid"
ABSENT: Final = "absent"
NEW: Final = "new"
OLD: Final = "old"

XID_FIELD: Final = pa.field(XID, pa.uint32())
"""As it stands behind `KIND`; it may be NULL, since rows that were written before it was there have none."""

_OPTIONAL: Final = {ABSENT: pa.binary(), XID: XID_FIELD.type}

Integers = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


_TEXTS: Final = (pa.string(), pa.binary())


class Kind(IntEnum):
    """What happened to a row. Stored: the numbers never change."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4


_KINDS: Final = bytes(Kind)


def row_schema(columns: Sequence[str], *, old: bool = False, absent: bool = True, xid: bool = False) -> pa.Schema:
    """The schema of a log whose shape has these columns."""
    values = pa.struct([pa.field(name, pa.string()) for name in columns])
    fields = [pa.field(TX, pa.uint64(), False), pa.field(OP, pa.uint64(), False), pa.field(KIND, pa.uint8(), False)]
    if xid:
        fields.append(XID_FIELD)
    if absent:
        fields.append(pa.field(ABSENT, pa.binary()))
    fields.append(pa.field(NEW, values))
    if old:
        fields.append(pa.field(OLD, values))
    return pa.schema(fields)


def check_schema(schema: pa.Schema) -> None:
    """Raise `InvalidRows` unless the columns are a log's; the order of rows is checked where their offsets are read."""
    if not any(known.equals(schema) for known in tuple(_CHECKED)):
        _check_columns(schema)
        _CHECKED.append(schema)


_CHECKED: Final[deque[pa.Schema]] = deque(maxlen=SCHEMAS_KEPT)
"""Schemas that were checked. To compare one with another is nothing beside a check: a hundred times faster."""


def _check_columns(schema: pa.Schema) -> None:
    if len(set(schema.names)) < len(schema.names):
        raise InvalidRows("a column is there twice", found=schema.names)
    for name, kind in _OPTIONAL.items():
        index = schema.get_field_index(name)
        if index >= 0 and schema.field(index).type != kind:
            raise InvalidRows(f"the column {name!r} is {schema.field(index).type}, not {kind}")
    wanted = {TX: pa.uint64(), OP: pa.uint64(), KIND: pa.uint8()}
    for name, kind in wanted.items():
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidRows(f"the column {name!r} is missing", found=schema.names)
        if schema.field(index).type != kind:
            raise InvalidRows(f"the column {name!r} is {schema.field(index).type}, not {kind}")
    for name in (NEW, OLD):
        index = schema.get_field_index(name)
        if index < 0 and name == OLD:
            continue
        if index < 0 or not pa.types.is_struct(schema.field(index).type):
            raise InvalidRows(f"the column {name!r} must be a struct of the row's values", found=schema.names)
        for field in schema.field(index).type:
            if field.type != pa.string():
                raise InvalidRows(f"values are text, and {field.name!r} is {field.type}")


def check_kinds(kind: npt.NDArray[np.unsignedinteger]) -> None:
    """Raise `InvalidRows` for a number that is no `Kind`."""
    if unknown := kind.tobytes().translate(None, _KINDS):
        raise InvalidRows(f"a row is of kind {unknown[0]}; kinds are {min(Kind)} to {max(Kind)}")


def stored_size(batch: pa.RecordBatch) -> int:
    """Bytes of the rows as they are written: about `nbytes`, which asks each column, and takes five times as long.

    What an empty batch needs is not counted: it is what describes the columns.
    """
    size: int = pa.ipc.get_record_batch_size(batch)
    return size - _empty_size(batch.schema)


def _empty_size(schema: pa.Schema) -> int:
    for known, size in tuple(_SIZED):  # a copy: other threads add to it
        if known.equals(schema):
            return size
    empty_size: int = pa.ipc.get_record_batch_size(pa.RecordBatch.from_pylist([], schema))
    _SIZED.append((schema, empty_size))
    return empty_size


_SIZED: Final[deque[tuple[pa.Schema, int]]] = deque(maxlen=SCHEMAS_KEPT)
"""Schemas, and the size of an empty batch of each."""


def column(batch: pa.RecordBatch, name: str) -> Unsigned:
    """A number column without copying it."""
    values: Unsigned = batch.column(name).to_numpy(zero_copy_only=True)
    return values


def offset_at(batch: pa.RecordBatch, row: int) -> LogOffset:
    """The offset of one row."""
    return LogOffset(batch.column(TX)[row].as_py(), batch.column(OP)[row].as_py())


def rows_up_to(tx: Unsigned, op: Unsigned, offset: LogOffset) -> int:
    """How many of the ordered rows are at or below the offset."""
    if offset.tx < 0:
        return 0
    wanted = np.uint64(offset.tx)
    start = int(np.searchsorted(tx, wanted, side="left"))
    stop = int(np.searchsorted(tx, wanted, side="right"))
    return start + int(np.searchsorted(op[start:stop], np.uint64(offset.op), side="right"))


def rises(tx: Unsigned, op: Unsigned) -> Flags:
    """For each row but the first, whether its offset is above the one before it."""
    higher: Flags = (tx[1:] > tx[:-1]) | ((tx[1:] == tx[:-1]) & (op[1:] > op[:-1]))
    return higher


def are_ordered(tx: Unsigned, op: Unsigned) -> bool:
    """Whether each row's offset is above the one before it."""
    return bool(rises(tx, op).all())


def wire_sizes(batch: pa.RecordBatch) -> Integers:
    """Bytes that each row stands for on the wire: its values and a constant. A function of the stored row alone."""
    count = batch.num_rows
    ends = np.zeros(count + 1, dtype=np.int64)
    sizes = np.full(count, ROW_WIRE_OVERHEAD_BYTES, dtype=np.int64)
    for name in (NEW, OLD):
        index = batch.schema.get_field_index(name)
        if index >= 0 and count:  # without rows, an array of another producer may have no offsets at all
            for values in batch.column(index).flatten():
                _add_lengths(sizes, ends, values)
    sizes += np.diff(ends)
    return sizes


def _add_lengths(sizes: Integers, ends: Integers, values: pa.Array) -> None:
    """Add the byte length of each string, 0 for NULL, straight from the offsets buffer.

    Without NULLs the offsets themselves are added up, and all columns' lengths come of one subtraction.
    """
    if values.type not in _TEXTS:
        raise InvalidRows(f"values are text, not {values.type}")
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    if values.null_count:
        # A NULL may own bytes (a masked struct's child does); they are nobody's.
        sizes += np.where(values.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    else:
        ends += offsets


def gather(batch: pa.RecordBatch, rows: Integers | None) -> pa.RecordBatch:
    """The selected rows (ascending, none twice), as a batch of their own; neighbours without a copy."""
    if rows is None:
        return batch
    count = len(rows)
    if count and int(rows[-1]) - int(rows[0]) + 1 == count:
        return batch.slice(int(rows[0]), count)
    return batch.take(pa.array(rows))


def combine(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Neighbouring batches of one schema as one, where that is not too large to copy."""
    if len(batches) < 2 or sum(map(stored_size, batches)) > COMBINE_BYTES_MAX:
        return list(batches)
    return [pa.concat_batches(batches)]
