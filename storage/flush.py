"""A flush of whatever is due: one journal write for the small logs, a segment write for each large one.

`FlushJob.run` touches files and nothing else, so it may run in any thread while appends and reads go on. What happened
to each file is noted in the job; the store draws the consequences when the job has ended.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import NamedTuple

import pyarrow as pa

from storage.disk import Disk
from storage.errors import SharedDiskFault, StorageError, from_os_error
from storage.file_write import FileWrite
from storage.journal import JournalFile, JournalIndex
from storage.journal_join import JournalJoin
from storage.journal_parts import rows_of_shares
from storage.journal_write import JournalCopy, JournalWrite
from storage.layout import JOURNAL
from storage.limits import (
    FLUSH_FILES_MAX,
    FLUSH_GATHER_BYTES_MAX,
    FLUSH_GATHER_SHARES_MAX,
    JOURNAL_FILE_BLOCKS_MAX,
    JOURNAL_ROUNDS_MAX,
)
from storage.offset import LogOffset
from storage.open_logs import OpenLog
from storage.repair import Repair, run_repairs
from storage.segment_write import SegmentWrite
from storage.segments import LogFiles
from storage.shape_log import Drained, ShapeLog
from storage.share import gathered
from storage.write_buffer import Trigger

logger = logging.getLogger(__name__)


class Flushed(NamedTuple):
    """A synced header says that a log is durable up to `aligned`. The only news the flush tracker may act on."""

    log: int
    handle: str
    aligned: LogOffset
    last: LogOffset
    """The last row on disk; for display."""


@dataclass(slots=True)
class FlushJob:
    """The writes of one flush, in the order in which they are made."""

    number: int
    """Of the store's flushes, from 1."""
    written_at: int
    triggers: dict[int, Trigger]
    repairs: list[Repair]
    """What earlier failures left in the journal."""
    segments: list[SegmentWrite] = field(default_factory=list)
    copy: JournalCopy | JournalJoin | None = None
    journal: JournalWrite | None = None
    gives_back: bool = False
    """Whether memory that is not used any more goes back to the system at the end."""

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
        """Write and sync; a fault of the shared disk ends the job, the rest stays undone."""
        if not self._mend_journal(disk):
            return
        for number, writes in enumerate(_at_a_time(self.segments)):
            if number:
                pa.default_memory_pool().release_unused()  # what was copied: as much comes again
            self._run_segments(disk, writes)
            if self.failure is not None:
                return
        if self.copy is not None:
            self.copy.run(disk, self.written_at)
        if self.journal is not None and self.failure is None:
            self.journal.run(disk, self.written_at)
        if self.gives_back:
            pa.default_memory_pool().release_unused()

    def _mend_journal(self, disk: Disk) -> bool:
        """Rows of a block that was torn may go to a segment now, and G above them: what is left of it goes before."""
        try:
            run_repairs(disk, self.repairs)
        except OSError as error:
            self.files[0].failure = from_os_error(error, JOURNAL, shared=True)
            return False
        return True

    def _run_segments(self, disk: Disk, writes: Sequence[SegmentWrite]) -> None:
        carried = iter(rows_of_shares(disk, [share for write in writes for share in write.carried]))
        own = iter(gathered([share for write in writes for share in write.drained.shares]))
        for start in range(0, len(writes), FLUSH_FILES_MAX):
            some = writes[start : start + FLUSH_FILES_MAX]
            for write in some:
                taken = list(islice(carried, len(write.carried))), list(islice(own, len(write.drained.shares)))
                write.run(disk, self.written_at, *taken)
                if isinstance(write.file.failure, SharedDiskFault):
                    break  # those before may be synced all the same: what they freed is what a full disk needs
            _sync(disk, some)
            if any(isinstance(write.file.failure, SharedDiskFault) for write in some):
                return


def _sync(disk: Disk, writes: Sequence[SegmentWrite]) -> None:
    """Make files certain, together where the disk can do that; how far each came is in its write."""
    if disk.syncs_at_once > 1 and len(writes) > 1:
        with ThreadPoolExecutor(min(disk.syncs_at_once, len(writes)), "sync") as threads:
            list(threads.map(lambda write: write.file.sync(disk), writes))
        return
    for write in writes:
        write.file.sync(disk)
        if isinstance(write.file.failure, SharedDiskFault):
            return


def _at_a_time(segments: Iterable[SegmentWrite]) -> Iterator[list[SegmentWrite]]:
    """Some writes after the others, so that the rows copied for them stay within bounds.

    As many as may be: what the journal held of them is found with one pass over it.
    """
    writes: list[SegmentWrite] = []
    size = count = 0
    for write in segments:
        copied, shares = write.copied_size, len(write.carried) + len(write.drained.shares)
        if writes and (size + copied > FLUSH_GATHER_BYTES_MAX or count + shares > FLUSH_GATHER_SHARES_MAX):
            yield writes
            writes, size, count = [], 0, 0
        writes.append(write)
        size += copied
        count += shares
    yield writes


class JournalTarget:
    """Which journal file the next block goes to, and which file has to be emptied for it."""

    def __init__(self, index: JournalIndex, bytes_max: int, joined_bytes_max: int, file_bytes_max: int) -> None:
        self._index = index
        self._bytes_max = bytes_max
        self._joined_bytes_max = joined_bytes_max
        self._file_bytes_max = file_bytes_max
        self.joined: JournalFile | None = None
        """The file that joined shares are appended to."""
        self.current: JournalFile | None = None
        """The file that this process appends to; those of earlier processes are never appended to."""

    def next_write(self) -> tuple[JournalFile, FileWrite]:
        """The file for the next block: the current one, or a new one where that is full or there is none."""
        return self._write_to(self.current)

    def next_join(self) -> tuple[JournalFile, FileWrite]:
        """The same for joined shares."""
        return self._write_to(self.joined)

    def _write_to(self, current: JournalFile | None) -> tuple[JournalFile, FileWrite]:
        if current is None or current.number not in self._index.files:
            return self.new_write()
        if current.size >= self._file_bytes_max or len(current.refs) >= JOURNAL_FILE_BLOCKS_MAX - 1:
            return self.new_write()
        return current, FileWrite(current.path, False, current.size, current.size, self._index.repairs, shared=True)

    def new_write(self) -> tuple[JournalFile, FileWrite]:
        """A new file."""
        file = self._index.new_file()
        return file, FileWrite(file.path, True, 0, 0, self._index.repairs, shared=True)

    def over_bound(self) -> list[JournalFile]:
        """Of young files, and of the others, those to be emptied if they are too long or too many.

        The kind first that is most, and of each the oldest first; never one that is being written, nor one behind it.
        """
        written = (self.current, self.joined)
        found: list[tuple[float, list[JournalFile]]] = []
        for is_young, bytes_max in ((True, self._bytes_max), (False, self._joined_bytes_max)):
            files = [file for _, file in sorted(self._index.files.items()) if file.is_young is is_young]
            size = max(sum(file.size for file in files), len(files) * self._file_bytes_max / 2)
            if size > bytes_max:
                found.append((size / bytes_max, list(takewhile(lambda file: file not in written, files))))
        return [file for _, files in sorted(found, key=lambda one: -one[0]) for file in files]


def plan_segment(drained: Drained, files: LogFiles, index: JournalIndex) -> SegmentWrite:
    """The flush of a log to its own segment, with what the journal still holds of it in front (rule 3)."""
    carried = index.shares_of(drained.log.number)
    tail = files.tail(carried[0].entry.previous if carried else None)
    first = next((share.entry.first for share in carried if share.entry.rows), None)
    if first is None and drained.shares:
        first = drained.shares[0].first
    segment = files.target(first if first is not None else tail.last)
    file = FileWrite(segment.path, not segment.size, segment.size, segment.size, files.repairs, shared=False)
    return SegmentWrite(drained, carried, segment, file, tail.last, tail.aligned, tail.wire_end)


@dataclass(slots=True)
class Leaving:
    """The logs that leave the oldest journal file next."""

    moving: dict[int, ShapeLog] = field(default_factory=dict)
    """To their segments."""
    joining: list[int] = field(default_factory=list)
    """To a file of joined shares, with what else they have in young files."""
    has_open: bool = False
    """Whether some stay for now, since a transaction of theirs is open."""

    def __len__(self) -> int:
        return len(self.moving) + len(self.joining)


class LeavingMax(NamedTuple):
    """How many of either kind at a time."""

    moving: int
    joining: int


class WaitingLogs:
    """The logs of a journal file in their order, looked up once for all the flushes that it takes to empty it."""

    def __init__(self, index: JournalIndex) -> None:
        self._index = index
        self._file = 0
        self._round = 0
        self._logs: list[int] = []
        """The next one last."""

    @property
    def may_stay_open(self) -> bool:
        """Whether those of an open transaction may stay: one that is not long has ended by the next round."""
        return self._round < JOURNAL_ROUNDS_MAX

    def begin(self, file: int) -> bool:
        """Whether the logs of this file are looked up, since nobody has, or all of them were taken."""
        is_new = file != self._file or not self._logs
        if is_new:
            self._round = self._round + 1 if file == self._file else 1
            self._file, self._logs = file, self._index.logs_in(file)[::-1]
        return is_new

    def take(self) -> Iterator[int]:
        """Those that still need the file, as many as are asked for; who stays there comes again in the next round."""
        while self._logs:
            log = self._logs.pop()
            if self._index.is_needed(self._file, log):
                yield log

    def put_back(self, logs: Sequence[int]) -> None:
        """The last ones that were taken."""
        self._logs += reversed(logs)


def logs_to_leave(
    index: JournalIndex,
    oldest: JournalFile,
    waiting: WaitingLogs,
    find: Callable[[int], OpenLog | None],
    at_most: LeavingMax,
    bytes_max: int,
    must_move: Container[int],
) -> Leaving:
    """Some logs of a journal file; none if nothing is left in it but commits that have no segment to go to.

    Out of a young file only those move that have `bytes_max` in the journal, or rows of an open transaction, which
    cannot be joined; unless these may stay.
    """
    leaving = Leaving()
    for number in waiting.take():
        try:
            log = find(number)
        except (OSError, StorageError) as error:
            logger.warning("log %d stays in the journal: %s", number, error)
            continue
        if log is None:
            index.drop(number)
        elif log.state.fault is not None or not index.is_needed(oldest.number, number):
            continue  # a log that was opened just now may turn out to have all of it in its segments
        elif oldest.is_young and number not in must_move and _is_to_join(log, bytes_max):
            if log.state.stored <= log.state.durable:
                leaving.joining.append(number)
            elif waiting.may_stay_open:
                leaving.has_open = True
            else:
                leaving.moving[number] = log.state
        elif log.state.pending or log.files.takes_commits or index.has_rows(number):
            leaving.moving[number] = log.state
        if len(leaving.moving) >= at_most.moving or len(leaving.joining) >= at_most.joining:
            break
    return leaving


def _is_to_join(log: OpenLog, bytes_max: int) -> bool:
    """Whether it is too little for a file.

    Not while the end of its segment is unknown: that may have some of the shares, and a start knows them by their ends.
    """
    state, files = log.state, log.files
    return state.stored_wire_end - files.tail().wire_end < bytes_max and not files.repairs
