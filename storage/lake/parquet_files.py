"""Parquet files of the lake: written once under a name of their own, synced, never changed.

A file of a state says in its footer which key is its least, so a lake needs no list of ranges beside its tables.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.lake.state import Key

_FACTS: Final = b"shapelog"
_COMPRESSION: Final = "zstd"
_ROW_GROUP_ROWS: Final = 65_536
"""So that a reader of a key range skips most of a file."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is on the disk, and not yet part of any table."""

    name: str
    """In its table's folder."""
    rows: int
    bytes: int
    low: Key | None = None
    """Of a state: its least key."""
    high: Key | None = None


class FileWriter:
    """One file on its way; `finish` returns once it is on the disk."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, facts: dict[str, Any] | None = None) -> None:
        self._path = folder / name
        metadata = None if facts is None else {_FACTS: orjson.dumps(facts)}
        self._writer = pq.ParquetWriter(self._path, schema.with_metadata(metadata), compression=_COMPRESSION)
        self.rows = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        self._writer.write_table(rows.replace_schema_metadata(None), row_group_size=_ROW_GROUP_ROWS)
        self.rows += len(rows)

    def finish(self, low: Key | None = None, high: Key | None = None) -> NewFile:
        """Make it durable; the caller syncs the folder."""
        self._writer.close()
        sync_file(self._path)
        return NewFile(self._path.name, self.rows, self._path.stat().st_size, low, high)


def write_file(
    folder: Path,
    name: str,
    rows: Iterable[pa.Table],
    schema: pa.Schema,
    low: Key | None = None,
    high: Key | None = None,
) -> NewFile:
    """A whole file, with its least key in the footer if it has one."""
    writer = FileWriter(folder, name, schema, None if low is None else {"low": low, "high": high})
    for table in rows:
        writer.write(table)
    return writer.finish(low, high)


def facts_of(path: Path) -> tuple[int, Key]:
    """How many rows a file of a state has, and its least key."""
    footer = pq.read_metadata(path)
    return footer.num_rows, orjson.loads(footer.metadata[_FACTS])["low"]


def read_rows(path: Path) -> pa.Table:
    """All rows of a file."""
    return pq.read_table(path, partitioning=None)


def sync_file(path: Path) -> None:
    """Return once a file (or the names of a folder) is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
