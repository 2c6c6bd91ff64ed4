"""A file whose end is unknown, since a write or sync of it failed, or may have failed, and what puts it right.

Invariants:
    after `run` the file has its first `size` bytes and no others, and a power cut leaves it so
    a file of which a sync failed is replaced, never trusted: the kernel may have dropped what it could not write, and
        reports a failure once, so that a later sync of it says nothing
    running it again does no harm, whatever became of the run before
"""

import contextlib
import errno
from dataclasses import dataclass

from storage.disk import Disk
from storage.layout import TEMPORARY_SUFFIX
from storage.limits import REPAIR_COPY_BYTES


@dataclass(slots=True)
class Repair:
    """Take a file back to its synced length. Due before anything else is written for the same log."""

    path: str
    size: int
    must_copy: bool = False
    """A sync of the file failed, or may have: its beginning goes to another one, which takes its name."""
    aside: str | None = None
    """Where a file goes of which nothing stays and something could not be read: somebody may want to look at it."""

    def run(self, disk: Disk) -> None:
        """Copy what stays; a file with nothing synced is removed."""
        if not self.size:
            if not disk.exists(self.path):
                pass  # it was gone already
            elif self.aside is None:
                disk.remove(self.path)
            else:
                disk.rename(self.path, self.aside)
            self._sync_name(disk)
            return
        try:
            self._copy(disk)
        except OSError as error:
            if self.must_copy or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._cut(disk)

    def _cut(self, disk: Disk) -> None:
        """For want of room. If the sync fails, and the process then dies, nobody can tell: so only then."""
        disk.truncate(self.path, self.size)
        self.must_copy = True
        disk.sync(self.path)
        self.must_copy = False
        self._sync_name(disk)  # the file may be the copy, if all that failed was to say so

    def _copy(self, disk: Disk) -> None:
        temporary = self.path + TEMPORARY_SUFFIX
        if disk.exists(temporary):
            disk.remove(temporary)
        try:
            disk.create(temporary)
            for position in range(0, self.size, REPAIR_COPY_BYTES):
                piece = disk.read(self.path, position, min(REPAIR_COPY_BYTES, self.size - position))
                disk.append(temporary, [piece])
            disk.sync(temporary)
        except OSError:
            with contextlib.suppress(OSError):
                disk.remove(temporary)  # on a full disk, its room is wanted
            raise
        disk.rename(temporary, self.path)
        self._sync_name(disk)

    def _sync_name(self, disk: Disk) -> None:
        disk.sync_folder(self.path.rpartition("/")[0])


def run_repairs(disk: Disk, repairs: list[Repair]) -> None:
    """Mend what failed writes left; what was mended is off the list, whatever happens next."""
    while repairs:
        repairs[0].run(disk)
        repairs.pop(0)


def repair_now(disk: Disk, repairs: list[Repair], repair: Repair) -> None:
    """Run a repair; if it fails, it stays on the list of those that are due."""
    repairs.append(repair)
    run_repairs(disk, repairs)
