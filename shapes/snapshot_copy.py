"""A table's rows, as one snapshot shows them, into the chunks of a base: by columns, in bounded memory.

The rows are read by a thread (`copy_out`), and decoded and written by another, a batch behind; the event loop only
hands over. A base can be read while it is written.

Invariants:
    the end mark is written only when the server said that the copy is complete
    no more rows wait than SNAPSHOT_PENDING_BYTES_MAX, one batch, and what `copy_out` reads ahead
    whoever cancels a copy gets it back when no thread writes any more
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from storage.columns import spans
from storage.errors import SharedDiskFault
from storage.limits import FAULT_RETRY_SECONDS
from storage.offset import SNAPSHOT_END
from storage.rows import NEW, Integers, Kind, row_schema, wire_sizes


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is."""

    rows: int = 0
    wire_bytes: int = 0
    share: float | None = None
    """Of the rows that the server believes to be there; None where it does not know, or a clause decides."""


Progress = Callable[[CopyProgress], None]


class Chunks:
    """Rows cut into chunks of a base. Pure.

    What comes in one piece is cut into equal parts of at most the chunk's size, and what is less than half of it waits:
    no row is copied for the sake of a round number.
    """

    def __init__(self, columns: tuple[str, ...], chunk_bytes: int) -> None:
        self.schema = row_schema(columns, absent=False)
        self.rows = 0
        self.wire_bytes = 0
        self._size = min(chunk_bytes, SNAPSHOT_PENDING_BYTES_MAX)
        self._number = 0
        self._pending: list[pa.StructArray] = []
        self._pending_sizes: list[Integers] = []
        self._pending_bytes = 0

    @property
    def values(self) -> pa.StructType:
        """What a row's values are decoded to."""
        return self.schema.field(NEW).type

    def add(self, values: pa.StructArray) -> Iterator[pa.RecordBatch]:
        """Take rows; the chunks that are full now."""
        sizes = wire_sizes(self._batch(values, 0))
        size = int(sizes.sum())
        self.rows += len(values)
        self.wire_bytes += size
        self._pending.append(values)
        self._pending_sizes.append(sizes)
        self._pending_bytes += size
        if 2 * self._pending_bytes >= self._size:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """All that waits, as chunks."""
        if not self._pending_bytes:
            return
        values = self._pending[0] if len(self._pending) == 1 else pa.concat_arrays(self._pending)
        sizes, parts = np.concatenate(self._pending_sizes), -(-self._pending_bytes // self._size)
        part_bytes = -(-self._pending_bytes // parts)
        self._pending, self._pending_sizes, self._pending_bytes = [], [], 0
        for start, stop in spans(sizes, part_bytes):
            number, self._number = self._number, self._number + 1
            yield self._batch(values.slice(start, stop - start), number)

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
    sink = _Sink(writer, clocks)
    if selection.has_rows:
        try:
            async with await CopyOut.start(transaction.connection, selection.statement) as copy:
                while (batch := await copy.batch()) is not None:
                    await in_thread(_take, chunks, batch, copy.head_bytes, sink)
                    await sink.emptied()
                    progress(_how_far(transaction, chunks))
        except StreamEnded as ended:
            raise copy_fault(selection, ended.sqlstate, ended.message) from None
        sink.waiting.extend(chunks.rest())
        await in_thread(sink.write)
        await sink.emptied()
    progress(_how_far(transaction, chunks))
    return await in_thread(_finish, writer, clocks)


class _Sink:
    """Chunks on their way into the base."""

    def __init__(self, writer: BaseWriter, clocks: Clocks) -> None:
        self.waiting: deque[pa.RecordBatch] = deque()
        self._writer = writer
        self._clocks = clocks
        self._fault: SharedDiskFault | None = None

    def write(self) -> None:
        """Write what waits, up to a fault of the shared disk."""
        self._fault = None
        while self.waiting:
            try:
                self._writer.chunk(self.waiting[0], written_at=self._clocks.wall())
            except SharedDiskFault as fault:
                self._fault = fault
                return
            self.waiting.popleft()

    async def emptied(self) -> None:
        """Nothing waits any more; a disk that takes nothing is given some time (A9)."""
        end = self._clocks.monotonic() + SNAPSHOT_DISK_SECONDS_MAX
        while self._fault is not None:
            if self._clocks.monotonic() > end:
                raise self._fault
            await asyncio.sleep(FAULT_RETRY_SECONDS)
            await in_thread(self.write)


def _take(chunks: Chunks, batch: CopyBatch, head_bytes: int, sink: _Sink) -> None:
    """Decode and write at one go: to hand over to another thread costs as much as to write a chunk."""
    sink.waiting.extend(chunks.add(parse_rows(batch, chunks.values, head_bytes)))
    sink.write()


def _finish(writer: BaseWriter, clocks: Clocks) -> Base:
    return writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=clocks.wall())


def _how_far(transaction: SnapshotTransaction, chunks: Chunks) -> CopyProgress:
    estimate = transaction.rows_estimate
    is_known = estimate is not None and estimate > 0 and transaction.selection.where is None
    share = min(chunks.rows / estimate, 1.0) if is_known and estimate else None
    return CopyProgress(chunks.rows, chunks.wire_bytes, share)
