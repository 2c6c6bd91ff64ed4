"""How much a log has: rows and bytes, as headers and directories tell; what an operator asks. No row is read.

Rows are those that a reader from the start gets: of the newest complete base, and of the log above it. Bytes are those
of its own files; what the journal holds of it lies among the rows of others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.bases import Base
from storage.disk import Disk, size_if_there
from storage.errors import LogFault
from storage.folder_reader import FolderReader
from storage.journal import JournalShare
from storage.offset import SNAPSHOT_END, LogOffset
from storage.segments import Segment
from storage.store import Store
from storage.store_reader import with_new_views


@dataclass(frozen=True, slots=True)
class LogCounts:
    """One log at one moment."""

    visible: LogOffset
    durable: LogOffset
    rows: int
    bytes: int
    fault: LogFault | None
    """Why it takes no more rows."""


def counts_of(store: Store, log: int) -> LogCounts:
    """Of a log of a store; opens it if nobody has yet. Raises `UnknownLog`."""
    return with_new_views(lambda: _counts_of(store, log))


def _counts_of(store: Store, log: int) -> LogCounts:
    with store.lock:
        opened = store.log(log)
        state = opened.state
        bases, segments = list(opened.files.bases), list(opened.files.segments)
        shares = store.logs.index.shares_of(log)
        memory = sum(share.count for share, _ in state.in_memory() if share.last <= state.visible)
        visible, durable, fault = state.visible, state.durable, state.fault
    for segment in segments:
        segment.load(store.disk)
    rows = rows_of(bases, segments, shares, visible) + memory
    return LogCounts(visible, durable, rows, bytes_of(store.disk, bases, segments), fault)


def counts_in_folder(disk: Disk, reader: FolderReader, log: int) -> LogCounts:
    """As another process sees it, which knows of nothing that is not on disk. Raises what reading raises."""
    found = reader.holdings(log)
    faults = [one.damage for one in found.segments] + [one.damage for one in found.bases]
    fault = next((one for one in faults if one is not None), None)
    rows = rows_of(found.bases, found.segments, found.shares, found.visible)
    size = bytes_of(disk, found.bases, found.segments)
    return LogCounts(found.visible, found.visible, rows, size, fault)


def fault_of(store: Store, log: int) -> LogFault | None:
    """Why a log takes no more rows, if it was opened and does not."""
    with store.lock:
        opened = store.logs.peek(log)
        return None if opened is None else opened.state.fault


def flush_in_flight(store: Store) -> int | None:
    """The number of the flush under way: the same one at two looks says that the disk does not answer.

    Not the flush itself: who kept that until the next look would keep all of its rows in memory.
    """
    job = store._control.job  # noqa: SLF001 - of the same package
    return None if job is None else job.number


def pending_bytes(store: Store, log: int) -> int:
    """What a log holds in memory and has not on disk; 0 if it was not opened."""
    with store.lock:
        opened = store.logs.peek(log)
        return 0 if opened is None else opened.state.held_size


def log_bytes(store: Store, log: int) -> int:
    """Of a log's segments, without its bases; 0 for one that was not opened, since it does not grow."""
    with store.lock:
        opened = store.logs.peek(log)
        return 0 if opened is None else sum(segment.size for segment in opened.files.segments)


def segment_count(store: Store, log: int) -> int:
    """How many files a log's rows are in; 0 for one that was not opened."""
    with store.lock:
        opened = store.logs.peek(log)
        return 0 if opened is None else len(opened.files.segments)


def taken_rows(store: Store) -> dict[int, int]:
    """By log: the rows that each open one took since it was opened. Of others nothing is told: they took none."""
    with store.lock:
        return {opened.facts.log: opened.state.taken_rows for opened in store.logs}


def rows_of(
    bases: Sequence[Base], segments: Iterable[Segment], shares: Iterable[JournalShare], visible: LogOffset
) -> int:
    """Of loaded segments, and of shares that are not in them already; without those of an open transaction."""
    base = next((one for one in reversed(bases) if one.is_complete), None)
    rows = 0 if base is None else base.rows
    last = SNAPSHOT_END if base is None else base.last
    pieces = [(ref.header.rows, ref.header.last) for segment in segments for ref in segment.refs]
    pieces += [(share.entry.rows, share.entry.last) for share in shares]
    for count, end in pieces:
        if count and last < end <= visible:
            rows += count
            last = end
    return rows


def bytes_of(disk: Disk, bases: Iterable[Base], segments: Iterable[Segment]) -> int:
    """Of files that are still there."""
    paths = [*(base.path for base in bases), *(segment.path for segment in segments)]
    return sum(size_if_there(disk, path) for path in paths)
