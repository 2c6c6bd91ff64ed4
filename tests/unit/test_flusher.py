"""The flusher: what is due is flushed, though nobody asks, and whoever must know is told.

Real threads and clocks, and no sleeping: the tests wait for what the flusher tells, with a time only for a hang.
"""

import errno
import threading
from collections.abc import Callable, Sequence

import pytest

from storage import limits
from storage.clocks import Clocks
from storage.disk import Disk
from storage.errors import SharedDiskFault, StorageError, WriterStops
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.flush import Flushed
from storage.flush_control import FlushOptions
from storage.flusher import Flusher
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.store import Store, StoreOptions
from storage.store_reader import StoreReader
from storage.write_buffer import BufferOptions, Trigger
from tests.unit.builders import NEVER_SECONDS, offsets, rows, transaction
from tests.unit.hooked_disk import hooked

HANG_SECONDS = 60.0


class Told:
    """What the flusher told, and a way to wait for it."""

    def __init__(self) -> None:
        self.flushed: list[Flushed] = []
        self.threads: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, flushed: Sequence[Flushed]) -> None:
        with self._changed:
            self.flushed += flushed
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def durable(self, log: int = 1) -> LogOffset:
        return max((one.aligned for one in self.flushed if one.log == log), default=SNAPSHOT_END)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, HANG_SECONDS)

    def wait_durable(self, aligned: LogOffset, log: int = 1) -> None:
        self.wait_for(lambda: self.durable(log) >= aligned)


def store_on(disk: Disk | None = None, *, retry_seconds: float = 0.001, **buffer: float) -> Store:
    """A store with logs 1 and 2, which flushes nothing of itself unless `buffer` says so."""
    bounds = BufferOptions(**{"flush_age_seconds": NEVER_SECONDS, **buffer})  # type: ignore[arg-type]  # bytes are whole
    options = StoreOptions(bounds, FlushOptions(fault_retry_seconds=retry_seconds))
    store = Store(disk or MemoryDisk(), Clocks(), options)
    for log in (1, 2):
        store.create_log(LogFacts(log, f"handle-{log}"))
    return store


def write(store: Store, tx: int, *, log: int = 1, text: str = "") -> LogOffset:
    end = LogOffset.aligned(tx, 2)
    store.append(log, rows(transaction(tx, 2), text=text), after=store.log(log).state.upper, aligned=end)
    return end


def is_paused(store: Store) -> bool:
    return store.fault is not None


def flushes(store: Store, trigger: Trigger) -> int:
    return store.metrics.value(Metric.FLUSHES, trigger.value)


def test_rows_are_flushed_by_their_age_without_another_append() -> None:
    store, told = store_on(flush_age_seconds=0.01), Told()
    flusher = Flusher(store, told).start()
    for tx in (1, 2, 3):
        told.wait_durable(write(store, tx))
        assert store.marks(1)[1] == LogOffset(tx, 3), "the mark is stored before anybody is told"
    flusher.stop()
    assert told.threads == {"flusher"}
    assert flushes(store, Trigger.AGE) == 3


def test_rows_are_flushed_once_it_is_quiet() -> None:
    store, told = store_on(), Told()
    flusher = Flusher(store, told).start()
    end = write(store, 1)
    store.quiet()
    told.wait_durable(end)
    flusher.stop()
    assert flushes(store, Trigger.QUIET) == 1


def test_a_flush_by_bytes_does_not_wait_for_the_age() -> None:
    store, told = store_on(flush_log_bytes=2000), Told()
    flusher = Flusher(store, told).start()
    write(store, 1)
    told.wait_durable(write(store, 2, text="x" * 2000))
    flusher.stop()
    assert flushes(store, Trigger.BYTES) == 1
    assert not flushes(store, Trigger.AGE)


def test_a_flush_by_rows_and_one_under_pressure() -> None:
    store, told = store_on(flush_log_rows=4, bytes_max=20_000), Told()
    flusher = Flusher(store, told).start()
    write(store, 1)
    told.wait_durable(write(store, 2))
    assert flushes(store, Trigger.ROWS) == 1
    told.wait_durable(write(store, 1, log=2, text="x" * 20_000), log=2)
    flusher.stop()
    assert flushes(store, Trigger.PRESSURE) == 1


def test_a_commit_after_its_rows_were_flushed_is_flushed_too() -> None:
    """A5: no row will ever follow, and yet somebody waits for it."""
    disk = MemoryDisk()
    store, told = store_on(disk, flush_age_seconds=0.01), Told()
    flusher = Flusher(store, told).start()
    store.append(1, rows(transaction(1, 2)), after=SNAPSHOT_END)
    write(store, 1, log=2)
    told.wait_durable(LogOffset(1, 3), log=2)
    store.flush(demand=[1])
    assert told.durable(1) == SNAPSHOT_END
    store.commit(1, LogOffset(1, 3))
    told.wait_durable(LogOffset(1, 3))
    flusher.stop()


def test_a_commit_while_its_rows_are_on_their_way_is_flushed_too() -> None:
    def commit(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".journal") and not committed:
            committed.append(store.commit(1, LogOffset(1, 3)))

    committed: list[bool] = []
    told = Told()
    store = store_on(hooked(MemoryDisk(), commit), flush_age_seconds=0.01)
    flusher = Flusher(store, told).start()
    store.append(1, rows(transaction(1, 2)), after=SNAPSHOT_END)
    told.wait_durable(LogOffset(1, 3))
    flusher.stop()
    assert committed == [True]
    assert flushes(store, Trigger.COMMIT) == 1


def test_stop_flushes_what_is_left() -> None:
    store, told = store_on(), Told()
    flusher = Flusher(store, told).start()
    ends = {log: write(store, 1, log=log) for log in (1, 2)}
    assert not told.flushed
    flusher.stop()
    assert {log: told.durable(log) for log in ends} == ends
    assert store.gauges()[Metric.BUFFERED_BYTES] == 0


def test_stop_without_a_flush_leaves_it() -> None:
    store, told = store_on(), Told()
    flusher = Flusher(store, told).start()
    write(store, 1)
    flusher.stop(flush=False)
    assert not told.flushed
    assert store.marks(1) == (LogOffset(1, 3), SNAPSHOT_END)


def test_stop_says_what_prevents_the_flush() -> None:
    disk = FaultyDisk(MemoryDisk(), Script())
    store, told = store_on(disk, retry_seconds=0.0), Told()
    flusher = Flusher(store, told).start()
    write(store, 1)
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC), calls=None))
    with pytest.raises(SharedDiskFault):
        flusher.stop()
    assert not told.flushed


def test_writing_resumes_by_itself_when_the_disk_does() -> None:
    """A9: no shape is ended for a full disk, nothing is lost, and nobody has to do anything."""
    failed = threading.Event()

    def fail(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".journal") and disk.log:
            failed.set()

    disk = FaultyDisk(MemoryDisk(), Script())
    store, told = store_on(hooked(disk, fail), flush_age_seconds=0.005), Told()
    flusher = Flusher(store, told).start()
    told.wait_durable(write(store, 1))
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC, happens=True, appended=100), path="journal/*", calls=None))
    write(store, 2)
    write(store, 1, log=2)
    assert failed.wait(HANG_SECONDS), "it tries again"
    assert is_paused(store)
    assert flusher.failure is None
    disk.healthy = True
    told.wait_durable(LogOffset(2, 3))
    told.wait_durable(LogOffset(1, 3), log=2)
    flusher.stop()
    assert not is_paused(store)
    found = StoreReader(Store(disk.disk, Clocks())).read(1, SNAPSHOT_END)
    assert offsets(found.rows) == [*transaction(1, 2), *transaction(2, 2)]


def test_a_failure_of_whoever_is_told_is_not_silent(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    def refuse(flushed: Sequence[Flushed]) -> None:
        ended.set()
        raise ZeroDivisionError

    store = store_on(flush_age_seconds=0.01)
    flusher = Flusher(store, refuse).start()
    write(store, 1)
    assert ended.wait(HANG_SECONDS)
    with pytest.raises(ZeroDivisionError):
        flusher.stop()
    assert isinstance(flusher.failure, ZeroDivisionError)
    assert "the flusher ended" in caplog.text


def test_a_defect_below_is_not_silent() -> None:
    def break_down(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".journal"):
            raise ZeroDivisionError

    store = store_on(hooked(MemoryDisk(), break_down), flush_age_seconds=0.01)
    told = Told()
    flusher = Flusher(store, told).start()
    write(store, 1)
    flusher._thread.join(HANG_SECONDS)
    assert isinstance(flusher.failure, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        flusher.stop()
    assert not told.flushed


def test_a_log_that_stops_does_not_stop_the_flusher() -> None:
    disk = FaultyDisk(MemoryDisk(), Script(Rule("create", Fault(errno.EACCES), path="logs/1/*.segment", calls=None)))
    store, told = store_on(disk, flush_age_seconds=0.01), Told()
    flusher = Flusher(store, told).start()
    write(store, 1, text="x" * 300_000)
    told.wait_durable(write(store, 1, log=2), log=2)
    told.wait_durable(write(store, 2, log=2), log=2)
    flusher.stop()
    assert told.durable(1) == SNAPSHOT_END
    assert store.log(1).state.fault is not None


def test_each_log_hears_of_its_flushes_in_order_while_threads_write() -> None:
    store, told = store_on(flush_age_seconds=0.002), Told()
    flusher = Flusher(store, told).start()
    last = 60

    def append(log: int) -> None:
        for tx in range(1, last + 1):
            write(store, tx, log=log)

    threads = [threading.Thread(target=append, args=(log,)) for log in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    flusher.stop()
    for log in (1, 2):
        ends = [one.aligned for one in told.flushed if one.log == log]
        assert ends == sorted(set(ends))
        assert ends[-1] == LogOffset(last, 3)


def test_a_defect_is_told_to_whoever_can_stop_the_process() -> None:
    """A log whose state cannot be is a defect; whoever flushed in silence would never be missed."""
    disk = MemoryDisk()
    store = Store(disk, Clocks())
    store.create_log(LogFacts(1, "a-handle"))
    defect = RuntimeError("the listener broke")
    told = threading.Event()
    failures: list[BaseException] = []

    def listen(flushed: Sequence[Flushed]) -> None:
        raise defect

    def on_failure(failure: BaseException) -> None:
        failures.append(failure)
        told.set()

    flusher = Flusher(store, listen, on_failure).start()
    store.append(1, rows([(1, 0)]), after=SNAPSHOT_END, aligned=LogOffset(1, 1))
    assert told.wait(HANG_SECONDS)
    assert failures == [defect]
    with pytest.raises(RuntimeError, match="the listener broke"):
        flusher.stop()


def test_whoever_waits_for_room_need_not_wait_for_the_age_of_rows() -> None:
    batch = rows([(1, 0), (1, 2)], text="x" * 1000)
    options = StoreOptions(buffer=BufferOptions(bytes_max=batch.nbytes + 2000, flush_age_seconds=NEVER_SECONDS))
    store = Store(MemoryDisk(), Clocks(), options)
    store.create_log(LogFacts(1, "a-handle"))
    store.append(1, batch, after=SNAPSHOT_END, aligned=LogOffset(1, 3))
    told = Told()
    flusher = Flusher(store, told).start()
    assert store.wait_for_room(batch.nbytes, HANG_SECONDS)
    flusher.stop()
    assert store.metrics.value(Metric.FLUSHES, Trigger.PRESSURE.value) == 1


def a_producer(store: Store, told: Told, size: int) -> tuple[threading.Thread, list[StorageError | bool]]:
    """Somebody who waits for room, and has asked for it."""
    found: list[StorageError | bool] = []

    def wait() -> None:
        try:
            found.append(store.wait_for_room(size, HANG_SECONDS))
        except WriterStops as stops:
            found.append(stops)

    store.room.wanted.clear()
    thread = threading.Thread(target=wait)
    thread.start()
    assert store.room.wanted.wait(HANG_SECONDS)
    with store.lock:  # once it can be had, the producer sleeps
        assert not told.flushed
    return thread, found


def test_a_stop_releases_whoever_waits_for_room_on_a_full_disk() -> None:
    """What found no room was not taken, so nobody may acknowledge it; what was taken is not durable either."""
    full = FaultyDisk(MemoryDisk(), Script(Rule("append", Fault(errno.ENOSPC), calls=None)))
    full.healthy = True
    store, told = store_on(full, bytes_max=20_000, retry_seconds=0.0), Told()
    full.healthy = False
    write(store, 1, text="x" * 15_000)
    flusher = Flusher(store, told).start()
    thread, found = a_producer(store, told, 15_000)
    with pytest.raises(SharedDiskFault):
        flusher.stop()
    thread.join(HANG_SECONDS / 2)
    assert [type(one) for one in found] == [WriterStops]
    assert not told.flushed
    with pytest.raises(WriterStops, match="15000 bytes have no room"):
        store.wait_for_room(15_000, HANG_SECONDS)
    full.healthy = True
    store.flush_all()
    assert store.wait_for_room(15_000, 0), "room is room"
    write(store, 2, text="x" * 15_000)
    assert store.flush_all()[0].aligned == LogOffset(2, 3)


def test_a_stop_releases_whoever_waits_for_room_while_a_sync_hangs() -> None:
    hangs, may_end = threading.Event(), threading.Event()

    def hang(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith("journal/"):
            hangs.set()
            assert may_end.wait(HANG_SECONDS)

    store, told = store_on(hooked(MemoryDisk(), hang), bytes_max=20_000), Told()
    end = write(store, 1, text="x" * 15_000)
    flusher = Flusher(store, told).start()
    thread, found = a_producer(store, told, 15_000)
    assert hangs.wait(HANG_SECONDS)
    stopping = threading.Thread(target=flusher.stop)
    stopping.start()
    thread.join(HANG_SECONDS / 2)
    assert [type(one) for one in found] == [WriterStops]
    assert stopping.is_alive(), "the sync hangs still"
    assert not told.flushed
    may_end.set()
    stopping.join(HANG_SECONDS)
    assert told.durable() == end


def test_waiters_of_a_log_that_stops_are_woken() -> None:
    disk = FaultyDisk(MemoryDisk(), Script(Rule("append", Fault(errno.EACCES, happens=False), path="*.segment")))
    store = Store(disk, Clocks(), StoreOptions(flush=FlushOptions(own_segment_bytes=1)))
    store.create_log(LogFacts(1, "a-handle"))
    woken: list[LogOffset | None] = []
    store.append(1, rows([(1, 0)]), after=SNAPSHOT_END, aligned=LogOffset(1, 1))
    store.watch(1).durable.subscribe(SNAPSHOT_END, woken.append)
    store.flush(demand=[1])
    assert woken == [None]


def test_a_flusher_that_rests_is_woken_by_who_wants_room_and_by_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FLUSH_REST_LOGS_MIN", 1)
    monkeypatch.setattr(limits, "FLUSH_REST_SHARE", 1e9)
    monkeypatch.setattr(limits, "FLUSH_REST_SECONDS_MAX", 2 * HANG_SECONDS)
    store, told = store_on(flush_age_seconds=0.0, bytes_max=20_000), Told()
    flusher = Flusher(store, told).start()
    told.wait_durable(write(store, 1))
    end = write(store, 2, text="x" * 15_000)
    assert store.wait_for_room(15_000, HANG_SECONDS)
    told.wait_durable(end)
    write(store, 3)
    flusher.stop()
    assert told.durable() == LogOffset(3, 3)
