"""What the tests of storage are built from: rows whose values follow from their offsets, and a store to write them to.

Its clocks move only when told.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from storage.clocks import Clocks
from storage.disk import Disk
from storage.errors import SharedDiskFault
from storage.flush_control import FlushOptions
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadResult
from storage.rows import Kind, row_schema
from storage.shape_log import Mode, Placement
from storage.store import Store, StoreOptions
from storage.store_reader import StoreReader
from storage.write_buffer import BufferOptions

COLUMNS = ("id", "text")
NEVER_SECONDS = 1e9
READS_MAX = 10_000
"""A reader that is not at the end after so many reads never will be."""


def to_journal(**buffer: Any) -> StoreOptions:
    """Flushes go to the journal, and none comes of itself unless `buffer` says so."""
    return _options(2**40, **buffer)


def to_segments(**buffer: Any) -> StoreOptions:
    """Flushes of rows go to the log's own segment."""
    return _options(1, **buffer)


def _options(own_segment_bytes: int, **buffer: Any) -> StoreOptions:
    return StoreOptions(
        buffer=BufferOptions(**{"flush_age_seconds": NEVER_SECONDS, **buffer}),
        flush=FlushOptions(own_segment_bytes=own_segment_bytes),
    )


BOTH_FILES = pytest.mark.parametrize("options", [to_journal(), to_segments()], ids=["journal", "segments"])
"""For tests of what must not depend on which file a flush goes to."""


def rows(
    offsets: Iterable[tuple[int, int]], *, text: str = "", columns: Sequence[str] = COLUMNS, kind: Kind = Kind.INSERT
) -> pa.RecordBatch:
    """A row at each offset. The first column names it, the others hold `text`."""
    at = list(offsets)
    return pa.RecordBatch.from_pylist(
        [
            {"tx": tx, "op": op, "kind": kind, "new": dict.fromkeys(columns, text) | {columns[0]: f"{tx}.{op}"}}
            for tx, op in at
        ],
        schema=row_schema(columns, absent=False),
    )


def transaction(tx: int, count: int) -> list[LogOffset]:
    """The offsets of a transaction with so many changes, all of them in one log."""
    return [LogOffset(tx, 2 * index) for index in range(count)]


def offsets(batches: Iterable[pa.RecordBatch]) -> list[LogOffset]:
    """Where the rows stand; and that their values are those that belong there."""
    found = [row for batch in batches for row in batch.select(["tx", "op", "new"]).to_pylist()]
    assert [row["new"]["id"] for row in found] == [f"{row['tx']}.{row['op']}" for row in found]
    return [LogOffset(row["tx"], row["op"]) for row in found]


class Clock:
    """Both clocks, in tests' hands."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.seconds, lambda: int(self.seconds * 1_000_000))


class Rig:
    """A store, a reader, and what was written so far. Log 1 is there if the disk is new."""

    def __init__(
        self,
        disk: Disk | None = None,
        options: StoreOptions | None = None,
        *,
        mode: Mode = Mode.APPEND,
        confirmed_tx: int = 0,
        **facts: Any,
    ) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.options = options or to_journal()
        self.clock = Clock()
        self.store = Store(self.disk, self.clock.clocks(), self.options, confirmed_tx=confirmed_tx)
        self.reader = StoreReader(self.store)
        self.mode = mode
        if not self.disk.exists("logs/1/log.json"):
            self.create(1, **facts)

    def create(self, log: int, **facts: Any) -> None:
        self.store.create_log(LogFacts(log, f"handle-{log}", mode=self.mode, **facts))

    def reopened(self, disk: Disk | None = None, *, confirmed_tx: int = 0) -> "Rig":
        """Another process on the same folder, or on what a crash left of it."""
        return Rig(disk or self.disk, self.options, mode=self.mode, confirmed_tx=confirmed_tx)

    def write(
        self, tx: int, count: int = 1, *, log: int = 1, after: LogOffset | None = None, text: str = ""
    ) -> Placement:
        """A whole transaction; it follows what the log has, if `after` does not say otherwise."""
        after = self.upper(log) if after is None else after
        batch = rows(transaction(tx, count), text=text)
        return self.store.append(log, batch, after=after, aligned=LogOffset.aligned(tx, count))

    def upper(self, log: int = 1) -> LogOffset:
        return self.store.log(log).state.upper

    def durable(self, log: int = 1) -> LogOffset:
        return self.store.marks(log)[1]

    def is_paused(self) -> bool:
        return isinstance(self.store.fault, SharedDiskFault)

    def read(self, after: LogOffset = SNAPSHOT_END, max_bytes: int | None = None, *, log: int = 1) -> ReadResult:
        return self.reader.read(log, after, max_bytes)

    def read_all(
        self, after: LogOffset = SNAPSHOT_END, max_bytes: int | None = None, *, log: int = 1
    ) -> list[LogOffset]:
        """Read on from where the read before ended, until the end."""
        return [offset for result in self.read_on(after, max_bytes, log=log) for offset in offsets(result.rows)]

    def read_on(
        self, after: LogOffset = SNAPSHOT_END, max_bytes: int | None = None, *, log: int = 1
    ) -> list[ReadResult]:
        results: list[ReadResult] = []
        for _ in range(READS_MAX):
            results.append(self.read(after, max_bytes, log=log))
            if results[-1].at_end:
                return results
            assert results[-1].next > after, "a read that is not at the end moves on"
            after = results[-1].next
        raise AssertionError("the reads do not end")
