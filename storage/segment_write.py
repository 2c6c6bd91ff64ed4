"""The flush of one log to its own segment: first what the journal still holds of it, then what memory holds.

The blocks are as many as A8 and the schemas ask for: committed rows apart from open ones, one schema a block, a lawful
gap only in front of a block, and no block so long that a reader of a few rows would mind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.columns import spans
from storage.disk import Disk
from storage.errors import StorageError, from_os_error
from storage.file_write import Block, FileWrite
from storage.journal import JournalShare
from storage.journal_parts import Found
from storage.limits import BLOCK_BYTES_MAX, PART_BYTES_MAX, PART_BYTES_MIN, PIECE_BYTES_MAX
from storage.offset import LogOffset
from storage.parts import Part, encode_batches
from storage.rows import offset_at, stored_size, wire_sizes
from storage.segments import Segment
from storage.shape_log import Drained
from storage.share import Share, Source


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that will be part of a block."""

    batch: pa.RecordBatch
    first: LogOffset
    last: LogOffset
    gap: bool
    size: int
    source: Source | None = None
    """Set if these are all rows of a source, which then may have been encoded before."""


@dataclass(slots=True)
class SegmentWrite:
    """What is written, where, and after which row."""

    drained: Drained
    carried: list[JournalShare]
    segment: Segment
    file: FileWrite
    previous: LogOffset
    """The last row in the segments."""
    claimed: LogOffset
    """What the segments claim to be whole up to; the journal may claim more, and that goes with what it held."""
    wire_end: int
    """Wire size of the log: up to `previous` before the write, up to its last row after it."""

    @property
    def copied_size(self) -> int:
        """About the bytes that have to be copied together for it before it is written."""
        carried = max((share.entry.wire_end for share in self.carried), default=self.wire_end) - self.wire_end
        return carried + sum(share.size for share in self.drained.shares if not share.is_slice)

    def run(self, disk: Disk, written_at: int, carried: Sequence[Found | None], own: Sequence[pa.RecordBatch]) -> None:
        """Encode and write, without a sync; how far that came is in `file`.

        `carried` and `own` are the rows of its shares in the journal and in memory, one batch for each.
        """
        try:
            blocks = list(self._blocks(written_at, [*self._carried_rows(carried), *self._own_rows(own)]))
        except OSError as error:
            self.file.failure = from_os_error(error, error.filename or self.file.path)
        except StorageError as error:
            self.file.failure = error
        else:
            self.file.write(disk, blocks)

    def _blocks(self, written_at: int, rows: Sequence[_Rows]) -> Iterator[Block]:
        aligned = self.drained.aligned
        runs = list(_runs(rows, aligned))
        committed = [index for index, run in enumerate(runs) if run[-1].last <= aligned]
        if not committed and (aligned > self.claimed or not runs):
            yield self._header(0, self.previous, self.previous, BlockFlag.NONE, aligned, written_at), []
        for index, run in enumerate(runs):
            parts = list(_parts(run))
            self.wire_end += sum(wire for _, wire in parts)
            flags = BlockFlag.GAP if run[0].gap else BlockFlag.NONE
            if run[-1].last > aligned:
                flags |= BlockFlag.OPEN
            # A tear may cut off a block from those behind it: only the last committed one claims all of them.
            claim = aligned if not committed or index >= committed[-1] else self.claimed
            count = sum(piece.batch.num_rows for piece in run)
            header = self._header(count, run[0].first, run[-1].last, flags, claim, written_at)
            yield header, [part for part, _ in parts]
            self.previous = run[-1].last

    def _header(
        self, rows: int, first: LogOffset, last: LogOffset, flags: BlockFlag, aligned: LogOffset, written_at: int
    ) -> BlockHeader:
        return BlockHeader(
            kind=BlockKind.ROWS,
            flags=flags,
            rows=rows,
            payload_size=0,
            previous=self.previous,
            first=first,
            last=last,
            aligned=aligned,
            wire_end=self.wire_end,
            synced_before=0,
            log=self.drained.log.number,
            written_at=written_at,
        )

    def _carried_rows(self, found: Sequence[Found | None]) -> Iterator[_Rows]:
        wire_end = self.wire_end
        for share, rows in zip(self.carried, found, strict=True):
            if isinstance(rows, Exception):
                raise rows
            if rows is not None:
                entry = share.entry
                size = entry.wire_end - wire_end  # near enough, and there already
                yield _Rows(rows, entry.first, entry.last, BlockFlag.GAP in entry.flags, size)
                wire_end = entry.wire_end

    def _own_rows(self, batches: Sequence[pa.RecordBatch]) -> Iterator[_Rows]:
        for share, batch in zip(self.drained.shares, batches, strict=True):
            if share.size > PIECE_BYTES_MAX:
                yield from _pieces(share, batch)
            else:
                source = share.source if share.rows is None else None
                yield _Rows(batch, share.first, share.last, share.gap, share.size, source)


def _pieces(share: Share, batch: pa.RecordBatch) -> Iterator[_Rows]:
    """So many rows that they need several blocks."""
    for start, stop in spans(wire_sizes(batch), PIECE_BYTES_MAX):
        rows = batch.slice(start, stop - start)
        gap = share.gap and start == 0
        yield _Rows(rows, offset_at(batch, start), offset_at(batch, stop - 1), gap, stored_size(rows))


def _parts(run: Sequence[_Rows]) -> Iterator[tuple[Part, int]]:
    """The parts of a block with their wire sizes: large pieces as they are, small neighbours copied together."""
    small: list[_Rows] = []
    size = 0
    for piece in run:
        if piece.size >= PART_BYTES_MIN:
            yield from _joined(small)
            small, size = [], 0
            yield _alone(piece)
            continue
        small.append(piece)
        size += piece.size
        if size >= PART_BYTES_MAX:
            yield from _joined(small)
            small, size = [], 0
    yield from _joined(small)


def _alone(piece: _Rows) -> tuple[Part, int]:
    if piece.source is not None:
        return piece.source.part, int(piece.source.wire_sums[-1])
    return encode_batches([piece.batch]), int(wire_sizes(piece.batch).sum())


def _joined(pieces: Sequence[_Rows]) -> Iterator[tuple[Part, int]]:
    if pieces:
        batch = pa.concat_batches([piece.batch for piece in pieces])
        yield encode_batches([batch]), int(wire_sizes(batch).sum())


def _runs(rows: Sequence[_Rows], aligned: LogOffset) -> Iterator[list[_Rows]]:
    """Cut rows into blocks."""
    run: list[_Rows] = []
    size = 0
    for piece in rows:
        if run and (
            piece.gap
            or size + piece.size > BLOCK_BYTES_MAX
            or piece.batch.schema != run[0].batch.schema
            or (piece.last > aligned) != (run[0].last > aligned)
        ):
            yield run
            run, size = [], 0
        run.append(piece)
        size += piece.size
    if run:
        yield run
