"""What a lake holds of the data folder's logs: leases on the rows that it does not have yet.

A lease outlives the process that took it, so the lake may be away for a while. A writer takes the place of those of
this lake that were here before: there is one lease on a log.
"""

import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from storage.disk import LocalDisk
from storage.errors import StorageError, UnknownLog
from storage.lake.limits import LEASE_SECONDS
from storage.leases import Lease, end_lease, leases, take_lease
from storage.offset import LogOffset

logger: Final = logging.getLogger(__name__)

_LEASE_MICROSECONDS: Final = int(LEASE_SECONDS * 1_000_000)


class LakeLeases:
    """One writer's leases."""

    def __init__(self, data: LocalDisk, lake: Path, unique: str, now: Callable[[], int]) -> None:
        self._data = data
        self._now = now
        self._prefix = f"lake-{zlib.crc32(str(lake).encode()):08x}-"
        self._mine = f"{self._prefix}{unique}"
        self._taken: dict[int, int] = {}
        """When the lease on a log was taken last."""

    def has(self, log: int) -> bool:
        """Whether this writer has taken one."""
        return log in self._taken

    def is_due(self, log: int) -> bool:
        """Whether it is time to take it again, although nothing has moved."""
        return self._now() - self._taken.get(log, 0) > _LEASE_MICROSECONDS / 4

    def take(self, log: int, offset: LogOffset) -> None:
        """Keep the rows above an offset. Best effort: a folder that cannot be written can be read."""
        now = self._now()
        try:
            take_lease(self._data, Lease(log, self._mine, offset, now + _LEASE_MICROSECONDS), now=now)
            for other in leases(self._data, log, now=now) if log not in self._taken else ():
                if other.reader.startswith(self._prefix) and other.reader != self._mine:
                    end_lease(self._data, log, other.reader)  # of this lake, by a writer that was here before
            self._taken[log] = now
        except UnknownLog:
            return
        except StorageError as error:
            logger.warning("no lease on log %d, so its rows may be retired before they are read: %s", log, error)
