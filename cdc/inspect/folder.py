"""Opening a data folder to look at it, and saying clearly when there is none."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cdc.mistake import Mistake
from storage import layout
from storage.disk import LocalDisk
from storage.errors import StorageError
from storage.folder_reader import FolderReader


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[LocalDisk]:
    """The disk of a data folder. Nothing in it is changed."""
    if not folder.exists():
        raise Mistake(f"there is no folder {folder}")
    if not folder.is_dir():
        raise Mistake(f"{folder} is a file, and a data folder is wanted")
    if not (folder / layout.LOGS).is_dir():
        raise Mistake(f"{folder} is not a data folder: it has no folder {layout.LOGS!r}")
    disk = LocalDisk(folder)
    try:
        yield disk
    finally:
        disk.close()


def log_named(reader: FolderReader, name: str) -> int:
    """The log with this number or handle. Raises `Mistake` if there is none."""
    logs = reader.logs()
    if name.isdecimal() and int(name) in logs:
        return int(name)
    for log in logs:
        with contextlib.suppress(StorageError):
            if reader.facts(log).handle == name:
                return log
    numbers = ", ".join(map(str, logs[:20])) + (", .." if len(logs) > 20 else "")
    raise Mistake(f"there is no log {name}; there are {numbers}" if logs else "the folder has no logs yet")
