"""Quarantined values beside their rows: by column while rows are worked on, a list for each row when stored. Pure.

Invariant: unpack(pack(x)) == x, for columns that have any.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.lake.casts import reason_of
from storage.lake.table_schema import QUARANTINE

Texts = dict[str, pa.Array]
"""For each column with quarantined values: their texts, NULL where the value is sound."""


def pack(count: int, texts: Mapping[str, pa.Array]) -> pa.Array:
    """A list for each of `count` rows: column, text and reason of its quarantined values, NULL without any."""
    rows, names, values = [], [], []
    for name, column in texts.items():
        found = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        rows.append(found)
        names += [name] * len(found)
        values.append(column.take(pa.array(found)).cast(pa.large_string()))
    if not names:
        return pa.nulls(count, QUARANTINE)
    of_row = np.concatenate(rows)
    order = np.argsort(of_row, kind="stable")
    text = pa.concat_arrays(values)
    parts = [pa.array(names, pa.string()), text.cast(pa.string()), _reasons(text)]
    entries = pa.StructArray.from_arrays(parts, fields=list(QUARANTINE.value_type)).take(pa.array(order))
    lengths = np.bincount(of_row, minlength=count)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=QUARANTINE, mask=pa.array(lengths == 0))


def unpack(lists: pa.Array, names: Sequence[str]) -> Texts:
    """The texts by column again, for those of the columns that have any."""
    if lists.null_count == len(lists):
        return {}
    column, text, _ = pc.list_flatten(lists).flatten()
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    found: Texts = {}
    for name in names:
        is_here = pc.equal(column, name).to_numpy(zero_copy_only=False)
        if is_here.any():
            source = np.full(len(lists), -1)
            source[rows[is_here]] = np.flatnonzero(is_here)
            found[name] = text.take(pa.array(source, mask=source < 0)).cast(pa.large_string())
    return found


def _reasons(texts: pa.Array) -> pa.Array:
    """Each distinct text is judged once."""
    encoded = texts.dictionary_encode()
    reasons = pa.array([reason_of(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return reasons.take(encoded.indices)
