"""From logs to tables: a cut of 1M inserts over some tables, then small steps, and updates of 0.1 % of a state.

The limit of the large cut is Spark's own copy of the same rows, Parquet to Parquet, in the same session, which is warm.
A cut writes each row twice, to `changes` and to `state`, casts it from text, and syncs, so twice the limit is good.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from storage.catalog import Catalog
from storage.catalog_records import Born, Ready, Snapshot
from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.lake.lake_reader import open_lake
from storage.lake.materialize import Order, writing
from storage.lake.spark import open_session, runner_of
from storage.lake.writer import LakeWriter
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.rows import Integers, Kind, column, row_schema
from storage.store import Store
from tests.bench.measuring import options_parser, progress, scaled, scratch
from tests.bench.rows import Row, bounded, compared
from tests.bench.workload import COLUMNS, fragments

ROWS = 1_000_000
BATCH_ROWS = 20_000
SMALL_ROWS = 100
SMALL_STEPS = 5
OIDS = dict.fromkeys(COLUMNS, (25, -1)) | {
    "id": (20, -1),
    "qty": (23, -1),
    "amount": (1700, (12 << 16 | 2) + 4),
    "created_at": (1184, -1),
}
COPIES_MAX = 2.0
"""Times that Spark's copy takes, for changes and state together."""
SMALL_SECONDS_MAX = 0.2
CLUSTERED_SECONDS_MAX = 0.5
RANDOM_SECONDS_MAX = 10.0


class Logs:
    """A data folder with some tables of orders, written by the store itself."""

    def __init__(self, disk: LocalDisk, tables: int) -> None:
        self.store = Store(disk, Clocks(time.monotonic))
        self.catalog, self.progress = Catalog(disk), ProgressLog(disk)
        self.ends: dict[int, LogOffset] = {}
        self.tx = 0
        columns = [[name, place, *OIDS[name]] for place, name in enumerate(COLUMNS, 1)]
        definition = {"version": 1, "columns": columns, "key": ["id"], "log": "full"}
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


def run(arguments: list[str]) -> list[Row]:
    """The benchmark."""
    parser = options_parser("lake", __doc__ or "")
    parser.add_argument("--tables", type=int, default=4, help="over which the rows are spread (4)")
    options = parser.parse_args(arguments)
    rows = scaled(ROWS, options.scale, options.tables)
    session = open_session("local[2]", {"spark.ui.enabled": "false"})
    try:
        session.range(1000).repartition(2).count()  # the first job of a session starts its workers
        rates, limits, times, small, clustered, spread = [], [], [], list[float](), list[float](), list[float]()
        for number in range(options.rounds + 1):
            progress(f"lake: round {number} of {options.rounds}")
            with scratch(options.folder) as folder, folder_of(LocalDisk(folder / "data")) as disk:
                (folder / "data").mkdir()
                logs = Logs(disk, options.tables)
                logs.confirm()
                with writing(Order(folder / "data", folder / "lake"), runner_of(session)) as writer:
                    writer.step()
                    logs.insert(rows // options.tables)
                    seconds = timed_step(logs, writer)
                    copied = spark_copy_seconds(session, folder)
                    found = list(small_steps(logs, writer, rows // options.tables))
            if number:  # the first one warms up
                rates.append(rows / seconds)
                limits.append(rows / copied)
                times.append(seconds / copied)
                small.append(statistics.median(found[:SMALL_STEPS]))
                clustered.append(found[-2])
                spread.append(found[-1])
    finally:
        session.stop()
    return [
        compared(f"cut of {rows:,} inserts, {options.tables} tables", "rows/s", rates, limits),
        bounded("the same, in Spark's copies", "copies", times, value_max=COPIES_MAX),
        bounded(f"step of {SMALL_ROWS} rows", "s", small, value_max=SMALL_SECONDS_MAX),
        bounded("0.1 % of a state, neighbours", "s", clustered, value_max=CLUSTERED_SECONDS_MAX),
        bounded("0.1 % of a state, at random", "s", spread, value_max=RANDOM_SECONDS_MAX),
    ]


def timed_step(logs: Logs, writer: LakeWriter) -> float:
    """Seconds from a G to the version at it."""
    logs.confirm()
    start = time.perf_counter()
    assert writer.step().version is not None, "there are new rows"
    return time.perf_counter() - start


def spark_copy_seconds(session: object, folder: Path) -> float:
    """Spark reads the tables of changes and writes them again."""
    version = open_lake(folder / "lake").latest()
    files = [path for name in version.tables for path in version.table(name).files("changes")]
    assert sum(pq.read_metadata(path).num_rows for path in files), "there is something to copy"
    start = time.perf_counter()
    frame = session.read.parquet(*files)  # type: ignore[attr-defined]  # a session of Spark
    frame.write.option("compression", "zstd").parquet(str(folder / "copy"))
    return time.perf_counter() - start


def small_steps(logs: Logs, writer: LakeWriter, rows: int) -> Iterator[float]:
    """Seconds of small steps; then of updates of 0.1 %, neighbours first, then anywhere."""
    chance = np.random.default_rng(1)
    for number in range(SMALL_STEPS):
        first = number * SMALL_ROWS % rows
        logs.update(1, range(first, min(first + SMALL_ROWS, rows)))
        yield timed_step(logs, writer)
    count = max(1, rows // 1000)
    logs.update(1, range(rows // 2, rows // 2 + count))
    yield timed_step(logs, writer)
    anywhere: Integers = np.sort(chance.choice(rows, count, replace=False))
    logs.update(1, anywhere.tolist())
    yield timed_step(logs, writer)
