"""Logs of orders for the benchmark of the lake: written by the store itself, with a catalog and a G beside them."""

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.catalog import Catalog
from storage.catalog_records import Born, Ready, Snapshot
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.rows import Kind, column, row_schema
from storage.store import Store
from tests.bench.workload import COLUMNS, fragments

BATCH_ROWS = 20_000
OIDS = dict.fromkeys(COLUMNS, (25, -1)) | {
    "id": (20, -1),
    "qty": (23, -1),
    "amount": (1700, (12 << 16 | 2) + 4),
    "created_at": (1184, -1),
}


class Logs:
    """A data folder with some tables of orders, written by the store itself."""

    def __init__(self, disk: LocalDisk, tables: int, log_mode: str = "full") -> None:
        self.store = Store(disk, Clocks(time.monotonic))
        self.catalog, self.progress = Catalog(disk), ProgressLog(disk)
        self.ends: dict[int, LogOffset] = {}
        self.tx = 0
        columns = [[name, place, *OIDS[name]] for place, name in enumerate(COLUMNS, 1)]
        definition = {"version": 1, "columns": columns, "key": ["id"], "log": log_mode}
        for log in range(1, tables + 1):
            handle = f"orders-{log}"
            self.catalog.append(Born(handle, log, f"orders{log}", definition, Snapshot(1, 1, (), 1)))
            self.store.create_log(LogFacts(log, handle, ("id",)))
            base = self.store.new_base(log).finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0)
            self.catalog.append(Ready(handle, base.number))
            self.ends[log] = SNAPSHOT_END

    def append(self, log: int, batch: pa.RecordBatch) -> None:
        """Whole transactions."""
        tx, op = column(batch, "tx"), column(batch, "op")
        end = LogOffset(int(tx[-1]), int(op[-1]))
        self.store.append(log, batch, after=self.ends[log], aligned=end)
        self.store.flush_all()
        self.ends[log], self.tx = end, max(self.tx, end.tx)

    def insert(self, rows: int) -> None:
        """So many orders in each table."""
        for log in self.ends:
            for fragment in fragments(rows, min(BATCH_ROWS, rows), 1):
                self.append(log, fragment.rows)

    def update(self, log: int, keys: Sequence[int]) -> None:
        """Another amount for some orders, in one transaction."""
        count, place = len(keys), COLUMNS.index("amount")
        values = {name: pa.nulls(count, pa.string()) for name in COLUMNS}
        values |= {"id": pa.array(keys).cast(pa.string()), "amount": pa.array(["1.25"] * count)}
        absent = (1 << len(COLUMNS)) - 1 - 1 - (1 << place)
        numbers: list[npt.NDArray[np.unsignedinteger]] = [
            np.full(count, self.tx + 1024, np.uint64),
            np.arange(0, 2 * count, 2, dtype=np.uint64),
            np.full(count, int(Kind.UPDATE), np.uint8),
        ]
        bitmaps = pa.array([absent.to_bytes(2, "little")] * count, pa.binary())
        new = pa.StructArray.from_arrays(list(values.values()), COLUMNS)
        batch = pa.RecordBatch.from_arrays([*map(pa.array, numbers), bitmaps, new], schema=row_schema(COLUMNS))
        self.append(log, batch)

    def confirm(self) -> None:
        """All of it is durable."""
        self.tx += 1
        self.progress.append(ProgressRecord(Incarnation(1, 1, 1), self.tx, self.catalog.state.version, 0))
