"""What was confirmed to Postgres: the log of G, with the catalog version and the time that belong to each.

G is the LSN such that every listed shape has every row below it on disk. The writer appends before it confirms; the
lake, in another process, cuts only at what it finds here.

Invariants, from each record to the next:
    same incarnation: (lsn, catalog version) grows; neither of the two ever falls
    another incarnation: one that was never seen before; its LSNs start anew, catalog versions go on
    a rewrite keeps the newest `PROGRESS_RECORDS_KEPT` records and the last one of each incarnation
"""

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self

from storage.disk import Disk
from storage.errors import InvalidIncarnation, Misuse, StorageError, UnknownFormat, WentBackwards
from storage.limits import PROGRESS_RECORDS_KEPT, RECORD_LOG_BYTES_MAX
from storage.record_log import RecordLog, RecordLogReader

_RECORD: Final = struct.Struct("<HQIQQQq")
_RECORD_TYPE: Final = 1
"""Stored: the first number of each record."""

_INCARNATION: Final = re.compile(r"(\d{1,20})-(\d{1,10})-(\d{1,20})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of one replication slot. LSNs of two incarnations cannot be compared."""

    system_identifier: int
    timeline: int
    slot_epoch: int
    """A number for the slot's creation, unlike that of any other slot of the same name."""

    def __post_init__(self) -> None:
        bounds = ((self.system_identifier, 64), (self.timeline, 32), (self.slot_epoch, 64))
        if any(not 0 <= number < 1 << bits for number, bits in bounds):
            raise InvalidIncarnation(f"{self} has a number out of range")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raises `InvalidIncarnation` for anything else."""
        match = _INCARNATION.fullmatch(text)
        if match is None:
            raise InvalidIncarnation(f"{text!r} is not an incarnation", found=text)
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.system_identifier}-{self.timeline}-{self.slot_epoch}"


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """One G."""

    incarnation: Incarnation
    lsn: int
    """G: rows of transactions below it are on disk."""
    catalog_version: int
    """The catalog as of which every listed shape has them."""
    commit_time: int
    """Microseconds since 1970, of the last commit below G, by Postgres' clock; commits are not ordered by it."""

    def encode(self) -> bytes:
        """The record's bytes; raises `Misuse` for numbers that do not fit."""
        who = self.incarnation
        numbers = (who.system_identifier, who.timeline, who.slot_epoch)
        try:
            return _RECORD.pack(_RECORD_TYPE, *numbers, self.lsn, self.catalog_version, self.commit_time)
        except struct.error as error:
            raise Misuse(f"not a G record: {error}", record=self) from None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote; raises `UnknownFormat` for another version's record."""
        if data[:2] != _RECORD_TYPE.to_bytes(2, "little") or len(data) != _RECORD.size:
            raise UnknownFormat("the progress log has a record that this program does not know", found=data[:2].hex())
        _, system_identifier, timeline, slot_epoch, lsn, catalog_version, commit_time = _RECORD.unpack(data)
        return cls(Incarnation(system_identifier, timeline, slot_epoch), lsn, catalog_version, commit_time)


class ProgressHistory:
    """The records in memory, and what can be asked of them. Other threads may ask while one adds."""

    def __init__(self) -> None:
        self._by_incarnation: dict[Incarnation, list[ProgressRecord]] = {}

    @property
    def latest(self) -> ProgressRecord | None:
        """The newest record."""
        return next(self.newest_first(), None)

    def oldest_catalog_version(self, newest: int) -> int:
        """What the catalog must still be able to answer for, so that the newest records mean something; 0 if none."""
        version = 0
        for records in reversed(list(self._by_incarnation.values())):
            if newest <= 0:
                break
            version = records[-min(newest, len(records))].catalog_version
            newest -= len(records)
        return version

    def newest_first(self) -> Iterator[ProgressRecord]:
        """All records, of the present incarnation first."""
        for records in reversed(list(self._by_incarnation.values())):
            yield from reversed(records)

    def newest_where(self, allows: Callable[[ProgressRecord], bool]) -> ProgressRecord | None:
        """The newest record of any incarnation that is allowed, such as by its commit time."""
        return next(filter(allows, self.newest_first()), None)

    def greatest_at_or_below(self, incarnation: Incarnation, lsn: int) -> ProgressRecord | None:
        """Of one incarnation, the newest record whose G is at or below the LSN."""
        records = self._by_incarnation.get(incarnation, [])
        index = bisect_right(records, lsn, key=lambda record: record.lsn)
        return records[index - 1] if index else None

    def least_at_or_above(self, incarnation: Incarnation, lsn: int) -> ProgressRecord | None:
        """Of one incarnation, the oldest record whose G is at or above the LSN."""
        records = self._by_incarnation.get(incarnation, [])
        index = bisect_left(records, lsn, key=lambda record: record.lsn)
        return records[index] if index < len(records) else None

    def last_of(self, incarnation: Incarnation) -> ProgressRecord | None:
        """The greatest G of an incarnation."""
        records = self._by_incarnation.get(incarnation)
        return records[-1] if records else None

    def is_news(self, record: ProgressRecord) -> bool:
        """Whether the record says more than the latest; raises `WentBackwards` if it says less."""
        latest = self.latest
        if latest is None:
            return True
        if record.catalog_version < latest.catalog_version:
            raise WentBackwards("the catalog version of G fell", latest=latest, record=record)
        if record.incarnation == latest.incarnation:
            if record.lsn < latest.lsn:
                raise WentBackwards("G fell within an incarnation", latest=latest, record=record)
            return (record.lsn, record.catalog_version) > (latest.lsn, latest.catalog_version)
        if record.incarnation in self._by_incarnation:
            raise WentBackwards("G came for an incarnation that had ended", latest=latest, record=record)
        return True

    def add(self, record: ProgressRecord) -> None:
        """Take a record if it is news."""
        if self.is_news(record):
            self._by_incarnation.setdefault(record.incarnation, []).append(record)

    def kept(self, newest: int) -> list[ProgressRecord]:
        """The newest records and the last of each incarnation, oldest first."""
        lasts = {id(records[-1]) for records in self._by_incarnation.values()}
        in_order = self.newest_first()
        kept = [*islice(in_order, newest), *(record for record in in_order if id(record) in lasts)]
        return kept[::-1]

    @classmethod
    def of(cls, records: list[ProgressRecord]) -> Self:
        """The history that these records make, one after the other."""
        history = cls()
        for record in records:
            history.add(record)
        return history


class ProgressLog:
    """The writer's end: `append` returns once the record is on the disk."""

    def __init__(
        self,
        disk: Disk,
        path: str = "progress",
        *,
        records_kept: int = PROGRESS_RECORDS_KEPT,
        bytes_max: int = RECORD_LOG_BYTES_MAX,
    ) -> None:
        self._log = RecordLog(disk, path, bytes_max)
        self._records_kept = records_kept
        self.history = ProgressHistory.of([ProgressRecord.decode(data) for data in self._log.read()])

    def append(self, record: ProgressRecord) -> bool:
        """Make a G durable before it is confirmed. False if it says nothing new; raises `WentBackwards`."""
        if not self.history.is_news(record):
            return False
        data = record.encode()
        if self._log.is_long or self._log.is_in_doubt:
            kept = self.history.kept(self._records_kept)
            self._log.rewrite([old.encode() for old in kept])
            self.history = ProgressHistory.of(kept)
        self._log.append([data])
        self.history.add(record)
        return True


class ProgressReader:
    """The end of other processes, which sees a G once it is durable."""

    def __init__(self, disk: Disk, path: str = "progress") -> None:
        self._log = RecordLogReader(disk, path)
        self.history = ProgressHistory()

    def refresh(self) -> bool:
        """Look again; whether there was anything new."""
        fresh = self._log.refresh()
        history = ProgressHistory() if fresh.restarted else self.history
        try:
            for data in fresh.records:
                history.add(ProgressRecord.decode(data))
        except StorageError:
            self._log.restart()
            raise
        self.history = history
        return bool(fresh.records)
