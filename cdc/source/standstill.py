"""A stream that fails at the same place again and again: connecting once more does not help. Pure.

A row that is longer than a gigabyte as text is what Postgres can store and cannot send: its walsender fails at it, each
time that it is asked. Nothing of it comes, so nothing but the place says that it is always the same.

Invariants:
    there is a `fault` iff the last STANDSTILL_FAILURES failures of the stream had one SQLSTATE and one G
    only the server's own errors count, and those that pass by themselves do not
"""

from typing import Final

from cdc.source.errors import ConnectionFault, StreamEnded, StreamStuck
from cdc.source.limits import STANDSTILL_FAILURES
from cdc.source.lsn import LSN_ZERO, Lsn, format_lsn

_PASSING: Final = ("08", "40", "53", "57")
"""Classes of SQLSTATE: connections, deadlocks, a lack of memory or disk, shutdowns and administrators."""


class Standstill:
    """Counts what one session meets."""

    def __init__(self) -> None:
        self.fault: StreamStuck | None = None
        """That the stream stands still, and where, once that is known."""
        self._place = LSN_ZERO
        self._sqlstate: str | None = None
        self._count = 0

    def failed(self, fault: ConnectionFault, g: Lsn) -> bool:
        """A connection ended, with all below G durable. Whether it shows now that the stream stands still."""
        sqlstate = fault.sqlstate if isinstance(fault, StreamEnded) else None
        if sqlstate is None or sqlstate.startswith(_PASSING):
            return False  # that says nothing about the place
        if (g, sqlstate) != (self._place, self._sqlstate):
            self._place, self._sqlstate, self._count, self.fault = g, sqlstate, 0, None
        self._count += 1
        if self._count < STANDSTILL_FAILURES:
            return False
        was_known = self.fault is not None
        self.fault = StreamStuck(
            f"the server cannot send what comes after {format_lsn(g)}: {fault.message}",
            sqlstate=sqlstate,
            failures=self._count,
        )
        return not was_known

    def passed(self, g: Lsn) -> None:
        """All below G is durable: what stood in the way above an earlier one does not any more."""
        if g > self._place:
            self._sqlstate, self._count, self.fault = None, 0, None
