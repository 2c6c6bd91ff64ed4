"""When what is done at intervals may be done early: now and then, so that in the long run it is done no more often.

Each time costs an interval; one that comes early is paid in advance, and one at most. So nobody waits who does it early
because nothing else is to come, and of what comes in a trickle with such a moment behind each piece, not every piece
costs a time of its own.

Invariant: where times that are not early come an interval or more after the one before, there are at most
    seconds / interval + 2 of all of them in any stretch of time
"""


class HeadStart:
    """Keeps the account; the clock is passed in, in seconds from 0."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval = interval_seconds
        self._paid_until = 0.0

    @property
    def allowed_at(self) -> float:
        """From when on it may be done early."""
        return self._paid_until - self._interval

    def done(self, now: float) -> None:
        """It was done, early or not. Never more than two intervals are owed, however often it had to be."""
        self._paid_until = min(max(self._paid_until, now), now + self._interval) + self._interval
