"""Many small shares of the same logs become one for each log, in a journal file of their own.

A log that gets a few rows with each flush has tens of shares when the journal is long. To move them to a segment costs
a file and its sync for each log; to join them costs one write for hundreds of logs, and a reader has fewer pieces to
go through. They go to a segment when they are many bytes.

Invariants:
    what is joined follows each other in its log, with no gap inside, has one schema, and no row of an open transaction
    the block says that it is a copy: until the first of the old files goes, nothing is lost with it
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.disk import Disk
from storage.errors import StorageError, from_os_error
from storage.file_write import FileWrite
from storage.journal import JournalFile
from storage.journal_block import DIRECTORY_FIELDS, Directory, cut_into_parts, encoded_parts
from storage.offset import LogOffset
from storage.parts import Part, decode_batches
from storage.rows import Flags, Integers, Unsigned
from storage.scan import read_part
from storage.scattered import Scattered

_NO_SCHEMA = -1


@dataclass(slots=True)
class JournalJoin:
    """What is joined, and where to; the outcome is in `file`."""

    scattered: Scattered
    target: JournalFile
    file: FileWrite
    directory: Directory | None = None
    """Of the block that was written."""

    @property
    def logs(self) -> list[int]:
        """Whose shares these are."""
        numbers: list[int] = np.unique(self.scattered.columns["log"]).tolist()
        return numbers

    def run(self, disk: Disk, written_at: int) -> None:
        """Read, join and write. Nothing is removed here."""
        try:
            rows = _Rows(disk, self.scattered)
            runs = _Runs(self.scattered.columns, rows.schema)
            directory, parts = _encoded(self.scattered.columns, rows, runs)
        except OSError as error:  # of a file that is read: if it vanished, that is the fault of those whose rows it had
            self.file.failure = from_os_error(error, error.filename or self.file.path)
        except StorageError as error:
            self.file.failure = error
        else:
            self.directory = directory
            self.file.put(disk, [(_header(directory, self.scattered.oldest, written_at), parts)])


@dataclass(slots=True)
class _Rows:
    """The rows of all shares: a table for each schema, and where each share's are."""

    tables: list[pa.RecordBatch]
    schema: Integers
    """Of each share, the number of its table; `_NO_SCHEMA` for one without rows."""
    start: Integers
    """Its first row in there."""
    count: Integers

    def __init__(self, disk: Disk, scattered: Scattered) -> None:
        columns = scattered.columns
        self.count = columns["rows"].astype(np.int64)
        self.schema = np.full(len(self.count), _NO_SCHEMA)
        self.start = columns["row"].astype(np.int64)
        pieces: dict[pa.Schema, list[pa.RecordBatch]] = {}
        heights: dict[pa.Schema, int] = {}
        filled = np.flatnonzero(self.count)
        table = columns["table"].astype(np.int64)
        by_part = filled[np.lexsort((table[filled], scattered.block[filled]))]
        place = np.stack((scattered.block[by_part], table[by_part]))
        firsts = np.flatnonzero((np.diff(place, prepend=-1) != 0).any(axis=0))
        for shares in np.split(by_part, firsts[1:]) if len(by_part) else []:
            block, number = scattered.block[shares[0]], table[shares[0]]
            (part,) = decode_batches(read_part(disk, scattered.refs[block], int(number) + 1))
            # A copy: a slice would keep all of the part, which has rows of logs that stay, and there are thousands.
            rows = part.take(pa.array(_expanded(self.start[shares], self.count[shares])))
            pieces.setdefault(part.schema, []).append(rows)
            height = heights.get(part.schema, 0)
            heights[part.schema] = height + rows.num_rows
            self.schema[shares] = list(pieces).index(part.schema)
            self.start[shares] = height + np.cumsum(self.count[shares]) - self.count[shares]
        self.tables = [pa.concat_batches(some) for some in pieces.values()]


class _Runs:
    """Which neighbours become one share: from `first` to `last`, and the first of them that has rows."""

    def __init__(self, columns: dict[str, Unsigned], schema: Integers) -> None:
        count = len(schema)
        at = np.arange(count)
        # A commit without rows has any schema.
        known = np.maximum.accumulate(np.where(schema != _NO_SCHEMA, at, 0))
        schema = schema[known]
        self.first = np.flatnonzero(_begins(columns, schema))
        self.last = np.append(self.first[1:], count) - 1
        filled = np.minimum.reduceat(np.where(columns["rows"] > 0, at, count), self.first)
        self.filled = np.where(filled < count, filled, self.first)
        self.schema = schema[self.last]


def _begins(columns: dict[str, Unsigned], schema: Integers) -> Flags:
    """For each share, whether it cannot be joined to the one before."""
    begins = np.ones(len(schema), np.bool_)
    begins[1:] = (
        (columns["log"][1:] != columns["log"][:-1])
        | (columns["flags"][1:] != BlockFlag.NONE)
        | (columns["previous_tx"][1:] != columns["last_tx"][:-1])
        | (columns["previous_op"][1:] != columns["last_op"][:-1])
        | (schema[1:] != schema[:-1])
    )
    return begins


def _encoded(columns: dict[str, Unsigned], rows: _Rows, runs: _Runs) -> tuple[Directory, list[Part]]:
    sources = {"log": runs.first, "flags": runs.first, "previous_tx": runs.first, "previous_op": runs.first}
    sources |= {"first_tx": runs.filled, "first_op": runs.filled}
    joined = {name: columns[name][sources.get(name, runs.last)].copy() for name in DIRECTORY_FIELDS}
    counts = np.add.reduceat(rows.count, runs.first)
    joined["rows"] = counts.astype(np.uint64)
    joined["table"][:] = joined["row"][:] = 0
    schema_of_share = np.repeat(runs.schema, runs.last - runs.first + 1)
    tables: list[pa.RecordBatch] = []
    for number, table in enumerate(rows.tables):
        shares = np.flatnonzero((schema_of_share == number) & (rows.count > 0))
        taken = table.take(pa.array(_expanded(rows.start[shares], rows.count[shares])))
        own = np.flatnonzero((runs.schema == number) & (counts > 0))
        part, row, cut = cut_into_parts(taken, np.cumsum(counts[own]) - counts[own])
        joined["table"][own] = part + len(tables)
        joined["row"][own] = row
        tables += cut
    directory = Directory(joined)
    return directory, encoded_parts(directory, tables)


def _expanded(starts: Integers, counts: Integers) -> Integers:
    """The numbers of so many rows from each start."""
    before = np.cumsum(counts) - counts
    found: Integers = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
    return found


def _header(directory: Directory, copied_from: int, written_at: int) -> BlockHeader:
    first = min(_offsets(directory, "first"))
    return BlockHeader(
        kind=BlockKind.JOURNAL,
        flags=BlockFlag.NONE,
        rows=int(directory.columns["rows"].sum()),
        payload_size=0,
        previous=first,
        first=first,
        last=max(_offsets(directory, "last")),
        aligned=min(_offsets(directory, "aligned")),
        wire_end=0,
        synced_before=0,
        log=copied_from,
        written_at=written_at,
    )


def _offsets(directory: Directory, name: str) -> Sequence[LogOffset]:
    columns = directory.columns
    return list(map(LogOffset, columns[f"{name}_tx"].tolist(), columns[f"{name}_op"].tolist()))
