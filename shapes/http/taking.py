"""Whether a client takes what is sent to it, and fast enough. Pure.

Invariants:
    whoever takes all that waited for him when a window began is not slow, however little it was
    what waits for one client is let go of within a window, or the client is cut off
"""

from dataclasses import dataclass

from shapes.http.connection_counts import Cut
from shapes.http.limits import SEND_BYTES_A_SECOND_MIN, SEND_SECONDS_MAX, SEND_WINDOW_SECONDS


@dataclass(frozen=True, slots=True)
class TakingLimits:
    """What a server asks of its clients."""

    silent_seconds: float = SEND_SECONDS_MAX
    window_seconds: float = SEND_WINDOW_SECONDS
    bytes_a_second: float = SEND_BYTES_A_SECOND_MIN


class Taking:
    """One client, from a look at which something waited for it to the first at which nothing does."""

    __slots__ = ("_at", "_bytes", "_goal", "_limits", "_window_at")

    def __init__(self, limits: TakingLimits, now: float, taken: int, waiting: int) -> None:
        """`taken`: all that this client ever took, in bytes; `waiting`: what there is for it beyond."""
        self._limits = limits
        self._at = now
        self._bytes = taken
        self._begin_window(now, taken, waiting)

    def fault(self, now: float, taken: int, waiting: int) -> Cut | None:
        """Why the client is to be cut off, if it is."""
        if taken > self._bytes:
            self._bytes, self._at = taken, now
        if now - self._at > self._limits.silent_seconds:
            return Cut.TAKES_NOTHING
        if now - self._window_at >= self._limits.window_seconds:
            if taken < self._goal:
                return Cut.TAKES_LITTLE
            self._begin_window(now, taken, waiting)
        return None

    def _begin_window(self, now: float, taken: int, waiting: int) -> None:
        self._window_at = now
        self._goal = taken + min(waiting, int(self._limits.bytes_a_second * self._limits.window_seconds))
