"""A bank and its lake, worked on in this process: what a version must be is asked of the bank's memory."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.flush_control import FlushOptions
from storage.lake.lake_reader import Lake, LakeVersion, open_lake
from storage.lake.settings import settle
from storage.lake.tasks import run
from storage.lake.writer import LakeWriter
from storage.store import Store, StoreOptions
from tests.bank import Bank, as_texts

POINTS = [
    "before a load",
    "after a load",
    "before the cut",
    "after the cut",
    "before the work",
    "before the commits",
    "after a commit",
    "after the version",
    "after the views",
]
"""Where a writer can be stopped, in the order in which it comes by."""


class Lakes:
    """A data folder, a lake, and as many writers as are wanted."""

    def __init__(self, folder: Path, seed: int = 1, accounts: int = 60) -> None:
        self.data, self.root = folder / "data", folder / "lake"
        self.data.mkdir()
        self.root.mkdir()
        self.bank = Bank(self.data, seed)
        for name in ("checking", "savings"):
            self.bank.open_table(name, self.bank.accounts(name, accounts))
        self._writers = 0

    def end_segments(self, bytes_max: int) -> None:
        """Every log has segments of its own, which end with so many bytes: soon there is one that is closed."""
        options = StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=bytes_max))
        self.bank.store = Store(self.bank.disk, Clocks(lambda: 0.0), options, confirmed_tx=0)

    def writer(
        self,
        at: Callable[[str], None] = lambda _: None,
        shapes: list[str] | None = None,
        *,
        state_only: bool = False,
    ) -> LakeWriter:
        self._writers += 1
        unique = f"w{self._writers}"
        lake = LocalDisk(self.root)
        settings = settle(lake, shapes, unique, state_only=state_only)
        return LakeWriter(
            LocalDisk(self.data),
            lake,
            lambda work: [run(one) for one in work],
            settings=settings,
            unique=unique,
            now=lambda: 1,
            at=at,
        )

    def lake(self) -> Lake:
        return open_lake(self.root)

    def latest(self) -> LakeVersion:
        return self.lake().latest()

    def check(self, version: LakeVersion | None = None) -> None:
        """A version is what the bank remembers of its G, in every table, with every change once."""
        version = version or self.latest()
        expected = self.bank.history[version.lsn]
        assert set(version.tables) == set(expected)
        for name in version.tables:
            table = version.table(name)
            assert as_texts(table.arrow(), self.bank.columns[name]) == expected[name], f"{name} at {version.number}"
            if table.facts.changes is None:
                continue
            changes = table.arrow("changes")
            found = [
                (row["_tx"], row["_op"], row["_kind"])
                for row in changes.select(["_tx", "_op", "_kind"]).to_pylist()
                if row["_kind"] != "refetch"
            ]
            wanted = [change for change in self.bank.changes[name] if change[0] < version.lsn]
            assert found == wanted[len(wanted) - len(found) :], f"changes of {name} at {version.number}"
            is_anew = table.facts.generation > 1 or "refetch" in changes.column("_kind").to_pylist()
            assert len(found) == len(wanted) or is_anew

    def check_all(self) -> None:
        """Every version, and the plain views of the newest."""
        for version in open_lake(self.root).versions():
            self.check(version)
        version = self.latest()
        for name in version.tables:
            plain = pq.read_table((self.root / "tables" / name / "state").resolve(), partitioning=None)
            assert as_texts(plain, self.bank.columns[name]) == self.bank.history[version.lsn][name]

    def files_in_tables(self) -> set[str]:
        """Files that the newest version names."""
        version = self.latest()
        return {
            Path(path).name
            for name in version.tables
            for side in ("state", "changes")
            if version.table(name).facts.side(side) is not None
            for path in version.table(name).files(side)
        }

    def files_on_disk(self) -> set[str]:
        return {path.name for path in (self.root / "delta").rglob("*.parquet") if "_delta_log" not in path.parts}
