"""Writes the small data folder that later versions must be able to read, and beside it what is in it.

    python -m tests.crash.make_old_logs tests/crash/old_logs/1

One folder for each format version, and one beside it for what it learnt later (`1.joined`), never written again once a
version was released: `make` is for the present one.
What is in it is noted while it is written, row by row, and not read back. Clocks are made up, so that the bytes follow
from the code and Arrow's version alone.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from storage.catalog import Catalog
from storage.catalog_records import Born, Ended, Ready, Rebased, Snapshot
from storage.clocks import Clocks
from storage.compaction import CompactionOptions, compact
from storage.flush_control import FlushOptions
from storage.fold import as_chunk
from storage.leases import Lease, take_lease
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.rows import Kind, row_schema
from storage.shape_log import Mode
from storage.store import Store, StoreOptions
from storage.write_buffer import BufferOptions

EXPECTED: Final = "expected.json"
NOW: Final = 1_700_000_000_000_000
"""Microseconds since 1970 of all that is written."""

COLUMNS: Final = ("id", "name")
G: Final = 1_000
"""What was confirmed: every row of a transaction below it is on disk."""


@dataclass(frozen=True)
class Row:
    """A row as it is expected back."""

    at: LogOffset
    kind: Kind
    new: dict[str, str | None]
    old: dict[str, str | None] | None = None
    absent: bytes | None = None

    def as_json(self) -> dict[str, Any]:
        absent = None if self.absent is None else self.absent.hex()
        return {"at": str(self.at), "kind": int(self.kind), "new": self.new, "old": self.old, "absent": absent}


@dataclass
class Written:
    """The folder, the store that writes to it, and the plain lists."""

    disk: MemoryDisk
    rows: dict[int, list[Row]] = field(default_factory=dict)
    aligned: dict[int, LogOffset] = field(default_factory=dict)
    chunks: dict[int, list[list[Row]]] = field(default_factory=dict)

    def store(self, *, own_segment_bytes: int) -> Store:
        options = StoreOptions(
            BufferOptions(flush_age_seconds=1e9),
            FlushOptions(own_segment_bytes=own_segment_bytes, segment_bytes_max=1),
        )
        return Store(self.disk, Clocks(lambda: 0.0, lambda: NOW), options)

    def append(self, store: Store, log: int, rows: list[Row], *, after: LogOffset | None = None) -> None:
        """Rows of a transaction that goes on."""
        start = store.log(log).state.upper if after is None else after
        store.append(log, batch_of(rows), after=start)
        self.rows[log] += rows

    def commit(self, store: Store, log: int, aligned: LogOffset) -> None:
        store.commit(log, aligned)
        self.aligned[log] = aligned

    def transaction(self, store: Store, log: int, rows: list[Row], *, after: LogOffset | None = None) -> None:
        """A whole transaction, flushed."""
        self.append(store, log, rows, after=after)
        self.commit(store, log, LogOffset(rows[-1].at.tx, rows[-1].at.op + 1))
        store.flush(demand=[log])


def batch_of(rows: Iterable[Row], *, old: bool = True) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"tx": row.at.tx, "op": row.at.op, "kind": row.kind, "absent": row.absent, "new": row.new, "old": row.old}
            for row in rows
        ],
        schema=row_schema(COLUMNS, old=old),
    )


def insert(tx: int, op: int, key: int, name: str | None) -> Row:
    return Row(LogOffset(tx, op), Kind.INSERT, {"id": str(key), "name": name})


def update(tx: int, op: int, key: int, name: str | None) -> Row:
    return Row(LogOffset(tx, op), Kind.UPDATE, {"id": str(key), "name": name})


def write() -> Written:
    """All of it."""
    written = Written(MemoryDisk())
    segments = written.store(own_segment_bytes=1)
    logs = {1: Mode.APPEND, 2: Mode.COMPACTED, 3: Mode.APPEND, 4: Mode.APPEND, 5: Mode.APPEND}
    for log, mode in logs.items():
        segments.create_log(LogFacts(log, f"handle-{log}", ("id",), mode, more={"table": f"public.t{log}"}))
        written.rows[log], written.chunks[log], written.aligned[log] = [], [], SNAPSHOT_END
    _write_segments(written, segments)
    _write_journal(written, written.store(own_segment_bytes=2**40))
    _write_records(written.disk)
    return written


def write_joined() -> Written:
    """A journal with joined shares, as a crash leaves it before those go that they were made of."""
    written = Written(MemoryDisk())
    files = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=20_000, journal_file_bytes_max=5_000)
    store = Store(
        written.disk, Clocks(lambda: 0.0, lambda: NOW), StoreOptions(BufferOptions(flush_age_seconds=1e9), files)
    )
    for log in (1, 2, 3):
        store.create_log(LogFacts(log, f"handle-{log}", ("id",)))
        written.rows[log], written.chunks[log], written.aligned[log] = [], [], SNAPSHOT_END
    for tx in range(100, G, 10):
        log = 1 + tx // 10 % 3
        written.transaction(store, log, [insert(tx, 0, tx, f"of {log}"), update(tx, 2, tx, None)])
        if store.logs.index.joined_files:
            break
    take_lease(written.disk, Lease(1, "a-reader", LogOffset(200, 5), NOW + 1_000_000), now=NOW)
    _write_records(written.disk)
    return written


MAKERS: Final = {"1": write, "1.joined": write_joined}
"""By the names of the folders that the present version writes."""


def _write_segments(written: Written, store: Store) -> None:
    """Log 1: a base, a compacted range, live segments, an open transaction's tail. Log 4: every kind of row."""
    base = store.new_base(1)
    for number, keys in enumerate(([1, 2], [3])):
        chunk = [insert(0, number, key, f"snapshot ü {key}") for key in keys]
        base.chunk(as_chunk(batch_of(chunk, old=False), number), written_at=NOW)
        written.chunks[1].append(chunk)
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    written.transaction(store, 1, [insert(100, 0, 4, "four"), update(100, 2, 1, "folded away")])
    written.transaction(store, 1, [update(200, 0, 1, "the last of three"), insert(200, 4, 5, None)])
    written.transaction(store, 1, [update(300, 0, 4, "")])
    written.transaction(store, 1, [update(400, 0, 5, "x" * 100)])
    compacted = compact(store, 1, now=NOW, options=CompactionOptions(segments_kept=2))
    assert compacted is not None
    written.rows[1] = [row for row in written.rows[1] if row.at != LogOffset(100, 2)]
    take_lease(written.disk, Lease(1, "a-reader", LogOffset(200, 5), NOW + 1_000_000), now=NOW)

    kinds = [
        Row(LogOffset(500, 0), Kind.UPDATE, {"id": "1", "name": None}, {"id": "1", "name": "before"}, b"\x02"),
        Row(LogOffset(500, 2), Kind.DELETE, {"id": "2", "name": None}, {"id": "2", "name": "gone"}),
        Row(LogOffset(500, 4), Kind.TRUNCATE, {"id": None, "name": None}),
        insert(500, 6, 6, "after it"),
    ]
    written.transaction(store, 4, kinds)
    # The commit comes after the rows were flushed: a block without rows has the news.
    written.append(store, 4, [insert(600, 0, 7, "seven")])
    store.flush(demand=[4])
    written.commit(store, 4, LogOffset(600, 9))
    store.flush()

    store.append(1, batch_of([insert(2_000, 0, 9, "open in a segment")]), after=LogOffset(400, 1))
    store.flush(demand=[1])
    store.new_base(5).chunk(as_chunk(batch_of([insert(0, 0, 1, "unfinished")], old=False), 0), written_at=NOW)


def _write_journal(written: Written, store: Store) -> None:
    """Log 2: lawful gaps, and an open tail. Log 3: a commit that came later. Log 4: rows behind its segments."""
    written.transaction(store, 2, [insert(461, 0, 1, "behind a gap")], after=LogOffset(460, 0))
    written.transaction(store, 2, [update(466, 0, 1, "and another")], after=LogOffset(465, 0))
    written.transaction(store, 2, [update(467, 0, 1, "and none")])
    written.append(store, 3, [insert(700, 0, 1, "early"), insert(700, 2, 2, "rows")])
    store.flush(demand=[3])
    written.append(store, 3, [insert(700, 4, 3, "late")])
    written.commit(store, 3, LogOffset(700, 11))
    store.flush(demand=[3])
    written.append(store, 3, [insert(800, 0, 4, "a commit alone follows")])
    store.flush(demand=[3])
    written.commit(store, 3, LogOffset(800, 1))
    store.flush()
    written.transaction(store, 4, [insert(900, 0, 8, "in the journal")])
    store.append(2, batch_of([insert(2_000, 0, 9, "open in the journal")]), after=LogOffset(467, 1))
    store.flush(demand=[2])


def _write_records(disk: MemoryDisk) -> None:
    """The catalog and the progress log of these logs."""
    snapshot = Snapshot(700, 710, (703, 705), 90)
    catalog = Catalog(disk)
    for log in (1, 2, 3, 4, 5):
        name = "orders" if log == 1 else None
        catalog.append(Born(f"handle-{log}", log, name, {"table": f"public.t{log}"}, snapshot))
    for log in (1, 2, 3, 4):
        catalog.append(Ready(f"handle-{log}", 0))
    catalog.append(Rebased(1, "handle-1", "handle-1b", 1, LogOffset(300, 1), "fold"))
    catalog.append(Ended("handle-3", LogOffset(800, 1), "asked for"))
    progress = ProgressLog(disk)
    for lsn in (500, G):
        progress.append(ProgressRecord(Incarnation(7, 1, 42), lsn, catalog.state.version, NOW + lsn))


def expected(written: Written) -> dict[str, Any]:
    """What a reader must find."""
    return {
        "logs": {
            str(log): {
                "handle": f"handle-{log}",
                "aligned": str(written.aligned[log]),
                "rows": [row.as_json() for row in rows],
                "chunks": [[row.as_json() for row in chunk] for chunk in written.chunks[log]],
            }
            for log, rows in written.rows.items()
        },
        "handles": {
            "handle-1": "rebased",
            "handle-1b": "ready",
            "handle-2": "ready",
            "handle-3": "ended",
            "handle-4": "ready",
            "handle-5": "born",
        },
        "progress": [500, G],
        "g": G,
    }


def make(folder: Path) -> None:
    """Write the files to a folder that is not there yet."""
    written = MAKERS[folder.name]()
    folder.mkdir(parents=True)
    for name, content in written.disk.contents().items():
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / EXPECTED).write_bytes(orjson.dumps(expected(written), option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
