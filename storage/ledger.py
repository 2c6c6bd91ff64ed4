"""Where no version may be cut: where a transaction is torn, since some of its rows were folded into later ones.

By a compaction of ours, which keeps a ledger of the ranges; or by a source that is compacted itself: then the first
block or share behind a gap says so.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from storage import layout
from storage.block import BlockFlag, BlockHeader
from storage.disk import Disk
from storage.errors import named_faults
from storage.fold import LEDGER_SCHEMA, merge_ledgers
from storage.journal import JournalShare
from storage.journal_block import ShareEntry
from storage.offset import OP_INFINITE, LogOffset
from storage.scan import read_batches
from storage.segments import LogFiles, Segment


def folded_ranges(disk: Disk, files: LogFiles, shares: Iterable[JournalShare] = ()) -> pa.RecordBatch:
    """The ranges inside which no version may be cut, of all segments of a log, and of its shares in the journal."""
    gaps: list[tuple[LogOffset, LogOffset]] = []
    ledgers = []
    with named_faults(layout.log_folder(files.log), log=files.log):
        for segment in list(files.segments):
            segment.load(disk)
            gaps += _gaps(ref.header for ref in segment.refs)
            ledgers += ledgers_of(disk, segment)
    gaps += _gaps(share.entry for share in shares)
    return merge_ledgers([*ledgers, _ledger(gaps)])


def _gaps(parts: Iterable[BlockHeader | ShareEntry]) -> Iterator[tuple[LogOffset, LogOffset]]:
    """From the first offset that is not known to the first row behind each gap."""
    for part in parts:
        if BlockFlag.GAP in part.flags:
            tx, op = part.previous
            yield (LogOffset(tx + 1, 0) if op == OP_INFINITE else LogOffset(tx, op + 1)), part.first


def _ledger(ranges: list[tuple[LogOffset, LogOffset]]) -> pa.RecordBatch:
    rows = [(*begin, *end) for begin, end in ranges]
    columns = zip(*rows, strict=True) if rows else ([] for _ in LEDGER_SCHEMA)
    return pa.RecordBatch.from_arrays([pa.array(column, pa.uint64()) for column in columns], schema=LEDGER_SCHEMA)


def may_cut_at(ledger: pa.RecordBatch, offset: LogOffset) -> bool:
    """Whether all transactions at or below the offset are whole without the rows above it."""
    return not any(begin <= offset < end for begin, end in _ranges(ledger))


def first_folded(ledger: pa.RecordBatch, after: LogOffset, upto: LogOffset) -> tuple[LogOffset, LogOffset] | None:
    """The first range with rows above `after` and up to `upto` that were folded away; None if all rows are there."""
    return min((one for one in _ranges(ledger) if one[0] <= upto and after < one[1]), default=None)


def _ranges(ledger: pa.RecordBatch) -> list[tuple[LogOffset, LogOffset]]:
    """From the first row that was folded to the first one behind."""
    columns = (ledger.column(name).to_pylist() for name in ("from_tx", "from_op", "to_tx", "to_op"))
    return [(LogOffset(*row[:2]), LogOffset(*row[2:])) for row in zip(*columns, strict=True)]


def ledgers_of(disk: Disk, segment: Segment) -> list[pa.RecordBatch]:
    """The ledger of a compacted segment; no other has one."""
    return [] if segment.ledger is None else read_batches(disk, segment.ledger)
