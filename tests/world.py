"""A store and its model side by side: whatever is done is done to both, and they are compared.

`World` is the driver of the tests that look for lost, doubled and torn rows: at random, at every crash, at every fault.
It plays the source (a stream that begins again where it was confirmed), the flush tracker (which acts on `Flushed`
alone) and the readers.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import numpy as np
import pytest
from hypothesis import settings

from storage.errors import BufferFull, LogFault, PermissionLost, SharedDiskFault, StorageError
from storage.faulty_disk import FaultyDisk, NoFaults, Rule, Script
from storage.file_write import Stage
from storage.flush import FlushJob
from storage.flush_control import FlushOptions
from storage.incoming import FragmentShares
from storage.limits import READ_BYTES_MAX
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.shape_log import Mode
from storage.store import Store, StoreOptions
from storage.store_reader import StoreReader
from storage.write_buffer import BufferOptions
from tests.model import LogModel, Row, Stream, Transaction, batch_of, rows_in
from tests.unit.builders import Clock

TRIES_MAX: Final = 20
"""A fault that was healed does not come back, and a full buffer is empty after a flush."""

FLUSHES_MAX: Final = 100
"""What is not quiet after so many flushes never will be."""

Result = TypeVar("Result")
Fact = tuple[str, int, LogOffset]
"""What somebody outside relies on: ("durable", log, D)."""


def is_thorough() -> bool:
    """Whether this is the long form."""
    return settings().max_examples > 1_000


def small_options(
    *,
    own_segment_bytes: int = 600,
    segment_bytes: int = 4_000,
    journal_file_bytes: int = 9_000,
    journal_bytes: int = 20_000,
    journal_joined_bytes: int = 30_000,
    log_bytes: int = 6_000,
    buffer_bytes: int = 15_000,
    flush_log_rows: int = 12,
) -> StoreOptions:
    """Limits so low that a few rows fill a segment, a few flushes a journal, and a few more empty it."""
    return StoreOptions(
        buffer=BufferOptions(
            log_bytes_max=log_bytes,
            bytes_max=buffer_bytes,
            flush_log_bytes=2_000,
            flush_log_rows=flush_log_rows,
            flush_age_seconds=1.0,
        ),
        flush=FlushOptions(
            own_segment_bytes=own_segment_bytes,
            segment_bytes_max=segment_bytes,
            journal_file_bytes_max=journal_file_bytes,
            journal_bytes_max=journal_bytes,
            journal_joined_bytes_max=journal_joined_bytes,
            fault_retry_seconds=1.0,
        ),
    )


class World:
    """One data folder, its store, its model, and the world around them."""

    def __init__(
        self,
        disk: MemoryDisk,
        options: StoreOptions | None = None,
        *,
        acknowledge: Callable[[Fact], None] = lambda _: None,
    ) -> None:
        self.options = options or small_options()
        self.acknowledge = acknowledge
        self.clock = Clock()
        self.memory = disk
        self.disk = FaultyDisk(disk, NoFaults())
        self.stream = Stream()
        self.logs: dict[int, LogModel] = {}
        self.doomed: set[int] = set()
        """Logs that are being removed: after a crash they may be there or not, and are removed again."""
        self.unseen: set[int] = set()
        """Logs that were not looked at since the store was opened."""
        self.stopped: set[int] = set()
        """Logs that met a fault of their own in this process."""
        self.with_base: dict[int, int] = {}
        """For logs with a snapshot that somebody relies on, its number."""
        self.journal_copies = 0
        self.numbers = 0
        self.covered = SNAPSHOT_END
        self.half_sent: dict[int, tuple[list[Row], LogOffset]] = {}
        """What logs get committed of the fragment that is being sent: its first ones may have it before the others."""
        self.job: FlushJob | None = None
        self.must_abandon = False
        self.store: Store
        self.reader: StoreReader

    # The process and its disk

    def open(self) -> "World":
        """Start a process on the folder; it resumes the stream where it was confirmed."""
        stream = self.stream
        self.job, self.must_abandon = None, False
        self.disk = FaultyDisk(self.memory, self.disk.plan, forgotten=self.disk.forgotten)
        self.store = self.insist(
            lambda: Store(self.disk, self.clock.clocks(), self.options, confirmed_tx=stream.confirmed_tx)
        )
        self.reader = StoreReader(self.store)
        for log in sorted(self.doomed):
            self.insist(lambda log=log: self.store.remove_log(log))  # type: ignore[misc]  # a lambda's default
        self.doomed.clear()
        self.unseen, self.stopped = set(self.logs), set()
        self._connect()
        return self

    def look(self, *logs: int) -> None:
        """Open logs for the first time in this process, and see what is left of them."""
        for number in sorted(self.unseen & set(logs or self.unseen)):
            log = self.logs[number]
            visible, durable = self.insist(lambda number=number: self.store.marks(number))  # type: ignore[misc]  # a lambda's default
            assert visible == durable, f"log {number}: a new process has nothing but what is on disk"
            if log.has_ended:
                log.ends = {one.aligned for one in self.stream.transactions} | {SNAPSHOT_END}
                log.rows = self.stream.of_log(log)
                log.told = SNAPSHOT_END  # G proves nothing of it, and nobody relies on it
            log.back_to(durable)
            self.unseen.discard(number)
            if self.store.log(number).state.fault is not None:
                # G went on without it, so what a failed write of it left may look like damage to what G covers.
                assert log.has_ended, f"log {number} stopped for no reason"
                self.stopped.add(number)
            if not log.has_ended:
                self._told(log, durable)

    def killed(self) -> "World":
        """The same world in a new process; the disk kept its power, and what it was told to write but not sync.

        A sync that failed before is not made up for by one of the new process, which hears nothing of it.
        """
        again = self._again(copy_of(self.memory))
        again.disk = FaultyDisk(again.memory, NoFaults(), forgotten=self.disk.forgotten)
        return again

    def crashed(self, image: MemoryDisk) -> "World":
        """The same world after a power cut that left this image."""
        return self._again(image)

    def _again(self, disk: MemoryDisk) -> "World":
        again = World(disk, self.options)
        again.stream, again.logs = copy.deepcopy(self.stream), copy.deepcopy(self.logs)
        again.doomed, again.with_base, again.numbers = set(self.doomed), dict(self.with_base), self.numbers
        again.clock.seconds = self.clock.seconds
        return again

    def tick(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def break_(self, *rules: Rule) -> None:
        self.disk.plan = Script(*rules)

    def heal(self) -> None:
        self.disk.plan = NoFaults()

    # Logs

    def create(self, mode: Mode = Mode.APPEND, *, chunk_bytes: int = 700) -> int:
        """A log that gets its rows of all transactions from now on. Its number; one whose birth failed is not used."""
        for _ in range(TRIES_MAX):
            self.numbers += 1
            number = self.numbers
            self.doomed.add(number)
            try:
                self.store.create_log(LogFacts(number, f"handle-{number}", mode=mode, chunk_bytes=chunk_bytes))
            except SharedDiskFault:
                self.heal()
                self._try_to_remove(number)
                continue
            self.doomed.discard(number)
            self.logs[number] = LogModel(number, len(self.stream.transactions), mode, chunk_bytes)
            return number
        raise AssertionError("no log can be made")

    def remove(self, number: int) -> None:
        """The log's end, whether or not the disk lets go of it at once."""
        del self.logs[number]
        self.unseen.discard(number)
        self.doomed.add(number)
        self._try_to_remove(number)

    def _try_to_remove(self, number: int) -> None:
        try:
            self.store.remove_log(number)
        except StorageError:
            return
        if self.job is None:
            self.doomed.discard(number)

    def segments(self, number: int) -> int:
        """How many segments a log has."""
        return len(self.store.log(number).files.segments)

    @property
    def journal_files(self) -> int:
        return len(self.store.logs.index.files)

    def expect(self, fact: bool) -> None:
        """What a story relies on, as long as the disk is sound."""
        assert fact or self.disk.log, "the story is not about what it should be about"

    # Rows

    def send(self, changes: int = 1_000, *, commit: bool = True) -> None:
        """The stream's next changes as one fragment, with the ends of the transactions that they complete.

        Without `commit` the last of these ends is left for the next fragment.
        """
        rows, ends, sent, at = self._next_changes(changes, commit=commit)
        living = {number: log for number, log in self.logs.items() if not log.has_ended}
        parts: dict[int, tuple[list[int], int, LogOffset | None]] = {}
        for number, log in living.items():
            mine = [
                index for index, (one, change) in enumerate(rows) if number in one.changes[change] and _born(log, one)
            ]
            aligned = max((one.aligned for one in ends if number in one.logs and _born(log, one)), default=None)
            committed = sum(rows[index][0] in ends for index in mine)
            if mine or aligned is not None:
                parts[number] = (mine, committed, aligned)
        self.look(*parts)
        upto = LogOffset(self.stream.transactions[sent].tx, 2 * (at - 1)) if at else self.stream.end_of(sent)
        if rows:
            table = [one.row(change) for one, change in rows]
            self._append_fragment(table, parts, upto)
        else:
            for number, (_, _, aligned) in parts.items():
                assert aligned is not None
                self._commit(living[number], aligned)
        self.stream.sent, self.stream.changes_sent = sent, at

    def send_all(self) -> None:
        """Everything that was not sent."""
        while self.stream.sent < len(self.stream.transactions):
            self.send()

    def _next_changes(
        self, changes: int, *, commit: bool
    ) -> tuple[list[tuple[Transaction, int]], list[Transaction], int, int]:
        transactions = self.stream.transactions
        sent, at = self.stream.sent, self.stream.changes_sent
        rows: list[tuple[Transaction, int]] = []
        ends: list[Transaction] = []
        while sent < len(transactions):
            one = transactions[sent]
            count = min(changes - len(rows), len(one.changes) - at)
            if rows and count and one.schema != rows[-1][0].schema:
                break
            rows += [(one, change) for change in range(at, at + count)]
            at += count
            is_last = sent == len(transactions) - 1 or len(rows) >= changes
            if at < len(one.changes) or (is_last and not commit):
                break
            ends.append(one)
            sent, at = sent + 1, 0
            if len(rows) >= changes:
                break
        return rows, ends, sent, at

    def _append_fragment(
        self, table: list[Row], parts: dict[int, tuple[list[int], int, LogOffset | None]], upto: LogOffset
    ) -> None:
        mine = [index for rows, _, _ in parts.values() for index in rows]
        shares = FragmentShares(
            logs=list(parts),
            rows=np.array(mine, dtype=np.int64),
            ends=np.cumsum([len(rows) for rows, _, _ in parts.values()]).tolist(),
            committed=[committed for _, committed, _ in parts.values()],
            aligned=[aligned for _, _, aligned in parts.values()],
        )
        batch = batch_of(table)
        for number, (rows, committed, aligned) in parts.items():
            if aligned is not None:
                self.half_sent[number] = [table[index] for index in rows[:committed]], aligned
        self.insist(lambda: self.store.append_fragment(batch, shares, after=self.covered, upto=upto))
        for number, (rows, committed, _) in parts.items():
            self._finish_half(number)
            self.logs[number].take(table[index] for index in rows[committed:])
        self.covered = max(self.covered, upto)

    def _finish_half(self, number: int) -> None:
        """The log has its whole transactions of the fragment that is being sent."""
        if number in self.half_sent:
            rows, aligned = self.half_sent.pop(number)
            self.logs[number].take(rows)
            self.logs[number].commit(aligned)

    def send_to(self, number: int, count: int, *, again: int = 0, commit: bool = True, gap: bool = False) -> None:
        """The next rows of one log, ahead of the stream, with some that it knows in front of them.

        With `gap`, a log that allows it hears that its source left changes out before each transaction.
        """
        self.look(number)
        log = self.logs[number]
        if log.has_ended:
            return
        rows = self.stream.of_log(log)
        start = max(0, len(log.rows) - again)
        stop = len(log.rows) + count
        by_tx = {one.tx: one for one in self.stream.transactions}
        while start < min(stop, len(rows)):
            one = by_tx[rows[start].offset.tx]
            if log.upper > log.visible and log.upper.tx < one.tx:
                self._commit(log, by_tx[log.upper.tx].aligned)  # its end was held back; now something follows
            whole = next((at for at in range(start, len(rows)) if rows[at].offset.tx != one.tx), len(rows))
            end = min(whole, stop)
            after = rows[start - 1].offset if start else SNAPSHOT_END
            if gap and rows[start].offset > log.upper and after.tx < one.tx:
                after = LogOffset(one.tx - 1, 0)
            aligned = one.aligned if end == whole and (commit or end < stop) else None
            self._append(log, rows[start:end], after, aligned)
            start = end
        if commit and log.rows and log.upper > log.visible:
            one = by_tx[log.rows[-1].offset.tx]
            if one.rows(number)[-1] == log.rows[-1]:
                self._commit(log, one.aligned)

    def _append(self, log: LogModel, rows: Sequence[Row], after: LogOffset, aligned: LogOffset | None) -> None:
        batch = batch_of(rows)
        self.insist(lambda: self.store.append(log.number, batch, after=after, aligned=aligned))
        log.take(rows)
        if aligned is not None:
            log.commit(aligned)

    def _commit(self, log: LogModel, aligned: LogOffset) -> None:
        known = aligned <= log.visible
        assert self.insist(lambda: self.store.commit(log.number, aligned)) is not known
        log.commit(aligned)

    def lose_connection(self) -> None:
        """The same, on a disk that is mended if need be."""
        while not self.abandon():
            self.heal()

    def abandon(self) -> bool:
        """The connection is lost, and the next one begins. False if the disk refused: then nothing is sent before."""
        if self.job is not None:
            self.run()
            self.end()
        for log in self.logs.values():
            log.drop_open_rows()
        self.must_abandon = True
        try:
            self.store.abandon()
        except SharedDiskFault:
            return False
        self.must_abandon = False
        self._note_ended()
        self._connect()
        return True

    def _connect(self) -> None:
        self.stream.connect_again()
        self.covered = self.stream.end_of(self.stream.confirmed)
        self.store.resume(self.covered)

    # Flushes

    def begin(self, *, demand: Iterable[int] | None = None) -> bool:
        """Plan a flush. Whether there is one."""
        self.job = self.insist(lambda: self.store.begin_flush(demand=demand))
        if self.job is None:
            due_at = self.store.next_flush_at()
            assert due_at is None or due_at > self.clock.seconds, "a flush is due, but none begins"
        return self.job is not None

    def run(self) -> None:
        if self.job is not None:
            self.job.run(self.disk)

    def end(self) -> None:
        """The flush's end; what it made durable may be relied on from now on."""
        if self.job is None:
            return
        job, self.job = self.job, None
        flushed = self.store.end_flush(job)
        self.journal_copies += job.copy is not None and job.copy.file.stage is Stage.DONE
        for one in flushed:
            if one.log in self.logs:
                log = self.logs[one.log]
                if one.aligned > log.visible:
                    self._finish_half(one.log)
                assert log.told < one.aligned <= log.visible
                self._told(log, one.aligned)
        self._note_ended()

    def flush(self, *logs: int) -> None:
        """All three, of these logs or of what is due."""
        if self.begin(demand=logs or None):
            self.run()
            self.end()

    def flush_all(self) -> None:
        """A flush of every log that was looked at; after a fault, when it is time to try again."""
        if self.store.fault is not None:
            self.tick(self.options.flush.fault_retry_seconds)
        self.flush(*(number for number in self.logs if number not in self.unseen))

    def is_paused(self) -> bool:
        """Whether the store waits for the disk to be mended."""
        return self.store.fault is not None

    def flush_until_quiet(self) -> None:
        """Whenever a flush is due."""
        for _ in range(FLUSHES_MAX):
            due_at = self.store.next_flush_at()
            if due_at is None:
                return
            self.clock.seconds = max(self.clock.seconds, due_at)
            self.flush()
        raise AssertionError("flushes do not end")

    def confirm(self, count: int | None = None) -> None:
        """Tell Postgres that it may forget what is durable; no more than so many transactions."""
        may = self.stream.may_confirm(self.logs.values())
        self.stream.confirmed = max(self.stream.confirmed, may if count is None else min(count, may))

    def _told(self, log: LogModel, aligned: LogOffset) -> None:
        assert aligned in log.ends
        log.told = aligned
        self.acknowledge(("durable", log.number, aligned))

    def _note_ended(self) -> None:
        for number, log in self.logs.items():
            opened = self.store.logs.peek(number)
            if opened is not None and opened.state.fault is not None and not log.has_ended:
                # No other fault of one log is ever injected.
                assert isinstance(opened.state.fault, PermissionLost), f"log {number} stopped: {opened.state.fault}"
                log.has_ended = True
                self.stopped.add(number)
                log.back_to(log.told)

    # Comparison

    def check(self) -> None:
        """Every log that was looked at is as its model says, and what waits will be flushed."""
        for number, log in self.logs.items():
            if number not in self.unseen:
                self._check_marks(log)
                self.check_read(number, SNAPSHOT_END, READ_BYTES_MAX)
        self._check_liveness()

    def _check_marks(self, log: LogModel) -> None:
        visible, durable = self.store.marks(log.number)
        assert durable <= visible
        assert (visible, durable) == (log.visible, log.told), f"V and D of log {log.number}"
        if not log.has_ended:
            marks = self.store.watch(log.number)
            assert (marks.visible.value, marks.durable.value) == (visible, durable)

    def _check_liveness(self) -> None:
        states = [opened.state for opened in self.store.logs]
        held = [state for state in states if state.pending or state.window]
        if not held:
            assert self.store.gauges()[Metric.BUFFERED_BYTES] == 0
        waiting = [state for state in states if state.fault is None and (state.pending or state.dirty)]
        if waiting and self.job is None:
            due_at = self.store.next_flush_at()
            assert due_at is not None, f"nobody would flush {[state.number for state in waiting]}"
            assert due_at <= self.clock.seconds + 1.0

    def check_read(self, number: int, after: LogOffset, max_bytes: int | None) -> None:
        """One read returns what it should."""
        log = self.logs[number]
        expected = log.read(after, max_bytes)
        if number in self.stopped and expected.at_end:
            # Who reads on from the last durable row hears why no more will come.
            if not expected.rows:
                with pytest.raises(LogFault):
                    self.reader.read(number, after, max_bytes)
                return
            expected = expected._replace(at_end=False)
        result = self.insist(lambda: self.reader.read(number, after, max_bytes))
        where = f"log {number} after {after}, at most {max_bytes} bytes"
        assert rows_in(result.rows) == expected.rows, where
        assert (result.next, result.at_end, result.chunk_ended) == expected[1:], where
        assert (result.visible, result.durable) == (log.visible, log.told), where

    def check_walk(self, number: int, max_bytes: int | None) -> None:
        """Reads that go on where the last one ended pass every row once."""
        log = self.logs[number]
        after = SNAPSHOT_END
        while after < (log.visible_rows[-1].offset if log.visible_rows else SNAPSHOT_END):
            self.check_read(number, after, max_bytes)
            after = log.read(after, max_bytes).next

    def check_everywhere(self) -> None:
        """From each offset, and in steps of every kind."""
        self.look()
        for number, log in self.logs.items():
            for row in log.rows:
                if row.offset <= log.visible:
                    self.check_read(number, row.offset, READ_BYTES_MAX)
            for max_bytes in (None, 0, 1, 300):
                self.check_walk(number, max_bytes)

    # Coming to rest

    def settle(self) -> None:
        """Heal the disk; flush whenever a flush is due, until none is. Then all that is visible is durable."""
        self.heal()
        if self.job is not None:
            self.run()
            self.end()
        if self.must_abandon:
            assert self.abandon(), "the disk is sound again"
        self.flush_until_quiet()
        for number, log in self.logs.items():
            if number not in self.unseen and not log.has_ended:
                visible, durable = self.store.marks(number)
                assert durable == visible, f"log {number} rests at {durable}, {visible} is visible"
        assert self.store.gauges()[Metric.BUFFERED_BYTES] == 0

    def finish(self) -> None:
        """Send all that was not confirmed, come to rest, compare everything; and again after a crash."""
        self.settle()
        self.look()
        self.send_all()
        self.settle()
        self.check()
        for log in self.logs.values():
            if not log.has_ended:
                assert log.visible_rows == self.stream.of_log(log), f"log {log.number} has not all of its rows"

    def insist(self, call: Callable[[], Result]) -> Result:
        """Until it works: a full buffer is flushed, a broken disk mended."""
        for _ in range(TRIES_MAX):
            try:
                return call()
            except BufferFull:
                self._make_room()
            except (SharedDiskFault, PermissionLost):
                self.heal()
        raise AssertionError("it does not work on a sound disk either")

    def _make_room(self) -> None:
        self.heal()
        if self.job is None:
            self.tick(self.options.flush.fault_retry_seconds)
            self.begin(demand=[number for number in self.logs if number not in self.unseen])
        if self.job is not None:
            self.run()
            self.end()


def _born(log: LogModel, transaction: Transaction) -> bool:
    return transaction.tx > 10 * log.birth


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """The disk as it is, what is not synced included."""
    again = MemoryDisk()
    again._root = copy.deepcopy(disk._root)
    return again
