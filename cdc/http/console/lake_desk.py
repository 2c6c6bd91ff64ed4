"""What the console shows of a lake: its newest versions, and the tables of the newest one.

Read from the lake's records and folders only: the server needs neither Spark nor Delta for it. A version never changes,
so its tables are looked at once.
"""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cdc.limits import LAKE_VERSIONS_SHOWN_MAX
from cdc.source.lsn import format_lsn
from storage.disk import LocalDisk, folder_of
from storage.lake.lake_layout import SIDES, VERSIONS, view_folder
from storage.lake.records import record_numbers
from storage.lake.versions import TableVersion, Version, read_version


class LakeDesk:
    """Knows one lake, or that there is none to know."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._turn = asyncio.Lock()
        self._tables: tuple[int, list[dict[str, Any]]] = (-1, [])

    async def facts(self) -> dict[str, Any]:
        """As the page wants them. Files are looked at in a thread, by one at a time."""
        async with self._turn:
            return await asyncio.to_thread(self._facts)

    def _facts(self) -> dict[str, Any]:
        if self._root is None or not self._root.is_dir():
            return {"folder": None if self._root is None else str(self._root), "versions": [], "tables": []}
        with folder_of(LocalDisk(self._root)) as disk:
            numbers = record_numbers(disk, VERSIONS)[-LAKE_VERSIONS_SHOWN_MAX:]
            # One that is retired between the look at the folder and the look at the record is just not there.
            versions = [found for number in reversed(numbers) if (found := read_version(disk, number)) is not None]
        if versions and self._tables[0] != versions[0].number:
            self._tables = (versions[0].number, [_table(self._root, table) for table in versions[0].tables])
        return {
            "folder": str(self._root),
            "versions": [_version(one) for one in versions],
            "tables": self._tables[1] if versions else [],
        }


def _version(version: Version) -> dict[str, Any]:
    return {
        "number": version.number,
        "lsn": format_lsn(version.lsn),
        "committed_at": version.commit_time / 1_000_000 or None,  # none was seen since the slot was made
        "tables": len(version.tables),
    }


def _table(root: Path, table: TableVersion) -> dict[str, Any]:
    sides = {name: _side(root, table, name) for name in SIDES}
    facts = {"name": table.name, "generation": table.generation, "upto": str(table.upto)}
    return facts | {"quarantined": table.quarantined} | sides


def _side(root: Path, table: TableVersion, name: str) -> dict[str, Any] | None:
    """Its files; None if there is none, or if the version was retired meanwhile."""
    side = table.side(name)
    if side is None:
        return None
    try:
        paths = list((root / view_folder(table.name, name, side.cut)).glob("*.parquet"))
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
        return {"files": len(paths), "bytes": sum(path.stat().st_size for path in paths), "rows": rows}
    except FileNotFoundError:
        return None
