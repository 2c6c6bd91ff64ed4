"""How much memory a store takes while 1M changes go through it, flushed in a second thread.

Each case runs in a process of its own, which makes its batches as it goes, like a decoder. The bound is the budget of
the write buffer and what a flush needs besides: the peak of the resident set, less what it was before the first row.
"""

import multiprocessing
import time
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.limits import BUFFER_BYTES_MAX, MIB
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.bench.measuring import MB, options_parser, progress, scaled, scratch
from tests.bench.process_memory import held_bytes, peak_bytes
from tests.bench.pump import Pump
from tests.bench.rows import Row, bounded
from tests.bench.workload import TRANSACTION_ROWS, fragments, make_logs, open_store

ROWS = 1_000_000
TICK_BATCHES = 10
"""Of a thousand rows: what Postgres sends in some tens of milliseconds."""
ALLOWANCE_MB = 100
"""Above the budget: what is encoded at a time, the index of the journal, the allocator's slack."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a process is to do; it travels to it by pickle."""

    root: Path
    logs_count: int
    batch_rows: int
    rows_count: int
    budget: int
    tick_batches: int = 0
    """0: a flusher in a second thread. Else the clock is made up: after so many batches comes a tick with its flush."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it took."""

    peak_bytes: int
    longest_flush_seconds: float


def run(arguments: list[str]) -> list[Row]:
    """Measure every number of logs with every budget."""
    parser = options_parser("memory", __doc__)
    parser.add_argument("--logs", type=int, nargs="*", default=[1, 100], help="numbers of logs (1 100)")
    parser.add_argument("--batch", type=int, default=TRANSACTION_ROWS, help="rows of a batch (1000)")
    parser.add_argument(
        "--budgets", type=int, nargs="*", default=[BUFFER_BYTES_MAX // MIB, 32], help="budgets in MiB (256 32)"
    )
    options = parser.parse_args(arguments)
    rows_count = scaled(ROWS, options.scale, TRANSACTION_ROWS)
    rows: list[Row] = []
    for logs_count in options.logs:
        name = f"{logs_count:,} log{'s' if logs_count > 1 else ''}, batches of {options.batch:,}"
        for budget in options.budgets:
            found = _rounds(options, name, Case(Path(), logs_count, options.batch, rows_count, budget * MIB))
            rows.append(_peak(f"{name}, budget {budget} MiB", found, budget * MIB))
        if logs_count > 1:
            # A stream that is no faster than Postgres: each flush is small, so rows go through the journal.
            live = f"{name}, live"
            found = _rounds(
                options, live, Case(Path(), logs_count, options.batch, rows_count, BUFFER_BYTES_MAX, TICK_BATCHES)
            )
            rows.append(_peak(live, found, BUFFER_BYTES_MAX))
            rows.append(Row(f"{live}: longest flush", max(one.longest_flush_seconds for one in found), "s"))
    return rows


def _rounds(options: Namespace, name: str, case: Case) -> list[Outcome]:
    found = []
    for turn in range(options.rounds):
        progress(f"memory: {name}, budget {case.budget // MIB} MiB: round {turn + 1} of {options.rounds}")
        with scratch(options.folder) as root:
            found.append(_in_new_process(replace(case, root=root)))
    return found


def _peak(name: str, found: Sequence[Outcome], budget: int) -> Row:
    peaks = [one.peak_bytes / MB for one in found]
    return bounded(f"{name}: peak above start", "MB", peaks, value_max=budget // MB + ALLOWANCE_MB)


def _in_new_process(case: Case) -> Outcome:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, case).result()


def measure(case: Case) -> Outcome:
    """Run a case in this process, which has never held more memory than now."""
    make_logs(case.root, case.logs_count)
    now = 0.0
    clocks = Clocks(monotonic=lambda: now) if case.tick_batches else Clocks()
    options = StoreOptions(buffer=BufferOptions(bytes_max=case.budget))
    longest = 0.0
    with folder_of(LocalDisk(case.root)) as disk:
        store = open_store(disk, clocks, case.logs_count, options)
        source = fragments(case.rows_count, case.batch_rows, case.logs_count)
        first = next(source)  # with it the pool of values is made, which is ours and not the store's
        before = held_bytes()
        with Pump(store, overlapped=not case.tick_batches) as pump:
            for number, fragment in enumerate(chain([first], source), 1):
                if case.tick_batches and number % case.tick_batches == 0:
                    now += 1.0
                start = time.perf_counter()
                pump.put(fragment)
                longest = max(longest, time.perf_counter() - start)
            pump.finish()
        return Outcome(peak_bytes() - before, longest)
