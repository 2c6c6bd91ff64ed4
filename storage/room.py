"""Producers that wait for room in the write buffer, and those who make some. Under the store's lock.

Invariants:
    who waits has asked for a flush of whatever is held: with the age of rows alone, room might come much later
    nobody waits for a writer that stops
"""

import threading

from storage.errors import WriterStops
from storage.shape_log import ShapeLog
from storage.write_buffer import WriteBuffer


class Room:
    """What producers wait for."""

    def __init__(self, lock: threading.RLock, buffer: WriteBuffer, flush_wanted: threading.Event) -> None:
        self.wanted = threading.Event()
        """Set when somebody waits for room, which only a flush makes."""
        self._buffer = buffer
        self._flush_wanted = flush_wanted
        self._made = threading.Condition(lock)
        self._is_closed = False

    def wait(self, size: int, log: ShapeLog | None, timeout_seconds: float) -> bool:
        """Wait until so many bytes would be taken (by this log); False when the time is up. Raises `WriterStops`."""
        if not self._buffer.has_room(size, log):
            self._buffer.make_room()
            self.wanted.set()
            self._flush_wanted.set()
        self._made.wait_for(lambda: self._is_closed or self._buffer.has_room(size, log), timeout_seconds)
        has_room = self._buffer.has_room(size, log)
        if self._is_closed and not has_room:
            number = None if log is None else log.number
            raise WriterStops(f"the writer stops, and {size} bytes have no room", size=size, log=number)
        return has_room

    def was_made(self) -> None:
        """Rows went to the disk, or were dropped."""
        self._made.notify_all()

    def close(self) -> None:
        """None will be made any more."""
        self._is_closed = True
        self._made.notify_all()
