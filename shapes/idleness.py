"""When each shape was last asked for, and who reads it now: which of them nobody would miss. Pure.

Kept in memory only: after a restart all count as used at the start, and readers come back by themselves.

Speaks of logs, not of handles: whoever follows an older handle of a log keeps the log.
"""

from heapq import nsmallest


class Idleness:
    """The readers of logs, and their last use; only those that were added can be idle."""

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._readers: dict[int, int] = {}

    def add(self, log: int, now: float) -> None:
        """From now on it may become idle."""
        self._used[log] = now

    def remove(self, log: int) -> None:
        """It is gone; readers who still leave it change nothing."""
        self._used.pop(log, None)
        self._readers.pop(log, None)

    def touch(self, log: int, now: float) -> None:
        """Somebody asked for it."""
        if log in self._used:
            self._used[log] = max(now, self._used[log])

    def enter(self, log: int, now: float) -> None:
        """A reader holds it until he leaves."""
        self._readers[log] = self._readers.get(log, 0) + 1
        self.touch(log, now)

    def leave(self, log: int, now: float) -> None:
        """One of its readers is gone."""
        if log in self._readers:
            self._readers[log] -= 1
            if not self._readers[log]:
                del self._readers[log]
        self.touch(log, now)

    def readers_of(self, log: int) -> int:
        """Who holds it now."""
        return self._readers.get(log, 0)

    def idle(self, now: float, seconds: float) -> list[int]:
        """Those without a reader that nobody asked for in so long, oldest use first."""
        return [log for used, log in sorted(self._unread()) if now - used >= seconds]

    def oldest(self, count: int) -> list[int]:
        """As many as there are of those without a reader, oldest use first."""
        return [log for _, log in nsmallest(count, self._unread())]

    def _unread(self) -> list[tuple[float, int]]:
        # The copy is one step of the interpreter: another thread may add meanwhile.
        return [(used, log) for log, used in list(self._used.items()) if log not in self._readers]
