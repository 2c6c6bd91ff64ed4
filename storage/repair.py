"""A file whose end is unknown, since a write or sync of it failed, and what puts it right."""

from dataclasses import dataclass

from storage.disk import Disk


@dataclass(frozen=True, slots=True)
class Repair:
    """Take a file back to its synced length. Due before anything else is written for the same log."""

    path: str
    size: int

    def run(self, disk: Disk) -> None:
        """Cut and sync; a file with nothing synced is removed. Running it twice does no harm."""
        if self.size:
            disk.truncate(self.path, self.size)
            disk.sync(self.path)
            return
        if disk.exists(self.path):
            disk.remove(self.path)
        disk.sync_folder(self.path.rpartition("/")[0])
