"""A shape's transactions that are not durable yet: the last row each left in it, and where each ends. Pure.

The last row of a shape in a transaction may lie far below the transaction's end, since rows of other tables follow.
A flush ends at a row; what it may claim is the end of the last transaction all of whose rows *here* lie at or below.

Invariants:
    tx[i] < tx[i + 1],  last_op[i] <= aligned_op[i]
    aligned_at(offset).tx <= offset.tx, and aligned_at grows with its offset
    len <= TXN_OFFSETS_MAX; the arrays have room for at most four times the entries, or for the least
"""

from typing import Final

import numpy as np

from flush_tracker.errors import OffsetsOutOfOrder, TooManyTransactions
from flush_tracker.limits import TXN_OFFSETS_MAX
from flush_tracker.stream import Integers
from storage.offset import LogOffset

_TX: Final = 0
_LAST_OP: Final = 1
_ALIGNED_OP: Final = 2
_ROOM_LEAST: Final = 16


class TxnOffsets:
    """Last offset written in a transaction -> the transaction's aligned offset. Arrays, appended, searched, dropped."""

    __slots__ = ("_columns", "_end", "_start")

    def __init__(self) -> None:
        self._columns = np.empty((3, _ROOM_LEAST), dtype=np.int64)
        self._start = self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    def append(self, tx: Integers, last_op: Integers, aligned_op: Integers) -> None:
        """Transactions that left rows in the shape were committed. O(of them) amortized, vectorized."""
        added = len(tx)
        if not added:
            return
        last_tx = self._columns[_TX, self._end - 1] if len(self) else -1
        if tx[0] <= last_tx or np.any(tx[1:] <= tx[:-1]) or np.any(last_op > aligned_op):
            raise OffsetsOutOfOrder("transactions do not follow those before", tx=int(tx[0]), after=int(last_tx))
        if len(self) + added > TXN_OFFSETS_MAX:
            raise TooManyTransactions("more transactions than a shape may have unflushed", limit=TXN_OFFSETS_MAX)
        if self._end + added > self._columns.shape[1]:
            self._move(2 * (len(self) + added))
        self._columns[:, self._end : self._end + added] = tx, last_op, aligned_op
        self._end += added

    def aligned_at(self, offset: LogOffset) -> LogOffset | None:
        """The end of the last transaction whose rows here all lie at or below `offset`. None: of none. O(log n)."""
        count = self._count(offset, _LAST_OP)
        if not count:
            return None
        tx, _, aligned_op = self._columns[:, self._start + count - 1].tolist()
        return LogOffset(tx, aligned_op)

    def drop(self, aligned: LogOffset) -> int:
        """Forget the transactions that end at or below `aligned`; how many they were. O(log n) amortized."""
        count = self._count(aligned, _ALIGNED_OP)
        self._start += count
        if 4 * max(len(self), _ROOM_LEAST) < self._columns.shape[1]:
            self._move(2 * max(len(self), _ROOM_LEAST))
        return count

    def _count(self, offset: LogOffset, op: int) -> int:
        """How many transactions have their `op` (one of the columns) at or below the offset."""
        txs = self._columns[_TX, self._start : self._end]
        count = int(np.searchsorted(txs, offset.tx, side="right"))
        if count and txs[count - 1] == offset.tx and self._columns[op, self._start + count - 1] > offset.op:
            count -= 1
        return count

    def _move(self, room: int) -> None:
        """Into arrays of another size. What was added or dropped since the last move pays for it."""
        columns = np.empty((3, max(room, _ROOM_LEAST)), dtype=np.int64)
        count = len(self)
        columns[:, :count] = self._columns[:, self._start : self._end]
        self._columns, self._start, self._end = columns, 0, count
