"""A disk in memory that knows what a power cut may leave of it. For tests, and for simulations of users' own.

A crash is two questions. *When*: `crash_at_sync` or `crash_at_operation` stops the disk before or after the n-th one;
every later call raises `Crashed`. *What is left*: `crash_image` makes a new disk out of what could be found after it,
and a function decides wherever more than one thing could. It gets a number of possibilities and returns one of them,
0 for the oldest (what the last sync made certain), the last for the newest (what the program saw):

    image = disk.crash_image(strictest)                          # only what was synced
    image = disk.crash_image(luckiest)                           # everything that was written
    image = disk.crash_image(in_runs(Random(seed).randrange))    # anything between

What can be found is told in `storage.inodes`.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

from storage.disk import Bytes, Stamp
from storage.inodes import Choose, File, Folder, Need, after_crash


def strictest(count: int) -> int:  # noqa: ARG001 - the signature is that of every choice
    """Nothing is there that was not synced."""
    return 0


def luckiest(count: int) -> int:
    """Everything reached the disk just before the power went."""
    return count - 1


def in_runs(choose: Choose) -> Choose:
    """Let a choice (`Random.randrange`) hold for a while: the oldest, the newest, or a new one each time.

    A coin for each sector would never leave a large write whole but for a few sectors, and such are worth meeting.
    So most runs are short, for the few choices of a small history, and some as long as a large write.
    """
    mood = left = 0

    def choose_again(count: int) -> int:
        nonlocal mood, left
        if left == 0:
            mood, left = choose(4), 10 ** choose(3)
        left -= 1
        new = choose(count)
        return (0, count - 1, new, new)[mood]

    return choose_again


class Crashed(BaseException):
    """The power is gone. Not an `Exception`, so that no handler for errors goes on as if it were one."""


class MemoryDisk:
    """A `Disk` in memory. The crash points are fields: they may be set at any time; counts start at 1."""

    syncs_at_once = 1

    def __init__(
        self, *, crash_at_sync: int | None = None, crash_at_operation: int | None = None, crash_after: bool = False
    ) -> None:
        self.crash_at_sync = crash_at_sync
        self.crash_at_operation = crash_at_operation
        self.crash_after = crash_after
        """Whether the operation of the crash took effect, without its caller ever learning of it."""
        self.syncs = 0
        """Calls of `sync` and `sync_folder`."""
        self.operations = 0
        """Calls that may change what a crash leaves, syncs included. Reading changes nothing and is not counted."""
        self.crashed = False
        self._root = Folder()
        self._lock = threading.Lock()

    def cut_power(self) -> None:
        """Stop the disk now; who calls it later meets `Crashed`."""
        with self._lock:
            self.crashed = True

    def crash_image(self, choose: Choose) -> "MemoryDisk":
        """A disk as the next start could find it, whole and with nothing unsynced; this one is left as it is."""
        with self._lock:
            image = MemoryDisk()
            image._root = after_crash(self._root, choose)
            return image

    def contents(self) -> dict[str, bytes]:
        """Every file with its bytes as the program sees them: for comparisons and messages. Works after the crash."""
        with self._lock:
            return dict(_contents(self._root, ""))

    def create(self, path: str) -> None:
        """The name is certain after `sync_folder`, the file's bytes after `sync`: neither replaces the other."""
        with self._operation():
            folder, name = self._place(path)
            if name in folder.names:
                _fail(errno.EEXIST, path)
            folder.change(name, File())

    def append(self, path: str, buffers: Sequence[Bytes]) -> None:
        """The bytes are copied: who changes a buffer afterwards changes nothing here."""
        with self._operation():
            file = self._file(path)
            file.change(len(file.content), b"".join(buffers))

    def sync(self, path: str) -> None:
        """Bytes and size of the file are certain now, under whatever name it can be found."""
        with self._operation(is_sync=True):
            self._file(path).sync()

    def truncate(self, path: str, size: int) -> None:
        """Beyond the end it adds zeros, as the system call does."""
        with self._operation():
            file = self._file(path)
            if size < 0:
                _fail(errno.EINVAL, path)
            length = len(file.content)
            file.change(min(size, length), bytes(max(0, size - length)))

    def read(self, path: str, position: int, size: int) -> bytes:
        """What was appended, synced or not."""
        with self._reading():
            content = self._file(path).content
            if position < 0:
                _fail(errno.EINVAL, path)
            return bytes(memoryview(content)[position : position + size])

    def read_buffer(self, path: str, position: int, size: int) -> memoryview:
        """A read like any other."""
        return memoryview(self.read(path, position, size))

    def size(self, path: str) -> int:
        """With what is not synced."""
        with self._reading():
            return len(self._file(path).content)

    def stamp(self, path: str) -> Stamp:
        """Another with each change."""
        with self._reading():
            file = self._file(path)
            return Stamp(file.number, len(file.content), file.changes)

    def exists(self, path: str) -> bool:
        """Of a file or a folder."""
        with self._reading():
            try:
                self._node(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def names(self, folder: str) -> list[str]:
        """Synced or not."""
        with self._reading():
            try:
                return sorted(self._folder(folder).names)
            except FileNotFoundError:
                return []

    def make_folder(self, folder: str) -> None:
        """Each new folder's name is certain after a `sync_folder` of the one above it."""
        with self._operation():
            above = self._root
            names = _split(folder)
            for depth, name in enumerate(names, 1):
                below = above.names.get(name)
                if below is None:
                    below = Folder()
                    above.change(name, below)
                if not isinstance(below, Folder):
                    _fail(errno.EEXIST if depth == len(names) else errno.ENOTDIR, folder)
                above = below

    def sync_folder(self, folder: str) -> None:
        """The names in the folder are certain now, but neither the files' bytes nor the folder's own name."""
        with self._operation(is_sync=True):
            self._folder(folder).sync()

    def rename(self, old: str, new: str) -> None:
        """Files only. Until the folders are synced, a crash leaves the old name, the new one or both."""
        with self._operation():
            file = self._file(old)
            old_folder, old_name = self._place(old)
            folder, name = self._place(new)
            replaced = folder.names.get(name)
            if isinstance(replaced, Folder):
                _fail(errno.EISDIR, new)
            if replaced is file:  # POSIX: two names of one file are left as they are
                return
            folder.change(name, file)
            old_folder.change(old_name, None, self._needs_of(new))

    def link(self, old: str, new: str) -> None:
        """Both names stand for the same bytes from then on."""
        with self._operation():
            node = self._node(old)
            folder, name = self._place(new)
            if name in folder.names:
                _fail(errno.EEXIST, new)
            if isinstance(node, Folder):
                _fail(errno.EPERM, old)
            folder.change(name, node)

    def remove(self, path: str) -> None:
        """The name may be back after a crash, until its folder is synced."""
        with self._operation():
            self._file(path)
            folder, name = self._place(path)
            folder.change(name, None)

    def remove_folder(self, folder: str) -> None:
        """Refuses a folder with names in it."""
        with self._operation():
            if self._folder(folder).names:
                _fail(errno.ENOTEMPTY, folder)
            above, name = self._place(folder)
            above.change(name, None)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            if self.crashed:
                raise Crashed
            yield

    @contextlib.contextmanager
    def _operation(self, *, is_sync: bool = False) -> Iterator[None]:
        with self._reading():
            self.operations += 1
            self.syncs += is_sync
            is_last = self.operations == self.crash_at_operation or (is_sync and self.syncs == self.crash_at_sync)
            if is_last and not self.crash_after:
                self._crash()
            try:
                yield
            finally:
                if is_last:
                    self._crash()

    def _crash(self) -> NoReturn:
        self.crashed = True
        raise Crashed(f"at operation {self.operations}, of which {self.syncs} were syncs")

    def _node(self, path: str) -> File | Folder:
        node: File | Folder = self._root
        for name in _split(path):
            if not isinstance(node, Folder):
                _fail(errno.ENOTDIR, path)
            if name not in node.names:
                _fail(errno.ENOENT, path)
            node = node.names[name]
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        return node if isinstance(node, File) else _fail(errno.EISDIR, path)

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        return node if isinstance(node, Folder) else _fail(errno.ENOTDIR, path)

    def _place(self, path: str) -> tuple[Folder, str]:
        """The folder that a name is or would be in, and the name's last part."""
        *above, name = _split(path) or _fail(errno.EBUSY, path)
        return self._folder("/".join(above)), name

    def _needs_of(self, path: str) -> list[Need]:
        """What of the path, each of its folders included, could be missing after a crash."""
        needs = []
        folder = self._root
        for name in _split(path):
            if name in folder.unsynced:
                needs.append(Need(folder, name, folder.unsynced[name][-1]))
            below = folder.names[name]
            if isinstance(below, Folder):
                folder = below
        return needs


def _contents(folder: Folder, prefix: str) -> Iterator[tuple[str, bytes]]:
    for name, node in sorted(folder.names.items()):
        if isinstance(node, Folder):
            yield from _contents(node, f"{prefix}{name}/")
        else:
            yield prefix + name, bytes(node.content)


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _fail(number: int, path: str) -> NoReturn:
    raise OSError(number, os.strerror(number), path)
