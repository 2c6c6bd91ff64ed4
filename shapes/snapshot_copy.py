"""A table's rows, as one snapshot shows them, into the chunks of a base: by columns, in bounded memory.

The rows are read by a thread (`copy_out`), and decoded and written by another, a batch behind; the event loop only
hands over. A base can be read while it is written.

Invariants:
    the end mark is written only when the server said that the copy is complete
    no more rows wait than SNAPSHOT_PENDING_BYTES_MAX, one batch, and what `copy_out` reads ahead
    whoever cancels a copy gets it back when no thread writes any more
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from cdc.source.errors import StreamEnded
from cdc.source.walsender import CopyBatch
from shapes.copy_out import CopyOut
from shapes.copy_text import parse_rows
from shapes.limits import SNAPSHOT_DISK_SECONDS_MAX, SNAPSHOT_PENDING_BYTES_MAX
from shapes.snapshot_transaction import SnapshotTransaction, copy_fault
from shapes.threads import in_thread
from storage.bases import Base, BaseWriter
from storage.clocks import Clocks
from storage.errors import SharedDiskFault
from storage.fold import chunks_by_wire
from storage.limits import FAULT_RETRY_SECONDS
from storage.offset import SNAPSHOT_END
from storage.rows import NEW, Kind, row_schema, wire_sizes

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is."""

    rows: int = 0
    wire_bytes: int = 0
    share: float | None = None
    """Of the rows that the server believes to be there; None where it does not know, or a clause decides."""


Progress = Callable[[CopyProgress], None]


class Chunks:
    """Rows gathered until they fill chunks of a base. Pure."""

    def __init__(self, columns: tuple[str, ...], chunk_bytes: int) -> None:
        self.schema = row_schema(columns, absent=False)
        self.rows = 0
        self.wire_bytes = 0
        self._size = min(chunk_bytes, SNAPSHOT_PENDING_BYTES_MAX)
        self._number = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    @property
    def values(self) -> pa.StructType:
        """What a row's values are decoded to."""
        return self.schema.field(NEW).type

    def add(self, values: pa.StructArray) -> Iterator[pa.RecordBatch]:
        """Take rows; the chunks that are full now."""
        batch = self._batch(values, 0)
        size = int(wire_sizes(batch).sum())
        self.rows += len(values)
        self.wire_bytes += size
        self._pending.append(batch)
        self._pending_bytes += size
        if self._pending_bytes >= self._size:
            *full, last = chunks_by_wire(self._pending, self._size)
            self._pending, self._pending_bytes = [last], int(wire_sizes(last).sum())
            yield from map(self._numbered, full)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The last chunks."""
        yield from map(self._numbered, chunks_by_wire(self._pending, self._size))
        self._pending, self._pending_bytes = [], 0

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        number, self._number = self._number, self._number + 1
        return self._batch(batch.column(NEW), number)

    def _batch(self, values: pa.StructArray, number: int) -> pa.RecordBatch:
        count = len(values)
        arrays = [
            pa.array(np.zeros(count, np.uint64)),
            pa.array(np.full(count, number, np.uint64)),
            pa.array(np.full(count, Kind.INSERT, np.uint8)),
            values,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


async def copy_snapshot(
    transaction: SnapshotTransaction,
    writer: BaseWriter,
    chunk_bytes: int,
    clocks: Clocks,
    progress: Progress = lambda _: None,
) -> Base:
    """Copy the rows into the base, and complete it: it survives a crash when this returns.

    Raises `SnapshotLost` for what may not happen again, `SnapshotRefused` for what would, and the disk's errors.
    """
    selection = transaction.selection
    chunks = Chunks(selection.columns, chunk_bytes)
    if selection.has_rows:
        try:
            async with await CopyOut.start(transaction.connection, selection.statement) as copy:
                while (batch := await copy.batch()) is not None:
                    for chunk in await in_thread(_full_chunks, chunks, batch, copy.head_bytes):
                        await _write(writer, chunk, clocks)
                    progress(_how_far(transaction, chunks))
        except StreamEnded as ended:
            raise copy_fault(selection, ended.sqlstate, ended.message) from None
        for chunk in chunks.rest():
            await _write(writer, chunk, clocks)
    progress(_how_far(transaction, chunks))
    return await in_thread(_finish, writer, clocks)


def _full_chunks(chunks: Chunks, batch: CopyBatch, head_bytes: int) -> list[pa.RecordBatch]:
    return list(chunks.add(parse_rows(batch, chunks.values, head_bytes)))


async def _write(writer: BaseWriter, chunk: pa.RecordBatch, clocks: Clocks) -> None:
    """Write a chunk; a disk that takes nothing is given some time (A9)."""
    end = clocks.monotonic() + SNAPSHOT_DISK_SECONDS_MAX
    while True:
        try:
            await in_thread(lambda: writer.chunk(chunk, written_at=clocks.wall()))
        except SharedDiskFault:
            if clocks.monotonic() > end:
                raise
            await asyncio.sleep(FAULT_RETRY_SECONDS)
        else:
            return


def _finish(writer: BaseWriter, clocks: Clocks) -> Base:
    return writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=clocks.wall())


def _how_far(transaction: SnapshotTransaction, chunks: Chunks) -> CopyProgress:
    estimate = transaction.rows_estimate
    is_known = estimate is not None and estimate > 0 and transaction.selection.where is None
    share = min(chunks.rows / estimate, 1.0) if is_known and estimate else None
    return CopyProgress(chunks.rows, chunks.wire_bytes, share)
