"""The rows of a table as of an LSN: sorted by key, cut into files of disjoint ranges. Pure.

A file is known by its least key; a key belongs to the last file that begins at or below it, or to the first. Folded
rows change only the files to which their keys belong. Row groups within a file are ranges in the same way.

Invariants:
    merge(rows, lives) has each key once, ascending
    a column that an UPDATE did not send keeps its value, and its quarantined text
    what `rewrites` returns touches every key of the lives once, and no file twice
    the shares of a rewrite are its range, in disjoint parts
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.lake.changes import Typed
from storage.lake.errors import LakeDamage
from storage.lake.keys import Key, keys_of_state, place_of
from storage.lake.limits import STATE_FILE_BYTES, STATE_FILE_ROWS, STATE_GROUPS
from storage.lake.lives import Lives
from storage.lake.quarantine import pack, unpack
from storage.lake.table_schema import QUARANTINED, TableSchema
from storage.rows import Kind

_FULL: Final = 1.25
"""Of the target: a file may be so large before it is divided."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of a state, as far as planning needs it."""

    path: str
    low: Key
    """Its least key."""
    rows: int
    bytes: int = 0
    """Before they are compressed."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Neighbouring files that are written anew together, and the range of keys that they stand for."""

    paths: tuple[str, ...]
    low: Key | None
    """None: from the beginning."""
    high: Key | None
    """The first key that belongs to others; None: to the end."""
    is_share: bool = False
    """The files have rows beyond these bounds, which others write."""


def rewrites(files: Sequence[StateFile], keys: pa.Array, *, small_rows: int = STATE_FILE_ROWS // 4) -> list[Rewrite]:
    """Which files these sorted keys change. A small file takes its small neighbour with it."""
    if not len(keys):
        return []
    ordered = sorted(files, key=lambda file: file.low)
    if not ordered:
        return [Rewrite((), None, None)]
    lows = pa.array([file.low for file in ordered], keys.type)
    ranks = _ranks(lows, keys)
    touched = np.unique(np.maximum(ranks, 0))
    groups: list[list[int]] = []
    for index in touched.tolist():
        if groups and groups[-1][-1] >= index:
            continue
        group = [index]
        if ordered[index].rows < small_rows:
            if index + 1 < len(ordered) and ordered[index + 1].rows < small_rows:
                group = [index, index + 1]
            elif index and ordered[index - 1].rows < small_rows and (not groups or groups[-1][-1] < index - 1):
                group = [index - 1, index]
        groups.append(group)
    return [
        Rewrite(
            tuple(ordered[index].path for index in group),
            ordered[group[0]].low if group[0] else None,
            ordered[group[-1] + 1].low if group[-1] + 1 < len(ordered) else None,
        )
        for group in groups
    ]


def shares(part: Rewrite, samples: pa.Array, every_rows: int, *, rows_max: int = STATE_FILE_ROWS) -> list[Rewrite]:
    """A range that much is put into, as several ranges that can be written apart.

    `samples` are sorted keys of what is put there, one for so many rows.
    """
    start = 0 if part.low is None else place_of(samples, part.low)
    stop = len(samples) if part.high is None else place_of(samples, part.high)
    count = max(1, (stop - start) * every_rows // rows_max)
    inner = [samples[start + (stop - start) * number // count].as_py() for number in range(1, count)]
    bounds = [part.low, *(key for key in dict.fromkeys(inner) if part.low is None or key > part.low), part.high]
    return [Rewrite(part.paths, low, high, is_share=count > 1) for low, high in pairwise(bounds)]


def within(rows: pa.Table, schema: TableSchema, part: Rewrite) -> pa.Table:
    """Those of the sorted rows that a rewrite stands for."""
    if not part.is_share:
        return rows
    keys = keys_of_state(schema, rows)
    start = 0 if part.low is None else place_of(keys, part.low)
    stop = len(keys) if part.high is None else place_of(keys, part.high)
    return rows.slice(start, stop - start)


def merge(rows: pa.Table | None, lives: Lives, schema: TableSchema) -> tuple[pa.Table, int]:
    """The rows of a range after its folded rows, and how many values of those are quarantined.

    Raises `LakeDamage` for an UPDATE of a row that is not there.
    """
    typed = Typed(lives.rows, schema)
    rows = schema.state.empty_table() if rows is None or lives.is_emptied else fitted(rows, schema.state)
    old_keys = keys_of_state(schema, rows)
    base_count = len(rows)
    match = pc.index_in(lives.keys, value_set=old_keys).fill_null(-1).to_numpy(zero_copy_only=False)
    match = match.astype(np.int64)
    _check(typed, match, lives)
    is_kept = np.ones(base_count, np.bool_)
    is_kept[match[match >= 0]] = False
    kept, put = np.flatnonzero(is_kept), np.flatnonzero(typed.kinds != Kind.DELETE)
    keys = pa.concat_arrays([old_keys.take(pa.array(kept)), lives.keys.take(pa.array(put))])
    order = pc.sort_indices(keys).to_numpy(zero_copy_only=False)

    def sources(place: int) -> npt.NDArray[np.int64]:
        """Of each row of the result: its row among the old ones, or behind them its folded row."""
        of_lives = base_count + np.arange(len(match))
        unsent = typed.absent.rows_without(place)
        of_lives[unsent] = match[unsent]
        joined: npt.NDArray[np.int64] = np.concatenate([kept, of_lives[put]])[order]
        return joined

    old_texts = unpack(_whole(rows, QUARANTINED), [column.name for column in schema.columns])
    values, texts = [], {}
    for column in schema.columns:
        rows_of = pa.array(sources(typed.place(column.source)))
        name = column.name
        values.append(pa.concat_arrays([_whole(rows, name), typed.values[name]]).take(rows_of))
        if name in old_texts or name in typed.quarantined:
            old = old_texts.get(name, pa.nulls(base_count, pa.large_string()))
            new = typed.quarantined.get(name, pa.nulls(typed.count, pa.large_string()))
            texts[name] = pa.concat_arrays([old, new]).take(rows_of)
    stored = [keys.take(pa.array(order)).cast(pa.string())] if schema.stores_key else []
    parts = [*values, *stored, pack(len(order), texts)]
    return pa.Table.from_arrays(parts, schema=schema.state), typed.quarantined_count


def divided(rows: pa.Table, *, rows_max: int, bytes_max: int, is_tail: bool = True) -> list[pa.Table]:
    """The rows as files of the target's size, up to a quarter more. None without rows.

    At the tail, where keys grow, full files are left behind, and only the last is written anew; elsewhere all files
    have room.
    """
    targets = max(len(rows) / rows_max, rows.nbytes / bytes_max)
    if not is_tail:
        count = max(1, math.ceil(targets / _FULL))
        bounds = [len(rows) * number // count for number in range(count + 1)]
        return [rows.slice(start, stop - start) for start, stop in pairwise(bounds) if stop > start]
    size = max(1, round(len(rows) / max(1.0, targets)))
    starts = [start for start in range(0, len(rows), size) if not start or len(rows) - start > size // 4]
    return [rows.slice(start, stop - start) for start, stop in pairwise([*starts, len(rows)])]


def low_of(schema: TableSchema, rows: pa.Table) -> Key:
    """The least key of sorted rows."""
    key: Key = keys_of_state(schema, rows.slice(0, 1))[0].as_py()
    return key


def group_rows(rows: pa.Table) -> int:
    """Rows of a row group, so that all are of about the same size, and a full file has `STATE_GROUPS` of them."""
    targets = max(len(rows) / (STATE_FILE_ROWS // STATE_GROUPS), rows.nbytes / (STATE_FILE_BYTES // STATE_GROUPS))
    count: int = max(1, round(targets))
    return max(1, math.ceil(len(rows) / count))


def packed(sizes: Sequence[tuple[int, int]], *, is_tail: bool = True) -> list[range]:
    """Row groups (rows and bytes of each) as files, by the same rule as `divided`."""
    shares_of_file = [max(rows / STATE_FILE_ROWS, size / STATE_FILE_BYTES) for rows, size in sizes]
    if not sizes:
        return []
    bounds = _tail_bounds(shares_of_file) if is_tail else _even_bounds(shares_of_file)
    return [range(start, stop) for start, stop in pairwise([0, *bounds, len(sizes)])]


def _tail_bounds(parts: Sequence[float]) -> list[int]:
    """Where files begin, each as full as may be; what is left over, if it is little, goes into the last."""
    found, filled, left = list[int](), 0.0, sum(parts)
    for number, share in enumerate(parts):
        if filled and filled + share > 1.0 and left > _FULL - 1.0:
            found.append(number)
            filled = 0.0
        filled += share
        left -= share
    return found


def _even_bounds(parts: Sequence[float]) -> list[int]:
    """Where files begin, all of about one size: a part belongs to the file in which its middle lies."""
    total = sum(parts)
    size = total / files_for(total, max(parts))
    middles = [end - part / 2 for end, part in zip(accumulate(parts), parts, strict=True)]
    files = [int(middle / size) for middle in middles]
    return [number for number in range(1, len(files)) if files[number] != files[number - 1]]


def files_for(total: float, largest: float | None = None) -> int:
    """How many files rows of so many targets become, if row groups of at most `largest` of a target are not divided."""
    if total <= _FULL:
        return 1
    return math.ceil(total / max(1.0, _FULL - (1 / STATE_GROUPS if largest is None else largest)))


def fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows of an older file with the columns of today; those that were not there are NULL."""
    parts = [
        rows.column(field.name).cast(field.type) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    return pa.Table.from_arrays(parts, schema=columns)


def _check(typed: Typed, match: npt.NDArray[np.int64], lives: Lives) -> None:
    """Every row that is there afterwards has a value for each column."""
    is_update = typed.kinds == Kind.UPDATE
    lost = np.flatnonzero((match < 0) & (typed.kinds != Kind.DELETE))
    is_whole = ~is_update
    for column in typed.schema.columns:
        unsent = typed.absent.rows_without(typed.place(column.source))
        is_unsent = np.zeros(typed.count, np.bool_)
        is_unsent[unsent] = True
        broken = lost[is_unsent[lost]]
        if not len(broken):
            broken = np.flatnonzero(is_unsent & is_whole & (typed.kinds != Kind.DELETE))
        if len(broken):
            key = lives.keys[int(broken[0])].as_py()
            raise LakeDamage(f"a row has no value for {column.source!r}, since it was never inserted", key=key)


def _ranks(lows: pa.Array, keys: pa.Array) -> npt.NDArray[np.int64]:
    """For each key the last of the bounds that is at or below it, -1 if none is."""
    if pa.types.is_integer(keys.type):
        found: npt.NDArray[np.int64] = np.searchsorted(lows.to_numpy(), keys.to_numpy(), side="right").astype(np.int64)
        return found - 1
    both = pa.concat_arrays([lows, keys])
    order = pc.sort_indices(both).to_numpy(zero_copy_only=False)  # stable, so a bound comes before its equals
    counted = np.cumsum(order < len(lows)) - 1
    ranks = np.empty(len(both), np.int64)
    ranks[order] = counted
    return ranks[len(lows) :]


def _whole(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
