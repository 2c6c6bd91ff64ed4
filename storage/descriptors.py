"""A bounded pool of open files, so that ten thousand logs do not need ten thousand descriptors.

Invariants:
    a descriptor that somebody borrowed is never closed (its number could belong to another file the next moment)
    a file with unsynced bytes stays open: an error that the kernel meets writing them back is then told to our sync
    a sync tells all there is to tell, also by raising: the file is clean after it, but for writes it did not wait for
    the idle, clean ones beyond `DESCRIPTORS_MAX` are closed, the longest unused first
    nothing is open any more when nobody has the pool
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from storage.limits import DESCRIPTORS_MAX


class _Open:
    __slots__ = ("borrowers", "descriptor", "forgotten", "synced", "writes")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.borrowers = 0
        self.forgotten = False
        # A write counts when it starts and when it ends, so a sync knows one that it overlapped from one it covered.
        self.writes = 0
        self.synced = 0

    @property
    def is_dirty(self) -> bool:
        return self.writes != self.synced


class DescriptorPool:
    """Open files by path; to borrow is the only way to a descriptor."""

    def __init__(self, root: Path, descriptors_max: int = DESCRIPTORS_MAX) -> None:
        self._root = root
        self._descriptors_max = descriptors_max
        self._open: OrderedDict[tuple[str, bool], _Open] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def __del__(self) -> None:
        """Who let go of the pool can borrow nothing more: readers of a lake come and go in a user's process."""
        self.close()

    @contextlib.contextmanager
    def borrow(self, path: str) -> Iterator[int]:
        """A descriptor for reading that stays open while the block runs."""
        with self._lent(path, writable=False) as entry:
            yield entry.descriptor

    @contextlib.contextmanager
    def borrow_to_write(self, path: str) -> Iterator[int]:
        """A descriptor for appending; from now on the file has unsynced bytes, whatever becomes of the write."""
        with self._lent(path, writable=True, writes=1) as entry:
            yield entry.descriptor

    @contextlib.contextmanager
    def borrow_to_sync(self, path: str) -> Iterator[int]:
        """A descriptor for a sync: what was written before is clean afterwards."""
        with self._lent(path, writable=True) as entry:
            covered = entry.writes
            try:
                yield entry.descriptor
            finally:
                entry.synced = covered

    def forget(self, path: str) -> None:
        """The name no longer means this file."""
        with self._lock:
            self._forget((path, False))
            self._forget((path, True))

    def move(self, old: str, new: str) -> None:
        """The file has another name now, and its unsynced bytes with it."""
        with self._lock:
            for writable in (False, True):
                self._forget((new, writable))
                entry = self._open.pop((old, writable), None)
                if entry is not None:
                    self._open[new, writable] = entry

    def close(self) -> None:
        """Close everything; what is borrowed, when it comes back."""
        with self._lock:
            for key in list(self._open):
                self._forget(key)

    def close_clean(self) -> None:
        """Close all files without unsynced bytes, so that who asks next opens what has the name then."""
        with self._lock:
            for key in [key for key, entry in self._open.items() if not entry.is_dirty]:
                self._forget(key)

    @contextlib.contextmanager
    def _lent(self, path: str, *, writable: bool, writes: int = 0) -> Iterator[_Open]:
        key = (path, writable)
        with self._lock:
            entry = self._open.get(key)
            if entry is not None and not writable and not os.fstat(entry.descriptor).st_nlink:
                self._forget(key)  # another process removed the file; the name may stand for another one now
                entry = None
            if entry is None:
                flags = (os.O_RDWR | os.O_APPEND) if writable else os.O_RDONLY
                entry = self._open[key] = _Open(os.open(self._root / path, flags | os.O_CLOEXEC))
            self._open.move_to_end(key)
            entry.borrowers += 1
            entry.writes += writes
        try:
            yield entry
        finally:
            with self._lock:
                entry.borrowers -= 1
                entry.writes += writes
                if entry.forgotten:
                    _close_if_idle(entry)
                self._shrink()

    def _shrink(self) -> None:
        surplus = len(self._open) - self._descriptors_max
        if surplus > 0:
            idle = (key for key, entry in self._open.items() if not entry.borrowers and not entry.is_dirty)
            for key in list(islice(idle, surplus)):  # nearly always the first: no need to look at all
                self._forget(key)

    def _forget(self, key: tuple[str, bool]) -> None:
        entry = self._open.pop(key, None)
        if entry is not None:
            entry.forgotten = True
            _close_if_idle(entry)


def _close_if_idle(entry: _Open) -> None:
    if not entry.borrowers:
        # An error here is of a file that is clean or that nobody wants any more; the number is free in any case.
        with contextlib.suppress(OSError):
            os.close(entry.descriptor)
