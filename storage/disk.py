"""The disk as storage sees it: a few operations on files and folders, so that tests can put a worse disk in its place.

Paths are relative to the data folder, with `/` between names. What holds on failure:

- `append` may have written any part of its bytes, none or all of them; the size tells nothing.
- `sync` that raised says nothing about what is on the disk, and asking again is no use (the kernel has forgotten).
- `create` is exclusive; `rename` replaces in one step; `link` never replaces.
- A new, renamed or removed name is certain only after `sync_folder` of its folder.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from storage.descriptors import DescriptorPool
from storage.limits import DESCRIPTORS_MAX, SYNCS_AT_ONCE_MAX

Bytes = bytes | bytearray | memoryview
"""Anything with a buffer that can be written."""

_IOV_MAX = 1024
"""Buffers that one `writev` takes on Linux."""


class Stamp(NamedTuple):
    """What a name stands for at a moment: equal ones say that nobody has changed the file since, nor put another there.

    But for a file that was cut and got as many other bytes within a tick of the kernel's clock, some milliseconds.
    """

    inode: int
    size: int
    changed: int


class Disk(Protocol):
    """Files and folders below one root. Every operation raises `OSError`."""

    @property
    def syncs_at_once(self) -> int:
        """How many threads may sync different files together; 1 where the order of operations must be certain."""

    def create(self, path: str) -> None:
        """Make a new, empty file; `FileExistsError` if the name is taken."""

    def append(self, path: str, buffers: Sequence[Bytes]) -> None:
        """Write the buffers at the end of an existing file."""

    def sync(self, path: str) -> None:
        """Return once the file's bytes and size are on the disk."""

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to its first `size` bytes."""

    def read(self, path: str, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, all of one file, whoever takes its name; fewer only at its end."""

    def read_buffer(self, path: str, position: int, size: int) -> memoryview:
        """As `read`, for large pieces that live for a while."""

    def size(self, path: str) -> int:
        """Bytes in the file."""

    def stamp(self, path: str) -> Stamp:
        """To be compared with a later one; costs less than any look into the file."""

    def exists(self, path: str) -> bool:
        """Whether the name is there."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""

    def make_folder(self, folder: str) -> None:
        """Make the folder and those above it, unless they are there."""

    def sync_folder(self, folder: str) -> None:
        """Return once the folder's names are on the disk."""

    def rename(self, old: str, new: str) -> None:
        """Give the file (no folder) another name, replacing what had it, in one step."""

    def link(self, old: str, new: str) -> None:
        """Give the file a second name; `FileExistsError` if that is taken."""

    def remove(self, path: str) -> None:
        """Remove a file's name."""

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder."""


class LocalDisk:
    """A folder of a POSIX file system."""

    syncs_at_once = SYNCS_AT_ONCE_MAX

    def __init__(self, root: Path | str, *, descriptors_max: int = DESCRIPTORS_MAX) -> None:
        self.root = Path(root)
        self._descriptors = DescriptorPool(self.root, descriptors_max)

    def create(self, path: str) -> None:
        """`O_EXCL`: two writers cannot both believe that they made it."""
        os.close(os.open(self.root / path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        self._descriptors.forget(path)

    def append(self, path: str, buffers: Sequence[Bytes]) -> None:
        """Gathered writes, repeated until all is taken."""
        views = [view for buffer in buffers if (view := memoryview(buffer).cast("B"))]
        index = 0
        with self._descriptors.borrow_to_write(path) as descriptor:
            while index < len(views):
                written = os.writev(descriptor, views[index : index + _IOV_MAX])
                if written == 0:  # no system does this; one that did would keep us here for ever
                    raise OSError(errno.EIO, "nothing was written", path)
                while index < len(views) and written >= len(views[index]):
                    written -= len(views[index])
                    index += 1
                if written:
                    views[index] = views[index][written:]

    def sync(self, path: str) -> None:
        """`fdatasync` also makes a new size certain, which is all the metadata that reading needs."""
        with self._descriptors.borrow_to_sync(path) as descriptor:
            os.fdatasync(descriptor)

    def truncate(self, path: str, size: int) -> None:
        """Cut on the open descriptor, so that later appends go to the new end (the file is opened for appending)."""
        with self._descriptors.borrow_to_write(path) as descriptor:
            os.ftruncate(descriptor, size)

    def read(self, path: str, position: int, size: int) -> bytes:
        """`pread`, repeated for short reads; a mapped file would crash the process when somebody cuts it."""
        with self._descriptors.borrow(path) as descriptor:
            data = os.pread(descriptor, size, position)
            while 0 < len(data) < size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        return data

    def read_buffer(self, path: str, position: int, size: int) -> memoryview:
        """Into memory of Arrow's pool, which is used again: new memory from the kernel costs more than the read."""
        buffer = memoryview(pa.allocate_buffer(size))
        filled = 0
        with self._descriptors.borrow(path) as descriptor:
            while filled < size:
                count = os.preadv(descriptor, [buffer[filled:]], position + filled)
                if not count:
                    break
                filled += count
        return buffer[:filled].toreadonly()

    def size(self, path: str) -> int:
        """From the name, not from an open descriptor: another process may have put another file there."""
        return (self.root / path).stat().st_size

    def stamp(self, path: str) -> Stamp:
        """By the name as well. `ctime`, which nobody can set back, as who restores a file does with `mtime`."""
        found = os.stat(f"{self.root}/{path}")  # noqa: PTH116 - joining paths as objects costs more than the call
        return Stamp(found.st_ino, found.st_size, found.st_ctime_ns)

    def exists(self, path: str) -> bool:
        """Also false where a folder on the way is missing."""
        return (self.root / path).exists()

    def names(self, folder: str) -> list[str]:
        """Sorted, so that two listings of the same folder are equal."""
        try:
            return sorted(os.listdir(self.root / folder))  # noqa: PTH208 - a path for each name costs more than the call
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        """Like `mkdir -p`; the caller syncs the folders it cares about."""
        (self.root / folder).mkdir(parents=True, exist_ok=True)

    def sync_folder(self, folder: str) -> None:
        """A folder is synced through a descriptor of its own."""
        descriptor = os.open(self.root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Descriptors go by path, so a folder stays where it is: those of its files would keep their old names."""
        if (self.root / old).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), old)
        (self.root / old).rename(self.root / new)
        self._descriptors.move(old, new)

    def link(self, old: str, new: str) -> None:
        """A hard link."""
        os.link(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        """The bytes live on for whoever has the file open."""
        (self.root / path).unlink()
        self._descriptors.forget(path)

    def remove_folder(self, folder: str) -> None:
        """Only when empty."""
        (self.root / folder).rmdir()
        self._descriptors.forget(folder)  # somebody may have tried to read it like a file

    def forget_descriptors(self) -> None:
        """Close what is open and clean: for a reader that wants to see files replaced by others."""
        self._descriptors.close_clean()

    def close(self) -> None:
        """Close all that is open; using the disk again opens it again."""
        self._descriptors.close()


def size_if_there(disk: Disk, path: str) -> int:
    """For sums that are shown: 0 where it cannot be told, since a name that was seen may be gone a moment later."""
    try:
        return disk.size(path)
    except OSError:
        return 0


@contextlib.contextmanager
def folder_of(disk: LocalDisk) -> Iterator[LocalDisk]:
    """Use a disk and close its descriptors afterwards."""
    try:
        yield disk
    finally:
        disk.close()
