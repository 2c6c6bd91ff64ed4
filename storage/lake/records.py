"""Small records of the lake that come into being whole, once, by whoever is first.

Written under a name of one's own, synced, linked to the name that all know (which fails if it is taken), the folder
synced. Who comes second syncs the folder too before relying on the record: the first may have died before that.
"""

import contextlib
from typing import Any

from storage import small_file
from storage.disk import Disk
from storage.errors import named_faults
from storage.lake.lake_layout import record_number
from storage.layout import TEMPORARY_SUFFIX


def create_once(disk: Disk, path: str, facts: dict[str, Any], unique: str) -> bool:
    """Make the record durable; False if there is one already. `unique` names this writer's attempt."""
    folder = path.rpartition("/")[0]
    temporary = f"{path}.{unique}{TEMPORARY_SUFFIX}"
    with named_faults(path):
        if folder:
            disk.make_folder(folder)
        with contextlib.suppress(FileNotFoundError):
            disk.remove(temporary)
        disk.create(temporary)
        disk.append(temporary, [small_file.encode(facts)])
        disk.sync(temporary)
        try:
            disk.link(temporary, path)
            is_first = True
        except FileExistsError:
            is_first = False
        disk.remove(temporary)
        disk.sync_folder(folder)
    return is_first


def read_record(disk: Disk, path: str) -> dict[str, Any] | None:
    """A record's facts; None if there is none."""
    try:
        return small_file.read(disk, path)
    except FileNotFoundError:
        return None


def record_numbers(disk: Disk, folder: str) -> list[int]:
    """The numbers of a folder's records, ascending."""
    return sorted(number for number in map(record_number, disk.names(folder)) if number is not None)
