"""Reading a log: from pieces in order to rows, whoever holds the pieces. No state, no locks.

oldest to newest:   segments -> journal -> window (a flush in flight) -> buffer
every piece continues from `previous`; where it does not meet the row before, the read stops, and the next one, which
    begins there, raises `Hole`
a row is returned only at or below V, and never twice
a read returns at least one row if there is one, and then no more than its limit allows
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from storage.errors import AboveUpper, Hole, LogFault, Refetch
from storage.limits import READ_BYTES_MAX
from storage.offset import LogOffset
from storage.rows import OP, TX, Integers, column, rows_up_to, wire_sizes


class ReadSource(StrEnum):
    """Where rows came from; a label in metrics."""

    SEGMENT = "segment"
    JOURNAL = "journal"
    WINDOW = "window"
    BUFFER = "buffer"
    BASE = "base"


class LoadedRows:
    """The rows of a piece, and how large they are on the wire: worked out once for all readers that end inside it."""

    __slots__ = ("_sums", "batches")

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.batches = batches
        self._sums: list[Integers] | None = None

    @property
    def sums(self) -> list[Integers]:
        """For each batch, the wire size of the piece's rows before each of its rows, and before what follows it."""
        if self._sums is None:
            sums, end = [], 0
            for batch in self.batches:
                sums.append(np.concatenate(([end], end + np.cumsum(wire_sizes(batch)))))
                end = int(sums[-1][-1])
            self._sums = sums
        return self._sums

    @property
    def wire(self) -> int:
        """Wire size of all the rows."""
        return int(self.sums[-1][-1])


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a log that lie together: a block, a share in the journal, or a share in memory."""

    source: ReadSource
    previous: LogOffset
    first: LogOffset
    last: LogOffset
    rows: int
    wire_end: int
    load: Callable[[], LoadedRows]
    """The rows, checked. Only called for pieces that a read needs."""


@dataclass(frozen=True, slots=True)
class LogView:
    """A log at one moment, from some offset on."""

    log: int
    handle: str
    visible: LogOffset
    durable: LogOffset
    chunk_bytes: int
    base: int | None
    """The newest complete base: where to start again if the log no longer goes back far enough."""
    floor: LogOffset
    """From where that base is to be followed."""
    retired: LogOffset
    """The last row of the log that the base has: rows up to here may be gone."""
    pieces: Iterable[Piece]
    fault: LogFault | None = None
    """Why nothing more will come: told to whoever has read all there is."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Rows in order, and where to go on."""

    rows: list[pa.RecordBatch]
    next: LogOffset
    """The last row's offset: `after` of the next read."""
    visible: LogOffset
    durable: LogOffset
    """Rows above it are lost by a crash, until the source sends them again at the same offsets."""
    at_end: bool
    """No visible row lies above `next`."""
    chunk_ended: bool
    """The rows end where a chunk ends: the same read gives the same rows for ever."""
    sources: dict[ReadSource, int]
    """How many rows came from where."""

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.rows)


def read(view: LogView, after: LogOffset, max_bytes: int | None) -> ReadResult:
    """The rows above `after`: to the end of their chunk, or, with `max_bytes`, about that many wire bytes.

    A limit of 0 or less is one row. Raises `Refetch` below what the log keeps, `AboveUpper` above what it has, or the
    log's fault: a log that stops lets go of what was visible and not durable, and a reader may be there.
    """
    if after > view.visible:
        if view.fault is not None:
            raise view.fault.anew()
        raise AboveUpper(f"the log ends at {view.visible}", asked=after, handle=view.handle)
    return _Reading(view, after, max_bytes).run()


class _Reading:
    """One read on its way through the pieces."""

    def __init__(self, view: LogView, after: LogOffset, max_bytes: int | None) -> None:
        self._view = view
        self._position = after
        self._max_bytes = max_bytes
        self._wire_limit: int | None = None
        self._is_whole_chunk = False
        """The limit is where a chunk ends."""
        self._wire_end = 0
        """Wire size of the log up to the last piece that was read whole."""
        self._rows: list[pa.RecordBatch] = []
        self._sources: dict[ReadSource, int] = {}

    def run(self) -> ReadResult:
        limited = damaged = False
        try:
            for piece in self._wanted():
                limited = self._is_full or self._add(piece)
                if limited:
                    break
            if self._view.fault is not None and not limited:
                raise self._view.fault.anew()
        except (LogFault, Refetch):
            if not self._rows:
                raise
            damaged = True  # what lies before it can be read; the next read meets it again
        return ReadResult(
            rows=self._rows,
            next=self._position,
            visible=self._view.visible,
            durable=self._view.durable,
            at_end=not (limited or damaged),
            chunk_ended=limited and self._is_whole_chunk,
            sources=self._sources,
        )

    def _wanted(self) -> Iterator[Piece]:
        """The pieces with visible rows above the position, each checked to continue from there."""
        for piece in self._view.pieces:
            if piece.last > self._position:
                if piece.previous > self._position:
                    raise self._missing(piece.previous)
                if piece.first > self._view.visible:
                    return
                yield piece
                if piece.last > self._view.visible:
                    return  # it was cut there, so what follows need not meet the row before
        if self._position < self._view.retired:
            raise self._missing(self._view.retired)

    def _missing(self, upto: LogOffset) -> Hole | Refetch:
        """Rows that are not there. A retirement that a crash interrupted leaves any of those that the base has."""
        view = self._view
        if upto <= view.retired:
            return Refetch(
                f"the log has no rows between {self._position} and {upto}",
                asked=self._position,
                base=view.base,
                floor=view.floor,
                handle=view.handle,
            )
        return Hole(f"rows between {self._position} and {upto} are missing", log=view.log, handle=view.handle)

    @property
    def _is_full(self) -> bool:
        """Whether the next row is beyond the limit, known without loading it."""
        return self._wire_limit is not None and self._wire_end >= self._wire_limit

    def _add(self, piece: Piece) -> bool:
        """Add what fits of a piece. True if the limit cut something off."""
        loaded = piece.load()
        fits_whole = self._wire_limit is not None and piece.wire_end <= self._wire_limit
        for index, batch in enumerate(loaded.batches):
            before = None if fits_whole else loaded.sums[index][:-1] + (piece.wire_end - loaded.wire)
            if self._add_batch(piece.source, batch, before):
                return True
        self._wire_end = piece.wire_end
        return False

    def _add_batch(self, source: ReadSource, batch: pa.RecordBatch, before: Integers | None) -> bool:
        """Add what fits of a batch. `before`: wire size of the log before each row, if some may not fit."""
        start, stop = 0, batch.num_rows
        tx, op = column(batch, TX), column(batch, OP)
        if LogOffset(int(tx[0]), int(op[0])) <= self._position:
            start = rows_up_to(tx, op, self._position)
        if LogOffset(int(tx[-1]), int(op[-1])) > self._view.visible:
            stop = rows_up_to(tx, op, self._view.visible)
        fitting = stop
        if start < stop and before is not None:
            if self._wire_limit is None:
                self._wire_limit = self._limit_from(int(before[start]))
            fitting = min(stop, int(np.searchsorted(before, self._wire_limit, side="left")))
        if fitting > start:
            self._rows.append(batch.slice(start, fitting - start))
            self._sources[source] = self._sources.get(source, 0) + fitting - start
            self._position = LogOffset(int(tx[fitting - 1]), int(op[fitting - 1]))
        return bool(fitting < stop)

    def _limit_from(self, wire: int) -> int:
        """Rows whose preceding wire size is below this are returned, beginning with one at `wire`."""
        bound = wire + READ_BYTES_MAX
        if self._max_bytes is None:
            chunk_end = (wire // self._view.chunk_bytes + 1) * self._view.chunk_bytes
            self._is_whole_chunk = chunk_end <= bound
            return min(chunk_end, bound)
        return min(wire + max(1, self._max_bytes), bound)
