"""When a status reply is due, and what it says; whether the server shuts down, or is silent. Pure.

Nothing here computes how far the server may forget: `flushed` is repeated as it was told (A1).

Invariants:
    received and flushed never fall while a connection lives
    flushed <= received: what this connection did not bring is not confirmed on it, whatever we are told
    two replies are at least REPLY_SECONDS_MIN apart, or the interval if that is shorter
    two replies are at most the interval apart, however busy the reader is
    interval * STATUS_SHARE_OF_TIMEOUT <= wal_sender_timeout, where the server has one
"""

from collections import deque

from cdc.source.fragments import KeepAlive
from cdc.source.limits import (
    FLOOD_REQUESTS,
    FLOOD_SECONDS,
    REPLY_SECONDS_MIN,
    SILENCE_SECONDS_MAX,
    STATUS_SECONDS_MAX,
    STATUS_SHARE_OF_TIMEOUT,
)
from cdc.source.lsn import Lsn
from cdc.source.walsender import Status


class Replies:
    """The replies of one connection. Moments are seconds of any clock that never goes back."""

    def __init__(self, start: Lsn, flushed: Lsn, sender_timeout_seconds: float, now: float) -> None:
        share = sender_timeout_seconds / STATUS_SHARE_OF_TIMEOUT
        self.interval = min(share, STATUS_SECONDS_MAX) if share else STATUS_SECONDS_MAX
        self.received = start
        self.shutdown_seen = False
        self._told = flushed
        self._sent = now - self.interval
        self._heard = now
        self._asked: float | None = None
        self._wanted = False
        self._requests: deque[float] = deque(maxlen=FLOOD_REQUESTS)
        self._requested_at_lsn: Lsn | None = None

    def heard(self, received: Lsn, keepalive: KeepAlive | None, now: float) -> None:
        """A batch came in, perhaps with a keepalive."""
        flushed = self.flushed
        self.received = max(self.received, received)
        self._wanted = self._wanted or self.flushed > flushed
        self._heard = now
        self._asked = None
        if keepalive is not None and keepalive.wants_reply:
            self._wanted = True
            self._count_request(keepalive.wal_end, now)

    def flushed_to(self, lsn: Lsn) -> None:
        """The flush tracker's word: all before `lsn` is durable."""
        if lsn > self._told:
            self._told = lsn
            self._wanted = True

    @property
    def flushed(self) -> Lsn:
        """What the server may forget."""
        return min(self._told, self.received)

    @property
    def due(self) -> float:
        """When the next reply is to be sent."""
        pause = min(REPLY_SECONDS_MIN, self.interval) if self._wanted else self.interval
        return self._sent + pause

    def take(self, now: float) -> Status | None:
        """The reply to send, if one is due."""
        if now < self.due:
            return None
        return self.last(now)

    def last(self, now: float) -> Status:
        """A reply to send at once, as before a connection is closed."""
        # A server without a timeout sends no keepalives of its own, and then the slot would stand still; and an answer
        # tells a quiet server from a dead one.
        asks = self._asked is None and now - self._heard >= self.interval
        if asks:
            self._asked = now
        self._sent = now
        self._wanted = False
        return Status(self.received, self.flushed, asks)

    def is_silent(self, reading_since: float, now: float) -> bool:
        """Whether the server owes an answer for too long. While nobody reads, nothing can be heard."""
        return self._asked is not None and now - max(self._asked, reading_since) > SILENCE_SECONDS_MAX

    def silent_seconds(self, now: float) -> float:
        """For how long nothing came."""
        return now - self._heard

    def bear(self, now: float) -> None:
        """The silence has its reason: the wait for an answer begins anew."""
        if self._asked is not None:
            self._asked = now

    def _count_request(self, wal_end: Lsn, now: float) -> None:
        if wal_end != self._requested_at_lsn:
            self._requests.clear()
            self._requested_at_lsn = wal_end
        self._requests.append(now)
        if len(self._requests) == FLOOD_REQUESTS and now - self._requests[0] <= FLOOD_SECONDS:
            self.shutdown_seen = True
