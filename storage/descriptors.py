"""A bounded pool of open files, so that ten thousand logs do not need ten thousand descriptors.

Invariants:
    a descriptor that somebody borrowed is never closed (its number could belong to another file the next moment)
    a file with unsynced bytes stays open: an error that the kernel meets writing them back is then told to our sync
    the idle, clean ones beyond `DESCRIPTORS_MAX` are closed, the longest unused first
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from storage.limits import DESCRIPTORS_MAX


class _Open:
    __slots__ = ("borrowers", "descriptor", "dirty", "forgotten", "path", "writable")

    def __init__(self, path: str, descriptor: int, *, writable: bool) -> None:
        self.path = path
        self.descriptor = descriptor
        self.writable = writable
        self.borrowers = 0
        self.dirty = False
        self.forgotten = False


class DescriptorPool:
    """Open files by path; `borrow` is the only way to a descriptor."""

    def __init__(self, root: Path, descriptors_max: int = DESCRIPTORS_MAX) -> None:
        self._root = root
        self._descriptors_max = descriptors_max
        self._open: OrderedDict[tuple[str, bool], _Open] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def borrow(self, path: str, *, dirty: bool = False) -> Iterator[int]:
        """A descriptor for reading, or (`dirty`) for writing, that stays open while the block runs."""
        with self._lock:
            entry = self._entry(path, writable=dirty)
            entry.borrowers += 1
            entry.dirty = entry.dirty or dirty
        try:
            yield entry.descriptor
        finally:
            with self._lock:
                entry.borrowers -= 1
                if entry.forgotten:
                    self._close(entry)
                else:
                    self._shrink()

    def clean(self, path: str) -> None:
        """The file's bytes are synced; its descriptor may be closed when room is needed."""
        with self._lock:
            entry = self._open.get((path, True))
            if entry is not None:
                entry.dirty = False

    def forget(self, path: str) -> None:
        """The name no longer means this file."""
        with self._lock:
            for writable in (False, True):
                entry = self._open.pop((path, writable), None)
                if entry is not None:
                    entry.forgotten = True
                    self._close(entry)

    def close(self) -> None:
        """Close everything that nobody has borrowed."""
        with self._lock:
            for entry in self._open.values():
                entry.forgotten = True
                self._close(entry)
            self._open.clear()

    def _entry(self, path: str, *, writable: bool) -> _Open:
        key = (path, writable)
        entry = self._open.get(key)
        if entry is None:
            flags = (os.O_RDWR | os.O_APPEND) if writable else os.O_RDONLY
            entry = _Open(path, os.open(self._root / path, flags | os.O_CLOEXEC), writable=writable)
            self._open[key] = entry
        self._open.move_to_end(key)
        return entry

    def _shrink(self) -> None:
        if len(self._open) <= self._descriptors_max:
            return
        idle = [key for key, entry in self._open.items() if not entry.borrowers and not entry.dirty]
        for key in idle[: len(self._open) - self._descriptors_max]:
            entry = self._open.pop(key)
            entry.forgotten = True
            self._close(entry)

    def _close(self, entry: _Open) -> None:
        if not entry.borrowers and entry.descriptor >= 0:
            os.close(entry.descriptor)
            entry.descriptor = -1
