"""Bases: where a reader of a log starts. A snapshot of the table, or the fold of an older base and a prefix of the log.

A base is one file of chunks, block k holding the rows of chunk `0_k`, readable while it is written. An end mark makes
it complete and says its floor: the log is to be followed from there. Immutable from then on (A12).

Invariants:
    a file under a base's name was synced to its end mark before it got that name: whoever finds it may rely on it
    one that is being written has a temporary name, and goes with a crash
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from storage import layout
from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.disk import Disk
from storage.errors import CorruptBlock, LogFault, Misuse, Refetch, from_os_error
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
    is_given_up: bool = False
    """A sync of it failed: it will never be complete."""

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
            has_name = not layout.is_temporary(self.path)
            found = scan(disk, self.path, start=self.chunks[-1].end if self.chunks else 0)
            self.damage = found.damage
            for ref in found.refs:
                if ref.header.kind is not BlockKind.BASE_END:
                    self.chunks.append(ref)
                elif has_name:  # without it, nobody knows whether the end mark was synced
                    self.end = ref.header
            if has_name and found.torn is not None:
                self.damage = CorruptBlock(f"a base ends in {found.torn}", path=self.path, position=found.end)


def list_bases(disk: Disk, log: int, known: Sequence[Base] = ()) -> list[Base]:
    """All bases of a log in the order in which they were begun; `known` ones that are complete are not read again."""
    names = disk.names(layout.log_folder(log))
    growing = {number for number in map(layout.unfinished_base_number, names) if number is not None}
    named = {number for number in map(layout.base_number, names) if number is not None}
    bases = [
        Base(number, layout.base_path(log, number) if number in named else layout.unfinished_base_path(log, number))
        for number in sorted(growing | named)
    ]
    complete = {base.number: base for base in known if base.is_complete}
    bases = [complete.get(base.number, base) if base.number in named else base for base in bases]
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
        self.base = Base(number, layout.unfinished_base_path(log, number))
        self._disk = disk
        self._log = log
        self._size = 0
        self._synced = 0
        self._repairs: list[Repair] = []

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
        """Sync the chunks and the end mark, and give the file its name: from here on the base survives."""
        if self.base.chunks:
            self._sync()
        header = self._header(BlockKind.BASE_END, self.base.rows, last, floor, wire_end, written_at)
        ref = self._put(header, [], sync=True)
        self._give_name()
        self.base.end = ref.header
        return self.base

    def _put(self, header: BlockHeader, parts: Sequence[Part], *, sync: bool) -> BlockRef:
        if self.base.is_complete or self.base.is_given_up:
            state = "was given up after a failed sync" if self.base.is_given_up else "is complete"
            raise Misuse(f"base {self.base.number} of log {self._log} {state}")
        write = FileWrite(self.base.path, not self._size, self._size, self._synced, self._repairs, shared=False)
        write.put(self._disk, [(header, parts)], sync=sync)
        if write.failure is not None:
            if write.stage is Stage.WRITE:
                self._repairs = [Repair(self.base.path, self._size)]
            self.base.is_given_up = write.stage is Stage.SYNC
            raise write.failure
        self._repairs = []
        self._size = write.refs[-1].end
        return write.refs[-1]

    def _sync(self) -> None:
        try:
            self._disk.sync(self.base.path)
        except OSError as error:
            self.base.is_given_up = True
            raise from_os_error(error, self.base.path) from None
        self._synced = self._size

    def _give_name(self) -> None:
        base, old, path = self.base, self.base.path, layout.base_path(self._log, self.base.number)
        try:
            self._disk.link(old, path)  # never in the place of a file that is there
            self._disk.sync_folder(layout.log_folder(self._log))
        except OSError as error:
            base.is_given_up = True
            raise from_os_error(error, path) from None
        base.path, base.chunks = path, [replace(ref, path=path) for ref in base.chunks]
        with contextlib.suppress(OSError):  # what stays goes at the next start
            self._disk.remove(old)  # who reads by this name looks again

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
