"""A row's key as one value that can be sorted: what folds group by, and what files of a state are cut by. Pure.

A key is the text that the log has of it: two texts are two keys, since a change of the text is told as a delete and an
insert. One integer is a number; anything else is text, the columns joined by a character that no text of Postgres has,
with integers filled up so that they sort as numbers do.

Invariant: two rows have equal keys exactly if the texts of their key columns are equal, one by one.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.lake.table_schema import KEY, LakeColumn, TableSchema

Key = int | str

_SEPARATOR: Final = "\x00"
_DIGITS: Final = 20
"""Of the largest unsigned number of 64 bits."""


def keys_of_texts(schema: TableSchema, texts: Callable[[LakeColumn], pa.Array]) -> pa.Array:
    """The key of each row from the texts of its key columns."""
    return _keys([(column, texts(column)) for column in schema.key_columns])


def keys_of_state(schema: TableSchema, rows: pa.Table) -> pa.Array:
    """The key of each row of a state file."""
    if schema.stores_key:
        return _whole(rows.column(KEY)).cast(pa.large_string())
    return _keys([(column, _whole(rows.column(column.name))) for column in schema.key_columns])


def place_of(keys: pa.Array, key: Key) -> int:
    """How many of the sorted keys are below this one."""
    if pa.types.is_integer(keys.type):
        return int(np.searchsorted(keys.to_numpy(), key))
    return int(pc.sum(pc.less(keys, pa.scalar(key, keys.type))).as_py() or 0)


def _keys(columns: list[tuple[LakeColumn, pa.Array]]) -> pa.Array:
    (first, values), *others = columns
    if first.type.is_integer and not others:
        return values.cast(pa.int64())
    if not others:
        return values.cast(pa.large_string())
    parts = [
        _sortable(values) if column.type.is_integer else values.cast(pa.large_string()) for column, values in columns
    ]
    return pc.binary_join_element_wise(*parts, pa.scalar(_SEPARATOR, pa.large_string()))


def _sortable(values: pa.Array) -> pa.Array:
    """Numbers as text that sorts as they do: counted from the least number there is, with zeros in front."""
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    shifted = numbers.view(np.uint64) ^ np.uint64(1 << 63)
    texts = pc.utf8_lpad(pa.array(shifted).cast(pa.large_string()), _DIGITS, "0")
    return pc.if_else(values.is_valid(), texts, None)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
