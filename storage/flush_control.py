"""When a flush begins and what follows from its end. Called under the store's lock.

States of a flush:   nothing due -> planned (`begin`) -> run, by anybody -> ended (`end`)
Invariants:
    at most one job is between `begin` and `end`
    D moves only for a write that is DONE; a write without an outcome counts as failed
    after a failure the shares are at the front of their logs again, or their log is poisoned and says why
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from storage import limits
from storage.errors import LogFault, SharedDiskFault
from storage.file_write import Stage
from storage.flush import (
    Flushed,
    FlushJob,
    JournalTarget,
    Leaving,
    LeavingMax,
    WaitingLogs,
    logs_to_leave,
    plan_segment,
)
from storage.journal import JournalFile
from storage.journal_join import JournalJoin
from storage.journal_write import JournalCopy, JournalWrite
from storage.layout import damaged_journal_path, journal_path
from storage.metrics import Metric, Metrics
from storage.open_logs import OpenLogs
from storage.repair import Repair
from storage.segment_write import SegmentWrite
from storage.shape_log import Drained, ShapeLog
from storage.write_buffer import Trigger, WriteBuffer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushOptions:
    """What a test or an operator may change; the reasons of the defaults are in `storage/limits.py`."""

    own_segment_bytes: int = limits.OWN_SEGMENT_FLUSH_BYTES
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    journal_bytes_max: int = limits.JOURNAL_BYTES_MAX
    journal_joined_bytes_max: int = limits.JOURNAL_JOINED_BYTES_MAX
    journal_flush_bytes_max: int = limits.JOURNAL_FLUSH_BYTES_MAX
    journal_file_bytes_max: int = limits.JOURNAL_FILE_BYTES_MAX
    fault_retry_seconds: float = limits.FAULT_RETRY_SECONDS


class FlushControl:
    """Plans flushes of the logs that are due, and settles what came of them."""

    def __init__(self, logs: OpenLogs, buffer: WriteBuffer, metrics: Metrics, options: FlushOptions) -> None:
        self._logs = logs
        self._buffer = buffer
        self._metrics = metrics
        self._options = options
        self._target = JournalTarget(
            logs.index, options.journal_bytes_max, options.journal_joined_bytes_max, options.journal_file_bytes_max
        )
        self._waiting = {is_young: WaitingLogs(logs.index) for is_young in (True, False)}
        self.job: FlushJob | None = None
        self._begun = 0
        """Flushes so far."""
        self.fault: SharedDiskFault | None = None
        """Why writing pauses; cleared by the first write that succeeds, or when nothing is left to write."""
        self._retry_at = 0.0
        self._written = 0
        """Bytes since memory was last given back to the system."""
        self._grew = {True: 0, False: 0}
        """Bytes of blocks in young and in other journal files, since logs last left files of the kind."""
        self._must_move: set[int] = set()
        """Logs that could not be joined, since something cannot be read: each by itself, it is that log's fault."""
        self._cannot_empty = False
        """The journal is too long, but what it holds can neither go to segments nor shrink: wait for new blocks."""

    def next_due_at(self) -> float | None:
        """When `begin` will have something to do; None while only an append or a commit can bring that about."""
        must_empty = bool(self._target.over_bound()) and not self._cannot_empty
        due_at = 0.0 if must_empty else self._buffer.next_due_at()
        return due_at if due_at is None or self.fault is None else max(due_at, self._retry_at)

    def begin(self, now: float, written_at: int) -> FlushJob | None:
        """Take what is due out of the buffer. None if a flush is in flight, writing pauses, or nothing is due."""
        if self.job is not None or (self.fault is not None and now < self._retry_at):
            return None
        self._retire_journals()
        due = self._buffer.due(now)
        own: list[tuple[ShapeLog, Trigger]] = []
        small: list[tuple[ShapeLog, Trigger]] = []
        for log, trigger in due.values():
            (own if log.pending_size >= self._options.own_segment_bytes else small).append((log, trigger))
        moving = self._scattered(small)
        # What goes to its segment with this flush must not be joined by it as well.
        leaving, copy = self._emptying(moving.keys() | {log.number for log, _ in own})
        moving |= leaving
        small = [(log, trigger) for log, trigger in small if log.number not in moving]
        large = {log.number for log, _ in own}
        own += [(log, Trigger.JOURNAL) for log in moving.values() if log.number not in large]
        if not (own or small or copy):
            if self._buffer.next_due_at() is None:
                self.fault = None  # what could not be written is gone; the next write will see how the disk is
            return None
        if small:
            # The sync is paid anyway: what else is small goes along, so that it needs none of its own.
            taken = {log.number for log, _ in (*own, *small)}
            reason = small[0][1]
            others = self._buffer.small(self._options.own_segment_bytes)
            small += [(log, reason) for log in others if log.number not in taken]
            small = small[: self._fitting([log for log, _ in small])]
        self.job = self._plan(own, small, copy, written_at)
        return self.job

    def end(self, job: FlushJob, now: float) -> list[Flushed]:
        """Settle every write of the job; the logs that are durable further than before are returned."""
        assert job is self.job, "the flush that ends is the one in flight"
        self.job = None
        flushed: list[Flushed] = []
        failed: list[ShapeLog] = []
        for write in job.segments:
            if write.file.stage is Stage.DONE:
                flushed += self._segment_done(write)
            else:
                failed += self._segment_failed(write)
        if job.journal is not None:
            if job.journal.file.stage is Stage.DONE:
                flushed += self._journal_done(job.journal)
            else:
                failed += self._journal_failed(job.journal)
        if isinstance(job.copy, JournalJoin):
            self._settle_join(job.copy)
        elif job.copy is not None:
            self._settle_copy(job.copy)  # last: the removal that it leaves is for the next write
        self._retire_journals()
        self._note_fault(job, now)
        self._buffer.restore(failed)
        for number in job.triggers:
            opened = self._logs.peek(number)  # one that was removed meanwhile is not there any more
            if opened is not None:
                self._buffer.touch(opened.state)
        self._count(job)
        return flushed

    def _fitting(self, small: Sequence[ShapeLog]) -> int:
        """How many of the logs one journal write takes; the others stay due. At least one."""
        size = 0
        for count, log in enumerate(small):
            size += log.pending_size
            if count and size > self._options.journal_flush_bytes_max:
                return count
        return len(small)

    def _emptying(self, moving: set[int]) -> tuple[dict[int, ShapeLog], JournalCopy | JournalJoin | None]:
        """Logs that leave the oldest journal file, if the journal is too long; if none can, what is left is copied.

        That is what stopped logs have there. It may stay for long: out of the way of young files, which go in order.
        `moving`: logs that go to their segments anyway.
        """
        files = self._target.over_bound()
        for oldest in files:
            self._cannot_empty = False
            leaving = self._leaving(oldest, moving)
            if leaving:
                return leaving.moving, self._join(leaving.joining, oldest)
            if leaving.has_open:
                self._cannot_empty = True  # only another flush can change that
                return {}, None  # nor do files behind this one go before it
            living = self._logs.index.living(oldest.number)
            if oldest.is_young or 2 * len(living) < sum(map(len, oldest.directories)):
                target, file = self._target.new_write()
                return {}, JournalCopy(living, target, file, oldest.number, leaves_unreadable=True)
            self._cannot_empty = True
        if not files:
            self._grew = {True: 0, False: 0}
        return {}, None

    def _leaving(self, oldest: JournalFile, moving: set[int]) -> Leaving:
        """So many that all logs leave while the files of the kind grow by as much as they may be.

        Of those to be joined as many as are joined at a time: the fewer, the more often each part is read for them.
        """
        index, options, is_young = self._logs.index, self._options, oldest.is_young
        bytes_max = options.journal_bytes_max if is_young else options.journal_joined_bytes_max
        pace = len(index.logs()) * self._grew[is_young] // bytes_max
        most, must_move = max(limits.JOURNAL_LOGS_PER_FLUSH, pace), self._must_move | moving
        young_bytes = sum(file.size for file in index.young_files.values())
        fitting = len(index.logs()) * limits.JOURNAL_JOIN_BYTES_MAX // max(1, young_bytes)
        at_most = LeavingMax(most, max(most, fitting))
        while True:
            waiting = self._waiting[is_young]
            is_new = waiting.begin(oldest.number)
            find = self._logs.find
            leaving = logs_to_leave(index, oldest, waiting, find, at_most, options.own_segment_bytes, must_move)
            if leaving:
                self._grew[is_young] = 0
            if leaving or is_new:
                return leaving

    def _join(self, logs: Sequence[int], oldest: JournalFile) -> JournalJoin | None:
        if not logs:
            return None
        target, file = self._target.next_join()
        join = JournalJoin(self._logs.index.scattered(logs).up_to(limits.JOURNAL_JOIN_BYTES_MAX), target, file)
        self._waiting[oldest.is_young].put_back(logs[len(join.logs) :])
        return join

    def _scattered(self, small: Sequence[tuple[ShapeLog, Trigger]]) -> dict[int, ShapeLog]:
        """Logs that are in so many pieces of the journal that their readers feel it; a few at a time."""
        shares_count = self._logs.index.shares_count
        found = (log for log, _ in small if shares_count(log.number) >= limits.JOURNAL_LOG_SHARES_MAX)
        return {log.number: log for log in islice(found, limits.JOURNAL_LOGS_PER_FLUSH)}

    def _plan(
        self,
        own: list[tuple[ShapeLog, Trigger]],
        small: list[tuple[ShapeLog, Trigger]],
        copy: JournalCopy | JournalJoin | None,
        written_at: int,
    ) -> FlushJob:
        triggers = {log.number: trigger for log, trigger in (*own, *small)}
        self._begun += 1
        job = FlushJob(self._begun, written_at, triggers, self._logs.index.repairs, copy=copy)
        job.gives_back = self._written >= limits.FLUSH_RELEASE_BYTES or Trigger.QUIET in triggers.values()
        self._written = 0 if job.gives_back else self._written
        for log, _ in own:
            job.segments.append(plan_segment(self._drain(log), self._logs.get(log.number).files, self._logs.index))
        if small:
            target, file = self._target.next_write()
            by_number = sorted((log for log, _ in small), key=lambda log: log.number)  # neighbours move together
            job.journal = JournalWrite([self._drain(log) for log in by_number], target, file)
        return job

    def _drain(self, log: ShapeLog) -> Drained:
        self._buffer.forget(log)
        return log.drain()

    def _segment_done(self, write: SegmentWrite) -> list[Flushed]:
        state = write.drained.log
        self._logs.get(state.number).files.took(write.segment, write.file.refs)
        self._logs.index.drop(state.number)
        self._must_move.discard(state.number)
        return self._log_done(write.drained, write.wire_end)

    def _segment_failed(self, write: SegmentWrite) -> list[ShapeLog]:
        state = write.drained.log
        files = self._logs.get(state.number).files
        files.lost(write.segment, write.file.repair, sync_failed=write.file.stage is Stage.SYNC)
        state.failed()
        failure = write.file.failure
        if isinstance(failure, LogFault):
            logger.error("log %d (%s) stopped: %s", state.number, state.handle, failure)
            self._buffer.release(state.poison(failure))
            return []
        return [state]

    def _journal_done(self, write: JournalWrite) -> list[Flushed]:
        index = self._logs.index
        index.repairs.clear()
        if write.target.number not in index.files:
            index.add_file(write.target)
        self._target.current = write.target
        self._cannot_empty = False
        for ref, directory, _ in write.directories:
            index.add_block(write.target, ref, directory)
            self._grew[True] += ref.header.size
        return [
            one for drained in write.drained for one in self._log_done(drained, write.wire_ends[drained.log.number])
        ]

    def _journal_failed(self, write: JournalWrite) -> list[ShapeLog]:
        self._target.current = None
        if write.file.repair is not None:
            self._logs.index.repairs.append(write.file.repair)
        for drained in write.drained:
            drained.log.failed()
        return [drained.log for drained in write.drained]

    def _settle_join(self, join: JournalJoin) -> None:
        index = self._logs.index
        if join.file.stage is not Stage.DONE:
            self._target.joined = None
            index.repairs.extend([join.file.repair] if join.file.repair else [])
            if isinstance(join.file.failure, LogFault):
                self._must_move |= set(join.logs)
            return
        assert join.directory is not None
        if join.target.number not in index.files:
            index.add_file(join.target)
        self._target.joined = join.target
        (ref,) = join.file.refs
        index.join(join.scattered, join.target, ref, join.directory)
        self._grew[False] += ref.header.size

    def _settle_copy(self, copy: JournalCopy) -> None:
        index = self._logs.index
        if copy.file.stage is not Stage.DONE:
            if copy.file.repair is not None:
                index.repairs.append(copy.file.repair)
            # What cannot be read cannot be copied the next time either.
            self._cannot_empty = self._cannot_empty or isinstance(copy.file.failure, LogFault)
            return
        index.drop_file(copy.copied_from)
        if copy.file.refs:
            index.add_file(copy.target)
        for ref, block in zip(copy.file.refs, copy.blocks, strict=True):
            index.add_block(copy.target, ref, block.directory)
        aside = damaged_journal_path(copy.copied_from) if copy.unreadable else None
        index.repairs.append(Repair(journal_path(copy.copied_from), 0, aside=aside))
        self._put_in_doubt(copy)

    def _put_in_doubt(self, copy: JournalCopy) -> None:
        """The rows of some logs could not be copied: these logs stop, if they have not, and the next start knows it."""
        for number, fault in copy.unreadable.items():
            opened = self._logs.peek(number)
            handle = "not open" if opened is None else opened.facts.handle
            logger.error("log %d (%s): rows of it stay in a file that is put aside: %s", number, handle, fault)
            if opened is not None and opened.state.fault is None:
                self._buffer.release(opened.state.poison(fault))
                self._buffer.touch(opened.state)
        self._logs.found.doubts.update(copy.unreadable)

    def _log_done(self, drained: Drained, wire_end: int) -> list[Flushed]:
        log = drained.log
        self._buffer.release(drained.shares)
        if not log.flushed(wire_end):
            return []
        return [Flushed(log.number, log.handle, log.durable, log.stored)]

    def _retire_journals(self) -> None:
        """Closed files whose shares are all in segments go before the next journal write."""
        index = self._logs.index
        is_oldest_there = False
        for number, file in sorted(index.files.items()):
            is_needed = file.live or file is self._target.current or file is self._target.joined
            if is_needed or (file.is_young and is_oldest_there):
                # Joined shares name the oldest young file that they may come from: while it is there, all others are.
                is_oldest_there = is_oldest_there or file.is_young
                continue
            index.drop_file(number)
            index.repairs.append(Repair(journal_path(number), 0))

    def _note_fault(self, job: FlushJob, now: float) -> None:
        failure = job.failure
        if isinstance(failure, SharedDiskFault):
            if self.fault is None:
                logger.error("writing pauses: %s", failure)
            self.fault = failure.anew()
            self._retry_at = now + self._options.fault_retry_seconds
        elif self.fault is not None and any(file.stage is Stage.DONE for file in job.files):
            logger.warning("writing resumes after: %s", self.fault)
            self.fault = None

    def _count(self, job: FlushJob) -> None:
        for trigger, amount in Counter(job.triggers.values()).items():
            self._metrics.count(Metric.FLUSHES, trigger.value, amount)
        for file in job.files:
            if file.stage is Stage.DONE:
                size = sum(ref.header.size for ref in file.refs)
                self._written += size
                self._metrics.count(Metric.FLUSHED_BYTES, amount=size)
                self._metrics.count(Metric.SYNCS, amount=2 if file.is_new else 1)
            elif file.failure is not None:
                self._metrics.count(Metric.FLUSH_FAILURES, file.failure.code)
        if job.triggers:
            logger.debug("flushed %d logs: %s", len(job.triggers), sorted({one.value for one in job.triggers.values()}))
