"""The flush of one log to its own segment: first what the journal still holds of it, then what memory holds.

The blocks are as many as A8 and the schemas ask for: committed rows apart from open ones, one schema a block, and a
lawful gap only in front of a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.disk import Disk
from storage.errors import StorageError, from_os_error
from storage.file_write import Block, FileWrite
from storage.journal import JournalShare
from storage.journal_block import part_of_share, rows_of
from storage.limits import PART_BYTES_MAX, PART_BYTES_MIN
from storage.offset import LogOffset
from storage.parts import Part, encode_batches
from storage.rows import combine, wire_sizes
from storage.scan import read_part
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

    def run(self, disk: Disk, written_at: int) -> None:
        """Encode and write; the outcome is in `file`."""
        try:
            blocks = list(self._blocks(disk, written_at))
        except OSError as error:
            self.file.failure = from_os_error(error, self.file.path)
        except StorageError as error:
            self.file.failure = error
        else:
            self.file.put(disk, blocks)

    def _blocks(self, disk: Disk, written_at: int) -> Iterator[Block]:
        aligned = self.drained.aligned
        rows = [*self._carried_rows(disk), *(_rows_of_share(share) for share in self.drained.shares)]
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

    def _carried_rows(self, disk: Disk) -> Iterator[_Rows]:
        for share in self.carried:
            entry = share.entry
            if entry.rows:
                rows = rows_of(read_part(disk, share.ref, part_of_share(entry)), entry)
                yield _Rows(rows, entry.first, entry.last, BlockFlag.GAP in entry.flags)


def _rows_of_share(share: Share) -> _Rows:
    return _Rows(share.batch(), share.first, share.last, share.gap, share.source if share.rows is None else None)


def _parts(run: Sequence[_Rows]) -> Iterator[tuple[Part, int]]:
    """The parts of a block with their wire sizes: large pieces as they are, small neighbours copied together."""
    small: list[_Rows] = []
    size = 0
    for piece in run:
        if piece.batch.nbytes >= PART_BYTES_MIN:
            yield from _joined(small)
            small, size = [], 0
            yield _alone(piece)
            continue
        small.append(piece)
        size += piece.batch.nbytes
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
        (batch,) = combine([piece.batch for piece in pieces])
        yield encode_batches([batch]), int(wire_sizes(batch).sum())


def _runs(rows: Sequence[_Rows], aligned: LogOffset) -> Iterator[list[_Rows]]:
    """Cut rows into blocks."""
    run: list[_Rows] = []
    for piece in rows:
        if run and (
            piece.gap or piece.batch.schema != run[0].batch.schema or (piece.last > aligned) != (run[0].last > aligned)
        ):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run
