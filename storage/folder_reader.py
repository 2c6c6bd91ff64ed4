"""Reading a data folder without its writer: from another process, while the writer goes on, or when there is none.

Sees whole transactions up to the greatest `aligned` on disk. What must be durable goes by the progress log, which is
written after the syncs; a header that is seen here may be synced a moment later, or be written anew after a failure.

The order of looking matters: the journal first, the segments second, since shares move that way. Everything found can
be stale a moment later, so a look is repeated, a bounded number of times, when something is not where it should be.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import pyarrow as pa

from storage import layout
from storage.bases import Base, find_chunk, list_bases
from storage.block import HEADER_SIZE, BlockHeader
from storage.blocks_cache import BlocksCache
from storage.disk import Disk
from storage.doubts import Doubts, read_doubts
from storage.errors import CorruptBlock, FileVanished, Hole, StorageError, UnknownLog, from_os_error
from storage.journal import JournalFile, JournalIndex, JournalShare, aligned_of
from storage.journal_damage import doubt_about
from storage.journal_scan import load_blocks
from storage.ledger import folded_ranges
from storage.limits import READ_ATTEMPTS_MAX, READ_PAUSE_SECONDS
from storage.log_facts import LogFacts, list_logs, read_log
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import LogView, Piece, ReadResult, ReadSource, read
from storage.scan import BlockRef, scan
from storage.segments import LogFiles, Segment, list_segments

Result = TypeVar("Result")


class Holdings(NamedTuple):
    """What a log has on disk."""

    bases: list[Base]
    segments: list[Segment]
    shares: list[JournalShare]
    visible: LogOffset


class FolderReader:
    """Reads any log of a folder. Remembers which blocks are where, and checks that before it relies on it."""

    def __init__(
        self, disk: Disk, cache: BlocksCache | None = None, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._disk = disk
        self._cache = cache or BlocksCache(disk)
        self._journal = JournalIndex()
        self._names: list[str] = []
        """Of the journal's folder, when it was last looked at; and what they say."""
        self._numbers: list[int] = []
        self._doubts: list[str] = []
        self._segments: dict[int, dict[str, Segment]] = {}
        self._bases: dict[int, list[Base]] = {}
        self._pause = pause
        self._lock = threading.Lock()

    def logs(self) -> list[int]:
        """The numbers of the logs in the folder."""
        return list_logs(self._disk)

    def facts(self, log: int) -> LogFacts:
        """What never changes in a log's life."""
        return self._attempt(log, lambda: read_log(self._disk, log))

    def upper(self, log: int) -> LogOffset:
        """The end of the last whole transaction on disk."""
        return self._attempt(log, lambda: self._view(log, SNAPSHOT_END).visible)

    def read(self, log: int, after: LogOffset, max_bytes: int | None = None) -> ReadResult:
        """The rows above `after` that are on disk; see `storage.reading.read` for limits and errors."""
        return self._attempt(log, lambda: read(self._view(log, after), after, max_bytes))

    def holdings(self, log: int) -> Holdings:
        """All that a log has on disk, loaded. The end of the last segment may be torn: that is no damage here."""

        def attempt() -> Holdings:
            with self._lock:
                segments, shares = self._look_at_rows(log)
                bases = self._look_at_bases(log)
                visible = self._upper(LogFiles(log, segments, bases), shares)
            read_log(self._disk, log)
            return Holdings(bases, segments, shares, visible)

        return self._attempt(log, attempt)

    def folded_ranges(self, log: int) -> pa.RecordBatch:
        """The ranges inside which no version may be cut (`storage.ledger.may_cut_at`). Look again after reading."""

        def attempt() -> pa.RecordBatch:
            with self._lock:
                segments, shares = self._look_at_rows(log)
                return folded_ranges(self._disk, LogFiles(log, segments, []), shares)

        return self._attempt(log, attempt)

    def headers(self, log: int, after: LogOffset) -> list[BlockHeader]:
        """Of the blocks in segments from the one on that may have the row behind `after`; the journal is not asked."""

        def attempt() -> list[BlockHeader]:
            with self._lock:
                segments = LogFiles(log, self._look_at_segments(log), []).overlapping(after)
                for segment in segments:
                    self._look_at(segment, is_last=segment is segments[-1])
                return [ref.header for segment in segments for ref in segment.refs]

        return self._attempt(log, attempt)

    def bases(self, log: int) -> list[Base]:
        """The bases of a log, the complete ones and the one that is being written."""

        def attempt() -> list[Base]:
            with self._lock:
                found = self._look_at_bases(log)
            read_log(self._disk, log)
            return found

        return self._attempt(log, attempt)

    def read_chunk(self, log: int, base: int, number: int) -> pa.RecordBatch | None:
        """Chunk `0_number` of a base; None if it is not there (yet, if the base is not complete)."""

        def attempt() -> pa.RecordBatch | None:
            with self._lock:
                bases = self._look_at_bases(log)
            read_log(self._disk, log)
            ref = find_chunk(bases, log, base, number)
            return None if ref is None else self._cache.rows(ref).batches[0]

        return self._attempt(log, attempt)

    def _attempt(self, log: int, attempt: Callable[[], Result]) -> Result:
        """Look again when something was not where the last look had seen it."""
        for number in range(1, READ_ATTEMPTS_MAX + 2):
            try:
                return attempt()
            except (FileNotFoundError, FileVanished, Hole, CorruptBlock) as error:
                if number > READ_ATTEMPTS_MAX:
                    read_log(self._disk, log)  # a log that was removed says so, instead of what it lacks
                    raise _named(error, log) from None
                self._distrust(log)
                if not isinstance(error, FileNotFoundError):
                    self._pause(number * READ_PAUSE_SECONDS)  # the writer may be in the middle of it
            except UnknownLog:
                self._segments.pop(log, None)
                self._bases.pop(log, None)
                raise
            except OSError as error:
                raise _named(error, log) from None
        raise AssertionError("the last attempt returns or raises")

    def _distrust(self, log: int) -> None:
        """Something is not as it was seen: look into all files again."""
        with self._lock:
            for file in self._journal.files.values():
                file.stamp = None
            for segment in self._segments.get(log, {}).values():
                segment.stamp = None

    def _view(self, log: int, after: LogOffset) -> LogView:
        with self._lock:
            doubts = self._look_at_journal()
            shares = self._journal.shares_of(log)
            files = LogFiles(log, self._look_at_segments(log), self._look_at_bases(log))
            fault = doubts.get(log) or doubt_about(self._disk, self._journal, log, shares, confirmed_tx=None)
            visible = self._upper(files, shares)
            base = files.base
            # Last: of a log that is removed the facts go first, so all that was looked at was there.
            facts = read_log(self._disk, log)
            return LogView(
                log=log,
                handle=facts.handle,
                visible=visible,
                durable=visible,
                chunk_bytes=facts.chunk_bytes,
                base=None if base is None else base.number,
                floor=SNAPSHOT_END if base is None else base.floor,
                retired=SNAPSHOT_END if base is None else base.last,
                pieces=self._pieces(files.overlapping(after), self._journal.shares_of(log, after)),
                fault=fault,
            )

    def _pieces(self, segments: list[Segment], shares: list[JournalShare]) -> Iterator[Piece]:
        for segment in segments:
            with self._lock:
                self._look_at(segment, is_last=segment is segments[-1])
                refs = list(segment.refs)
            for ref in refs:
                if ref.header.rows:
                    yield self._cache.piece(ref, ReadSource.SEGMENT)
            if segment.damage is not None:
                raise segment.damage.anew()
        for share in shares:
            if share.entry.rows:
                yield self._cache.share_piece(share)

    def _look_at_journal(self) -> Doubts:
        """Bring the index up to date: files come, grow, are cut and go. Returns which logs are in doubt."""
        index, names = self._journal, self._disk.names(layout.JOURNAL)
        if names != self._names:
            self._names, self._doubts = names, [name for name in names if layout.is_doubts(name)]
            self._numbers = [number for number in map(layout.journal_number, names) if number]
            for number in index.files.keys() - self._numbers:
                index.drop_file(number)
        for number in self._numbers:
            file = index.files.get(number)
            path = layout.journal_path(number) if file is None else file.path
            stamp = self._disk.stamp(path)  # before its blocks, or what is written meanwhile would be missed
            if file is not None and file.stamp == stamp:
                continue
            if file is not None and (file.unreadable or (file.refs and not self._is_there(file.refs[-1]))):
                index.drop_file(number)
                file = None
            if file is None:
                file = JournalFile(number, path)
                index.add_file(file)
            load_blocks(self._disk, index, file, on_torn=_is_being_written)
            # What is torn or damaged may be in the middle of its writing, and is looked at each time.
            file.stamp = stamp if file.size == stamp.size and not file.unreadable else None
        return read_doubts(self._disk, self._doubts)

    def _look_at_bases(self, log: int) -> list[Base]:
        self._bases[log] = list_bases(self._disk, log, self._bases.get(log, ()))
        return list(self._bases[log])

    def _look_at_rows(self, log: int) -> tuple[list[Segment], list[JournalShare]]:
        """All that has rows of a log above its bases, with what is in the segments."""
        self._look_at_journal()
        shares = self._journal.shares_of(log)
        segments = self._look_at_segments(log)
        for segment in segments:
            self._look_at(segment, is_last=segment is segments[-1])
        return segments, shares

    def _look_at_segments(self, log: int) -> list[Segment]:
        """The living segments by name, with what is remembered of those seen before."""
        living, _ = list_segments(self._disk, log)
        known = self._segments.get(log, {})
        self._segments[log] = {segment.path: known.get(segment.path, segment) for segment in living}
        return list(self._segments[log].values())

    def _upper(self, files: LogFiles, shares: list[JournalShare]) -> LogOffset:
        """The greatest claim on disk: the newest header's, since none claims less than one before it."""
        claims = [aligned_of(shares) or SNAPSHOT_END, files.base.floor if files.base else SNAPSHOT_END]
        for segment in reversed(files.segments):
            self._look_at(segment, is_last=segment is files.segments[-1])
            if segment.refs:
                claims.append(segment.refs[-1].header.aligned)
                break
        return max(claims)

    def _look_at(self, segment: Segment, *, is_last: bool) -> None:
        """Find the blocks that were added since; start again if the last one known is not there any more."""
        stamp = self._disk.stamp(segment.path)
        if segment.stamp == stamp:
            return
        if segment.refs and not self._is_there(segment.refs[-1]):
            segment.refs, segment.size = [], 0
        found = scan(self._disk, segment.path, start=segment.size)
        segment.add(found.refs)
        segment.damage = found.damage
        if found.torn is not None and not is_last:
            segment.damage = CorruptBlock(f"a closed segment ends in {found.torn}", path=segment.path)
        segment.loaded = True
        segment.stamp = stamp if segment.size == stamp.size and segment.damage is None else None

    def _is_there(self, ref: BlockRef) -> bool:
        """Whether the block at this place is still this one: a failed write is cut off, and another takes its place."""
        return self._disk.read(ref.path, ref.position, HEADER_SIZE) == ref.header.encode()


def _is_being_written(path: str, end: int, why: str) -> None:
    """A torn tail is what the writer is writing at this moment; it is looked at again next time."""


def _named(error: OSError | StorageError, log: int) -> StorageError:
    if isinstance(error, StorageError):
        return error
    return from_os_error(error, error.filename or layout.log_folder(log))
