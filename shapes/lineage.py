"""Which life of which slot the data belongs to; what the session compares with the server on each connection (A2).

Invariants:
    the stream's identity is on the disk before the first G of its incarnation
    epochs grow, also when the clock is set back
    a publication that we altered ourselves is kept as it is now, or the next start would take it for somebody else's
"""

from collections.abc import Callable
from dataclasses import replace

from cdc.source.identity import Identity, Known, altered_since
from cdc.source.lsn import Lsn
from cdc.source.publication import PublicationChange, PublicationState
from shapes.stream_record import StreamRecord, read_stream_record, write_stream_record
from storage.disk import Disk
from storage.limits import PROGRESS_RECORDS_KEPT
from storage.progress import Incarnation, ProgressLog


class Lineage:
    """The stream record of a folder, and G of its incarnation."""

    def __init__(self, disk: Disk, progress: ProgressLog, slot: str, wall: Callable[[], int]) -> None:
        self._disk = disk
        self._progress = progress
        self._slot = slot
        self._wall = wall
        self.record = read_stream_record(disk)

    @property
    def is_claimed(self) -> bool:
        """An earlier start meant to make the slot, and may have: it is ours, if it is there."""
        return self.record is not None and self.record.identity is None and self.record.slot == self._slot

    @property
    def incarnation(self) -> Incarnation | None:
        """The present one; None before the first connection."""
        return None if self.record is None or self.record.identity is None else self.record.incarnation

    def known(self) -> Known | None:
        """What the server is compared with."""
        if self.record is None or self.record.identity is None:
            return None
        return Known(self.record.identity, Lsn(self.g[0]), self.commit_times_at)

    @property
    def g(self) -> tuple[int, int]:
        """G as it is on disk, and the time of the last commit below it."""
        assert self.record is not None, "there is a G once there is a slot"
        last = self._progress.history.last_of(self.record.incarnation)
        return (self.record.start, 0) if last is None else (last.lsn, last.commit_time)

    def commit_times_at(self, lsn: Lsn) -> tuple[int, ...]:
        """What the last commit below a place may have been of: see `Known`."""
        assert self.record is not None, "there is a G once there is a slot"
        if lsn < self.record.start:
            return ()
        history, incarnation = self._progress.history, self.record.incarnation
        below = history.greatest_at_or_below(incarnation, lsn)
        above = history.least_at_or_above(incarnation, lsn)
        time, place = (0, self.record.start) if below is None else (below.commit_time, below.lsn)
        return (time,) if place == lsn or above is None else (time, above.commit_time)

    @property
    def listings_needed_from(self) -> int:
        """The catalog version from which on somebody may ask what it listed: that of the oldest G that is kept."""
        return self._progress.history.oldest_catalog_version(PROGRESS_RECORDS_KEPT)

    def claim(self) -> None:
        """Write down that the slot will be made: a crash after its making must not leave it to nobody."""
        if self.record is None:
            self._write(StreamRecord(self._slot))

    def begin(self, identity: Identity, start: int) -> Incarnation:
        """A new life begins: another slot, or another timeline."""
        latest = self._progress.history.latest
        epoch = max(self._wall(), 0 if latest is None else latest.incarnation.slot_epoch + 1)
        self._write(StreamRecord(self._slot, identity, epoch, start))
        incarnation = self.incarnation
        assert incarnation is not None
        return incarnation

    def altered_since(self, now: Identity) -> tuple[PublicationChange, ...]:
        """How the stream that a connection found differs from what was recorded last.

        Not from what was known when the connection was asked for: a birth may have published its table since, and
        somebody else may have taken out again what that birth published.
        """
        known = self.known()
        return () if known is None else altered_since(known.identity, now)

    def published(self, publication: PublicationState) -> None:
        """The publication is like this now, and we know why."""
        record = self.record
        if record is not None and record.identity is not None:
            self.settled(replace(record.identity, publication=publication))

    def settled(self, identity: Identity) -> None:
        """The stream is like this now, and whoever it concerns has ended."""
        record = self.record
        if record is not None and record.identity != identity:
            self._write(replace(record, identity=identity))

    def _write(self, record: StreamRecord) -> None:
        write_stream_record(self._disk, record)
        self.record = record
