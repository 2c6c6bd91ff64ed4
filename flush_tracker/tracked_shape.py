"""One attached shape: which of its transactions are not durable yet, and where that keeps G.

Invariants:
    durable <= visible, and durable = visible <=> there are no runs
    transactions of the runs ascend; all of them lie in (durable, visible]
    bound = pin, or else the position before the first transaction of the runs, or else None
    bound only grows, but for None
"""

from typing import NamedTuple

import numpy as np

from flush_tracker.errors import FlushAboveVisible, UnalignedFlush
from flush_tracker.stream import OP, TX, Integers, Position, positions_before
from storage.offset import LogOffset


class Run(NamedTuple):
    """Transactions of one batch that left rows in the shape."""

    rows: Integers
    """As of `Commits.pending_rows`."""
    at: float
    """When the tracker heard of them."""
    before: Position
    """The position before the first of them."""
    end: LogOffset
    """Where the last one ends: what a flush reaches as a rule, and then nobody need look into the rows."""


class TrackedShape:
    """The tracker's knowledge of one shape."""

    __slots__ = ("attached_at", "bound", "durable", "is_queued", "number", "pin", "progress_at", "runs", "visible")

    def __init__(self, number: int, durable: LogOffset, pin: Position | None, now: float) -> None:
        self.number = number
        self.durable = self.visible = durable
        self.pin = self.bound = pin
        self.runs: list[Run] = []
        self.attached_at = self.progress_at = now
        self.is_queued = False
        """Whether the tracker's heap has an entry of it."""

    @property
    def transactions_count(self) -> int:
        """O(runs)."""
        return sum(len(run.rows) for run in self.runs)

    def take(self, rows: Integers, before: Position, visible: LogOffset, now: float) -> None:
        """The shape got rows of these transactions, all above V. O(1).

        `before` is the position before the first of them, the last ends at `visible`.
        """
        self.runs.append(Run(rows, now, before, visible))
        self.visible = visible
        if len(self.runs) == 1:
            self.progress_at = now
            self.bound = before if self.pin is None else self.pin

    def rows_above_durable(self, rows: Integers) -> Integers:
        """Of these transactions, those that are not on disk since an earlier life."""
        # A transaction is durable as a whole or not at all: its tx decides.
        return rows[np.searchsorted(rows[:, TX], self.durable.tx, side="right") :]

    def end_of(self, tx: int) -> LogOffset | None:
        """How the end of a transaction was told, if it is waited for. O(runs + log n)."""
        for run in self.runs:
            if run.rows[-1, TX] >= tx:
                row = run.rows[np.searchsorted(run.rows[:, TX], tx)]
                return LogOffset(tx, int(row[OP])) if row[TX] == tx else None
        return None

    def flush(self, aligned: LogOffset, now: float) -> None:
        """All transactions up to `aligned`, which is above D, are on disk. O(1) for all of them, else O(log n).

        Amortized: each run is passed once.
        """
        if aligned > self.visible:
            raise FlushAboveVisible(
                "a flush above all that the shape was given", shape=self.number, flushed=aligned, visible=self.visible
            )
        if aligned == self.visible:
            self.runs.clear()
        else:
            self._drop_up_to(aligned)
        self.durable = aligned
        self.progress_at = now
        self._rebound()

    def release(self, now: float) -> None:
        """The pin is lifted; what came since it was set counts as flushable from now."""
        self.pin = None
        self.progress_at = now
        self._rebound()

    def detach(self) -> None:
        """Nothing of it is waited for any more."""
        self.pin = None
        self.runs.clear()
        self._rebound()

    def is_stalled(self, now: float, grace: float) -> bool:
        """Rows could be flushed, and for longer than `grace` none were. Before *born* there is nothing to write to."""
        return bool(self.runs) and self.pin is None and now - self.progress_at > grace

    def _drop_up_to(self, aligned: LogOffset) -> None:
        passed, run = next((n, run) for n, run in enumerate(self.runs) if run.end.tx >= aligned.tx)
        if run.end == aligned:
            del self.runs[: passed + 1]
            return
        index = int(np.searchsorted(run.rows[:, TX], aligned.tx))
        if (run.rows[index, TX], run.rows[index, OP]) != aligned:
            raise UnalignedFlush("a flush that ends at no transaction of the shape", shape=self.number, flushed=aligned)
        rest = run.rows[index + 1 :]
        self.runs[: passed + 1] = [Run(rest, run.at, before, run.end) for before in positions_before(rest[:1])]

    def _rebound(self) -> None:
        if self.pin is not None or not self.runs:
            self.bound = self.pin
            return
        self.bound = self.runs[0].before
