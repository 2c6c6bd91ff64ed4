"""How far the demo's transactions are durable in every log they touched: what may be confirmed. Pure.

Invariants:
    upto only grows; every transaction at or below it is durable in each table that it touched
    it moves only when a log was said to be durable further
"""

from collections import deque
from collections.abc import Mapping

from storage.offset import LogOffset


class Confirmed:
    """Transactions on their way to disk, oldest first."""

    def __init__(self, upto: int, durable: Mapping[str, LogOffset]) -> None:
        """`durable`: what recovery found of each table; it may be more than was ever confirmed."""
        self.upto = upto
        """The last transaction that may be confirmed."""
        self._durable = dict(durable)
        self._waiting: deque[tuple[int, Mapping[str, LogOffset]]] = deque()

    def expect(self, transaction: int, aligned: Mapping[str, LogOffset]) -> None:
        """Wait for this transaction, which ends there in these tables; to be said before its commit is appended."""
        self._waiting.append((transaction, aligned))

    def flushed(self, table: str, aligned: LogOffset) -> None:
        """A log is durable up to there."""
        self._durable[table] = max(self._durable[table], aligned)

    def advance(self) -> int:
        """Go as far as what is durable allows; the last transaction that may be confirmed."""
        while self._waiting and self._is_durable(self._waiting[0][1]):
            self.upto, _ = self._waiting.popleft()
        return self.upto

    def _is_durable(self, aligned: Mapping[str, LogOffset]) -> bool:
        return all(self._durable[table] >= end for table, end in aligned.items())
