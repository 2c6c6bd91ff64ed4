"""Rows on their way to disk: references into Arrow batches, never copies.

One decoded batch is shared by all logs that take rows of it. A `Source` is the batch with the count of those who hold
it, since what a share keeps in memory is the whole batch, not its own few rows.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage.limits import PART_BYTES_MAX, PART_BYTES_MIN
from storage.offset import LogOffset
from storage.parts import Part, encode_batches, encode_by_copy
from storage.rows import OP, TX, Integers, Unsigned, column, gather, rows_up_to, stored_size, wire_sizes


class Source:
    """A batch that shares refer to. Its wire sizes are worked out once, for all of them, when first asked for."""

    __slots__ = ("_part", "_row_cost", "_wire_sums", "batch", "holders", "op", "size", "tx")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.size = stored_size(batch)
        self.tx: Unsigned = column(batch, TX)
        self.op: Unsigned = column(batch, OP)
        self.holders = 0
        self._wire_sums: Integers | None = None
        self._row_cost = 0
        self._part: Part | None = None

    @property
    def part(self) -> Part:
        """All rows as they will be written; the rows themselves are not copied."""
        if self._part is None:
            self._part = encode_batches([self.batch])
        return self._part

    def prepare(self) -> None:
        """Do now, where the rows arrive, what a flush would have to do while others wait for it.

        Of some thousand rows, a copy in one piece costs less than looking at each buffer; the source then refers to
        the copy, so that the rows are in memory once.
        """
        if self._part is None and PART_BYTES_MIN <= self.size < PART_BYTES_MAX:
            self._part, self.batch = encode_by_copy(self.batch)
            self.tx, self.op = column(self.batch, TX), column(self.batch, OP)
        _ = self.part, self.wire_sums

    @property
    def wire_sums(self) -> Integers:
        """Wire size of the rows before each row, and of all rows at the end."""
        if self._wire_sums is None:
            sizes = wire_sizes(self.batch)
            self._wire_sums = np.zeros(len(sizes) + 1, dtype=np.int64)
            np.cumsum(sizes, out=self._wire_sums[1:])
            self._row_cost = self.size // len(sizes) - int(self._wire_sums[-1]) // len(sizes)
        return self._wire_sums

    def size_of(self, wire: int, count: int) -> int:
        """About the bytes of so many rows: their own values, and what the columns need for any row."""
        _ = self.wire_sums
        return max(1, wire + self._row_cost * count)

    def sizes_of(self, wires: Integers, counts: Integers) -> Integers:
        """The same of many shares."""
        _ = self.wire_sums
        sizes: Integers = np.maximum(1, wires + self._row_cost * counts)
        return sizes

    def offset(self, row: int) -> LogOffset:
        return LogOffset(self.tx.item(row), self.op.item(row))

    def ends_of(self, rows: Integers | None) -> tuple[LogOffset, LogOffset]:
        """The offsets of the first and the last of these rows; None: of all."""
        return self.offset(0 if rows is None else rows.item(0)), self.offset(-1 if rows is None else rows.item(-1))


class Share:
    """The rows of a source that belong to one log, in order."""

    __slots__ = ("_wire", "at", "count", "first", "gap", "last", "previous", "rows", "size", "source")

    def __init__(
        self,
        source: Source,
        rows: Integers | None,
        *,
        at: float,
        ends: tuple[LogOffset, LogOffset] | None = None,
        wire: int = -1,
        size: int = 0,
    ) -> None:
        """Where they are known: `ends`, the offsets of the first row and the last; `wire` and `size`, as below."""
        self.source = source
        self._wire = wire
        self.rows = rows
        """Row numbers in the source; None for all of them."""
        self.count: int = source.batch.num_rows if rows is None else len(rows)
        if ends is None:
            ends = source.ends_of(rows)
        self.first, self.last = ends
        self.size = size or (source.size if rows is None else source.size_of(self.wire, self.count))
        """About the bytes of its own rows, however large the others are; what a log's triggers and bounds go by."""
        self.at = at
        self.gap = False
        """Whether the source left changes out before `first`."""
        self.previous = self.first
        """The row before `first` in the log; set when the log takes the share."""

    @property
    def wire(self) -> int:
        """Wire size of the rows; of a whole source only asked for when they are flushed or read."""
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

    @property
    def is_slice(self) -> bool:
        """Whether the rows are neighbours, so that no copy is needed to have them by themselves."""
        rows = self.rows
        return rows is None or rows.item(-1) - rows.item(0) + 1 == len(rows)

    @property
    def is_loose(self) -> bool:
        """Whether it is all of a batch so small that keeping it costs more than its rows."""
        return self.rows is None and self.source.size < PART_BYTES_MIN

    def batch(self) -> pa.RecordBatch:
        """The rows as a batch of their own."""
        return gather(self.source.batch, self.rows)


def merged(shares: Sequence[Share]) -> Share | None:
    """Neighbours of one log as one share of one batch; None if they must stay apart.

    A batch of twenty rows is some thirty objects and buffers, which are looked at in every step until it is written:
    one copy now is less than that, and leaves less memory in pieces.
    """
    first = shares[0]
    schema = first.source.batch.schema
    if any(share.gap for share in shares[1:]) or not all(share.source.batch.schema.equals(schema) for share in shares):
        return None
    source = Source(pa.concat_batches([share.source.batch for share in shares]))
    source.prepare()
    one = Share(source, None, at=first.at)
    one.previous, one.gap = first.previous, first.gap
    return one


def gathered(shares: Sequence[Share]) -> list[pa.RecordBatch]:
    """The rows of each share, with one `take` for each source: that costs as much for ten rows as for a thousand."""
    batches: list[pa.RecordBatch | None] = [None] * len(shares)
    scattered: dict[int, list[int]] = {}
    for index, share in enumerate(shares):
        if share.is_slice:
            batches[index] = share.batch()
        else:
            scattered.setdefault(id(share.source), []).append(index)
    for indexes in scattered.values():
        rows = np.concatenate([shares[index].rows for index in indexes])
        taken = shares[indexes[0]].source.batch.take(pa.array(rows))
        start = 0
        for index in indexes:
            batches[index] = taken.slice(start, shares[index].count)
            start += shares[index].count
    return batches
