"""The flush of many small logs: a journal block of whole transactions, and one of open ones, in one write."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.disk import Disk
from storage.doubts import Doubts, write_doubts
from storage.errors import LogFault, StorageError, from_os_error
from storage.file_write import Block, FileWrite, Stage
from storage.journal import JournalFile, JournalShare
from storage.journal_block import Directory, EncodedJournal, JournalPart, encode_journal
from storage.journal_parts import Found, rows_of_shares
from storage.scan import BlockRef
from storage.shape_log import Drained
from storage.share import Share, Source


@dataclass(slots=True)
class JournalWrite:
    """What is written of which logs, and what the index must know of it afterwards."""

    drained: Sequence[Drained]
    target: JournalFile
    file: FileWrite
    blocks: list[EncodedJournal] = field(default_factory=list)
    wire_ends: dict[int, int] = field(default_factory=dict)

    def run(self, disk: Disk, written_at: int) -> None:
        """Encode and write; the outcome is in `file`."""
        committed = [_committed_part(drained) for drained in self.drained if _has_committed_part(drained)]
        open_parts = [_open_part(drained) for drained in self.drained if drained.open]
        blocks = [
            self._block(parts, flag, written_at)
            for parts, flag in ((committed, BlockFlag.NONE), (open_parts, BlockFlag.OPEN))
            if parts
        ]
        self.file.put(disk, blocks)

    @property
    def directories(self) -> list[tuple[BlockRef, Directory, list[pa.RecordBatch]]]:
        """The blocks on disk with their directories and rows."""
        return [(ref, block.directory, block.tables) for ref, block in zip(self.file.refs, self.blocks, strict=True)]

    def _block(self, parts: Sequence[JournalPart], flag: BlockFlag, written_at: int) -> Block:
        encoded = encode_journal(parts)
        self.blocks.append(encoded)
        directory = encoded.directory
        # Of several shares of a log the last one counts.
        self.wire_ends.update(zip(directory.logs(), directory.columns["wire_end"].tolist(), strict=True))
        return _header(encoded, flag, written_at), encoded.parts


@dataclass(slots=True)
class JournalCopy:
    """The shares of old journal files that are still needed, copied into a new one; then the old files go."""

    shares: Sequence[JournalShare]
    target: JournalFile
    file: FileWrite
    copied_from: int
    """The number of the old file that goes first."""
    leaves_unreadable: bool = False
    """Whether what cannot be read stays behind, in a file that is put aside. Otherwise the copy fails."""
    blocks: list[EncodedJournal] = field(default_factory=list)
    unreadable: Doubts = field(default_factory=dict)
    """The logs with rows that stay behind, and why."""

    def run(self, disk: Disk, written_at: int) -> None:
        """Write the copy; the outcome is in `file`. Nothing is removed here."""
        try:
            blocks = self._blocks(disk, written_at)
            if self.unreadable:
                write_doubts(disk, self.copied_from, self.unreadable)  # before the copy: who finds that, finds these
        except OSError as error:
            self.file.failure = from_os_error(error, error.filename or self.file.path)
        except StorageError as error:
            self.file.failure = error
        else:
            if blocks:
                self.file.put(disk, blocks)
            else:
                self.file.stage = Stage.DONE  # all of it stays behind

    def _blocks(self, disk: Disk, written_at: int) -> list[Block]:
        by_block: dict[BlockRef, list[JournalShare]] = {}
        for share in self.shares:
            by_block.setdefault(share.ref, []).append(share)
        blocks: list[Block] = []
        for ref, shares in by_block.items():
            parts = list(filter(None, map(self._part, shares, rows_of_shares(disk, shares))))
            if parts:
                encoded = encode_journal(parts)
                self.blocks.append(encoded)
                flag = ref.header.flags & BlockFlag.OPEN
                blocks.append((_header(encoded, flag, written_at, self.copied_from), encoded.parts))
        return blocks

    def _part(self, share: JournalShare, rows: Found | None) -> JournalPart | None:
        """A share as it is written again; None if it stays behind."""
        if not isinstance(rows, Exception):
            return _copied_part(share, rows)
        fault = from_os_error(rows, rows.filename or share.ref.path) if isinstance(rows, OSError) else rows
        if not (self.leaves_unreadable and isinstance(fault, LogFault)):
            raise fault
        self.unreadable.setdefault(share.entry.log, fault.anew())
        return None


def _copied_part(share: JournalShare, rows: pa.RecordBatch | None) -> JournalPart:
    entry = share.entry
    shares: list[Share] = []
    if rows is not None:
        copied = Share(Source(rows), None, at=0.0)
        copied.previous = entry.previous
        copied.gap = BlockFlag.GAP in entry.flags
        shares = [copied]
    wire_start = entry.wire_end - sum(one.wire for one in shares)
    return JournalPart(entry.log, shares, entry.previous, entry.aligned, entry.aligned, wire_start)


def _has_committed_part(drained: Drained) -> bool:
    """Also where only the commit is new: a claim must stand in a share that outlives the open rows behind it."""
    return bool(drained.committed) or drained.aligned > drained.durable or not drained.open


def _committed_part(drained: Drained) -> JournalPart:
    log, aligned, durable = drained.log.number, drained.aligned, drained.durable
    return JournalPart(log, drained.committed, drained.previous, aligned, durable, drained.wire_start)


def _open_part(drained: Drained) -> JournalPart:
    log, aligned = drained.log.number, drained.aligned
    start = drained.wire_start + sum(share.wire for share in drained.committed)
    return JournalPart(log, drained.open, drained.open[0].previous, aligned, aligned, start)


def _header(encoded: EncodedJournal, flag: BlockFlag, written_at: int, copied_from: int = 0) -> BlockHeader:
    """The header of a journal block: its offsets span those of all shares, its log number says if it is a copy."""
    return BlockHeader(
        kind=BlockKind.JOURNAL,
        flags=flag,
        rows=encoded.rows,
        payload_size=0,
        previous=encoded.first,
        first=encoded.first,
        last=encoded.last,
        aligned=encoded.aligned,
        wire_end=0,
        synced_before=0,
        log=copied_from,
        written_at=written_at,
    )
