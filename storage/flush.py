"""A flush of whatever is due: one journal write for the small logs, a segment write for each large one.

`FlushJob.run` touches files and nothing else, so it may run in any thread while appends and reads go on. What happened
to each file is noted in the job; the store draws the consequences when the job has ended.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from storage.disk import Disk
from storage.errors import SharedDiskFault, StorageError
from storage.file_write import FileWrite
from storage.journal import JournalFile, JournalIndex
from storage.journal_write import JournalCopy, JournalWrite
from storage.limits import JOURNAL_FILE_BLOCKS_MAX, JOURNAL_LOGS_PER_FLUSH
from storage.offset import LogOffset
from storage.open_logs import OpenLog
from storage.segment_write import SegmentWrite
from storage.segments import LogFiles
from storage.shape_log import Drained, ShapeLog
from storage.write_buffer import Trigger

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flushed:
    """A synced header says that a log is durable up to `aligned`. The only news the flush tracker may act on."""

    log: int
    handle: str
    aligned: LogOffset
    last: LogOffset
    """The last row on disk; for display."""


@dataclass(slots=True)
class FlushJob:
    """The writes of one flush, in the order in which they are made."""

    written_at: int
    triggers: dict[int, Trigger]
    segments: list[SegmentWrite] = field(default_factory=list)
    copy: JournalCopy | None = None
    journal: JournalWrite | None = None

    @property
    def files(self) -> list[FileWrite]:
        """All files of the job, in order."""
        ends = [write.file for write in (self.copy, self.journal) if write is not None]
        return [*(write.file for write in self.segments), *ends]

    @property
    def failure(self) -> StorageError | None:
        """The first failure that concerns all logs."""
        shared = (file.failure for file in self.files if isinstance(file.failure, SharedDiskFault))
        return next(shared, None)

    def run(self, disk: Disk) -> None:
        """Write and sync file after file; a fault of the shared disk ends the job, the rest stays undone."""
        for write in (*self.segments, self.copy, self.journal):
            if write is not None:
                write.run(disk, self.written_at)
                if self.failure is not None:
                    return


class JournalTarget:
    """Which journal file the next block goes to, and which file has to be emptied for it."""

    def __init__(self, index: JournalIndex, bytes_max: int, file_bytes_max: int) -> None:
        self._index = index
        self._bytes_max = bytes_max
        self._file_bytes_max = file_bytes_max
        self._files_max = 2 * bytes_max // file_bytes_max
        self.current: JournalFile | None = None
        """The file that this process appends to; those of earlier processes are never appended to."""

    def next_write(self) -> tuple[JournalFile, FileWrite]:
        """The file for the next block: the current one, or a new one where that is full or there is none."""
        current = self.current
        if current is None or current.number not in self._index.files:
            return self.new_write()
        if current.size >= self._file_bytes_max or len(current.refs) >= JOURNAL_FILE_BLOCKS_MAX - 1:
            return self.new_write()
        return current, FileWrite(current.path, False, current.size, current.size, self._index.repairs, shared=True)

    def new_write(self) -> tuple[JournalFile, FileWrite]:
        """A new file."""
        file = self._index.new_file()
        return file, FileWrite(file.path, True, 0, 0, self._index.repairs, shared=True)

    def over_bound(self) -> JournalFile | None:
        """The oldest file, if the journal is too long or in too many pieces; never the one that is being written."""
        index = self._index
        if index.size <= self._bytes_max and len(index.files) <= self._files_max:
            return None
        oldest = index.files[min(index.files)]
        return None if oldest is self.current else oldest


def plan_segment(drained: Drained, files: LogFiles, index: JournalIndex) -> SegmentWrite:
    """The flush of a log to its own segment, with what the journal still holds of it in front (rule 3)."""
    carried = index.shares_of(drained.log.number)
    tail = files.tail()
    first = next((share.entry.first for share in carried if share.entry.rows), None)
    if first is None and drained.shares:
        first = drained.shares[0].first
    segment = files.target(first if first is not None else tail.last)
    file = FileWrite(segment.path, not segment.size, segment.size, segment.size, files.repairs, shared=False)
    return SegmentWrite(drained, carried, segment, file, tail.last, tail.aligned, tail.wire_end)


def logs_to_move(index: JournalIndex, oldest: JournalFile, find: Callable[[int], OpenLog | None]) -> Iterable[ShapeLog]:
    """Some logs of the oldest journal file that can go to their segments; none if only bare commits are left in it."""
    found = 0
    for number in index.logs_in(oldest.number):
        if found == JOURNAL_LOGS_PER_FLUSH:
            return
        try:
            log = find(number)
        except (OSError, StorageError) as error:
            logger.warning("log %d stays in the journal: %s", number, error)
            continue
        if log is None:
            index.drop(number)
            continue
        has_rows = bool(log.state.pending) or any(share.entry.rows for share in index.shares_of(number))
        if log.state.fault is None and (has_rows or log.files.takes_commits):
            found += 1
            yield log.state
