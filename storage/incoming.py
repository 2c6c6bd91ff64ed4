"""What comes into a store: tables of rows, checked once for all the logs that take rows of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from storage.errors import InvalidRows, WentBackwards
from storage.offset import LogOffset
from storage.rows import KIND, OP, TX, Integers, are_ordered, check_schema
from storage.share import Source


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


def source_of(rows: pa.RecordBatch | pa.Table) -> Source:
    """A table as a source of shares. Raises `InvalidRows` or `WentBackwards` for what no log can take."""
    batch = _one_batch(rows)
    check_schema(batch.schema)
    if not batch.num_rows:
        raise InvalidRows("there are no rows; a transaction without rows needs no append")
    if any(batch.column(name).null_count for name in (TX, OP, KIND)):
        raise InvalidRows("a row has no offset or no kind")
    source = Source(batch)
    if not are_ordered(source.tx, source.op):
        raise WentBackwards("the rows of a table are not in ascending order of their offsets")
    return source


def _one_batch(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(rows, pa.Table):
        batches = rows.combine_chunks().to_batches()
        if len(batches) > 1:
            raise InvalidRows(f"a table must fit into one batch, not {len(batches)}")
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
    return rows
