"""A writer that never stands still, eight threads that read its store, and four processes that read its folder.

Every row follows from its place: `changes_of` says which changes a transaction has, in which log each of them is, and
what it says. So whoever reads knows what must come next, from wherever it begins: a gap, a repetition, a torn
transaction or a wrong value is seen at once.

Files, segments and chunks are tiny, so that all of them rotate all the time; fragments are cut anywhere; transactions
are given up in the middle and sent again; compaction and retention work on two of the logs, where some of the readers
hold leases and the others may be sent to a base.
"""

import multiprocessing
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import lru_cache
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pytest

from storage.clocks import Clocks
from storage.compaction import CompactionOptions, compact
from storage.disk import Disk, LocalDisk, folder_of
from storage.errors import BufferFull, Refetch
from storage.flush import Flushed
from storage.flush_control import FlushOptions
from storage.flusher import Flusher
from storage.folder_reader import FolderReader
from storage.incoming import FragmentShares
from storage.leases import Lease, take_lease
from storage.log_facts import LogFacts
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.retention import RetentionPolicy, fold_prefix, retire
from storage.rows import Kind, row_schema
from storage.store import Store, StoreOptions
from storage.store_reader import StoreReader
from storage.write_buffer import BufferOptions, Trigger

LOGS = (1, 2, 3, 4)
KEPT_SMALL = (3, 4)
"""The logs that are compacted and retired."""

SMALL_LOG = 1
"""Its rows stay in the journal until that is emptied."""

TX_STEP = 10
SCHEMA = row_schema(["id", "text"], absent=False)
THREADS = 8
PROCESSES = 4
TRANSACTIONS_MIN = 50
ROWS_READ_MIN = 500
"""What each reader has read before the test may end, however slow the machine is."""

HANG_SECONDS = 90.0
LEASE_SECONDS = 600

OPTIONS = StoreOptions(
    buffer=BufferOptions(flush_age_seconds=0.01, log_bytes_max=40_000, bytes_max=150_000),
    flush=FlushOptions(
        own_segment_bytes=10_000,
        segment_bytes_max=20_000,
        journal_bytes_max=24_000,
        journal_joined_bytes_max=12_000,
        journal_file_bytes_max=6_000,
    ),
)


class Change(NamedTuple):
    """A row, and the log that gets it."""

    log: int
    at: LogOffset
    text: str


@lru_cache(maxsize=5_000)
def changes_of(number: int) -> tuple[Change, ...]:
    """A transaction; some are large, and some leave no row in some log."""
    random = Random(number)
    logs = [random.choice(LOGS) for _ in range(random.choice([1, 2, 3, 5, 12]))]
    sizes = [random.choice([0, 5, 20, 100, 2000]) if log != SMALL_LOG else 0 for log in logs]
    places = (LogOffset(number * TX_STEP, 2 * index) for index in range(len(logs)))
    return tuple(
        Change(log, at, f"{log}:{at}".ljust(size, ".")) for log, at, size in zip(logs, places, sizes, strict=True)
    )


def end_of(number: int) -> LogOffset:
    return LogOffset.aligned(number * TX_STEP, len(changes_of(number))) if number else SNAPSHOT_END


def rows_after(log: int, offset: LogOffset) -> Iterator[tuple[LogOffset, str]]:
    """What a log has above an offset, without an end."""
    number = max(1, offset.tx // TX_STEP)
    while True:
        for change in changes_of(number):
            if change.log == log and change.at > offset:
                yield change.at, change.text
        number += 1


# The writer.


class Stream:
    """The source: hands over fragments that are cut anywhere, and begins again where it is told."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._random = Random(seed)
        self.whole = 0
        """Transactions that were sent to their end."""
        self._sent = 0
        """Changes of the next one that were sent."""
        self.given_up = 0

    def step(self) -> None:
        """Send a fragment, or lose the connection."""
        if self._sent and self._random.random() < 0.3:
            self._store.abandon()
            self._store.resume(end_of(self.whole))
            self._sent = 0
            self.given_up += 1
        first = self.whole + 1
        last = first + self._random.randrange(4)
        changes = [change for number in range(first, last + 1) for change in changes_of(number)][self._sent :]
        stop = len(changes) if self._random.random() < 0.5 else self._random.randrange(len(changes)) + 1
        self._send(changes[:stop])

    def _send(self, changes: Sequence[Change]) -> None:
        after = changes_of(self.whole + 1)[self._sent - 1].at if self._sent else end_of(self.whole)
        last = changes[-1].at
        number = last.tx // TX_STEP
        is_whole = last == changes_of(number)[-1].at
        ended = number if is_whole else number - 1
        batch = pa.RecordBatch.from_pylist(
            [
                {"tx": at.tx, "op": at.op, "kind": Kind.INSERT, "new": {"id": str(at), "text": text}}
                for _, at, text in changes
            ],
            schema=SCHEMA,
        )
        shares = self._shares(changes, ended)
        while True:
            try:
                self._store.append_fragment(batch, shares, after=after, upto=end_of(number) if is_whole else last)
                break
            except BufferFull:
                assert self._store.wait_for_room(batch.nbytes, HANG_SECONDS)
        self._sent = 0 if is_whole else 1 + last.op // 2
        self.whole = ended

    def _shares(self, changes: Sequence[Change], ended: int) -> FragmentShares:
        """Each log's rows, and the end of the last transaction that touched it, here or in an earlier fragment."""
        rows: dict[int, list[int]] = {log: [] for log in LOGS}
        for row, change in enumerate(changes):
            rows[change.log].append(row)
        ends = {
            change.log: end_of(number) for number in range(self.whole + 1, ended + 1) for change in changes_of(number)
        }
        logs = [log for log in LOGS if rows[log] or log in ends]
        limit = LogOffset((ended + 1) * TX_STEP, 0)
        return FragmentShares(
            logs=logs,
            rows=np.array([row for log in logs for row in rows[log]], dtype=np.int64),
            ends=np.cumsum([len(rows[log]) for log in logs]).tolist(),
            committed=[sum(changes[row].at < limit for row in rows[log]) for log in logs],
            aligned=[ends.get(log) for log in logs],
        )


def now() -> int:
    return time.time_ns() // 1000


class Maintenance:
    """Compacts and retires until the block ends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None
        self.compactions = 0
        self.folds = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(HANG_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                for log in KEPT_SMALL:
                    done = compact(self._store, log, now=now(), options=CompactionOptions(block_bytes=5_000))
                    self.compactions += done is not None
                    base = fold_prefix(self._store, log, RetentionPolicy(bytes_max=60_000), now=now())
                    self.folds += base is not None
                    retire(self._store, log, now=now())
        except BaseException as failure:  # noqa: BLE001 - told to the test, which looks
            self.failure = failure


# The readers.


class Reader:
    """Follows one log, checks every row, and now and then begins again somewhere before."""

    def __init__(self, reader: StoreReader | FolderReader, disk: Disk, number: int) -> None:
        self._reader = reader
        self._disk = disk
        self._random = Random(number)
        self.name = f"reader-{number}"
        self.log = LOGS[number % len(LOGS)]
        # In logs that are kept small, some hold leases; their first ones were taken before the first row came.
        self._is_lessee = self.log in KEPT_SMALL and number % 8 < 4
        self._held = SNAPSHOT_END
        self._position = SNAPSHOT_END
        self.count = 0
        self.refetched = 0

    def hold(self) -> None:
        if self._is_lessee:
            expires_at = now() + LEASE_SECONDS * 1_000_000
            take_lease(self._disk, Lease(self.log, self.name, self._position, expires_at), now=now())
            self._held = self._position

    def step(self) -> bool:
        """Read once. Whether that was the end for now."""
        chance = self._random.random()
        if chance < 0.02:
            self.hold()
        elif chance < 0.05 and self._position > SNAPSHOT_END:
            back = LogOffset(self._random.randrange(self._position.tx + 1), self._random.randrange(30))
            self._position = min(self._position, max(back, self._held))
        try:
            result = self._reader.read(
                self.log, self._position, self._random.choice([None, None, 0, 1, 2_000, 100_000])
            )
        except Refetch as refetch:
            assert not self._is_lessee, "what a lease holds stays"
            self._refetch(refetch.facts["base"], refetch.facts["floor"])
            return False
        expected = rows_after(self.log, self._position)
        for batch in result.rows:
            for row in batch.select(["tx", "op", "new"]).to_pylist():
                at, text = next(expected)
                assert (LogOffset(row["tx"], row["op"]), row["new"]["text"]) == (at, text)
                assert row["new"]["id"] == str(at)
                self._position = at
        assert self._position == result.next or not result.rows
        if result.at_end:
            following, _ = next(expected)
            assert following > result.visible, "a row that is visible was left out"
        self.count += result.count
        return result.at_end

    def _refetch(self, base: int, floor: LogOffset) -> None:
        """Read the base, which has every row up to its floor; another one may have taken its place meanwhile."""
        texts: list[str] = []
        number = 0
        try:
            while (chunk := self._reader.read_chunk(self.log, base, number)) is not None:
                texts += [row["text"] for row in chunk.column("new").to_pylist()]
                number += 1
        except Refetch:
            return
        expected = rows_after(self.log, SNAPSHOT_END)
        for text in texts:
            at, wanted = next(expected)
            assert text == wanted
            assert at <= floor
        assert next(expected)[0] > floor
        self._position = floor
        self.refetched += 1


class Report(NamedTuple):
    """How far a reader came, or why it did not."""

    name: str
    rows: int = 0
    refetched: int = 0
    error: str = ""


Event = threading.Event | ProcessEvent


def follow(reader: Reader, ready: Event, refetches: "Synchronized[int]", stop: Event) -> Report:
    """Read until the writer has stopped, and then to the end; `refetches` are those of all readers."""
    try:
        while True:
            is_last, refetched = stop.is_set(), reader.refetched
            is_at_end = reader.step()
            with refetches.get_lock():
                refetches.value += reader.refetched - refetched
            if reader.count >= ROWS_READ_MIN:
                ready.set()
            if is_at_end and is_last:
                return Report(reader.name, reader.count, reader.refetched)
            if is_at_end:
                stop.wait(0.002)
    except BaseException:  # noqa: BLE001 - told to the test, which waits for it
        ready.set()
        return Report(reader.name, error=traceback.format_exc())


def follow_in_process(
    root: str,
    number: int,
    ready: ProcessEvent,
    refetches: "Synchronized[int]",
    stop: ProcessEvent,
    reports: "multiprocessing.Queue[Report]",
) -> None:
    with folder_of(LocalDisk(root)) as disk:
        reports.put(follow(Reader(FolderReader(disk), disk, number), ready, refetches, stop))


class Readers:
    """Threads that read a store, and processes that read its folder, until the block ends."""

    def __init__(self, store: Store, disk: LocalDisk) -> None:
        context = multiprocessing.get_context("spawn")
        reader = StoreReader(store)
        self._stop = context.Event()
        self._reports: multiprocessing.Queue[Report] = context.Queue()
        self._ready = [context.Event() for _ in range(THREADS + PROCESSES)]
        self._refetches = context.Value("q", 0)

        def follow_in_thread(number: int) -> None:
            self._reports.put(follow(Reader(reader, disk, number), self._ready[number], self._refetches, self._stop))

        self._threads = [
            threading.Thread(target=follow_in_thread, args=(number,), daemon=True) for number in range(THREADS)
        ]
        self._processes = [
            context.Process(
                target=follow_in_process,
                args=(str(disk.root), number, self._ready[number], self._refetches, self._stop, self._reports),
                daemon=True,
            )
            for number in range(THREADS, THREADS + PROCESSES)
        ]
        self._followers: list[threading.Thread | BaseProcess] = [*self._threads, *self._processes]
        for number in range(THREADS + PROCESSES):
            Reader(reader, disk, number).hold()

    def __enter__(self) -> Self:
        for follower in self._followers:
            follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for follower in self._followers:
            follower.join(1 if self._has_died else HANG_SECONDS)
        for process in self._processes:
            process.kill()
            process.join()

    @property
    def _has_died(self) -> bool:
        """Whether a process ended without a word."""
        return any(process.exitcode for process in self._processes)

    @property
    def have_failed(self) -> bool:
        """Whether one had something to say before it was asked, or died."""
        return self._has_died or not self._reports.empty()

    @property
    def are_ready(self) -> bool:
        """Whether each has read enough, and some have met another base."""
        return all(event.is_set() for event in self._ready) and self._refetches.value > 1

    def reports(self) -> list[Report]:
        """What each has to say when it came to the end, or failed."""
        self._stop.set()
        return [self._reports.get(timeout=HANG_SECONDS) for _ in self._ready]


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.nemesis)])
def test_every_reader_sees_every_row_once_and_in_order(tmp_path: Path, seconds: int) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        store = Store(disk, Clocks(), OPTIONS)
        for log in LOGS:
            store.create_log(LogFacts(log, f"handle-{log}", key_columns=("id",), chunk_bytes=3_000))
        told: list[Flushed] = []
        stream = Stream(store, seed=7)
        with Readers(store, disk) as readers, Maintenance(store) as maintenance:
            flusher = Flusher(store, told.extend).start()
            started, elapsed, joined, missing = time.monotonic(), 0.0, False, ["all"]
            while (elapsed < seconds or missing) and not readers.have_failed:
                assert elapsed < seconds + HANG_SECONDS, f"never seen: {missing}"
                stream.step()
                with store.lock:
                    joined = joined or bool(store.logs.index.joined_files)
                assert flusher.failure is None
                assert maintenance.failure is None
                elapsed, missing = time.monotonic() - started, not_yet(store, stream, maintenance, readers, joined)
            store.abandon()
            flusher.stop()
            reports = readers.reports()
        assert [report for report in reports if report.error] == []
        assert len({report.name for report in reports}) == THREADS + PROCESSES
        assert not_yet(store, stream, maintenance, readers, joined) == []
        for log in LOGS:
            assert store.marks(log)[0] == store.marks(log)[1] <= end_of(stream.whole)
            assert max(one.aligned for one in told if one.log == log) == store.marks(log)[1]


def not_yet(store: Store, stream: Stream, maintenance: Maintenance, readers: Readers, joined: bool) -> list[str]:
    """What has not had its chance to go wrong: the machine decides how long that takes."""
    value = store.metrics.value
    seen = {
        "transactions": stream.whole > TRANSACTIONS_MIN,
        "transactions that are sent again": stream.given_up > 5,
        "joined journals": joined,
        "compactions": maintenance.compactions > 0,
        "folds": maintenance.folds > 1,
        "readers with enough rows, and with another base": readers.are_ready,
        "flushes to the journal": value(Metric.FLUSHES, Trigger.JOURNAL) > 1,
    } | {f"rows from {source}": value(Metric.READ_ROWS, source) > 100 for source in ("segment", "journal", "buffer")}
    return [what for what, is_seen in seen.items() if not is_seen]
