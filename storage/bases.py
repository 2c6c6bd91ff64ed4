"""Bases: where a reader of a log starts. A snapshot of the table, or the fold of an older base and a prefix of the log.

A base is one file of chunks, block k holding the rows of chunk `0_k`, readable while it is written. An end mark makes
it complete and says its floor: the log is to be followed from there. Immutable from then on (A12).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from storage import layout
from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.disk import Disk
from storage.errors import LogFault, Misuse, Refetch, from_os_error
from storage.file_write import FileWrite, Stage
from storage.offset import SNAPSHOT_END, LogOffset
from storage.parts import Part, encode_batches
from storage.repair import Repair
from storage.rows import wire_sizes
from storage.scan import BlockRef, scan


@dataclass(slots=True)
class Base:
    """What is known of a base's file."""

    number: int
    path: str
    chunks: list[BlockRef] = field(default_factory=list)
    end: BlockHeader | None = None
    damage: LogFault | None = None
    """What lies where the next chunk or the end mark should be."""

    @property
    def is_complete(self) -> bool:
        return self.end is not None

    @property
    def floor(self) -> LogOffset:
        """The end of the last transaction that is folded in; a snapshot's is `SNAPSHOT_END`."""
        return SNAPSHOT_END if self.end is None else self.end.aligned

    @property
    def last(self) -> LogOffset:
        """The last row of the log that is folded in."""
        return SNAPSHOT_END if self.end is None else self.end.last

    @property
    def wire_end(self) -> int:
        """Wire size of the log up to `last`: where chunks of the log go on counting."""
        return 0 if self.end is None else self.end.wire_end

    @property
    def rows(self) -> int:
        return sum(ref.header.rows for ref in self.chunks)

    def refresh(self, disk: Disk) -> None:
        """Look for what was written since; a base that is complete does not change."""
        if self.end is None:
            start = self.chunks[-1].end if self.chunks else 0
            found = scan(disk, self.path, start=start)
            self.damage = found.damage
            for ref in found.refs:
                if ref.header.kind is BlockKind.BASE_END:
                    self.end = ref.header
                else:
                    self.chunks.append(ref)


def list_bases(disk: Disk, log: int) -> list[Base]:
    """All bases of a log, complete or not, in the order in which they were begun."""
    numbers = sorted(
        number for number in map(layout.base_number, disk.names(layout.log_folder(log))) if number is not None
    )
    bases = [Base(number, layout.base_path(log, number)) for number in numbers]
    for base in bases:
        base.refresh(disk)
    return bases


def find_chunk(bases: Sequence[Base], log: int, base: int, number: int) -> BlockRef | None:
    """Where a chunk is; None if it is not there (yet). Raises `Refetch` if a newer base replaced this one."""
    found = next((one for one in bases if one.number == base), None)
    if found is not None:
        return found.chunks[number] if number < len(found.chunks) else None
    newer = next((one for one in reversed(bases) if one.is_complete and one.number > base), None)
    if newer is None:
        raise Misuse(f"log {log} has no base {base}")
    raise Refetch(f"base {base} of log {log} was replaced", base=newer.number, floor=newer.floor)


class BaseWriter:
    """Writes one base, chunk by chunk; the caller cuts the chunks (`storage.columns.chunks_by_wire`)."""

    def __init__(self, disk: Disk, log: int, number: int) -> None:
        self.base = Base(number, layout.base_path(log, number))
        self._disk = disk
        self._log = log
        self._size = 0
        self._synced = 0
        self._repairs: list[Repair] = []
        self._is_lost = False
        """A sync failed: nobody knows which chunks are on the disk."""

    def chunk(self, rows: pa.RecordBatch, *, written_at: int) -> None:
        """Add the next chunk. Not synced: a base without its end mark starts again after a crash.

        May be called again with the same rows when a write failed; after a failed sync the base is given up.
        """
        offset = LogOffset.of_snapshot_chunk(len(self.base.chunks))
        wire = self.base.chunks[-1].header.wire_end if self.base.chunks else 0
        wire += int(wire_sizes(rows).sum())
        header = self._header(BlockKind.BASE, rows.num_rows, offset, offset, wire, written_at)
        self.base.chunks.append(self._put(header, [encode_batches([rows])], sync=False))

    def finish(self, *, floor: LogOffset, last: LogOffset, wire_end: int, written_at: int) -> Base:
        """Sync the chunks, then the end mark: from here on the base survives, and its chunks are known to be whole."""
        if self.base.chunks:
            self._sync()
        header = self._header(BlockKind.BASE_END, self.base.rows, last, floor, wire_end, written_at)
        ref = self._put(header, [], sync=True)
        self._sync_name()
        self.base.end = ref.header
        return self.base

    def _put(self, header: BlockHeader, parts: Sequence[Part], *, sync: bool) -> BlockRef:
        if self.base.is_complete or self._is_lost:
            state = "was given up after a failed sync" if self._is_lost else "is complete"
            raise Misuse(f"base {self.base.number} of log {self._log} {state}")
        write = FileWrite(self.base.path, not self._size, self._size, self._synced, self._repairs, shared=False)
        write.put(self._disk, [(header, parts)], sync=sync)
        if write.failure is not None:
            if write.stage is Stage.WRITE:
                self._repairs = [Repair(self.base.path, self._size)]
            self._is_lost = write.stage is Stage.SYNC
            raise write.failure
        self._repairs = []
        self._size = write.refs[-1].end
        return write.refs[-1]

    def _sync(self) -> None:
        try:
            self._disk.sync(self.base.path)
        except OSError as error:
            self._is_lost = True
            raise from_os_error(error, self.base.path) from None
        self._synced = self._size

    def _sync_name(self) -> None:
        try:
            self._disk.sync_folder(layout.log_folder(self._log))
        except OSError as error:
            self._is_lost = True
            raise from_os_error(error, self.base.path) from None

    def _header(
        self, kind: BlockKind, rows: int, last: LogOffset, aligned: LogOffset, wire_end: int, written_at: int
    ) -> BlockHeader:
        previous = self.base.chunks[-1].header.last if self.base.chunks else LogOffset.of_snapshot_chunk(0)
        return BlockHeader(
            kind=kind,
            flags=BlockFlag.NONE,
            rows=rows,
            payload_size=0,
            previous=previous,
            first=last,
            last=last,
            aligned=aligned,
            wire_end=wire_end,
            synced_before=0,
            log=self._log,
            written_at=written_at,
        )
