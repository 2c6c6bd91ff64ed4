"""Parquet files of the lake: written once under a name of their own, synced, never changed.

A file of a state says in its footer which key is the least of each row group, so a lake needs no list of ranges beside
its tables. Row groups can be written apart from their file, and carried from file to file as they are.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.lake.keys import Key
from storage.lake.limits import CHANGES_GROUP_BYTES
from storage.lake.parquet_footer import MAGIC, Footer, RowGroup

FACTS: Final = b"shapelog"
"""Under this name a footer has what the lake says of a file."""

_COMPRESSION: Final = "zstd"
_ROW_GROUP_ROWS: Final = 65_536
"""Of a file of changes: so that a reader of a range of offsets skips most of a file."""


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

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._path = folder / name
        self._writer = pq.ParquetWriter(self._path, schema.with_metadata(None), compression=_COMPRESSION)
        self._waiting: list[pa.Table] = []
        self.rows = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows. Row groups do not show in which portions they came."""
        self._waiting.append(rows.replace_schema_metadata(None))
        self.rows += len(rows)
        count, size = sum(map(len, self._waiting)), sum(one.nbytes for one in self._waiting)
        if count >= _ROW_GROUP_ROWS or size >= CHANGES_GROUP_BYTES:
            self._write_waiting()

    def finish(self) -> NewFile:
        """Make it durable; the caller syncs the folder."""
        self._write_waiting()
        self._writer.close()
        sync_file(self._path)
        return NewFile(self._path.name, self.rows, self._path.stat().st_size)

    def _write_waiting(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_ROW_GROUP_ROWS)
            self._waiting = []


@dataclass(frozen=True, slots=True)
class Group:
    """A row group, in whatever file or buffer it lies."""

    source: pa.Buffer
    footer: Footer
    facts: RowGroup
    low: Key
    """Its least key."""

    def fits(self, footer: Footer) -> bool:
        """Whether it can stand in a file with such a footer."""
        return self.facts.is_movable and self.footer.is_like(footer, but_for=FACTS)


def footer_of(schema: pa.Schema) -> Footer:
    """What a file without rows says of itself."""
    return Footer.of(memoryview(_written(schema.empty_table(), schema, 1)))


def encoded(rows: pa.Table, schema: pa.Schema, group_rows: int, lows: Sequence[Key]) -> list[Group]:
    """Rows as row groups, in memory; `lows` are their least keys."""
    return _groups(_written(rows, schema, group_rows), lows)


def groups_in(path: Path) -> list[Group]:
    """A file's row groups; none if it does not say their least keys, as older ones do not."""
    with pa.memory_map(str(path)) as file:
        content = file.read_buffer()
    lows = orjson.loads(Footer.of(memoryview(content)).texts.get(FACTS, b"{}")).get("lows", [])
    return _groups(content, lows) if lows else []


def rows_of_groups(groups: Sequence[Group], numbers: Sequence[int]) -> pa.Table:
    """The rows of some row groups, by their numbers in the one file where they lie."""
    return pq.ParquetFile(pa.BufferReader(groups[0].source)).read_row_groups(list(numbers))


def write_groups(path: Path, groups: Sequence[Group]) -> NewFile:
    """A file of these row groups, durable; the caller syncs the folder."""
    placed: list[RowGroup] = []
    with path.open("xb") as file:
        file.write(MAGIC)
        for number, group in enumerate(groups):
            start, stop = group.facts.span
            placed.append(group.facts.moved(file.tell() - start, number))
            file.write(memoryview(group.source)[start:stop])
        lows = [group.low for group in groups]
        footer = groups[0].footer.with_groups(placed, {FACTS: orjson.dumps({"low": lows[0], "lows": lows})})
        file.write(footer.tail())
        size = file.tell()
    sync_file(path)
    return NewFile(path.name, sum(group.facts.rows for group in groups), size, lows[0])


def facts_of(path: Path) -> tuple[int, int, Key]:
    """How many rows a file of a state has, their bytes before they are compressed, and its least key."""
    footer = pq.read_metadata(path)
    size = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return footer.num_rows, size, orjson.loads(footer.metadata[FACTS])["low"]


def _written(rows: pa.Table, schema: pa.Schema, group_rows: int) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema.with_metadata(None), compression=_COMPRESSION) as writer:
        writer.write_table(rows.replace_schema_metadata(None), row_group_size=group_rows)
    return sink.getvalue()


def _groups(content: pa.Buffer, lows: Sequence[Key]) -> list[Group]:
    footer = Footer.of(memoryview(content))
    return [Group(content, footer, facts, low) for facts, low in zip(footer.groups, lows, strict=True)]


def read_rows(path: Path) -> pa.Table:
    """All rows of a file."""
    return pq.read_table(path, partitioning=None)


def is_whole(path: Path) -> bool:
    """Whether a file has a footer: one that was not synced before a crash may be there without its bytes."""
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True


def sync_file(path: Path) -> None:
    """Return once a file (or the names of a folder) is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
