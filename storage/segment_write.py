"""The flush of one log to its own segment: first what the journal still holds of it, then what memory holds.

The blocks are as many as A8 and the schemas ask for: committed rows apart from open ones, one schema a block, and a
lawful gap only in front of a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from storage.block import BlockFlag, BlockHeader, BlockKind, encode_batches
from storage.disk import Disk
from storage.errors import StorageError, from_os_error
from storage.file_write import Block, FileWrite
from storage.journal import JournalShare
from storage.journal_block import decode_tables, rows_of
from storage.offset import LogOffset
from storage.rows import combine, wire_sizes
from storage.scan import BlockRef, read_payload
from storage.segments import Segment
from storage.shape_log import Drained
from storage.share import Share


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that will be part of a block."""

    batch: pa.RecordBatch
    first: LogOffset
    last: LogOffset
    gap: bool


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
            batches = combine([piece.batch for piece in run])
            self.wire_end += sum(int(wire_sizes(batch).sum()) for batch in batches)
            flags = BlockFlag.GAP if run[0].gap else BlockFlag.NONE
            if run[-1].last > aligned:
                flags |= BlockFlag.OPEN
            # A tear may cut off a block from those behind it: only the last committed one claims all of them.
            claim = aligned if not committed or index >= committed[-1] else self.claimed
            count = sum(batch.num_rows for batch in batches)
            yield (
                self._header(count, run[0].first, run[-1].last, flags, claim, written_at),
                [encode_batches(batches)],
            )
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
        tables: dict[BlockRef, list[pa.RecordBatch]] = {}
        for share in self.carried:
            entry = share.entry
            if entry.rows:
                if share.ref not in tables:
                    tables[share.ref] = decode_tables(read_payload(disk, share.ref))
                gap = BlockFlag.GAP in entry.flags
                yield _Rows(rows_of(tables[share.ref], entry), entry.first, entry.last, gap)


def _rows_of_share(share: Share) -> _Rows:
    return _Rows(share.batch(), share.first, share.last, share.gap)


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
