"""How many changes a second each shape's log got lately: looks at counters, and the difference between two. Pure.

Invariants:
    looks are CHANGE_LOOK_SECONDS apart at least, and only those of the last CHANGE_RATE_SECONDS are kept
    a rate that nobody knows is None, and no zero: before the second look, and when a counter went back
"""

from collections import deque
from collections.abc import Callable, Mapping

from cdc.limits import CHANGE_LOOK_SECONDS, CHANGE_RATE_SECONDS

Counters = Mapping[int, int]
"""By log: rows since it was opened. One that is missing was not opened, and has got none."""


class ChangeRates:
    """The last looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Counters]] = deque()

    def look(self, now: float, count: Callable[[], Counters]) -> None:
        """Have the logs counted, if it is time."""
        if self._looks and now - self._looks[-1][0] < CHANGE_LOOK_SECONDS:
            return
        self._looks.append((now, count()))
        while now - self._looks[0][0] > CHANGE_RATE_SECONDS and len(self._looks) > 2:
            self._looks.popleft()

    def of(self, log: int) -> float | None:
        """Changes per second, between the oldest look that is kept and the last one."""
        if len(self._looks) < 2:
            return None
        (began, before), (ended, now) = self._looks[0], self._looks[-1]
        count = now.get(log, 0) - before.get(log, 0)
        return None if count < 0 else round(count / (ended - began), 1)
