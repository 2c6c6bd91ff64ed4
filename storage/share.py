"""Rows on their way to disk: references into Arrow batches, never copies.

One decoded batch is shared by all logs that take rows of it. A `Source` is the batch with the count of those who hold
it, since what a share keeps in memory is the whole batch, not its own few rows.
"""

import numpy as np
import pyarrow as pa

from storage.offset import LogOffset
from storage.parts import Part, encode_batches
from storage.rows import OP, TX, Integers, Unsigned, column, gather, rows_up_to, wire_sizes


class Source:
    """A batch that shares refer to. Its wire sizes are worked out once, for all of them, when first asked for."""

    __slots__ = ("_part", "_wire_sums", "batch", "holders", "op", "size", "tx")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.size: int = batch.nbytes
        self.tx: Unsigned = column(batch, TX)
        self.op: Unsigned = column(batch, OP)
        self.holders = 0
        self._wire_sums: Integers | None = None
        self._part: Part | None = None

    @property
    def part(self) -> Part:
        """All rows as they will be written; the rows themselves are not copied."""
        if self._part is None:
            self._part = encode_batches([self.batch])
        return self._part

    def prepare(self) -> None:
        """Do now, where the rows arrive, what a flush would have to do while others wait for it."""
        _ = self.part, self.wire_sums

    @property
    def wire_sums(self) -> Integers:
        """Wire size of the rows before each row, and of all rows at the end."""
        if self._wire_sums is None:
            self._wire_sums = np.concatenate(([0], np.cumsum(wire_sizes(self.batch))))
        return self._wire_sums

    def offset(self, row: int) -> LogOffset:
        return LogOffset(int(self.tx[row]), int(self.op[row]))


class Share:
    """The rows of a source that belong to one log, in order."""

    __slots__ = ("_wire", "at", "count", "first", "gap", "last", "previous", "rows", "size", "source")

    def __init__(self, source: Source, rows: Integers | None, *, at: float) -> None:
        self.source = source
        self.rows = rows
        """Row numbers in the source; None for all of them."""
        self.count: int = source.batch.num_rows if rows is None else len(rows)
        self.first = source.offset(0 if rows is None else int(rows[0]))
        self.last = source.offset(-1 if rows is None else int(rows[-1]))
        self.size = source.size if rows is None else source.size * self.count // source.batch.num_rows
        """About its bytes; what a log's triggers and bounds go by."""
        self.at = at
        self.gap = False
        """Whether the source left changes out before `first`."""
        self.previous = self.first
        """The row before `first` in the log; set when the log takes the share."""
        self._wire = -1

    @property
    def wire(self) -> int:
        """Wire size of the rows; only asked for when they are flushed or read."""
        if self._wire < 0:
            sums = self.source.wire_sums
            if self.rows is None:
                self._wire = int(sums[-1])
            elif self.count == 1:
                row = self.rows[0]
                self._wire = int(sums[row + 1] - sums[row])
            else:
                self._wire = int((sums[self.rows + 1] - sums[self.rows]).sum())
        return self._wire

    def rows_up_to(self, offset: LogOffset) -> int:
        """How many of the rows are at or below the offset."""
        if self.rows is None:
            return rows_up_to(self.source.tx, self.source.op, offset)
        return rows_up_to(self.source.tx[self.rows], self.source.op[self.rows], offset)

    def without_first(self, count: int) -> "Share":
        """The share without its first rows, which the log knows already."""
        rows = np.arange(count, self.count) if self.rows is None else self.rows[count:]
        return Share(self.source, rows, at=self.at)

    def batch(self) -> pa.RecordBatch:
        """The rows as a batch of their own."""
        return gather(self.source.batch, self.rows)
