"""What comes into a store: tables of rows, checked once for all the logs that take rows of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRows, WentBackwards
from storage.limits import ROW_BYTES_MAX
from storage.offset import LogOffset, offsets_of
from storage.rows import KIND, Integers, are_ordered, check_kinds, check_schema, column, rises
from storage.share import Share, Source


@dataclass(frozen=True, slots=True)
class FragmentShares:
    """Which rows of a fragment's table belong to which logs, as arrays: one entry for each log touched."""

    logs: Sequence[int]
    rows: Integers
    """Row numbers in the table, log after log, each log's in order."""
    ends: Sequence[int]
    """Where each log's rows end in `rows`."""
    committed: Sequence[int]
    """How many of a log's rows belong to transactions that end in the fragment; the rest is open."""
    aligned: Sequence[LogOffset | None]
    """The end of the last of these transactions; None if none of them ends here."""

    def cut(self, source: Source, at: float) -> Iterator[tuple[int, Share | None, LogOffset | None, Share | None]]:
        """For each log: its rows of transactions that end here, their end, and its rows of the open transaction.

        What is the same for all logs is worked out for all of them at once.
        """
        ends, committed = np.array(self.ends, np.int64), np.array(self.committed, np.int64)
        starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        middles = starts + committed
        sums = source.wire_sums
        wires = np.concatenate(([0], np.cumsum(sums[self.rows + 1] - sums[self.rows])))
        whole = self._shares(source, at, starts, middles, wires)
        if (middles == ends).all():
            yield from zip(self.logs, whole, self.aligned, repeat(None, len(self.logs)), strict=True)
        else:
            yield from zip(self.logs, whole, self.aligned, self._shares(source, at, middles, ends, wires), strict=True)

    def _shares(
        self, source: Source, at: float, starts: Integers, stops: Integers, wires: Integers
    ) -> Iterator[Share | None]:
        """A share of `rows[start:stop]` for each start; None where there are no rows."""
        rows = self.rows
        is_there = stops > starts
        starts, stops = starts[is_there], stops[is_there]
        first, last = rows[starts], rows[stops - 1]
        firsts = offsets_of(source.tx[first].tolist(), source.op[first].tolist())
        lasts = offsets_of(source.tx[last].tolist(), source.op[last].tolist())
        own = wires[stops] - wires[starts]
        sizes = source.sizes_of(own, stops - starts)
        ends = zip(firsts, lasts, strict=True)
        columns = (starts.tolist(), stops.tolist(), ends, own.tolist(), sizes.tolist())
        shares = (
            Share(source, rows[start:stop], at=at, ends=first_and_last, wire=wire, size=size)
            for start, stop, first_and_last, wire, size in zip(*columns, strict=True)
        )
        return shares if is_there.all() else (next(shares) if found else None for found in is_there.tolist())


def source_of(rows: pa.RecordBatch | pa.Table) -> Source:
    """A table as a source of one share, all of it. Raises `InvalidRows` or `WentBackwards` for what no log can take."""
    source = _checked(rows)
    if not are_ordered(source.tx, source.op):
        raise WentBackwards("the rows of a table are not in ascending order of their offsets")
    return source


def fragment_source(rows: pa.RecordBatch, shares: FragmentShares) -> Source:
    """A table as a source of many shares.

    What one change is to several logs may differ, so its offset may be there more than once; in a share it is not.
    """
    source = _checked(rows)
    selected = shares.rows
    if len(selected) and not 0 <= selected.min() <= selected.max() < rows.num_rows:
        raise InvalidRows(f"a log's rows are {selected.min()} to {selected.max()}, and the table has {rows.num_rows}")
    # Also by their numbers: two of them that are three apart are taken for all four.
    later = (selected[1:] > selected[:-1]) & rises(source.tx[selected], source.op[selected])
    if not later.all():
        starts = np.array(shares.ends, np.int64)[:-1]
        later[starts[(starts > 0) & (starts <= len(later))] - 1] = True  # from one log to the next they may fall
        if not later.all():
            raise WentBackwards("the rows of a log are not in ascending order of their offsets")
    return source


def _checked(rows: pa.RecordBatch | pa.Table) -> Source:
    batch = _one_batch(rows)
    check_schema(batch.schema)
    if not batch.num_rows:
        raise InvalidRows("there are no rows; a transaction without rows needs no append")
    try:
        source, kind = Source(batch), column(batch, KIND)
    except pa.ArrowInvalid:  # without a copy, numbers with NULLs among them are no array
        raise InvalidRows("a row has no offset or no kind") from None
    check_kinds(kind)
    if source.size > ROW_BYTES_MAX:
        _check_row_sizes(source)
    return source


def _check_row_sizes(source: Source) -> None:
    """A row goes into one block, and a block has a limit; what a flush cannot write must not be taken."""
    sizes = np.diff(source.wire_sums)
    row = int(sizes.argmax())
    if sizes[row] > ROW_BYTES_MAX:
        raise InvalidRows(f"the row at {source.offset(row)} has {sizes[row]} bytes; at most {ROW_BYTES_MAX} fit")


def _one_batch(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(rows, pa.Table):
        batches = rows.combine_chunks().to_batches()
        if len(batches) > 1:
            raise InvalidRows(f"a table must fit into one batch, not {len(batches)}")
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
    return rows
