"""Compaction: old segments of a log become one of a higher generation, with updates of one key folded.

Order: rows are read and folded; the new file is written whole and synced; the store reads from it; the old files go.
A crash in between leaves both, and the higher generation wins. Only closed segments whose rows are durable are taken,
never the newest ones, and none with rows that a lease holds. A log without key columns has nothing to fold.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import pyarrow as pa

from storage import layout, leases, limits
from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.disk import Disk
from storage.errors import named_faults
from storage.file_write import Block
from storage.fold import FoldedUpdates, fold_updates, merge_ledgers
from storage.layout import SegmentName, segment_path
from storage.ledger import ledgers_of
from storage.log_facts import LogFacts
from storage.offset import LogOffset
from storage.parts import encode_batches
from storage.replaced_file import write_whole
from storage.rows import combine, offset_at, wire_sizes
from storage.scan import read_batches
from storage.segments import LogFiles, Segment, remove_files, strays
from storage.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """What a test or an operator may change; the reasons of the defaults are in `storage/limits.py`."""

    segments_kept: int = limits.COMPACTION_SEGMENTS_KEPT
    bytes_max: int = limits.COMPACTION_BYTES_MAX
    block_bytes: int = limits.FLUSH_LOG_BYTES


def compact(store: Store, log: int, *, now: int, options: CompactionOptions | None = None) -> Segment | None:
    """Fold the oldest segments of a log. None if there is nothing to gain. `now`: microseconds since 1970."""
    options = options or CompactionOptions()
    disk = store.disk
    with store.maintain(log) as opened:
        files, facts = opened.files, opened.facts
        if not facts.key_columns:
            return None
        with named_faults(layout.log_folder(log), log=log):
            chosen = _choose(disk, files, opened.state.durable, leases.held_from(disk, log, now=now), options)
            # Before another file is made: two of them that cover some of the same rows would be two truths.
            with store.lock:
                gone = strays(disk, files)
            remove_files(disk, gone)

            def is_free() -> bool:
                held = leases.held_from(disk, log, now=now)
                return held is None or chosen[-1].last <= held

            compacted = _write(disk, chosen, facts, options, is_free) if chosen else None
            if compacted is None:
                return None
            with store.lock:
                store.log(log)  # raises if it was removed meanwhile
                files.segments[: len(chosen)] = [compacted]
                gone = strays(disk, files)
            remove_files(disk, gone)
    before, after = sum(segment.size for segment in chosen), compacted.size
    logger.info("log %d (%s): compacted %d segments, %d to %d bytes", log, facts.handle, len(chosen), before, after)
    return compacted


def _choose(
    disk: Disk, files: LogFiles, durable: LogOffset, held: LogOffset | None, options: CompactionOptions
) -> list[Segment]:
    """The oldest segments that may be folded, up to the size that fits into memory. Raises the damage of one."""
    segments = list(files.segments)
    chosen: list[Segment] = []
    size = 0
    for segment, following in islice(pairwise(segments), max(0, len(segments) - options.segments_kept)):
        # All of a segment's rows are below the first row of the one that follows.
        if following.first > durable or (held is not None and following.first > held):
            break
        segment.load(disk)
        size += segment.size
        if chosen and size > options.bytes_max:
            break
        if segment.damage is not None:
            raise segment.damage.anew()
        chosen.append(segment)
    only_one_again = len(chosen) == 1 and chosen[0].name.generation > 0
    return [] if only_one_again else chosen


def _write(
    disk: Disk, chosen: Sequence[Segment], facts: LogFacts, options: CompactionOptions, is_free: Callable[[], bool]
) -> Segment | None:
    runs = list(_runs(disk, chosen))
    folded = [fold_updates(run.batches, facts.key_columns) for run in runs]
    if len(chosen) == 1 and not any(one.ledger.num_rows for one in folded):
        return None  # a copy of one segment would gain nothing
    old_ledgers = [old for segment in chosen for old in ledgers_of(disk, segment)]
    ledger = merge_ledgers([*(one.ledger for one in folded), *old_ledgers])
    first_block, last_block = chosen[0].refs[0].header, chosen[-1].refs[-1].header
    # Wire sizes count on from where the range began. When it was written stays, or no row would ever be old.
    of_first = sum(int(wire_sizes(batch).sum()) for batch in runs[0].first_block) if first_block.rows else 0
    head = replace(
        last_block,
        previous=first_block.previous,
        wire_end=first_block.wire_end - of_first,
    )
    pairs = [(run.after_gap, one) for run, one in zip(runs, folded, strict=True)]
    name = SegmentName(chosen[0].first, chosen[-1].last, 1 + max(segment.name.generation for segment in chosen))
    path = segment_path(facts.log, name)
    refs = write_whole(disk, path, list(_blocks(head, pairs, ledger, options.block_bytes)), is_free)
    if refs is None:
        return None  # somebody took a lease meanwhile
    segment = Segment(name, path, loaded=True, closed=True)
    segment.add(refs)
    return segment


@dataclass(slots=True)
class _Run:
    """Neighbouring rows that are folded together: of one schema, with no gap between them."""

    after_gap: bool
    first_block: list[pa.RecordBatch]
    batches: list[pa.RecordBatch]


def _runs(disk: Disk, chosen: Sequence[Segment]) -> Iterator[_Run]:
    run: _Run | None = None
    for ref in (ref for segment in chosen for ref in segment.refs if ref.header.rows):
        batches = read_batches(disk, ref)
        after_gap = BlockFlag.GAP in ref.header.flags
        if run is not None and not after_gap and batches[0].schema == run.batches[0].schema:
            run.batches += batches
            continue
        if run is not None:
            yield run
        run = _Run(after_gap, batches, list(batches))
    if run is not None:
        yield run


def _blocks(
    head: BlockHeader, folded: Sequence[tuple[bool, FoldedUpdates]], ledger: pa.RecordBatch, block_bytes: int
) -> Iterator[Block]:
    """The ledger, then the rows in blocks of the usual size. `head`: where the range begins, and what it claims."""
    at = head.previous
    head = replace(head, kind=BlockKind.LEDGER, flags=BlockFlag.NONE, rows=ledger.num_rows, first=at, last=at)
    yield head, [encode_batches([ledger])]
    previous, wire_end = at, head.wire_end
    for after_gap, one in folded:
        flags = BlockFlag.GAP if after_gap else BlockFlag.NONE
        for batch in _slices(one.batches, block_bytes):
            wire_end += int(wire_sizes(batch).sum())
            header = replace(
                head,
                kind=BlockKind.ROWS,
                flags=flags,
                rows=batch.num_rows,
                previous=previous,
                first=offset_at(batch, 0),
                last=offset_at(batch, batch.num_rows - 1),
                wire_end=wire_end,
            )
            yield header, [encode_batches([batch])]
            previous, flags = header.last, BlockFlag.NONE


def _slices(batches: Sequence[pa.RecordBatch], block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Blocks of about the size that a flush of one log has."""
    for batch in combine(list(batches)):
        rows = max(1, batch.num_rows * block_bytes // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
