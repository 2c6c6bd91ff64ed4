"""Where no version may be cut: inside the ranges that compactions folded, since a transaction is torn there."""

import pyarrow as pa

from storage import layout
from storage.disk import Disk
from storage.errors import named_faults
from storage.fold import merge_ledgers
from storage.offset import LogOffset
from storage.scan import read_batches
from storage.segments import LogFiles, Segment


def folded_ranges(disk: Disk, files: LogFiles) -> pa.RecordBatch:
    """The ranges inside which no version may be cut, of all segments of a log."""
    ledgers = []
    with named_faults(layout.log_folder(files.log), log=files.log):
        for segment in list(files.segments):
            if segment.name.generation:
                segment.load(disk)
            ledgers += ledgers_of(disk, segment)
    return merge_ledgers(ledgers)


def may_cut_at(ledger: pa.RecordBatch, offset: LogOffset) -> bool:
    """Whether all transactions at or below the offset are whole without the rows above it."""
    begins = list(zip(ledger.column("from_tx").to_pylist(), ledger.column("from_op").to_pylist(), strict=True))
    ends = list(zip(ledger.column("to_tx").to_pylist(), ledger.column("to_op").to_pylist(), strict=True))
    return not any(begin <= offset < end for begin, end in zip(begins, ends, strict=True))


def ledgers_of(disk: Disk, segment: Segment) -> list[pa.RecordBatch]:
    """The ledger of a compacted segment; no other has one."""
    return [] if segment.ledger is None else read_batches(disk, segment.ledger)
