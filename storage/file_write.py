"""One file's part of a flush: repair, create, write, sync; and how far that came."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from storage.block import BlockHeader, encode_block
from storage.disk import Bytes, Disk
from storage.errors import StorageError, from_os_error
from storage.parts import Part
from storage.repair import Repair, run_repairs
from storage.scan import BlockRef

Block = tuple[BlockHeader, Sequence[Part]]
"""A header whose sizes are still open, and its parts."""


class Stage(Enum):
    """How far a write came."""

    WAITING = "waiting"
    """Nothing was touched, but for repairs of what an earlier write left."""
    WRITE = "write"
    """The file may hold any part of the bytes."""
    SYNC = "sync"
    """Nobody knows what is on the disk, and asking again is no use."""
    DONE = "done"


@dataclass(slots=True)
class FileWrite:
    """Blocks for the end of one file."""

    path: str
    is_new: bool
    size: int
    """Bytes of whole blocks before this write."""
    synced: int
    """How many of them are synced; all of them, but in a base that is being written."""
    repairs: list[Repair]
    """What earlier failures left to be mended before anything else is written for the same log."""
    shared: bool
    """Whether a failure stops all logs, or only the one that the file belongs to."""
    stage: Stage = Stage.WAITING
    failure: StorageError | None = None
    refs: list[BlockRef] = field(default_factory=list)

    def put(self, disk: Disk, blocks: Sequence[Block], *, sync: bool = True) -> None:
        """Write and sync; without `sync`, whoever wants the bytes to be certain syncs them with a later write."""
        self.write(disk, blocks)
        if sync:
            self.sync(disk)
        elif self.failure is None:
            self.stage = Stage.DONE

    def write(self, disk: Disk, blocks: Sequence[Block]) -> None:
        """Write; a failure is noted. Nothing is raised but defects."""
        with self._noted():
            run_repairs(disk, self.repairs)
            buffers = self._encode(blocks)  # before a byte is written: what cannot be encoded leaves no trace
            self.stage = Stage.WRITE
            if self.is_new:
                disk.create(self.path)
            disk.append(self.path, buffers)

    def sync(self, disk: Disk) -> None:
        """Make certain what was written, if it was; a failure is noted."""
        if self.stage is not Stage.WRITE or self.failure is not None:
            return
        with self._noted():
            self.stage = Stage.SYNC
            disk.sync(self.path)
            if self.is_new:
                disk.sync_folder(self.path.rpartition("/")[0])
            self.stage = Stage.DONE

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            self.stage = Stage.WAITING  # somebody else's file: it is not ours to repair
            self.failure = from_os_error(error, self.path, shared=self.shared)
        except OSError as error:
            self.failure = from_os_error(error, self.path, shared=self.shared)
        except StorageError as error:
            if self.shared:
                raise  # no disk's fault and no single log's: a defect, and trying again would not help
            self.failure = error

    @property
    def repair(self) -> Repair | None:
        """What a failure left to be mended; None if the file was not touched."""
        if self.stage in (Stage.WRITE, Stage.SYNC):
            return Repair(self.path, self.synced, must_copy=self.stage is Stage.SYNC)
        return None

    def _encode(self, blocks: Sequence[Block]) -> list[Bytes]:
        buffers: list[Bytes] = []
        position = self.size
        for header, payload in blocks:
            parts = encode_block(replace(header, synced_before=self.synced), payload)
            buffers.extend(parts)
            ref = BlockRef(self.path, position, BlockHeader.decode(parts[0]))
            self.refs.append(ref)
            position = ref.end
        return buffers
