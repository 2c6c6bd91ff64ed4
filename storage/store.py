"""All logs of a data folder, for their one writer: append, commit, abandon, flush; and waiting for both marks.

A flush has three steps, so that the slow one runs outside the lock and, if wanted, in another thread:
`begin_flush` plans it, `FlushJob.run` writes, `end_flush` draws the consequences and returns what is durable now.
`flush` is all three. One flush is in flight at a time; appends and reads go on meanwhile.

Order that matters: a mark is stored before anybody is woken, and D is stored only when the bytes are synced.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from storage import layout, limits, open_rows
from storage.bases import BaseWriter
from storage.clocks import Clocks
from storage.disk import Disk
from storage.errors import DiskStalled, Misuse, SharedDiskFault, UnknownLog, named_faults
from storage.flush import Flushed, FlushJob
from storage.flush_control import FlushControl, FlushOptions
from storage.incoming import FragmentShares, fragment_source, source_of
from storage.intake import Intake
from storage.log_facts import LogFacts
from storage.maintenance import Maintenance
from storage.marks import LogMarks, Marks
from storage.metrics import Metric, Metrics
from storage.offset import BEFORE_ALL, LogOffset
from storage.open_logs import OpenLog, OpenLogs
from storage.removals import Removals
from storage.repair import run_repairs
from storage.room import Room
from storage.shape_log import Placement
from storage.share import Share
from storage.write_buffer import BufferOptions, WriteBuffer


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Bounds and triggers; the reasons of the defaults are in `storage/limits.py`."""

    buffer: BufferOptions = field(default_factory=BufferOptions)
    flush: FlushOptions = field(default_factory=FlushOptions)


class Store:
    """The logs of one folder. Thread-safe; there is one writer a folder (`storage.folder_lock`)."""

    def __init__(
        self, disk: Disk, clocks: Clocks, options: StoreOptions | None = None, *, confirmed_tx: int = 0
    ) -> None:
        """`confirmed_tx`: G. Rows of transactions below it must be there, or their log is damaged."""
        options = options or StoreOptions()
        self.disk = disk
        self.metrics = Metrics()
        self.lock = threading.RLock()
        """Guards the state; held for microseconds, and never while a file is written but to cut or remove one."""
        self.flushing = threading.RLock()
        """Held from the begin of a flush to its end by those who flush in one step; taken before `lock`."""
        self.flush_wanted = threading.Event()
        """Set when a flush has become due, or will be after a while."""
        self.logs = OpenLogs(disk, confirmed_tx, options.flush.segment_bytes_max)
        self._clocks = clocks
        self._buffer = WriteBuffer(options.buffer)
        self._control = FlushControl(self.logs, self._buffer, self.metrics, options.flush)
        self._marks = LogMarks()
        self._intake = Intake(self.logs, self._buffer, self.metrics)
        self._maintenance = Maintenance(threading.Condition(self.lock))
        self._must_abandon = False
        self._stop_waiting = False
        self.room = Room(self.lock, self._buffer, self.flush_wanted)
        self._removals = Removals(self.logs, self._buffer, self.room, self._is_idle)
        with named_faults(layout.LOGS):
            disk.make_folder(layout.LOGS)
            disk.make_folder(layout.JOURNAL)
            disk.sync_folder("")
            disk.sync_folder(layout.LOGS)  # a process that was killed may have made a log, and not come so far
            self.logs.recover(clocks.wall())

    # Logs

    def create_log(self, facts: LogFacts) -> None:
        """Make a new log, on disk when this returns. Its number must never have been used."""
        with self.lock, named_faults(layout.log_folder(facts.log)):
            self.logs.create(facts)

    def remove_log(self, log: int) -> None:
        """Drop a log with all it has; readers get `UnknownLog`. May be repeated after a crash."""
        with self.lock:
            self._removals.begin(log)
            self._intake.open_logs.pop(log, None)
        self._marks.close(log, "the log was removed")
        with self.lock:
            if self._is_idle(log):
                self._removals.finish(log)

    def log(self, log: int) -> OpenLog:
        """An open log. For the other modules of storage, under `lock`."""
        if log in self._removals:
            raise UnknownLog(f"log {log} was removed")
        opened = self.logs.peek(log)
        if opened is not None:
            return opened
        with named_faults(layout.log_folder(log)):
            return self.logs.get(log)

    def new_base(self, log: int) -> BaseWriter:
        """Begin a base of a log: a snapshot. It can be read while it is written; unfinished, it goes with a crash."""
        with self.lock:
            files = self.log(log).files
            writer = BaseWriter(self.disk, log, files.new_base_number())
            files.bases.append(writer.base)
            return writer

    @contextlib.contextmanager
    def maintain(self, log: int, *, is_small: bool = False) -> Iterator[OpenLog]:
        """Work on a log's old files while others append, flush and read; see `Maintenance`."""
        try:
            with self._maintenance.of(log, is_small=is_small):
                with self.lock:
                    opened = self.log(log)
                yield opened
        finally:
            with self.lock:
                self._removals.finish_idle()

    # Rows

    def append(
        self, log: int, rows: pa.RecordBatch | pa.Table, *, after: LogOffset, aligned: LogOffset | None = None
    ) -> Placement:
        """Add rows: all that the log gets after `after`, up to the last of them. With `aligned`, commit them too.

        A replay is recognised by its offsets, and what is known of it left out. Raises `BufferFull` when there is no
        room; nothing was taken then.
        """
        source = source_of(rows)
        if source.size >= limits.PART_BYTES_MIN:
            source.prepare()
        with self.lock:
            opened = self._writable(log)
            share = Share(source, None, at=self._clocks.monotonic())
            placement = self._intake.take(opened, share, after, aligned)
            self._intake.tidy(opened)
        self._after_change((log,))
        return placement

    def append_fragment(
        self, rows: pa.RecordBatch, shares: FragmentShares, *, after: LogOffset, upto: LogOffset
    ) -> None:
        """Add each log's rows of a fragment, which holds all there is after `after` up to `upto`.

        May be repeated after an error: a log that took its rows knows them.
        """
        source = fragment_source(rows, shares)
        take, commit = self._intake.take, self._intake.commit
        try:
            with self.lock:
                for log, whole, aligned, still_open in shares.cut(source, self._clocks.monotonic()):
                    opened = self._writable(log)
                    if whole is not None:
                        take(opened, whole, after, aligned)
                    elif aligned is not None:
                        commit(opened, aligned)
                    if still_open is not None:
                        take(opened, still_open, after)
                self._intake.covered = max(self._intake.covered, upto)
        finally:
            self._after_change(shares.logs)  # also of those that took their rows before another could not

    def commit(self, log: int, aligned: LogOffset) -> bool:
        """The open transaction ended at `aligned`: its rows become visible. False if that was known."""
        with self.lock:
            committed = self._intake.commit(self._writable(log), aligned)
        self._after_change((log,))
        return committed

    def resume(self, covered: LogOffset) -> None:
        """A stream begins that will send everything above `covered`; every log has what lies at or below."""
        with self.lock:
            self._intake.covered = covered

    def quiet(self) -> None:
        """Nothing more is on its way: rows need not wait for others to be flushed with."""
        with self.lock:
            self._buffer.quiet()
        self._after_change(())

    def abandon(self) -> None:
        """The connection is lost: drop every open transaction, in memory and on disk, synced (A3).

        Waits for the flush in flight. Raises `SharedDiskFault` if the disk refuses, or `DiskStalled` if it does not
        answer; then it is to be called again, and nothing is taken before it has succeeded.
        """
        with self._one_flush_at_a_time(), self.lock:
            if self._control.job is not None:
                raise Misuse("a flush is in flight: its rows may belong to the transaction that is dropped")
            self._must_abandon = True
            cut = self._intake.drop_open_rows()
            with named_faults(layout.JOURNAL, shared=True):
                run_repairs(self.disk, self.logs.index.repairs)
                aligned = {log: opened.state.visible for log, opened in cut.items()}
                open_rows.remove_open_shares(self.disk, self.logs.index, aligned, written_at=self._clocks.wall())
            for opened in cut.values():
                opened.state.open_rows_were_cut(self.logs.wire_end(opened))
            stopped = self._stopped(self._intake.open_logs)
            self._intake.open_logs.clear()
            # The stream had covered what is dropped now; how far the next one's past is covered, `resume` says.
            self._intake.covered = BEFORE_ALL
            self._must_abandon = False
            self.room.was_made()
        self._tell_of_stop(stopped)

    # Flushes

    def next_flush_at(self) -> float | None:
        """When `begin_flush` will have something to do, on the monotonic clock; None: not before the next append."""
        with self.lock:
            return None if self._control.job is not None else self._control.next_due_at()

    def begin_flush(self, *, demand: Iterable[int] | None = None) -> FlushJob | None:
        """Plan a flush of what is due, or of these logs (`demand`). None if there is nothing to do now."""
        with self.lock:
            if demand is not None:
                self._buffer.demand(self.log(log).state for log in demand)
            return self._control.begin(self._clocks.monotonic(), self._clocks.wall())

    def end_flush(self, job: FlushJob) -> list[Flushed]:
        """Settle a job that has run. Returns which logs are durable further than before; readers are woken."""
        with self.lock:
            flushed = self._control.end(job, self._clocks.monotonic())
            self._removals.finish_idle()
            self.room.was_made()
            is_waited_for = bool(self._marks)
            stopped = self._stopped(job.triggers) if is_waited_for else []
        if is_waited_for:
            for one in flushed:
                self._marks.durable(one.log, one.aligned)
            self._tell_of_stop(stopped)
        return flushed

    def flush(self, *, demand: Iterable[int] | None = None) -> list[Flushed]:
        """One flush from begin to end, in this thread. Empty if nothing was due or nothing became durable."""
        with self._one_flush_at_a_time():
            job = self.begin_flush(demand=demand)
            if job is None:
                return []
            try:
                job.run(self.disk)
            finally:  # also after a defect: what is in flight for ever could neither be read on nor be dropped
                flushed = self.end_flush(job)
            return flushed

    def wait_until_due(self, timeout_seconds: float) -> None:
        """Return when `flush` will have something to do, when the time is up, or after `stop_waiting`."""
        if self._stop_waiting:
            return
        self.flush_wanted.clear()
        due_at = self.next_flush_at()
        if due_at is not None:
            timeout_seconds = min(timeout_seconds, due_at - self._clocks.monotonic())
        if timeout_seconds > 0 and not self._stop_waiting:
            self.flush_wanted.wait(timeout_seconds)

    def stop_waiting(self) -> None:
        """Nobody waits for a flush to become due any more: who does is woken."""
        self._stop_waiting = True
        self.flush_wanted.set()

    def flush_all(self) -> list[Flushed]:
        """Flush every row there is; raises the fault that prevents it."""
        flushed, seen = list[Flushed](), list[int]()
        with self._one_flush_at_a_time():
            if self._control.job is not None:
                raise Misuse("a flush is in flight: whoever began it ends it first")
        while dirty := self._dirty_logs():
            flushed += (news := self.flush(demand=dirty))
            if self.fault:
                raise self.fault.anew()
            if not news and seen == dirty == self._dirty_logs():
                raise Misuse("logs stay dirty, though nothing prevents their flush", logs=dirty[:5])
            seen = dirty
        return flushed

    @contextlib.contextmanager
    def _one_flush_at_a_time(self) -> Iterator[None]:
        """Wait for the flush of another thread. Raises `DiskStalled` if that takes too long."""
        if not self.flushing.acquire(timeout=limits.FLUSH_WAIT_SECONDS_MAX):
            raise DiskStalled(f"the flush in flight has not ended in {limits.FLUSH_WAIT_SECONDS_MAX:g} s")
        try:
            yield
        finally:
            self.flushing.release()

    def _dirty_logs(self) -> list[int]:
        with self.lock:
            dirty = [opened.facts.log for opened in self.logs if opened.state.pending or opened.state.dirty]
            return [log for log in dirty if log not in self._removals]

    # Marks

    def marks(self, log: int) -> tuple[LogOffset, LogOffset]:
        """V and D of a log."""
        with self.lock:
            state = self.log(log).state
            return state.visible, state.durable

    def wait_visible(self, log: int, above: LogOffset, timeout_seconds: float) -> LogOffset | None:
        """Wait until something above the offset is visible; None when the time is up."""
        return self.watch(log).visible.wait_above(above, min(timeout_seconds, limits.WAIT_SECONDS_MAX))

    def wait_durable(self, log: int, above: LogOffset, timeout_seconds: float) -> LogOffset | None:
        """Wait until something above the offset is durable; None when the time is up."""
        return self.watch(log).durable.wait_above(above, min(timeout_seconds, limits.WAIT_SECONDS_MAX))

    def watch(self, log: int) -> Marks:
        """The marks of a log, for an event loop to subscribe to."""
        with self.lock:
            state = self.log(log).state
            return self._marks.watch(log, state.visible, state.durable)

    @property
    def fault(self) -> SharedDiskFault | None:
        """Why writing pauses, if it does."""
        return self._control.fault

    def wait_for_room(self, size: int, timeout_seconds: float, *, log: int | None = None) -> bool:
        """Wait until a table of that many bytes would be taken (by this log); False when the time is up.

        Raises `WriterStops` after `release_producers`, unless there is room.
        """
        with self.lock:
            state = None if log is None else self.log(log).state
            return self.room.wait(size, state, min(timeout_seconds, limits.WAIT_SECONDS_MAX))

    def release_producers(self) -> None:
        """The writer stops: nobody waits for room any more. Who does is told, and none of its rows were taken."""
        with self.lock:
            self.room.close()

    def gauges(self) -> dict[Metric, float]:
        """What is measured when somebody looks."""
        with self.lock:
            oldest = self._buffer.oldest_at()
            age = 0.0 if oldest is None else self._clocks.monotonic() - oldest
            return {
                Metric.BUFFERED_BYTES: self._buffer.size,
                Metric.OLDEST_UNFLUSHED_SECONDS: age,
                Metric.JOURNAL_BYTES: self.logs.index.size,
                Metric.OPEN_LOGS: len(self.logs),
                Metric.TORN_TAILS: len(self.logs.found.torn),
                Metric.LOGS_IN_DOUBT: len(self.logs.found.doubts),
                Metric.FAULT: self.fault is not None,
            }

    def _tell_of_stop(self, logs: Iterable[int]) -> None:
        """Whoever waits for more of these logs waits in vain."""
        for log in logs:
            self._marks.close(log, "the log stopped")

    # Inside, under the lock

    def _stopped(self, logs: Iterable[int]) -> list[int]:
        """Those of the logs that take no more rows."""
        opened = [(log, self.logs.peek(log)) for log in logs]
        return [log for log, one in opened if one is not None and one.state.fault is not None]

    def _writable(self, log: int) -> OpenLog:
        if self._must_abandon:
            raise Misuse("the open transactions were not dropped yet: `abandon` must succeed first")
        return self.log(log)

    def _is_idle(self, log: int) -> bool:
        """Whether nobody uses a log's files but readers."""
        return self._control.job is None and log not in self._maintenance

    def _after_change(self, logs: Iterable[int]) -> None:
        """V is stored; tell those who wait for data, and the flusher if there is something new for it."""
        if self._buffer.take_news():
            self.flush_wanted.set()
        if self._marks:
            for log in logs:
                opened = self.logs.peek(log)
                if opened is not None:
                    self._marks.visible(log, opened.state.visible)
