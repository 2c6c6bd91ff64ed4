"""Leases: a named reader says up to where it has read a log, so that what comes after is kept for it, for a time.

A lease is a small file in the log's folder, so any process may take one. It keeps the rows *above* its offset as they
are: not folded, not retired. It expires, since a reader that never comes back must not hold the disk.
"""

import re
from dataclasses import dataclass
from typing import Final

from storage import layout, small_file
from storage.disk import Disk
from storage.errors import InvalidLease, InvalidOffset, UnknownFormat, UnknownLog, from_os_error, named_faults
from storage.limits import LEASE_SECONDS_MAX
from storage.offset import LogOffset

FORMAT: Final = 1

_READER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Lease:
    """What a reader still needs of a log."""

    log: int
    reader: str
    offset: LogOffset
    """The last row that the reader has; it needs all above."""
    expires_at: int
    """Microseconds since 1970."""


def take_lease(disk: Disk, lease: Lease, *, now: int) -> None:
    """Take or renew a lease, on disk when this returns."""
    if _READER.fullmatch(lease.reader) is None:
        raise InvalidLease("a reader's name has letters, digits, dot, dash and underscore", found=lease.reader)
    if not now < lease.expires_at <= now + LEASE_SECONDS_MAX * 1_000_000:
        raise InvalidLease(
            f"a lease ends in the future, and after at most {LEASE_SECONDS_MAX:.0f} s", found=lease.expires_at
        )
    path = layout.lease_path(lease.log, lease.reader)
    try:
        if not disk.exists(layout.log_facts(lease.log)):
            raise UnknownLog(f"there is no log {lease.log}")
        facts = {"format": FORMAT, "offset": str(lease.offset), "expires_at": lease.expires_at}
        small_file.write(disk, path, facts)
    except FileNotFoundError:
        raise UnknownLog(f"log {lease.log} was removed") from None
    except OSError as error:
        raise from_os_error(error, path) from None


def end_lease(disk: Disk, log: int, reader: str) -> None:
    """Give a lease back; nothing happens if there is none."""
    path = layout.lease_path(log, reader)
    try:
        disk.remove(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os_error(error, path) from None


def leases(disk: Disk, log: int, *, now: int) -> list[Lease]:
    """The leases of a log that have not expired."""
    folder = layout.log_folder(log)
    with named_faults(folder, log=log):
        found = [_read(disk, log, reader) for reader in map(layout.lease_reader, disk.names(folder)) if reader]
    return [lease for lease in found if lease is not None and lease.expires_at > now]


def held_from(disk: Disk, log: int, *, now: int) -> LogOffset | None:
    """Rows above this offset are held by some lease; None if nobody holds any."""
    return min((lease.offset for lease in leases(disk, log, now=now)), default=None)


def _read(disk: Disk, log: int, reader: str) -> Lease | None:
    """A lease; None if it was given back meanwhile."""
    path = layout.lease_path(log, reader)
    try:
        facts = small_file.read(disk, path)
        if facts["format"] != FORMAT:
            raise UnknownFormat(f"the lease has format {facts['format']}, this program reads {FORMAT}", path=path)
        return Lease(log, reader, LogOffset.parse(facts["offset"]), int(facts["expires_at"]))
    except FileNotFoundError:
        return None
    except (InvalidOffset, KeyError, TypeError, ValueError):
        raise UnknownFormat("the file is no lease", path=path) from None
