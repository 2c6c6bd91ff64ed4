"""The reader's door: a lake, its versions, their tables. Nothing here changes anything.

    version = open_lake(path).latest()
    version.table("orders").arrow()                    rows as of version.lsn
    version.table("orders").files("changes")           the history, as a list of files

All tables of a version stand at the same LSN. A version that is retired while it is read fails loudly: its files go.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from storage.disk import LocalDisk
from storage.lake.delta_log import read_table
from storage.lake.errors import NoTable, NotALake, NoVersion
from storage.lake.lake_layout import (
    CHANGES,
    CUTS,
    SETTINGS,
    SIDES,
    STATE,
    VERSIONS,
    changes_order,
    numbered_path,
    side_folder,
)
from storage.lake.records import read_record, record_numbers
from storage.lake.versions import TableVersion, Version, latest_version, read_version

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A shape's tables as of a version."""

    root: Path
    facts: TableVersion

    @property
    def name(self) -> str:
        return self.facts.name

    def files(self, side: str = STATE) -> list[str]:
        """The paths of the files that make up `state` or `changes`, those in their order; plain Parquet."""
        names = sorted(uri.rpartition("/")[2] for uri in self.delta(side).file_uris())
        if side == CHANGES:
            names.sort(key=changes_order)
        return [str(self._folder(side) / name) for name in names]

    def delta(self, side: str = STATE) -> DeltaTable:
        """The table at its version."""
        version = self.facts.side(side) if side in SIDES else None
        if version is None:
            raise NoTable(f"{self.name!r} has no {side!r}", tables=[one for one in SIDES if self.facts.side(one)])
        return read_table(self._folder(side), version.delta)

    def schema(self, side: str = STATE) -> pa.Schema:
        """The columns; a file may lack those that came later, which are NULL there."""
        return pa.schema(self.delta(side).schema().to_arrow())

    def dataset(self, side: str = STATE) -> ds.Dataset:
        """The files as one dataset: columns and rows are chosen before anything is read."""
        return ds.dataset(self.files(side), schema=self.schema(side), format="parquet")

    def arrow(self, side: str = STATE) -> pa.Table:
        """All rows."""
        return self.dataset(side).to_table()

    def spark(self, session: Any, side: str = STATE) -> Any:  # noqa: ANN401 - pyspark is not needed to read a lake
        """A frame of a Spark session. Its columns are told, since a table without rows has no file to ask."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - not needed to read a lake

        files, columns = self.files(side), from_arrow_schema(self.schema(side), prefer_timestamp_ntz=True)
        return session.read.schema(columns).parquet(*files) if files else session.createDataFrame([], columns)

    def _folder(self, side: str) -> Path:
        return self.root / side_folder(self.facts.name, self.facts.generation, side)


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """All tables at one LSN."""

    root: Path
    facts: Version

    @property
    def number(self) -> int:
        return self.facts.number

    @property
    def lsn(self) -> int:
        """Every row of a transaction below it, and no other."""
        return self.facts.lsn

    @property
    def committed_at(self) -> dt.datetime:
        """The time of the last commit, by Postgres' clock; 1970 if none was seen since the slot was made."""
        return _EPOCH + dt.timedelta(microseconds=self.facts.commit_time)

    @property
    def tables(self) -> list[str]:
        """The names of the tables."""
        return [table.name for table in self.facts.tables]

    def table(self, name: str) -> LakeTable:
        """The table of this name; raises `NoTable`."""
        found = self.facts.table(name)
        if found is None:
            raise NoTable(f"version {self.number} has no table {name!r}", tables=self.tables)
        return LakeTable(self.root, found)


class Lake:
    """A lake's versions."""

    def __init__(self, path: Path) -> None:
        self.root = path
        self._disk = LocalDisk(path)

    def numbers(self) -> list[int]:
        """The versions that are there, ascending."""
        return record_numbers(self._disk, VERSIONS)

    def versions(self) -> Iterator[LakeVersion]:
        """All of them, the newest first."""
        for number in reversed(self.numbers()):
            if (found := read_version(self._disk, number)) is not None:
                yield LakeVersion(self.root, found)

    def latest(self) -> LakeVersion:
        """The newest version; raises `NoVersion` before the first."""
        found = latest_version(self._disk)
        if found is None:
            raise NoVersion("the lake has no version yet", lake=str(self.root))
        return LakeVersion(self.root, found)

    def version(self, number: int) -> LakeVersion:
        """A version by its number."""
        found = read_version(self._disk, number)
        if found is None:
            numbers = self.numbers()
            raise NoVersion(
                f"there is no version {number}", oldest=min(numbers, default=None), newest=max(numbers, default=None)
            )
        return LakeVersion(self.root, found)

    def as_of(self, when: int | dt.datetime) -> LakeVersion:
        """The newest version that has nothing committed at or above an LSN, or after a time (local without a zone)."""
        if isinstance(when, dt.datetime):
            when = when.astimezone(dt.UTC)
        for version in self.versions():
            if (version.lsn if isinstance(when, int) else self._time_of(version)) <= when:  # type: ignore[operator]  # both are of one type
                return version
        told = f"the LSN {when >> 32:X}/{when & 0xFFFFFFFF:X}" if isinstance(when, int) else when
        raise NoVersion(f"no version is as old as {told}", lake=str(self.root))

    def _time_of(self, version: LakeVersion) -> dt.datetime:
        """When all that is in a version was committed; if no commit was seen, at the latest when it was published."""
        if version.facts.commit_time:
            return version.committed_at
        path = self.root / numbered_path(VERSIONS, version.number)
        return dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC)

    def open_cut(self) -> int | None:
        """The number of the cut that is being worked on; None if there is none."""
        cut = max(record_numbers(self._disk, CUTS), default=0)
        return cut if cut > max(self.numbers(), default=0) else None


def open_lake(path: str | Path) -> Lake:
    """A lake that `shapelog materialize` has made; raises `NotALake`."""
    root = Path(path).resolve()
    if read_record(LocalDisk(root), SETTINGS) is None:
        raise NotALake("the folder has no lake", folder=str(root))
    return Lake(root)
