"""How fast changes become durable: 1M of them to 1, 100 and 10,000 logs, in batches of 20, 1,000 and 20,000 rows.

The limit of each cell is what the disk does with the same bytes in plain writes and the same number of `fdatasync`,
measured in the same round. Batches are made beforehand, as the decoder hands them over; the clock stops when every
row is durable. Then the tick: one change for each of many logs, and one flush for all of them.
"""

import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.flush_control import FlushOptions
from storage.limits import JOURNAL_BYTES_MAX
from storage.metrics import Metric
from storage.store import Store, StoreOptions
from tests.bench.measuring import (
    MB,
    options_parser,
    plain_write_seconds,
    prepared_data,
    progress,
    scaled,
    scratch,
    settle,
)
from tests.bench.pump import Pump
from tests.bench.rows import Row, bounded, compared
from tests.bench.workload import TRANSACTION_ROWS, Fragment, empty_logs, fragments, make_logs, open_store

ROWS = 1_000_000
MILLION = 1_000_000
RATIO_MIN = 0.7
"""Of the limit, for one log; many logs are bounded by the syncs of a tick instead."""
TICK_SYNCS_MAX = 4
TICK_SECONDS_MAX = 1.0
TICKS_MAX = 10_000
"""Ticks until the journal is too long, if the bytes of a tick are few."""
EMPTYING_FLUSHES = 10
"""Of those that it takes to empty the journal; each moves as many logs as the next."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took, and what the disk alone would have taken."""

    seconds: float
    cpu_seconds: float
    flush_seconds: float
    size: int
    syncs: int
    limit_seconds: float


def run(arguments: list[str]) -> list[Row]:
    """Measure every cell asked for, then the tick."""
    options = _parse(arguments)
    rows: list[Row] = []
    for logs_count in options.logs:
        with scratch(options.folder) as root:
            make_logs(root, logs_count)
            for batch_rows in options.batches:
                rows += _cell(options, root, logs_count, batch_rows)
    if options.tick_logs:
        with scratch(options.folder) as root:
            make_logs(root, options.tick_logs)
            rows += _tick(options, root)
            rows += _emptying(options, root)
    return rows


def _parse(arguments: list[str]) -> Namespace:
    parser = options_parser("append", __doc__)
    parser.add_argument("--logs", type=int, nargs="*", default=[1, 100, 10_000], help="numbers of logs (1 100 10000)")
    parser.add_argument(
        "--batches", type=int, nargs="*", default=[20, 1_000, 20_000], help="rows of a batch (20 1000 20000)"
    )
    parser.add_argument("--tick-logs", type=int, default=10_000, help="logs of the tick (10000); 0 leaves it out")
    return parser.parse_args(arguments)


def _cell(options: Namespace, root: Path, logs_count: int, batch_rows: int) -> Iterator[Row]:
    """One number of logs and one size of batches: with flushes in a second thread, and in the same one."""
    name = f"{logs_count:,} log{'s' if logs_count > 1 else ''}, batches of {batch_rows:,}"
    rows_count = scaled(ROWS, options.scale, 1_000)
    progress(f"append: {name}: preparing {rows_count:,} changes")
    prepared = list(fragments(rows_count, batch_rows, logs_count))
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    with prepared_data():
        for turn in range(options.rounds):
            for overlapped, found in costs.items():
                progress(f"append: {name}: round {turn + 1} of {options.rounds}")
                found.append(_fill(root, logs_count, prepared, overlapped=overlapped))
    yield from _rows(name, rows_count, costs, is_small=batch_rows < TRANSACTION_ROWS, has_target=logs_count == 1)


def _rows(
    name: str, rows_count: int, costs: Mapping[bool, Sequence[Cost]], *, is_small: bool, has_target: bool
) -> Iterator[Row]:
    """What a cell has to say. Of small batches, the calls are the product's cost and the flushes are the disk's."""
    for overlapped, found in costs.items():
        yield compared(
            f"{name}, {'two threads' if overlapped else 'one thread'}",
            "changes/s",
            [rows_count / cost.seconds for cost in found],
            [rows_count / cost.limit_seconds for cost in found],
            ratio_min=RATIO_MIN if has_target and overlapped and not is_small else None,
        )
    if is_small:
        yield compared(
            f"{name}, one thread, after coalescing",
            "changes/s",
            [rows_count / cost.flush_seconds for cost in costs[False]],
            [rows_count / cost.limit_seconds for cost in costs[False]],
            ratio_min=RATIO_MIN if has_target else None,
        )
    found = costs[True]
    cpu = statistics.median(cost.cpu_seconds / rows_count * MILLION for cost in found)
    yield Row(f"{name}, CPU", cpu, "us a change")
    yield Row(f"{name}, written", statistics.median(cost.size / rows_count for cost in found), "bytes a change")
    yield Row(f"{name}, synced", statistics.median(cost.syncs for cost in found), "syncs")


def _fill(root: Path, logs_count: int, prepared: Sequence[Fragment], *, overlapped: bool) -> Cost:
    empty_logs(root)
    with folder_of(LocalDisk(root)) as disk:
        store = open_store(disk, Clocks(), logs_count)
        settle()
        watch = _Watch()
        with Pump(store, overlapped=overlapped) as pump:
            for fragment in prepared:
                pump.put(fragment)
            pump.finish()
        watch.stop()
        _check(store, prepared[-1])
    return _cost(root, store, watch, pump.flush_seconds)


def _check(store: Store, last: Fragment) -> None:
    """A benchmark of something that did not happen would be fast."""
    logs = [1] if last.shares is None else last.shares.logs
    aligned = [last.upto] if last.shares is None else last.shares.aligned
    assert all(store.marks(log) == (end, end) for log, end in zip(logs, aligned, strict=True)), "rows are missing"


class _Watch:
    """Two clocks: what others on the machine take shows on the wall's, and not on the processor's."""

    def __init__(self) -> None:
        self._start, self._cpu_start = time.perf_counter(), time.process_time()
        self.seconds = self.cpu_seconds = 0.0

    def stop(self) -> None:
        self.seconds, self.cpu_seconds = time.perf_counter() - self._start, time.process_time() - self._cpu_start


def _cost(root: Path, store: Store, watch: _Watch, flush_seconds: float = 0.0) -> Cost:
    size, syncs = store.metrics.value(Metric.FLUSHED_BYTES), store.metrics.value(Metric.SYNCS)
    return Cost(watch.seconds, watch.cpu_seconds, flush_seconds, size, syncs, plain_write_seconds(root, size, syncs))


class _Ticking:
    """A store whose time is made up, so that a flush is due when a tick says so."""

    def __init__(self, disk: LocalDisk, logs_count: int, options: StoreOptions | None = None) -> None:
        self.now = 0.0
        self.store = open_store(disk, Clocks(monotonic=lambda: self.now), logs_count, options)

    def tick(self, fragment: Fragment) -> None:
        """A second passes: append, and one flush."""
        assert fragment.shares is not None
        self.store.append_fragment(fragment.rows, fragment.shares, after=fragment.after, upto=fragment.upto)
        self.now += 1.0
        self.store.flush()


def _tick(options: Namespace, root: Path) -> list[Row]:
    """One change for each log, one flush."""
    count = options.tick_logs
    fragment = next(_of_ticks(count))
    costs = []
    for turn in range(options.rounds):
        progress(f"append: {count:,} logs, one change each: round {turn + 1} of {options.rounds}")
        empty_logs(root)
        with folder_of(LocalDisk(root)) as disk:
            ticking = _Ticking(disk, count)
            settle()
            watch = _Watch()
            ticking.tick(fragment)
            watch.stop()
            _check(ticking.store, fragment)
        costs.append(_cost(root, ticking.store, watch))
    name = f"{count:,} logs, one change each, one flush"
    return [
        bounded(f"{name}: append and flush", "s", [cost.seconds for cost in costs], value_max=TICK_SECONDS_MAX),
        bounded(f"{name}: synced", "syncs", [cost.syncs for cost in costs], value_max=TICK_SYNCS_MAX),
    ]


def _of_ticks(logs_count: int, ticks_count: int = 1) -> Iterator[Fragment]:
    """Fragments with one change for each log (the last transaction may bring some logs a second one)."""
    batch_rows = -(-logs_count // TRANSACTION_ROWS) * TRANSACTION_ROWS
    return fragments(ticks_count * batch_rows, batch_rows, logs_count)


def _emptying(options: Namespace, root: Path) -> list[Row]:
    """Tick after tick until the journal is too long; then some flushes that join or move what logs have there."""
    count = options.tick_logs
    journal_bytes = scaled(JOURNAL_BYTES_MAX, options.scale)
    flush = FlushOptions(journal_bytes_max=journal_bytes, journal_file_bytes_max=journal_bytes // 4)
    empty_logs(root)
    with folder_of(LocalDisk(root)) as disk:
        ticking = _Ticking(disk, count, StoreOptions(flush=flush))
        store = ticking.store
        seconds: list[float] = []
        for fragment in _of_ticks(count, TICKS_MAX):
            if store.next_flush_at() is not None:
                break  # every row is flushed, so this is the journal
            progress(
                f"append: {count:,} logs, tick {len(seconds) + 1}, until {journal_bytes:,} bytes are in the journal"
            )
            start = time.perf_counter()
            ticking.tick(fragment)
            seconds.append(time.perf_counter() - start)
        size, syncs = store.metrics.value(Metric.FLUSHED_BYTES), store.metrics.value(Metric.SYNCS)
        progress(f"append: {count:,} logs, {EMPTYING_FLUSHES} flushes out of the journal")
        settle()
        start = time.perf_counter()
        for _ in range(EMPTYING_FLUSHES):
            store.flush()
        emptying = time.perf_counter() - start
    size, syncs = store.metrics.value(Metric.FLUSHED_BYTES) - size, store.metrics.value(Metric.SYNCS) - syncs
    assert syncs, "the journal is too long, and something leaves it"
    limit = plain_write_seconds(root, size, syncs)
    return [
        Row(f"{count:,} logs, one change each, again and again: mean", statistics.mean(seconds), "s a tick"),
        compared(f"{count:,} logs, what is joined or moved", "MB/s", [size / MB / emptying], [size / MB / limit]),
    ]
