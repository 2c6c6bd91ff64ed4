"""One log as its writer knows it: what was appended, what is visible, what is durable. Pure.

Invariants:
    stored <= last                      rows on disk are a prefix of the rows appended
    durable <= visible                  D <= V; both are ends of whole transactions and only grow
    visible <= upper, last <= upper     and nothing at or below `known`, the end of their transactions, is taken again
    rows at or below `visible` are committed, rows above it belong to one open transaction
    dirty <=> visible > durable         a dirty log with nothing in flight owes a flush, with rows or without (A5)
    window is None or its flush is in flight; window rows come before pending rows

A row is in one place of: disk, window, pending. A share never mixes committed and open rows, so the mapping from a
shape's rows to its transactions' ends needs no list: what lies at or below `visible` ends at `visible`.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum

from storage.errors import LogFault, LogPoisoned, SourceGap, WentBackwards
from storage.offset import BEFORE_ALL, OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.share import Share, merged


class Mode(StrEnum):
    """Whether the source may leave changes out."""

    APPEND = "append"
    """Every change arrives; a forward gap means that some were lost."""

    COMPACTED = "compacted"
    """The source folds its own past; gaps are lawful, and recorded."""


class Placement(Enum):
    """Where a batch that follows `after` and ends at `last` stands, against a log that ends at `upper`."""

    BELOW = "below"
    """All of it is known: a replay. Dropped; the caller goes on."""

    AT = "at"
    """It continues the log."""

    OVERLAP = "overlap"
    """Its first rows are known, its last are not."""

    ABOVE = "above"
    """Something between the log and the batch never arrived."""


def place(
    upper: LogOffset, after: LogOffset, first: LogOffset, last: LogOffset, covered: LogOffset = BEFORE_ALL
) -> Placement:
    """Classify a batch; total, so that no position is raised past.

    That the stream was whole up to `covered` excuses a log that got nothing of it. It does not make rows known: only
    what the log has itself may be left out.
    """
    if last <= upper:
        return Placement.BELOW
    if after > max(upper, covered):
        return Placement.ABOVE
    return Placement.OVERLAP if first <= upper else Placement.AT


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery found of a log on disk; a new log has the defaults."""

    last: LogOffset = SNAPSHOT_END
    durable: LogOffset = SNAPSHOT_END
    wire_end: int = 0


@dataclass(slots=True)
class Drained:
    """What a flush took from a log: whole transactions first, then rows of the open one."""

    log: "ShapeLog"
    committed: list[Share]
    open: list[Share]
    previous: LogOffset
    """The last row on disk when the flush began; the first block continues from it."""
    aligned: LogOffset
    durable: LogOffset
    """D when the flush began: what a block may claim that ends before `aligned`."""
    wire_start: int
    """Wire size of the rows on disk when the flush began."""

    @property
    def shares(self) -> list[Share]:
        return self.committed + self.open


class ShapeLog:
    """The state of one log. Whoever calls holds the store's lock; nothing in here waits."""

    __slots__ = (
        "_committed_last",
        "durable",
        "fault",
        "handle",
        "last",
        "loose",
        "mode",
        "number",
        "pending",
        "pending_rows",
        "pending_since",
        "pending_size",
        "stored",
        "stored_wire_end",
        "taken_rows",
        "visible",
        "window",
        "window_size",
    )

    def __init__(self, number: int, handle: str, mode: Mode, recovered: Recovered) -> None:
        self.number = number
        self.handle = handle
        self.mode = mode
        self.visible = self.durable = recovered.durable
        self.last = self.stored = self._committed_last = recovered.last
        self.stored_wire_end = recovered.wire_end
        self.pending: list[Share] = []
        self.pending_size = 0
        self.pending_rows = 0
        self.pending_since = 0.0
        self.taken_rows = 0
        """Counts on while the log is open: every row that it took, twice if its transaction was sent again."""
        self.loose = 0
        """How many of the last shares are loose."""
        self.window: Drained | None = None
        self.window_size = 0
        self.fault: LogFault | None = None

    @property
    def upper(self) -> LogOffset:
        """Where the log ends: what a batch follows that continues it."""
        return max(self.last, self.visible)

    @property
    def known(self) -> LogOffset:
        """Nothing at or below this is taken again: of a transaction whose end came, nothing, whatever its number.

        A server may count a transaction's changes otherwise on another connection, if somebody altered the publication
        while it ran: before the releases of May 2025 they did.
        """
        return max(self.last, LogOffset(self.visible.tx, OP_INFINITE))

    @property
    def dirty(self) -> bool:
        """Something visible is not durable yet."""
        return self.visible > self.durable

    @property
    def held_size(self) -> int:
        """Bytes in memory, those of a flush in flight included: they are there until it has ended."""
        return self.pending_size + self.window_size

    @property
    def has_open_rows(self) -> bool:
        """Rows of a transaction whose end has not come."""
        return self.last > self.visible

    @property
    def has_open_rows_on_disk(self) -> bool:
        """What A3 and A8 want removed before the next append, when that transaction is sent again."""
        return self.stored > self.visible

    @property
    def owes_commit_block(self) -> bool:
        """The commit came after its rows were flushed, or while they were: no row will ever say it (A5)."""
        return self.dirty and not self.pending and self.window is None and self.fault is None

    def place(self, after: LogOffset, first: LogOffset, last: LogOffset, covered: LogOffset) -> Placement:
        """Where a batch stands; raises for one that must not be taken. `covered`: the stream was whole up to there."""
        self._refuse_if_stopped()
        is_new = first > self.last and first.tx > self.visible.tx
        if is_new and first > after and (after <= covered or after <= self.last):
            return Placement.AT  # nearly always, and soon said: a fragment asks thousands of logs
        if first <= after:
            raise WentBackwards(
                f"rows from {first} were said to come after {after}", log=self.number, handle=self.handle
            )
        placement = place(self.known, after, first, last, covered)
        if placement is Placement.ABOVE and self.mode is Mode.APPEND:
            raise SourceGap(
                f"the log is whole up to {max(self.upper, covered)}, the source goes on after {after}",
                log=self.number,
                handle=self.handle,
            )
        return placement

    def take(self, share: Share, now: float) -> None:
        """Add rows above everything there is; they stay invisible until `commit`."""
        share.previous = self.last
        if not self.pending:
            self.pending_since = now
        self.pending.append(share)
        self.pending_rows += share.count
        self.taken_rows += share.count
        self.pending_size += share.size
        self.loose = self.loose + 1 if share.is_loose else 0
        self.last = share.last

    def join_loose(self) -> tuple[list[Share], Share] | None:
        """Put one share in the place of the loose ones at the end; these, and that one. None if they stay."""
        loose = self.pending[len(self.pending) - self.loose :]
        self.loose = 0
        if (loose[0].last > self.visible) != (loose[-1].last > self.visible):
            return None  # a share never mixes committed and open rows
        joined = merged(loose)
        if joined is None:
            return None
        self.pending[len(self.pending) - len(loose) :] = [joined]
        self.pending_size += joined.size - sum(share.size for share in loose)
        return loose, joined

    def commit(self, aligned: LogOffset) -> bool:
        """Make all rows visible, up to their transaction's end. False if that transaction was known."""
        self._refuse_if_stopped()  # its rows are gone: their end must not be seen
        if aligned <= self.visible:
            return False
        self.check_end(self.last, aligned)
        self.visible = aligned
        self._committed_last = self.last
        return True

    def check_end(self, last: LogOffset, aligned: LogOffset) -> None:
        """Raise `WentBackwards` for a transaction that ends before its last row."""
        if aligned < last:
            raise WentBackwards(
                f"a transaction that ends at {aligned} left a row at {last}", log=self.number, handle=self.handle
            )

    def drop_open_rows(self) -> list[Share]:
        """Forget the open transaction; its shares in memory are returned. What is on disk is the caller's to cut."""
        assert self.window is None, "open rows are dropped only after the flush in flight has ended"
        dropped = [share for share in self.pending if share.last > self.visible]
        self.pending = self.pending[: len(self.pending) - len(dropped)]
        self.pending_rows = sum(share.count for share in self.pending)
        self.pending_size = sum(share.size for share in self.pending)
        self.loose = 0
        self.last = self._committed_last
        return dropped

    def open_rows_were_cut(self, wire_end: int) -> None:
        """The open rows on disk are gone too: it ends with the last committed row, at this wire size."""
        assert not self.has_open_rows, "what is in memory goes first"
        self.stored = self._committed_last
        self.stored_wire_end = wire_end

    def drain(self) -> Drained:
        """Begin a flush of all there is. The shares stay readable in the window until `flushed` or `failed`."""
        assert self.window is None, "a log has one flush in flight"
        split = len(self.pending)
        while split and self.pending[split - 1].last > self.visible:
            split -= 1
        self.window = Drained(
            log=self,
            committed=self.pending[:split],
            open=self.pending[split:],
            previous=self.stored,
            aligned=self.visible,
            durable=self.durable,
            wire_start=self.stored_wire_end,
        )
        self.pending = []
        self.window_size = self.pending_size
        self.pending_rows = self.pending_size = self.loose = 0
        return self.window

    def flushed(self, wire_end: int) -> bool:
        """The window is on disk and synced. True if D moved, which is what the flush tracker wants to hear."""
        drained = self._end_window()
        shares = drained.shares
        if shares:
            self.stored = shares[-1].last
            self.stored_wire_end = wire_end
        moved = drained.aligned > self.durable
        self.durable = max(self.durable, drained.aligned)
        return moved

    def failed(self) -> None:
        """The flush did not succeed, or nobody knows: the window's shares return to the front."""
        size = self.window_size
        shares = self._end_window().shares
        if shares and not self.pending:
            self.pending_since = shares[0].at
        elif shares:
            self.pending_since = min(self.pending_since, shares[0].at)
        self.pending = shares + self.pending
        # Those of the window may be loose too; they are near the disk, and stay as they are.
        self.pending_rows += sum(share.count for share in shares)
        self.pending_size += size

    def poison(self, fault: LogFault) -> list[Share]:
        """Take no more rows. What is durable stays; the shares in memory are returned, to be let go."""
        self.fault = fault.anew()
        shares, self.pending = self.pending, []
        self.pending_rows = self.pending_size = self.loose = 0
        self.visible = self.durable
        return shares

    def in_memory(self) -> list[tuple[Share, bool]]:
        """All shares not on disk, oldest first; the flag says that its flush is in flight."""
        window = self.window.shares if self.window is not None else []
        return [(share, True) for share in window] + [(share, False) for share in self.pending]

    def _refuse_if_stopped(self) -> None:
        if self.fault is not None:
            raise LogPoisoned(f"log {self.number} stopped: {self.fault}", log=self.number, handle=self.handle)

    def _end_window(self) -> Drained:
        drained = self.window
        assert drained is not None, "a flush ends once"
        self.window = None
        self.window_size = 0
        return drained
