"""A reader of the demo: follows all tables in its own process, and holds each row against what the shop sent."""

import time
from pathlib import Path
from typing import Final

from cdc.demo.check import TableCheck
from cdc.demo.messages import Read, ReadAll, tell
from cdc.demo.orders import Orders
from cdc.demo.shop import TABLES
from storage.catalog import CatalogReader
from storage.catalog_records import Life
from storage.disk import LocalDisk
from storage.errors import AboveUpper
from storage.folder_reader import FolderReader
from storage.offset import SNAPSHOT_END, LogOffset

LOOK_SECONDS: Final = 0.05
"""Between two looks at the folder: files tell nobody that they grew."""

TELL_LOOKS: Final = 4
"""Looks for each report."""


class Follower:
    """How far one reader has followed one table."""

    def __init__(self, reader: FolderReader, table: str, log: int, max_bytes: int | None) -> None:
        self.check = TableCheck(table)
        self._reader = reader
        self._log = log
        self._max_bytes = max_bytes
        self._after: LogOffset = SNAPSHOT_END

    def catch_up(self) -> None:
        """Read to the end of what is visible. Raises `Mismatch` for anything but the shop's next rows."""
        is_at_end = False
        while not is_at_end:
            try:
                result = self._reader.read(self._log, self._after, self._max_bytes)
            except AboveUpper:
                return  # the writer is recovering: what was seen comes again
            for batch in result.rows:
                self.check.feed(batch)
            self._after = result.next
            is_at_end = result.at_end
        self.check.must_be_whole()


def read(folder: Path, max_bytes: int | None = None) -> None:
    """Follow a folder until the last transaction is known and read."""
    orders = Orders()
    disk = LocalDisk(folder)
    reader = FolderReader(disk)
    followers = {table: Follower(reader, table, log, max_bytes) for table, log in logs_when_ready(disk).items()}
    looks = 0
    while True:
        # Recovery may remove a file and make another of its name: an open descriptor would show the old one for ever.
        disk.forget_descriptors()
        last = orders.last
        for follower in followers.values():
            follower.catch_up()
        rows = {table: follower.check.rows for table, follower in followers.items()}
        if last is not None and all(follower.check.has_all_upto(last) for follower in followers.values()):
            tell(ReadAll(rows))
            return
        if looks % TELL_LOOKS == 0:
            tell(Read(rows))
        looks += 1
        time.sleep(LOOK_SECONDS)


def logs_when_ready(disk: LocalDisk) -> dict[str, int]:
    """Wait until the writer has made all logs."""
    catalog = CatalogReader(disk)
    while True:
        catalog.refresh()
        ready = {shape.name: shape.log for shape in catalog.state.living() if shape.life is Life.READY}
        if ready.keys() >= TABLES.keys():
            return {table: ready[table] for table in TABLES}
        time.sleep(LOOK_SECONDS)
