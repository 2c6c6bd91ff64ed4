"""From logs to tables: a cut of 1M inserts, then small steps, updates of 0.1 % of a state, and many micro-batches.

The limit of the large cuts is Spark's own copy of the same rows, Parquet to Parquet, in the same warm session. A cut
writes each row twice, to `changes` and to `state`, casts it from text, and syncs, so twice the limit is good; of
`changes` alone, once. `--scale 10 --tables 1` makes one state of 10M rows.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from storage.disk import LocalDisk, folder_of
from storage.lake.lake_reader import open_lake
from storage.lake.materialize import Order, writing
from storage.lake.spark import open_session, runner_of
from storage.lake.writer import LakeWriter
from storage.rows import Integers
from tests.bench.lake_logs import Logs
from tests.bench.measuring import options_parser, progress, scaled, scratch
from tests.bench.process_tree import ProcessTree
from tests.bench.rows import Row, bounded, compared

ROWS = 1_000_000
SMALL_ROWS = 100
SMALL_STEPS = 5
MICRO_BATCHES = 1000
COPIES_MAX = 2.0
"""Times that Spark's copy takes, for changes and state together."""
SMALL_SECONDS_MAX = 0.2
CLUSTERED_SECONDS_MAX = 0.5
CLUSTERED_SHARE_MAX = 0.05
RANDOM_SECONDS_MAX = 10.0
FILES_MAX = 64


@dataclass
class Measured:
    """What the rounds found."""

    rates: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    copies: list[float] = field(default_factory=list)
    changes_copies: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    worker_peaks: list[float] = field(default_factory=list)
    small: list[float] = field(default_factory=list)
    clustered: list[tuple[float, float]] = field(default_factory=list)
    """Seconds, and the share of the state's bytes that was encoded or copied."""
    spread: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)


def run(arguments: list[str]) -> list[Row]:
    """The benchmark."""
    parser = options_parser("lake", __doc__ or "", scale_max=10)
    parser.add_argument("--tables", type=int, default=4, help="over which the rows are spread (4)")
    parser.add_argument(
        "--batches", type=int, default=MICRO_BATCHES, help=f"micro-batches at the end ({MICRO_BATCHES})"
    )
    options = parser.parse_args(arguments)
    rows = scaled(ROWS, options.scale, options.tables)
    batches = scaled(options.batches, min(1.0, options.scale), 1)
    session = open_session("local[2]", {"spark.ui.enabled": "false"})
    found, warming = Measured(), Measured()
    try:
        session.range(1000).repartition(2).count()  # the first job of a session starts its workers
        for number in range(options.rounds + 1):
            progress(f"lake: round {number} of {options.rounds}")
            into = found if number else warming
            for log_mode in ("full", "changes_only"):
                with scratch(options.folder) as folder:
                    one_round(session, folder, rows, options.tables, log_mode, into)
        progress(f"lake: {batches} micro-batches")
        with scratch(options.folder) as folder:
            files, seconds = micro_batches(session, folder, batches)
    finally:
        session.stop()
    return [
        compared(f"cut of {rows:,} inserts, {options.tables} tables", "rows/s", found.rates, found.limits),
        bounded("the same, in Spark's copies", "copies", found.copies, value_max=COPIES_MAX),
        bounded("changes alone, in Spark's copies", "copies", found.changes_copies, value_max=1.0),
        Row("the same cut, time of processors", statistics.median(found.cpu), "CPU-s"),
        Row("the same cut, all processes", statistics.median(found.peaks), "MB peak"),
        Row("the same cut, the largest worker", statistics.median(found.worker_peaks), "MB peak"),
        bounded("files of a state", "files", found.files, value_max=FILES_MAX),
        bounded(f"step of {SMALL_ROWS} rows", "s", found.small, value_max=SMALL_SECONDS_MAX),
        bounded(
            "0.1 % of a state, neighbours", "s", [one[0] for one in found.clustered], value_max=CLUSTERED_SECONDS_MAX
        ),
        bounded("bytes of it written anew", "share", [one[1] for one in found.clustered], value_max=share_max(rows)),
        bounded("0.1 % of a state, at random", "s", found.spread, value_max=RANDOM_SECONDS_MAX),
        bounded(f"files of a table after {batches} micro-batches", "files", [files], value_max=FILES_MAX),
        bounded(f"the median of these, {SMALL_ROWS} rows each", "s", [seconds], value_max=SMALL_SECONDS_MAX),
    ]


def share_max(rows: int) -> float:
    """A state of 10M rows has some fifty files; a small one is a file or two."""
    return CLUSTERED_SHARE_MAX if rows >= ROWS * 10 else 1.0


def one_round(session: Any, folder: Path, rows: int, tables: int, log_mode: str, found: Measured) -> None:
    """A large cut and Spark's copy of it; on a state, small steps."""
    (folder / "data").mkdir()
    with folder_of(LocalDisk(folder / "data")) as disk:
        logs = Logs(disk, tables, log_mode)
        logs.confirm()
        with writing(Order(folder / "data", folder / "lake"), runner_of(session)) as writer:
            writer.step()
            logs.insert(rows // tables)
            with ProcessTree() as tree:
                seconds = timed_step(logs, writer)
            copied = spark_copy_seconds(session, folder)
            if log_mode == "changes_only":
                found.changes_copies.append(seconds / copied)
                return
            found.rates.append(rows / seconds)
            found.limits.append(rows / copied)
            found.copies.append(seconds / copied)
            found.cpu.append(tree.cpu_seconds)
            found.peaks.append(tree.peak_bytes / 1e6)
            workers = [held for name, held in tree.peak_below_bytes.items() if "java" not in name]
            found.worker_peaks.append(max(workers, default=0) / 1e6)
            found.files.append(len(open_lake(folder / "lake").latest().table("orders1").files()))
            small_steps(logs, writer, rows // tables, folder, found)


def timed_step(logs: Logs, writer: LakeWriter) -> float:
    """Seconds from a G to the version at it, which readers see."""
    logs.confirm()
    start = time.perf_counter()
    assert writer.step().version is not None, "there are new rows"
    return time.perf_counter() - start


def spark_copy_seconds(session: Any, folder: Path) -> float:
    """Spark reads the tables of changes and writes them again."""
    version = open_lake(folder / "lake").latest()
    files = [path for name in version.tables for path in version.table(name).files("changes")]
    assert sum(pq.read_metadata(path).num_rows for path in files), "there is something to copy"
    start = time.perf_counter()
    session.read.parquet(*files).write.option("compression", "zstd").parquet(str(folder / "copy"))
    return time.perf_counter() - start


def small_steps(logs: Logs, writer: LakeWriter, rows: int, folder: Path, found: Measured) -> None:
    """Steps of a few rows; then updates of 0.1 % of the state, neighbours first, then anywhere."""
    seconds = []
    for number in range(SMALL_STEPS):
        first = number * SMALL_ROWS % rows
        logs.update(1, range(first, min(first + SMALL_ROWS, rows)))
        seconds.append(timed_step(logs, writer))
    found.small.append(statistics.median(seconds))
    count = max(1, rows // 1000)
    before = state_sizes(folder)
    logs.update(1, range(rows // 2, rows // 2 + count))
    took = timed_step(logs, writer)
    after = state_sizes(folder)
    new = sum(size for path, size in after.items() if path not in before)
    found.clustered.append((took, new / sum(after.values())))
    anywhere: Integers = np.sort(np.random.default_rng(1).choice(rows, count, replace=False))
    logs.update(1, anywhere.tolist())
    found.spread.append(timed_step(logs, writer))


def state_sizes(folder: Path) -> dict[str, int]:
    """The state's files, and their bytes."""
    return {path: Path(path).stat().st_size for path in open_lake(folder / "lake").latest().table("orders1").files()}


def micro_batches(session: Any, folder: Path, count: int) -> tuple[int, float]:
    """Most files that a side of a table has while so many small batches come in, and the median of their seconds."""
    (folder / "data").mkdir()
    with folder_of(LocalDisk(folder / "data")) as disk:
        logs = Logs(disk, 1)
        logs.confirm()
        with writing(Order(folder / "data", folder / "lake"), runner_of(session)) as writer:
            writer.step()
            logs.insert(100 * SMALL_ROWS)
            timed_step(logs, writer)
            measured = list(timed_batches(logs, writer, folder / "lake", count))
    return max(files for files, _ in measured), statistics.median(seconds for _, seconds in measured)


def timed_batches(logs: Logs, writer: LakeWriter, lake: Path, count: int) -> Iterator[tuple[int, float]]:
    """Of each small step the files of the larger side of its version, by the Delta log, and the seconds."""
    for number in range(count):
        first = number % 100 * SMALL_ROWS
        logs.update(1, range(first, first + SMALL_ROWS))
        seconds = timed_step(logs, writer)
        table = open_lake(lake).latest().table("orders1")
        yield max(len(table.files(side)) for side in ("state", "changes")), seconds
