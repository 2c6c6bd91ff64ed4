"""What the stream tells the tracker: positions, commits as arrays, and which shape each commit touched.

Invariants of a batch:
    seen <= final[0] < end[0] <= final[1] < end[1] ..     commit records do not overlap, and may meet (M8)
    starts[0] = 0 < starts[1] < .. < starts[m] = len(ordinals)
    ordinals ascend within each shape; each names a commit of the batch
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from flush_tracker.errors import CommitsOutOfOrder, InvalidTouches

Integers = NDArray[np.int64]

# Columns of the table of pending transactions; see `pending_rows`.
TX: Final = 0
OP: Final = 1
BEFORE: Final = 2
BEFORE_TIME: Final = 3
TIME: Final = 4


class Position(NamedTuple):
    """A place between two records of the WAL, and the time of the last commit below it (0: none is known)."""

    lsn: int
    commit_time: int


def positions_before(rows: Integers) -> list[Position]:
    """Of rows of pending transactions, the position before each."""
    # Made as tuples are, in a third of the time: a batch has thousands.
    return list(map(partial(tuple.__new__, Position), rows[:, [BEFORE, BEFORE_TIME]].tolist()))


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions of a batch that have ended, in stream order; arrays of one length."""

    final_lsn: Integers
    """Where the commit record begins: the `tx` of the transaction's offsets."""
    end_lsn: Integers
    """Where the commit record ends: what can be confirmed."""
    aligned_op: Integers
    """With `final_lsn`, the transaction's aligned offset."""
    commit_time: Integers

    def __len__(self) -> int:
        return len(self.final_lsn)

    def known(self, last_end: int, seen: int) -> int:
        """How many of them ended at or below the last commit's end. O(n), vectorized; raises if they are out of order.

        The others begin at or above `seen`, which may be a keepalive. One in between would contradict that keepalive:
        to take it for known would be to lose it.
        """
        final, end = self.final_lsn, self.end_lsn
        if not len(final) == len(end) == len(self.aligned_op) == len(self.commit_time):
            raise CommitsOutOfOrder("the arrays of a batch differ in length")
        if np.any(final >= end) or np.any(final[1:] < end[:-1]):
            raise CommitsOutOfOrder("commits of a batch overlap, or are not in order")
        known = int(np.searchsorted(end, last_end, side="right"))
        if known < len(final) and final[known] < seen:
            raise CommitsOutOfOrder("a commit below what was seen, and yet new", tx=int(final[known]), seen=seen)
        return known

    def since(self, known: int) -> Self:
        """Without the first ones."""
        if not known:
            return self
        columns = (self.final_lsn, self.end_lsn, self.aligned_op, self.commit_time)
        return type(self)(*(column[known:] for column in columns))

    def pending_rows(self, before: Position) -> Integers:
        """A row for each commit: its aligned offset, the position before it, its time. O(n), vectorized."""
        rows = np.empty((len(self), 5), dtype=np.int64)
        rows[:, TX] = self.final_lsn
        rows[:, OP] = self.aligned_op
        rows[:1, BEFORE], rows[1:, BEFORE] = before.lsn, self.end_lsn[:-1]
        rows[:1, BEFORE_TIME], rows[1:, BEFORE_TIME] = before.commit_time, self.commit_time[:-1]
        rows[:, TIME] = self.commit_time
        return rows

    @property
    def end(self) -> Position:
        """The position behind the last of them; there must be one."""
        return Position(int(self.end_lsn[-1]), int(self.commit_time[-1]))


@dataclass(frozen=True, slots=True)
class Touched:
    """In which shapes the commits of a batch left rows. Shape i: `ordinals[starts[i]:starts[i + 1]]`."""

    shapes: Integers
    starts: Integers
    ordinals: Integers
    """Numbers of commits within the batch."""

    @classmethod
    def nothing(cls) -> Self:
        """No shape was touched."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, np.zeros(1, dtype=np.int64), none)

    def check(self, commits_count: int) -> None:
        """Raise if the arrays contradict each other or the batch. O(n), vectorized."""
        shapes, starts, ordinals = self.shapes, self.starts, self.ordinals
        if len(starts) != len(shapes) + 1 or starts[0] != 0 or starts[-1] != len(ordinals):
            raise InvalidTouches("the starts do not divide the ordinals among the shapes")
        if np.any(starts[1:] <= starts[:-1]) or len(np.unique(shapes)) != len(shapes):
            raise InvalidTouches("a shape comes twice, or without a commit")
        rises = ordinals[1:] > ordinals[:-1]
        rises[starts[1:-1] - 1] = True  # from one shape to the next they may fall
        if not rises.all() or np.any(ordinals < 0) or np.any(ordinals >= commits_count):
            raise InvalidTouches("commits of a shape do not ascend, or are not of the batch")

    def since(self, known: int) -> Self:
        """Without the first commits, and without shapes that touched no others."""
        if not known:
            return self
        kept = self.ordinals >= known
        kept_before: Integers = np.concatenate(([0], np.cumsum(kept)))[self.starts]
        left = kept_before[1:] > kept_before[:-1]
        starts = np.concatenate((kept_before[:1], kept_before[1:][left]))
        return type(self)(self.shapes[left], starts, self.ordinals[kept] - known)
