"""The logs of a data folder, as `shapelog logs` lists them."""

from dataclasses import dataclass

from storage import layout
from storage.disk import Disk, size_if_there
from storage.errors import StorageError, UnknownLog
from storage.folder_reader import FolderReader
from storage.segments import list_segments


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log."""

    log: int
    handle: str | None
    upper: str | None
    """The end of the last whole transaction on disk."""
    segments: int
    bytes: int
    """Of its segments and bases; its shares in the journal are not counted, since they lie among those of others."""
    bases: int
    """The complete ones."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A data folder."""

    logs: list[LogLine]
    journal_bytes: int
    faults: dict[int, StorageError]
    """What cannot be told of a log, and why."""


def listing_of(disk: Disk) -> Listing:
    """Look at all logs; one that is damaged does not hide the others."""
    reader = FolderReader(disk)
    faults: dict[int, StorageError] = {}
    lines = []
    for log in reader.logs():
        handle = upper = None
        bases = 0
        try:
            handle = reader.facts(log).handle
            upper = str(reader.upper(log))
            bases = sum(base.is_complete for base in reader.bases(log))
        except UnknownLog:
            continue  # it was removed meanwhile
        except StorageError as error:
            faults[log] = error
        living, _ = list_segments(disk, log)
        names = [name for name in disk.names(layout.log_folder(log)) if layout.base_number(name) is not None]
        paths = [segment.path for segment in living] + [f"{layout.log_folder(log)}/{name}" for name in names]
        lines.append(LogLine(log, handle, upper, len(living), _bytes(disk, paths), bases))
    journal = [f"{layout.JOURNAL}/{name}" for name in disk.names(layout.JOURNAL)]
    return Listing(lines, _bytes(disk, journal), faults)


def _bytes(disk: Disk, paths: list[str]) -> int:
    """Of the files that are still there."""
    return sum(size_if_there(disk, path) for path in paths)
