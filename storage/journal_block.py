"""The parts of a journal block: a directory of shares, then their rows, a part for each schema.

Ten thousand shares of one table are one Arrow batch, and 14 numbers each; a share becomes an object when it is read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from storage.block import BlockFlag
from storage.errors import CorruptBlock
from storage.offset import LogOffset
from storage.parts import Part, decode_batches, encode_batches
from storage.rows import Unsigned
from storage.share import Share

_FIELDS: Final = (
    "log",
    "flags",
    "previous_tx",
    "previous_op",
    "first_tx",
    "first_op",
    "last_tx",
    "last_op",
    "aligned_tx",
    "aligned_op",
    "rows",
    "wire_end",
    "table",
    "row",
)
_SCHEMA: Final = pa.schema([pa.field(name, pa.uint64(), False) for name in _FIELDS])


class ShareEntry(NamedTuple):
    """A row of the directory."""

    log: int
    flags: BlockFlag
    previous: LogOffset
    first: LogOffset
    last: LogOffset
    aligned: LogOffset
    rows: int
    wire_end: int
    table: int
    row: int


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of a block, a column for each field."""

    columns: dict[str, Unsigned]
    """In the order of the fields."""

    def __len__(self) -> int:
        return len(self.columns["log"])

    def logs(self) -> list[int]:
        """The log of each share."""
        numbers: list[int] = self.columns["log"].tolist()
        return numbers

    def entry(self, row: int) -> ShareEntry:
        """One share's row as an object."""
        log, flags, *offsets, rows, wire_end, table, start = [values.item(row) for values in self.columns.values()]
        return ShareEntry(
            log=log,
            flags=BlockFlag(flags),
            previous=LogOffset(*offsets[:2]),
            first=LogOffset(*offsets[2:4]),
            last=LogOffset(*offsets[4:6]),
            aligned=LogOffset(*offsets[6:]),
            rows=rows,
            wire_end=wire_end,
            table=table,
            row=start,
        )


class JournalPart(NamedTuple):
    """What a journal block holds of one log. Without shares: a commit that came after its rows."""

    log: int
    shares: Sequence[Share]
    previous: LogOffset
    aligned: LogOffset
    """What the last share may claim; those before it claim `durable`, or a tear between them would go unseen."""
    durable: LogOffset
    wire_start: int


@dataclass(frozen=True, slots=True)
class EncodedJournal:
    """A payload to write, and what its header and the index need to know."""

    parts: list[Part]
    directory: Directory
    tables: list[pa.RecordBatch]
    first: LogOffset
    last: LogOffset
    aligned: LogOffset
    """The least of what the parts claim."""
    rows: int


def encode_journal(parts: Sequence[JournalPart]) -> EncodedJournal:
    """Gather the rows of all parts with one `take` for each source, and describe them in one directory."""
    shares = [share for part in parts for share in part.shares]
    tables, place = _gather_sources(shares)
    rows: list[tuple[int, ...]] = []
    for part in parts:
        rows.extend(_directory_rows(part, place))
    columns = np.array(rows, dtype=np.uint64).reshape(len(rows), len(_FIELDS)).T
    directory = Directory({name: np.ascontiguousarray(columns[index]) for index, name in enumerate(_FIELDS)})
    batch = pa.RecordBatch.from_arrays([pa.array(directory.columns[name]) for name in _FIELDS], schema=_SCHEMA)
    return EncodedJournal(
        parts=[encode_batches([batch]), *(encode_batches([table]) for table in tables)],
        directory=directory,
        tables=tables,
        first=min((share.first for share in shares), default=parts[0].previous),
        last=max((share.last for share in shares), default=parts[0].previous),
        aligned=min(part.aligned for part in parts),
        rows=sum(share.count for share in shares),
    )


def _directory_rows(part: JournalPart, place: dict[int, tuple[int, int]]) -> Iterable[tuple[int, ...]]:
    aligned, durable, previous = part.aligned, part.durable, part.previous
    wire_end = part.wire_start
    if not part.shares:
        yield (part.log, 0, *previous, *previous, *previous, *aligned, 0, wire_end, 0, 0)
    for share in part.shares:
        wire_end += share.wire
        claim = aligned if share is part.shares[-1] else durable
        flags = BlockFlag.GAP if share.gap else BlockFlag.NONE
        table, row = place[id(share)]
        yield (
            part.log,
            flags,
            *share.previous,
            *share.first,
            *share.last,
            *claim,
            share.count,
            wire_end,
            table,
            row,
        )


def _gather_sources(shares: Sequence[Share]) -> tuple[list[pa.RecordBatch], dict[int, tuple[int, int]]]:
    """The rows of all shares, a batch for each schema; and for each share its (batch, first row)."""
    by_source: dict[int, list[Share]] = {}
    for share in shares:
        by_source.setdefault(id(share.source), []).append(share)
    pieces: dict[pa.Schema, list[pa.RecordBatch]] = {}
    heights: dict[pa.Schema, int] = {}
    place: dict[int, tuple[int, int]] = {}
    for held in by_source.values():
        batch = held[0].source.batch
        schema = batch.schema
        table = list(pieces).index(schema) if schema in pieces else len(pieces)
        row = heights.get(schema, 0)
        for share in held:
            place[id(share)] = (table, row)
            row += share.count
        heights[schema] = row
        pieces.setdefault(schema, []).append(_rows_of(held))
    return [_one(batches) for batches in pieces.values()], place


def _rows_of(held: Sequence[Share]) -> pa.RecordBatch:
    """All rows that shares of one source select, in the shares' order, with one gather."""
    source = held[0].source
    if len(held) == 1:
        return held[0].batch()
    everything = np.arange(source.batch.num_rows)
    rows = np.concatenate([everything if share.rows is None else share.rows for share in held])
    return source.batch.take(pa.array(rows))


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def decode_directory(part: memoryview) -> Directory:
    """The first part of a journal block: all that recovery needs."""
    batch = decode_batches(part)[0]
    if batch.schema.names != list(_FIELDS):
        raise CorruptBlock("a journal block does not start with a directory", found=batch.schema.names)
    return Directory({name: batch.column(name).to_numpy(zero_copy_only=True) for name in _FIELDS})


def part_of_share(entry: ShareEntry) -> int:
    """The number of the part that has a share's rows."""
    return entry.table + 1


def rows_of(part: memoryview, entry: ShareEntry) -> pa.RecordBatch:
    """A share's rows, from the part that has them."""
    return decode_batches(part)[0].slice(entry.row, entry.rows)
