"""How fast a log is read: from cold files, from the journal and from the buffer.

The limit of reading files is one pass over the same files, cold as well: mapped, with a CRC of every byte and nothing
else. Every read returns Arrow batches whose bytes were all checked; making JSON of them is not storage's business.
"""

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.limits import MIB, READ_BYTES_MAX
from storage.offset import SNAPSHOT_END
from storage.store import StoreOptions
from storage.store_reader import StoreReader
from storage.write_buffer import BufferOptions
from tests.bench.measuring import MB, best, drop_from_cache, options_parser, progress, scaled, scan, scratch
from tests.bench.pump import Pump
from tests.bench.rows import Row, compared
from tests.bench.workload import TRANSACTION_ROWS, fragments, make_logs, open_store

ROWS = 1_000_000
BUFFERED_ROWS = 100_000
"""About 34 MB: half of what one log may hold."""
KINDS: dict[str, int | None] = {f"reads of {READ_BYTES_MAX // MIB} MiB": READ_BYTES_MAX, "chunk by chunk": None}
RATIO_MIN = 0.5
"""Of a scan that computes the CRC: a copy out of the page cache, decoding, and checking the chain fit into the rest."""


def run(arguments: list[str]) -> list[Row]:
    """Measure cold files as a live log and as a backlog leave them, then memory and the journal."""
    parser = options_parser("read", __doc__)
    parser.add_argument("--journal-logs", type=int, default=1_000, help="logs that are read from the journal (1000)")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for name, live in (("live", True), ("backlog", False)):
        with scratch(options.folder) as root:
            make_logs(root, 1)
            progress(f"read: writing {scaled(ROWS, options.scale, TRANSACTION_ROWS):,} changes, {name}")
            _write(options, root, live=live)
            rows += _from_files(options, root, name)
    with scratch(options.folder) as root:
        make_logs(root, options.journal_logs)
        rows.append(_from_buffer(options, root))
        rows.append(_from_journal(options, root))
    return rows


def _write(options: Namespace, root: Path, *, live: bool) -> None:
    """Live: a flush as soon as one is due. Backlog: appends as fast as they go, so that flushes take what piled up."""
    with folder_of(LocalDisk(root)) as disk:
        store = open_store(disk, Clocks(), 1)
        with Pump(store, overlapped=not live) as pump:
            for fragment in fragments(scaled(ROWS, options.scale, TRANSACTION_ROWS), TRANSACTION_ROWS, 1):
                pump.put(fragment)
            pump.finish()


def _from_files(options: Namespace, root: Path, name: str) -> list[Row]:
    paths = sorted(root.glob("logs/1/*.segment"))
    size = sum(path.stat().st_size for path in paths)
    rows_count = scaled(ROWS, options.scale, TRANSACTION_ROWS)
    limits: list[float] = []
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with folder_of(LocalDisk(root)) as disk:
        for turn in range(options.rounds):
            progress(f"read: cold files, {name}: round {turn + 1} of {options.rounds}")
            limits.append(size / MB / best(lambda: _cold(paths, lambda: sum(map(scan, paths)), size)))
            for kind, max_bytes in KINDS.items():
                # A new store has nothing in memory but what opening the log told it: where the last blocks are.
                reader = StoreReader(open_store(disk, Clocks(), 1))
                rates[kind].append(size / MB / _cold(paths, partial(_read, reader, 1, max_bytes), rows_count))
    return [
        compared(f"cold files, {name} ({size / MB:,.0f} MB), {kind}", "MB/s", rates[kind], limits, ratio_min=RATIO_MIN)
        for kind in KINDS
    ]


def _cold(paths: Sequence[Path], work: Callable[[], int], expected: int) -> float:
    for path in paths:
        drop_from_cache(path)
    start = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - start
    assert found == expected, f"{found} instead of {expected}"
    return seconds


def _read(reader: StoreReader, log: int, max_bytes: int | None) -> int:
    rows_count, position = 0, SNAPSHOT_END
    while True:
        result = reader.read(log, position, max_bytes)
        rows_count += result.count
        position = result.next
        if result.at_end:
            return rows_count


def _from_buffer(options: Namespace, root: Path) -> Row:
    """Rows that no flush has taken yet: what live readers get."""
    rows_count = scaled(BUFFERED_ROWS, options.scale, TRANSACTION_ROWS)
    never = BufferOptions(flush_log_bytes=2**40, flush_log_rows=2**40, flush_age_seconds=2.0**40)
    with folder_of(LocalDisk(root)) as disk:
        store = open_store(disk, Clocks(), 1, StoreOptions(buffer=never))
        size = 0
        for fragment in fragments(rows_count, TRANSACTION_ROWS, 1):
            store.append(1, fragment.rows, after=fragment.after, aligned=fragment.upto)
            size += fragment.rows.nbytes
        rates = []
        for turn in range(options.rounds):
            progress(f"read: buffer: round {turn + 1} of {options.rounds}")
            start = time.perf_counter()
            assert _read(StoreReader(store), 1, None) == rows_count
            rates.append(size / MB / (time.perf_counter() - start))
    return Row(
        f"buffer ({size / MB:,.0f} MB in batches of {TRANSACTION_ROWS:,}), chunk by chunk",
        statistics.median(rates),
        "MB/s",
    )


def _from_journal(options: Namespace, root: Path) -> Row:
    """One small read of each of many logs, whose rows lie together in the journal; nothing of it is in memory."""
    count, ticks_count = options.journal_logs, 10
    with folder_of(LocalDisk(root)) as disk:
        store = open_store(disk, Clocks(), count)
        for fragment in fragments(ticks_count * TRANSACTION_ROWS, TRANSACTION_ROWS, count):
            assert fragment.shares is not None
            store.append_fragment(fragment.rows, fragment.shares, after=fragment.after, upto=fragment.upto)
            store.flush_all()
    rates = []
    for turn in range(options.rounds):
        progress(f"read: journal: round {turn + 1} of {options.rounds}")
        with folder_of(LocalDisk(root)) as disk:
            reader = StoreReader(open_store(disk, Clocks(), count))
            start = time.perf_counter()
            found = sum(_read(reader, log, None) for log in range(1, count + 1))
            rates.append(count / (time.perf_counter() - start))
            assert found == ticks_count * TRANSACTION_ROWS
    return Row(
        f"journal ({count:,} logs, rows in {ticks_count} blocks), each log once", statistics.median(rates), "logs/s"
    )
