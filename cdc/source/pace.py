"""How long to gather a batch: at once when the stream is live, by large pieces while a backlog drains.

Columns want large batches, and a reader who sleeps in the kernel is woken for every message, which the walsender pays
for. So a backlog is read by pauses, in which the socket fills. A backlog shows by its size, and is over when the
server had nothing to say for a while: a walsender that waits for a processor is silent for moments, too.

    live      a batch of BACKLOG_BYTES_MIN makes it a backlog
    backlog   a wait of BACKLOG_OVER_SECONDS for the next byte makes it live again

Invariants:
    a batch that had to wait for its first byte while live is not gathered any further
    no batch is gathered for longer than BATCH_SECONDS while the consumer has none, nor beyond BATCH_BYTES and what one
        read brings
"""

from cdc.source.limits import (
    BACKLOG_BYTES_MIN,
    BACKLOG_OVER_SECONDS,
    BACKLOG_QUIET_SECONDS,
    BACKLOG_READ_BYTES_MIN,
    BATCH_BYTES,
    BATCH_SECONDS,
)


class Pace:
    """Decides after each read; the clock is passed in, in seconds."""

    def __init__(self) -> None:
        self.in_backlog = False
        self._at_once = False
        self._deadline = 0.0
        self._quiet_since = 0.0

    def begin(self, now: float) -> None:
        """A batch is asked for."""
        self._at_once = False
        self._deadline = now + BATCH_SECONDS
        self._quiet_since = now

    def waited(self, since: float, now: float) -> None:
        """The first byte had to be waited for."""
        if now - since > BACKLOG_OVER_SECONDS:
            self.in_backlog = False
        self.begin(now)
        self._at_once = not self.in_backlog

    def goes_on(self, now: float, size: int, total: int, *, is_awaited: bool = True) -> bool:
        """Whether to pause and read on, after a read of `size` bytes that makes the batch `total`.

        While other batches wait to be taken nobody waits for this one, and a few large ones are better than many small:
        a consumer that keeps the interpreter busy lets a read happen every 10 ms only.
        """
        if total >= BACKLOG_BYTES_MIN:
            self.in_backlog = True
        if self._at_once or total >= BATCH_BYTES or (is_awaited and now >= self._deadline):
            return False
        if size >= BACKLOG_READ_BYTES_MIN:
            self._quiet_since = now
            return True
        # Bounded also while nobody waits: a stream whose consumer has gone must not be read for ever.
        patience = BACKLOG_QUIET_SECONDS if is_awaited else BATCH_SECONDS
        return self.in_backlog and now - self._quiet_since < patience
