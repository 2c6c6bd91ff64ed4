"""The parts of a journal block: a directory of shares, then their rows, in parts of some hundred kilobytes.

Ten thousand shares of one table are one Arrow batch, cut into parts between two shares, and 14 numbers each; a share
becomes an object when it is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.block import BlockFlag
from storage.errors import CorruptBlock
from storage.limits import JOURNAL_PART_BYTES
from storage.offset import LogOffset, offsets_of
from storage.parts import Part, decode_batches, encode_batches
from storage.rows import Integers, Unsigned
from storage.share import Share

DIRECTORY_FIELDS: Final = (
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
_ROWS: Final = DIRECTORY_FIELDS.index("rows")
_FEW_ROWS: Final = 8
"""Of a directory: an array for each field costs as much as so many rows one by one."""
_SCHEMA: Final = pa.schema([pa.field(name, pa.uint64(), False) for name in DIRECTORY_FIELDS])


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

    def packed(self) -> "PackedDirectory":
        """The same in memory of its own, about a third of it: an index keeps directories as long as their files."""
        return PackedDirectory([_packed(values) for values in self.columns.values()])

    def logs(self) -> list[int]:
        """The log of each share."""
        numbers: list[int] = self.columns["log"].tolist()
        return numbers


@dataclass(frozen=True, slots=True)
class PackedDirectory:
    """A directory to be kept: each column's least number, and in as few bytes as do, what the others have above it."""

    columns: list[tuple[int, NDArray[Any]]]
    """In the order of the fields."""

    def __len__(self) -> int:
        return len(self.columns[0][1])

    def logs(self) -> list[int]:
        """The log of each share."""
        numbers: list[int] = self.column("log").tolist()
        return numbers

    def column(self, name: str, rows: Integers | slice = slice(None)) -> Unsigned:
        """A column as it was, or some rows of it."""
        least, above = self.columns[DIRECTORY_FIELDS.index(name)]
        values: Unsigned = above[rows].astype(np.uint64) + np.uint64(least)
        return values

    def offsets(self, name: str) -> list[LogOffset]:
        """One of the offsets of each share."""
        return offsets_of(self.column(f"{name}_tx").tolist(), self.column(f"{name}_op").tolist())

    def has_rows(self, row: int) -> bool:
        """Whether the share is more than a commit."""
        least, above = self.columns[_ROWS]
        return bool(least + above.item(row))

    def table(self, rows: Integers) -> Unsigned:
        """Some shares' rows; a column for each field, in their order."""
        if len(rows) < _FEW_ROWS:
            return np.array([self.numbers(row) for row in rows.tolist()], np.uint64)
        return np.stack([above[rows].astype(np.uint64) + np.uint64(least) for least, above in self.columns], axis=1)

    def numbers(self, row: int) -> list[int]:
        """One share's row, in the order of the fields."""
        return [least + above.item(row) for least, above in self.columns]

    def entry(self, row: int) -> ShareEntry:
        """One share's row as an object."""
        log, flags, *offsets, rows, wire_end, table, start = self.numbers(row)
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


def _packed(values: Unsigned) -> tuple[int, NDArray[Any]]:
    if not len(values):
        return 0, values
    least = values.min()
    above = values - least
    return int(least), above.astype(np.min_scalar_type(int(above.max())))


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
    gathered = _Gathered(shares)
    directory = _directory(parts, gathered)
    return EncodedJournal(
        parts=encoded_parts(directory, gathered.tables),
        directory=directory,
        tables=gathered.tables,
        first=min((share.first for share in shares), default=parts[0].previous),
        last=max((share.last for share in shares), default=parts[0].previous),
        aligned=min(part.aligned for part in parts),
        rows=int(gathered.counts.sum()),
    )


def encoded_parts(directory: Directory, tables: Sequence[pa.RecordBatch]) -> list[Part]:
    """A block's parts: the directory, then the rows."""
    batch = pa.RecordBatch.from_arrays([pa.array(directory.columns[name]) for name in DIRECTORY_FIELDS], schema=_SCHEMA)
    return [encode_batches([batch]), *(encode_batches([table]) for table in tables)]


def _directory(parts: Sequence[JournalPart], gathered: "_Gathered") -> Directory:
    """A row for each share, and for each part without shares: a commit that came after its rows."""
    shares = gathered.shares
    shares_count = np.array([len(part.shares) for part in parts], np.int64)
    entries_count = np.maximum(shares_count, 1)
    ends = np.cumsum(entries_count)
    columns: dict[str, Unsigned] = {name: np.zeros(int(ends[-1]), np.uint64) for name in DIRECTORY_FIELDS}
    columns["log"] = np.repeat(np.array([part.log for part in parts], np.uint64), entries_count)
    # A share but the last claims what was durable, or a tear between them would go unseen.
    _put_offsets(columns, "aligned", slice(None), [part.durable for part in parts], entries_count)
    _put_offsets(columns, "aligned", ends - 1, [part.aligned for part in parts])
    bare = np.flatnonzero(shares_count == 0)
    for name in ("previous", "first", "last") if len(bare) else ():
        _put_offsets(columns, name, ends[bare] - 1, [parts[index].previous for index in bare.tolist()])
    starts = np.array([part.wire_start for part in parts], np.uint64)
    columns["wire_end"] = np.repeat(starts, entries_count)
    if shares:
        rows = np.delete(np.arange(int(ends[-1])), ends[bare] - 1) if len(bare) else slice(None)
        _put_offsets(columns, "previous", rows, [share.previous for share in shares])
        _put_offsets(columns, "first", rows, [share.first for share in shares])
        _put_offsets(columns, "last", rows, [share.last for share in shares])
        gaps = np.array([share.gap for share in shares], np.bool_)
        columns["flags"][rows] = np.where(gaps, np.uint64(BlockFlag.GAP), np.uint64(BlockFlag.NONE))
        columns["rows"][rows] = gathered.counts
        columns["table"][rows] = gathered.table
        columns["row"][rows] = gathered.row
        sums = np.cumsum(np.array([share.wire for share in shares], np.uint64))
        before = np.concatenate((np.zeros(1, np.uint64), sums))[np.cumsum(shares_count) - shares_count]
        columns["wire_end"][rows] += sums - np.repeat(before, shares_count)
    return Directory({**columns})


def _put_offsets(
    columns: dict[str, Unsigned],
    name: str,
    rows: Integers | slice,
    offsets: Sequence[LogOffset],
    counts: Integers | int = 1,
) -> None:
    """Store offsets in the two columns that `name` has, each so many times."""
    pairs = np.fromiter(chain.from_iterable(offsets), np.uint64, 2 * len(offsets)).reshape(-1, 2)
    columns[f"{name}_tx"][rows] = np.repeat(pairs[:, 0], counts)
    columns[f"{name}_op"][rows] = np.repeat(pairs[:, 1], counts)


class _Gathered:
    """The rows of shares in parts of one schema each, and where each share's are."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self.shares = shares
        self.counts = np.array([share.count for share in shares], np.int64)
        self.table = np.zeros(len(shares), np.int64)
        """The number of the share's part, behind the directory."""
        self.row = np.zeros(len(shares), np.int64)
        """Its first row in there."""
        by_source: dict[int, list[int]] = {}
        for index, share in enumerate(shares):
            by_source.setdefault(id(share.source), []).append(index)
        small: dict[pa.Schema, list[tuple[pa.RecordBatch, Integers]]] = {}
        self.tables: list[pa.RecordBatch] = []
        for indexes in by_source.values():
            held = [shares[index] for index in indexes] if len(by_source) > 1 else shares
            piece, places = _rows_of(held), np.array(indexes)
            if piece.nbytes >= JOURNAL_PART_BYTES:
                self._place([(piece, places)])  # apart: to copy it would take as much memory again
            else:
                small.setdefault(piece.schema, []).append((piece, places))
        for pieces in small.values():
            self._place(pieces)

    def _place(self, pieces: Sequence[tuple[pa.RecordBatch, Integers]]) -> None:
        """Make parts of pieces of one schema, each with its shares."""
        height = 0
        for piece, shares in pieces:
            ends = np.cumsum(self.counts[shares]) + height
            self.row[shares] = ends - self.counts[shares]
            height += piece.num_rows
        self._cut(_one([piece for piece, _ in pieces]), np.concatenate([shares for _, shares in pieces]))

    def _cut(self, table: pa.RecordBatch, shares: Integers) -> None:
        """Make parts of the rows of one schema: whoever wants some of the shares need not read all."""
        shares = shares[np.argsort(self.row[shares])]  # a log has shares of several sources, and they are elsewhere
        part, row, tables = cut_into_parts(table, self.row[shares])
        self.table[shares] = len(self.tables) + part
        self.row[shares] = row
        self.tables += tables


def cut_into_parts(table: pa.RecordBatch, rows: Integers) -> tuple[Integers, Integers, list[pa.RecordBatch]]:
    """Cut a table in front of some of these rows: for each of them its part and its place in there; and the parts."""
    number = rows * table.nbytes // (table.num_rows * JOURNAL_PART_BYTES)
    is_first = np.diff(number, prepend=-1) > 0
    starts = rows[is_first]
    part = np.cumsum(is_first) - 1
    stops = [*starts[1:].tolist(), table.num_rows]
    tables = [table.slice(start, stop - start) for start, stop in zip(starts.tolist(), stops, strict=True)]
    return part, rows - starts[part], tables


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
    if batch.schema.names != list(DIRECTORY_FIELDS):
        raise CorruptBlock("a journal block does not start with a directory", found=batch.schema.names)
    return Directory({name: batch.column(name).to_numpy(zero_copy_only=True) for name in DIRECTORY_FIELDS})


def part_of_share(entry: ShareEntry) -> int:
    """The number of the part that has a share's rows."""
    return entry.table + 1


def rows_of(part: memoryview, entry: ShareEntry) -> pa.RecordBatch:
    """A share's rows, from the part that has them."""
    return decode_batches(part)[0].slice(entry.row, entry.rows)
