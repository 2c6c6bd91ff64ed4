"""Reading the logs of a `Store` in its own process: files, then the window, then the buffer.

A view is taken under the store's lock, in microseconds; files are read outside it. When a file vanished meanwhile
(moved out of the journal, compacted, retired), a new view is taken, a bounded number of times.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from storage.bases import Base, find_chunk
from storage.blocks_cache import BlocksCache
from storage.errors import from_os_error
from storage.journal import JournalShare
from storage.limits import READ_ATTEMPTS_MAX
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import LoadedRows, LogView, Piece, ReadResult, ReadSource, read
from storage.scan import BlockRef
from storage.segments import Segment
from storage.share import Share
from storage.store import Store

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class StoreReader:
    """Stateless reads: every call says from where. Any number of threads may use one reader."""

    def __init__(self, store: Store, cache: BlocksCache | None = None) -> None:
        self._store = store
        self._cache = cache or BlocksCache(store.disk, metrics=store.metrics)

    def read(self, log: int, after: LogOffset, max_bytes: int | None = None) -> ReadResult:
        """The visible rows above `after`; see `storage.reading.read` for limits and errors."""
        result = with_new_views(lambda: read(self._view(log, after), after, max_bytes))
        self._note(log, result)
        return result

    def wait_and_read(
        self, log: int, after: LogOffset, timeout_seconds: float, max_bytes: int | None = None
    ) -> ReadResult:
        """As `read`, but waits for data if there is none; empty when the time is up."""
        result = self.read(log, after, max_bytes)
        if result.rows or not result.at_end:
            return result
        self._store.wait_visible(log, result.visible, timeout_seconds)
        return self.read(log, after, max_bytes)

    def bases(self, log: int) -> list[Base]:
        """The bases of a log, the complete ones and the one that is being written."""
        with self._store.lock:
            return list(self._store.log(log).files.bases)

    def read_chunk(self, log: int, base: int, number: int) -> pa.RecordBatch | None:
        """Chunk `0_number` of a base; None if it is not there (yet, if the base is not complete)."""

        def attempt() -> pa.RecordBatch | None:
            with self._store.lock:
                ref = find_chunk(self._store.log(log).files.bases, log, base, number)
            return None if ref is None else self._cache.rows(ref).batches[0]

        rows = with_new_views(attempt)
        if rows is not None:
            self._store.metrics.count(Metric.READS, ReadSource.BASE.value)
        return rows

    def _view(self, log: int, after: LogOffset) -> LogView:
        store = self._store
        with store.lock:
            opened = store.log(log)
            segments = [(one, list(one.refs) if one.loaded else None) for one in opened.files.overlapping(after)]
            shares = store.logs.index.shares_of(log, after)
            memory = opened.state.in_memory()
            wire_start = opened.state.stored_wire_end
            base = opened.files.base
            return LogView(
                log=log,
                handle=opened.facts.handle,
                visible=opened.state.visible,
                durable=opened.state.durable,
                chunk_bytes=opened.facts.chunk_bytes,
                base=None if base is None else base.number,
                floor=SNAPSHOT_END if base is None else base.floor,
                retired=SNAPSHOT_END if base is None else base.last,
                fault=opened.state.fault,
                pieces=self._pieces(segments, shares, memory, wire_start),
            )

    def _pieces(
        self,
        segments: list[tuple[Segment, list[BlockRef] | None]],
        shares: list[JournalShare],
        memory: list[tuple[Share, bool]],
        wire_end: int,
    ) -> Iterator[Piece]:
        for segment, refs in segments:
            if refs is None:
                segment.load(self._store.disk)
            for ref in segment.refs if refs is None else refs:
                if ref.header.rows:
                    yield self._cache.piece(ref, ReadSource.SEGMENT)
            if segment.damage is not None:
                raise segment.damage.anew()
        for share in shares:
            if share.entry.rows:
                yield self._cache.share_piece(share)
        for held, in_flight in memory:
            wire_end += held.wire
            source = ReadSource.WINDOW if in_flight else ReadSource.BUFFER
            yield Piece(source, held.previous, held.first, held.last, held.count, wire_end, _loader(held))

    def _note(self, log: int, result: ReadResult) -> None:
        metrics = self._store.metrics
        for source, rows in result.sources.items():
            metrics.count(Metric.READS, source.value)
            metrics.count(Metric.READ_ROWS, source.value, rows)
            if source in (ReadSource.WINDOW, ReadSource.BUFFER):
                opened = self._store.logs.peek(log)
                handle = "removed" if opened is None else opened.facts.handle
                logger.debug(
                    "log %d (%s): %d rows served from the %s, up to %s", log, handle, rows, source.value, result.next
                )


def _loader(held: Share) -> Callable[[], LoadedRows]:
    return lambda: LoadedRows([held.batch()])


def with_new_views(attempt: Callable[[], Result]) -> Result:
    """Try again when a file went away between the look and the read: it is somewhere else now, or the log is gone."""
    for left in range(READ_ATTEMPTS_MAX, -1, -1):
        try:
            return attempt()
        except FileNotFoundError as error:
            if not left:
                raise from_os_error(error, error.filename or "a file of the log") from None
        except OSError as error:
            raise from_os_error(error, error.filename or "a file of the log") from None
    raise AssertionError("the last attempt returns or raises")
