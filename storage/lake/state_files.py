"""Files of a state, written anew: whole, or with those row groups as they are to which no changed key belongs.

A change of a hundred keys that are neighbours decodes and encodes one row group of one file; the bytes of the others
are copied. Where much of a file changes, or it was written otherwise than files are today, all of it is encoded.

Invariant: the rows of the new files are those of `state.merge`, whichever way was taken.
"""

import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from storage.lake.keys import keys_of_state
from storage.lake.lake_layout import state_name
from storage.lake.limits import STATE_FILE_BYTES, STATE_FILE_ROWS, STATE_GROUPS
from storage.lake.lives import Lives
from storage.lake.parquet_files import (
    Group,
    NewFile,
    encoded,
    footer_of,
    groups_in,
    read_rows,
    rows_of_groups,
    sync_file,
    write_groups,
)
from storage.lake.state import Rewrite, StateFile, divided, fitted, group_rows, merge, packed, rewrites, within
from storage.lake.table_schema import TableSchema


def rewrite_files(folder: Path, cut: int, part: Rewrite, lives: Lives, schema: TableSchema) -> list[NewFile]:
    """What takes the place of a rewrite's files, once the folded rows are in it."""
    kept = None if lives.is_emptied or part.is_share else _groups_after(folder, part, lives, schema)
    is_tail = part.high is None
    if kept is not None:
        files = packed(_sizes(kept), is_tail=is_tail)
        return _write(folder, cut, [kept[file.start : file.stop] for file in files])
    paths = () if lives.is_emptied else part.paths
    old = [within(fitted(read_rows(folder / path), schema.state), schema, part) for path in paths]
    rows, _ = merge(pa.concat_tables(old) if old else None, lives, schema)
    return write_state(folder, cut, rows, schema, is_tail=is_tail)


def write_state(folder: Path, cut: int, rows: pa.Table, schema: TableSchema, *, is_tail: bool = True) -> list[NewFile]:
    """Sorted rows as files of a state; they know their highest keys."""
    pieces = divided(rows, rows_max=STATE_FILE_ROWS, bytes_max=STATE_FILE_BYTES, is_tail=is_tail)
    files = _write(folder, cut, (_encoded(piece, schema) for piece in pieces))
    highs = [keys_of_state(schema, piece.slice(len(piece) - 1))[0].as_py() for piece in pieces]
    return [replace(file, high=high) for file, high in zip(files, highs, strict=True)]


def _write(folder: Path, cut: int, files: Iterable[Sequence[Group]]) -> list[NewFile]:
    found = [write_groups(folder / state_name(cut, uuid.uuid4().hex), groups) for groups in files]
    if found:
        sync_file(folder)
    return found


def _groups_after(folder: Path, part: Rewrite, lives: Lives, schema: TableSchema) -> list[Group] | None:
    """The row groups of a rewrite's files, some of them encoded anew; None if all should be."""
    files = [groups_in(folder / path) for path in part.paths]
    old, like = [group for groups in files for group in groups], footer_of(schema.state)
    if not old or not all(files) or not all(group.fits(like) for group in old):
        return None
    if not len(lives.keys) and _is_crumbled(_sizes(old)):
        return None
    listed = [StateFile(str(number), group.low, group.facts.rows) for number, group in enumerate(old)]
    inside = rewrites(listed, lives.keys, small_rows=STATE_FILE_ROWS // STATE_GROUPS // 4)
    changed = sum(old[int(number)].facts.rows for one in inside for number in one.paths)
    if 2 * changed > sum(group.facts.rows for group in old):
        return None
    found, done = list[Group](), 0
    starts = [sum(len(groups) for groups in files[:place]) for place in range(len(files))]
    for one in inside:
        numbers = [int(number) for number in one.paths]
        rows = [
            rows_of_groups(groups, [number - start for number in numbers if start <= number < start + len(groups)])
            for start, groups in zip(starts, files, strict=True)
            if any(start <= number < start + len(groups) for number in numbers)
        ]
        base = pa.concat_tables(fitted(some, schema.state) for some in rows)
        merged, _ = merge(base, lives.between(one.low, one.high), schema)
        found += [*old[done : numbers[0]], *(_encoded(merged, schema) if len(merged) else ())]
        done = numbers[-1] + 1
    return [*found, *old[done:]]


def _is_crumbled(sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether row groups are so small that who joins files had better make others."""
    full = sum(max(rows / STATE_FILE_ROWS, size / STATE_FILE_BYTES) for rows, size in sizes) * STATE_GROUPS
    return len(sizes) > 2 * math.ceil(full)


def _encoded(rows: pa.Table, schema: TableSchema) -> list[Group]:
    size = group_rows(rows)
    starts = range(0, len(rows), size)
    lows = keys_of_state(schema, rows).take(pa.array(starts)).to_pylist()
    return encoded(rows, schema.state, size, lows)


def _sizes(groups: Sequence[Group]) -> list[tuple[int, int]]:
    return [(group.facts.rows, group.facts.bytes) for group in groups]
