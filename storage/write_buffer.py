"""What all logs together hold in memory: the bounds on it, and which logs are due for a flush, and why. Pure.

Invariants:
    size = sum over the sources held by any share, pending or in a window, + the shares' own cost
    shares_count = those shares; a new source comes only while they are fewer than their bound
    a log is in `_dirty` iff it has pending rows or owes a commit block; in the order of the oldest rows
    a due log was named with its trigger; nobody has to append for a flush to become due
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from storage import limits
from storage.errors import BufferFull
from storage.head_start import HeadStart
from storage.shape_log import ShapeLog
from storage.share import Share


class Trigger(StrEnum):
    """Why a flush happens; a label in metrics and logs."""

    BYTES = "bytes"
    ROWS = "rows"
    AGE = "age"
    """The oldest unflushed row waited long enough, whether or not another followed."""
    QUIET = "quiet"
    """Nothing more is on its way that the rows could be flushed with."""
    COMMIT = "commit"
    """A commit came after its rows were flushed, or during: a header must say so, and nothing else will come (A5)."""
    PRESSURE = "pressure"
    """All logs together filled the buffer."""
    DEMAND = "demand"
    """Somebody asked."""
    JOURNAL = "journal"
    """The oldest journal file is to be emptied."""


SHARE_COST_BYTES = 640
"""About what a share costs besides its source, as measured: the object, three offsets, its view of the row numbers."""


@dataclass(frozen=True, slots=True)
class BufferOptions:
    """The bounds and triggers; `storage/limits.py` has the reasons of the defaults."""

    log_bytes_max: int = limits.BUFFER_LOG_BYTES_MAX
    bytes_max: int = limits.BUFFER_BYTES_MAX
    shares_max: int = limits.BUFFER_SHARES_MAX
    flush_log_bytes: int = limits.FLUSH_LOG_BYTES
    flush_log_rows: int = limits.FLUSH_LOG_ROWS
    flush_age_seconds: float = limits.FLUSH_AGE_SECONDS
    flushes_when_quiet: bool = True
    """Whether rows that no others follow are flushed before their age."""


class WriteBuffer:
    """Accounts for the shares that logs hold, and says what is due."""

    def __init__(self, options: BufferOptions) -> None:
        self.options = options
        self.size = 0
        self.shares_count = 0
        self._dirty: dict[int, ShapeLog] = {}
        self._due: dict[int, tuple[ShapeLog, Trigger]] = {}
        self._has_news = False
        self._must_make_room = False
        self._is_quiet = False
        self._head_start = HeadStart(options.flush_age_seconds)
        """Of flushes of all logs: they come no more often for those that do not wait for the age."""

    def admit(self, log: ShapeLog, share_size: int, source_size: int) -> None:
        """Raise `BufferFull` unless the rows fit; a single append larger than a bound is let in when alone.

        Its facts are what to wait for (`has_room`): whoever waited for less would come again at once, and again.
        """
        options = self.options
        if log.held_size + share_size > options.log_bytes_max and self._is_log_full(log, share_size):
            raise BufferFull(
                f"log {log.number} holds {log.held_size} bytes of at most {options.log_bytes_max}",
                size=share_size,
                log=log.number,
                handle=log.handle,
            )
        if source_size and self._is_full(source_size):  # a source that is held already needs no more room
            raise BufferFull(
                f"all logs hold {self.size} bytes of at most {options.bytes_max},"
                f" in {self.shares_count} shares of at most {options.shares_max}",
                size=source_size,
            )

    def has_room(self, size: int, log: ShapeLog | None) -> bool:
        """Whether an append of that many bytes would be taken."""
        return not self._is_full(size) and (log is None or not self._is_log_full(log, size))

    def make_room(self) -> None:
        """Somebody waits for room: whatever is held is due."""
        self._must_make_room = bool(self._dirty)

    def quiet(self) -> None:
        """Nothing more is on its way: rows wait for no others, until one comes."""
        if self.options.flushes_when_quiet and self._dirty and not self._is_quiet:
            self._is_quiet = self._has_news = True

    def hold(self, log: ShapeLog, share: Share) -> None:
        """A log took a share."""
        self._is_quiet = False
        self._add(share)
        if len(log.pending) == 1:
            self._dirty.pop(log.number, None)  # it may owe a commit since earlier, but its rows are the youngest
        self.touch(log)

    def replace(self, old: Iterable[Share], new: Share) -> None:
        """A share took the place of some others of its log."""
        self._add(new)
        self.release(old)

    def _add(self, share: Share) -> None:
        source = share.source
        source.holders += 1
        if source.holders == 1:
            self.size += source.size
        self.size += _own_cost(share)
        self.shares_count += 1

    def touch(self, log: ShapeLog) -> None:
        """Look at a log again after an append, a commit, or the end of a flush."""
        if log.fault is not None:
            self.forget(log)
            return
        trigger = self._trigger_of(log)
        if trigger is not None:
            self._has_news = self._has_news or log.number not in self._due
            self._due[log.number] = (log, trigger)
        if log.pending or trigger is not None:
            self._has_news = self._has_news or not self._dirty
            self._dirty.setdefault(log.number, log)

    def take_news(self) -> bool:
        """Whether something became due, or the first row came, since this was last asked."""
        has_news, self._has_news = self._has_news or self._is_at_bound, False
        return has_news

    @property
    def _is_at_bound(self) -> bool:
        return self.size >= self.options.bytes_max or self.shares_count >= self.options.shares_max

    def _is_full(self, size: int) -> bool:
        return self._is_at_bound or (self.size > 0 and self.size + size > self.options.bytes_max)

    def _is_log_full(self, log: ShapeLog, size: int) -> bool:
        return log.held_size > 0 and log.held_size + size > self.options.log_bytes_max

    def _trigger_of(self, log: ShapeLog) -> Trigger | None:
        if not log.pending:
            return Trigger.COMMIT if log.owes_commit_block else None
        if log.pending_size >= self.options.flush_log_bytes:
            return Trigger.BYTES
        if log.pending_rows >= self.options.flush_log_rows:
            return Trigger.ROWS
        return None

    def demand(self, logs: Iterable[ShapeLog]) -> None:
        """Make these logs due if they hold anything."""
        for log in logs:
            if log.pending or log.owes_commit_block:
                self._dirty.setdefault(log.number, log)
                self._due.setdefault(log.number, (log, Trigger.DEMAND))

    def release(self, shares: Iterable[Share]) -> None:
        """These shares are on disk, or dropped."""
        for share in shares:
            source = share.source
            source.holders -= 1
            if not source.holders:
                self.size -= source.size
            self.size -= _own_cost(share)
            self.shares_count -= 1

    def forget(self, log: ShapeLog) -> None:
        """A log was drained, poisoned or removed."""
        self._dirty.pop(log.number, None)
        self._due.pop(log.number, None)

    def restore(self, logs: Iterable[ShapeLog]) -> None:
        """The flush of these logs failed: they are as old again as their rows are."""
        restored = {log.number: log for log in logs if log.pending or log.owes_commit_block}
        by_age = sorted((self._dirty | restored).values(), key=lambda log: log.pending_since)
        self._dirty = {log.number: log for log in by_age}

    def oldest_at(self) -> float | None:
        """When the oldest pending row came: the first log has it, since logs join when they get their first row."""
        for log in self._dirty.values():
            if log.pending:
                return log.pending_since
        return None

    def due(self, now: float) -> dict[int, tuple[ShapeLog, Trigger]]:
        """The logs whose flush is due: all, if the oldest waited too long or waits in vain, or the buffer is full."""
        aged_at, quiet_at = self._aged_at(), self._quiet_at()
        if aged_at is not None and now >= aged_at:
            self._head_start.done(now)
            return self._all(Trigger.AGE)
        if quiet_at is not None and now >= quiet_at:
            self._head_start.done(now)
            return self._all(Trigger.QUIET)
        if self._must_make_room or self._is_at_bound:
            self._must_make_room = False
            return self._all(Trigger.PRESSURE)
        return dict(self._due)

    def small(self, below: int) -> list[ShapeLog]:
        """Logs with pending rows of less than `below` bytes: a journal block that is written anyway takes them."""
        return [log for log in self._dirty.values() if log.pending_size < below and log.window is None]

    def next_due_at(self) -> float | None:
        """When time alone will make a flush due; None if nothing waits. In the past if something is due now."""
        if self._due or self._must_make_room or self._is_at_bound:
            return 0.0
        aged_at, quiet_at = self._aged_at(), self._quiet_at()
        return quiet_at if aged_at is None or (quiet_at is not None and quiet_at < aged_at) else aged_at

    def _aged_at(self) -> float | None:
        """When the oldest row has waited long enough: one sum for both who name the moment and who wait for it."""
        oldest = self.oldest_at()
        return None if oldest is None else oldest + self.options.flush_age_seconds

    def _quiet_at(self) -> float | None:
        """When rows that wait for no others may be flushed."""
        return self._head_start.allowed_at if self._is_quiet and self._dirty else None

    def _all(self, trigger: Trigger) -> dict[int, tuple[ShapeLog, Trigger]]:
        everything = {number: (log, trigger) for number, log in self._dirty.items()}
        return everything | self._due


def _own_cost(share: Share) -> int:
    return SHARE_COST_BYTES + (0 if share.rows is None else share.rows.nbytes)
