"""Rows of shapes as messages: read and encoded once for all who want them, on threads, and kept while there is room.

Invariants:
    of those who want the same rows at the same time, one has them made; the others wait for the same answer
    a chunk is kept for ever; the end of a log only under the V that it was the end at, and so is that nothing follows
    no event loop waits for a disk here
"""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from shapes.http.encoding import as_one, encode, snapshot_end
from shapes.http.limits import ENCODED_BYTES_MAX, ENCODERS
from shapes.http.positions import ChunkPlace
from shapes.http.row_format import Neighbours, RowFormat, Style
from shapes.service import Served
from storage.chunk_cache import ChunkCache
from storage.errors import AboveUpper, LogFault, Refetch
from storage.handle_reading import LogReader
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.rows import KIND, Kind, column, offset_at

_PAGE_BYTES: Final = 512
"""Of a page's own objects, beside its messages."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages, and where they lead."""

    messages: bytes
    """Each with what its style puts behind it."""
    rows: int
    next: LogOffset
    is_end: bool
    """No visible row lies above `next`."""
    is_kept: bool
    """The same for ever."""
    seen: LogOffset = SNAPSHOT_END
    """V when it was read. It is the end of a transaction, and so may be above the last row: news is above this."""
    is_truncated: bool = False
    """A TRUNCATE lies ahead: its readers begin anew."""


class Pages:
    """Pages by place."""

    def __init__(self, reader: LogReader, bytes_max: int = ENCODED_BYTES_MAX) -> None:
        self.made = 0
        """Pages that were read and encoded."""
        self._reader = reader
        self._kept: ChunkCache[Hashable, Page] = ChunkCache(bytes_max)
        self._flights: dict[Hashable, asyncio.Future[Page]] = {}
        self._threads = ThreadPoolExecutor(ENCODERS, thread_name_prefix="encoder")

    @property
    def kept_bytes(self) -> int:
        """What is kept."""
        return self._kept.bytes

    async def chunk(self, served: Served, form: RowFormat, place: ChunkPlace, style: Style) -> Page:
        """A chunk of a base."""
        key = (served.log, served.base, place.number, style)
        return await self._get(key, key, partial(self._read_chunk, served, form, place, style))

    async def log(self, served: Served, form: RowFormat, after: LogOffset, visible: LogOffset, style: Style) -> Page:
        """Rows of a log above an offset, when its V is known to be `visible` or more."""
        key = (served.log, after, style)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        return await self._get(key, (*key, visible), partial(self._read_log, served, form, after, style))

    async def _get(self, lasting: Hashable, key: Hashable, make: Callable[[], Page]) -> Page:
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.get_running_loop().run_in_executor(self._threads, make)
            self._flights[key] = flight
            flight.add_done_callback(partial(self._landed, lasting, key))
        try:
            return await asyncio.shield(flight)
        finally:
            del flight  # an error of it would hold this frame, and be held by it, with the rows that were at hand

    def _landed(self, lasting: Hashable, key: Hashable, flight: "asyncio.Future[Page]") -> None:
        del self._flights[key]
        if flight.cancelled() or flight.exception() is not None:
            return
        page = flight.result()
        self.made += 1
        self._kept.put(lasting if page.is_kept else key, page, len(page.messages) + _PAGE_BYTES)
        if page.is_end and page.rows:
            self._keep_end(key, page)

    def _keep_end(self, key: Hashable, page: Page) -> None:
        """Whoever has the last rows asks next what is behind them, and that is known: nothing, as of the same V."""
        assert isinstance(key, tuple), "rows at an end are those of a log"
        log, _, style, _ = key
        nothing = Page(b"", 0, page.next, is_end=True, is_kept=False, seen=page.seen)
        self._kept.put((log, page.next, style, page.seen), nothing, _PAGE_BYTES)

    # On a thread

    def _read_chunk(self, served: Served, form: RowFormat, place: ChunkPlace, style: Style) -> Page:
        rows = self._reader.read_chunk(served.log, served.base, place.number)
        messages = b"" if rows is None else encode(form, rows, style)
        if place.is_last:
            seen = served.entry.shape.snapshot
            end = snapshot_end(seen.xmin, seen.xmax, seen.xip)
            messages += style.before.encode() + end + style.after.encode()
        count = 0 if rows is None else rows.num_rows
        return Page(messages, count, LogOffset.of_snapshot_chunk(place.number), is_end=False, is_kept=True)

    def _read_log(self, served: Served, form: RowFormat, after: LogOffset, style: Style) -> Page:
        try:
            result = self._reader.read(served.log, after)
        except AboveUpper:  # whoever asks has looked whether that may be
            return Page(b"", 0, after, is_end=True, is_kept=False, seen=after)
        if not result.rows:
            return Page(b"", 0, after, is_end=result.at_end, is_kept=False, seen=result.visible)
        if any((column(batch, KIND) == Kind.TRUNCATE).any() for batch in result.rows):
            return Page(b"", 0, after, is_end=False, is_kept=False, is_truncated=True)
        rows = as_one(result.rows)
        around = Neighbours(
            before=self._row_before(served.log, rows),
            after=None if result.at_end else self._row_after(served.log, result.next),
            is_end=result.at_end,
        )
        messages = encode(form, rows, style, around)
        return Page(messages, result.count, result.next, result.at_end, result.chunk_ended, result.visible)

    def _row_after(self, log: int, offset: LogOffset) -> pa.RecordBatch | None:
        """The next row, which tells whether a transaction goes on; without it, it is not said to end."""
        try:
            rows = self._reader.read(log, offset, 0).rows
        except (Refetch, LogFault):
            return None
        if not rows or column(rows[0], KIND)[0] == Kind.TRUNCATE:
            return None
        return rows[0][:1]

    def _row_before(self, log: int, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """The first half of an update that changed the key, where the page begins with the second."""
        tx, op = first = offset_at(rows, 0)
        if op % 2 == 0:
            return None
        below = LogOffset(tx, op - 2) if op >= 2 else LogOffset(tx - 1, OP_INFINITE)
        try:
            found = self._reader.read(log, below, 0).rows
        except (Refetch, LogFault):
            return None
        if not found or offset_at(found[0], 0) >= first:
            return None
        return found[0][:1]
