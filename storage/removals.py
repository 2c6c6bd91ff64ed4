"""Logs that were removed, whose files go when nobody uses them but readers. Under the store's lock."""

import logging
from collections.abc import Callable

from storage import layout, log_facts
from storage.errors import LogFault, StorageError, named_faults
from storage.open_logs import OpenLogs
from storage.room import Room
from storage.write_buffer import WriteBuffer

logger = logging.getLogger(__name__)


class Removals:
    """Which logs are on their way out."""

    def __init__(self, logs: OpenLogs, buffer: WriteBuffer, room: Room, is_idle: Callable[[int], bool]) -> None:
        self._logs = logs
        self._buffer = buffer
        self._room = room
        self._is_idle = is_idle
        self._removing: dict[int, str] = {}
        """And how events call them."""

    def __contains__(self, log: int) -> bool:
        return log in self._removing

    def begin(self, log: int) -> None:
        """From now on nobody is to use the log; may be repeated."""
        opened = self._logs.peek(log)
        handle = "not open" if opened is None else opened.facts.handle
        self._removing.setdefault(log, f"log {log} ({handle})")

    def finish(self, log: int) -> None:
        """Let go of what a log holds, and remove its files."""
        opened = self._logs.forget(log)
        if opened is not None:
            self._buffer.forget(opened.state)
            self._buffer.release(opened.state.pending)
            self._room.was_made()
        with named_faults(layout.log_folder(log)):
            log_facts.remove_log(self._logs.disk, log)
        self._removing.pop(log, None)

    def finish_idle(self) -> None:
        """Remove what was in use when its log was removed. Raises nothing: whoever ends that use has news to tell."""
        for log in sorted(filter(self._is_idle, self._removing)):
            name = self._removing[log]
            try:
                self.finish(log)
            except LogFault as fault:
                del self._removing[log]  # with each flush it would fail again
                logger.warning("files of %s, which was removed, are still there: %s", name, fault)
            except StorageError:
                logger.exception("the files of %s, which was removed, are still there; they go next time", name)
