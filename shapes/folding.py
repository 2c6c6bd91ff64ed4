"""Logs above their bound: what is old of them is folded into a new base, and then goes.

    folded -> recorded, with a new handle (A12) -> what lies below the new base is removed

Where it is asked for, updates of the same key are made one before that (`storage.compaction`): nobody has to begin anew
for it, and what is short enough then is not folded.

Whoever follows the old handle reads on, if he has what is in the base already; else he is sent to the new one.

Invariants:
    nothing is removed before the base that has it is recorded: a crash between two steps is made good by the next round
    a log is not folded past what the stream has passed since the start: a TRUNCATE that comes again has its own base
    rows that a lease holds are neither folded nor removed
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from shapes.definition import LogMode
from shapes.household import Household
from shapes.limits import FOLD_AGE_LOOKS, FOLD_LOOK_SECONDS, FOLD_RETRY_SHARE, LOG_BYTES
from shapes.members import Member
from shapes.threads import in_thread
from storage.catalog_records import Life
from storage.compaction import compact
from storage.errors import CannotFold, SharedDiskFault, StorageError, UnknownLog
from storage.log_counts import log_bytes, segment_count
from storage.retention import RetentionPolicy, fold_prefix, retire

logger = logging.getLogger(__name__)

FOLDED: Final = "fold"
"""Why a log has a new base; its old handle goes on above it."""


@dataclass(slots=True)
class FoldCounts:
    """What was folded since the process began."""

    count: int = 0
    """Logs that went on from a new base."""
    bytes_before: int = 0
    """Of their segments, without what a compaction took of them before."""
    bytes_after: int = 0
    seconds: float = 0.0
    """What the last one took."""
    compactions: int = 0
    """Times that updates of the same key were made one, in some of a log's segments."""
    compacted_bytes: int = 0
    """By which those became smaller."""
    failures: Counter[str] = field(default_factory=Counter)
    """Logs that could not be folded, by the error's code; one that is tried again counts again."""


class Folding:
    """Runs beside the stream, one log at a time."""

    def __init__(
        self,
        house: Household,
        *,
        log_bytes_kept: int = LOG_BYTES,
        log_age_seconds: float | None = None,
        compacts: bool = False,
    ) -> None:
        self._house = house
        self._bytes = log_bytes_kept
        self._age_seconds = log_age_seconds
        self._compacts = compacts
        self._tried: dict[int, int] = {}
        """How large a log was that could not be made smaller: it is tried again when it has grown."""
        self._looked_at: dict[int, float] = {}
        """When it was asked last whether some of a log is too old."""
        self._is_stopping = False
        self.counts = FoldCounts()

    async def run(self) -> None:
        """Go round for ever."""
        while True:
            await asyncio.sleep(FOLD_LOOK_SECONDS)
            if self._house.is_streaming:
                await self.go_round()

    async def go_round(self) -> None:
        """Once."""
        members = [member for member in self._house.collector.members if member.log is not None]
        living = {member.log for member in members}
        self._tried = {log: size for log, size in self._tried.items() if log in living}
        self._looked_at = {log: at for log, at in self._looked_at.items() if log in living}
        for member in members:
            if self._house.store.fault is not None:
                return  # what room there is belongs to those who wait for it
            if self._is_due(member) and not await self._fold(member):
                return

    def _is_due(self, member: Member) -> bool:
        """Whether the log is above its bounds, as far as that can be said without a look at the disk."""
        store, log = self._house.store, member.log
        assert log is not None, "it is born"
        size = log_bytes(store, log)
        if size > self._bytes:
            return size >= self._tried.get(log, 0)
        if self._age_seconds is None or segment_count(store, log) < 2:
            return False
        now = self._house.clocks.monotonic()
        if now - self._looked_at.get(log, -self._age_seconds) < self._age_seconds / FOLD_AGE_LOOKS:
            return False
        self._looked_at[log] = now
        return True

    def _may_be_folded(self, member: Member) -> bool:
        house, definition = self._house, member.definition
        entry = None if member.handle is None else house.registry.find(member.handle)
        if entry is None or entry.shape.life is not Life.READY or member.log is None:
            return False
        if definition.log is not LogMode.FULL or not definition.view.has_key:
            return False  # its base has no rows; or rows that are equal in all columns, of which a fold would keep one
        return member.truncated_at is None and house.store.marks(member.log)[1] <= house.collector.upto

    async def _fold(self, member: Member) -> bool:
        """Make the log smaller, or remember that it could not be. False if the disk has no room for more."""
        log = member.log
        assert log is not None, "it is born"
        try:
            if not self._may_be_folded(member):
                return True
            await self._counted(member, log)
        except UnknownLog:
            return True  # it ended meanwhile
        except SharedDiskFault as fault:
            self.counts.failures[fault.code] += 1
            logger.warning("the log of shape %s is not folded: %s", member.handle, fault)
            return False  # with room on the disk, the next round goes on
        except StorageError as fault:
            self.counts.failures[fault.code] += 1
            logger.warning("shape %s has a long log that cannot be folded: %s", member.handle, fault)
        size = log_bytes(self._house.store, log)
        if size > self._bytes:
            self._tried[log] = size + int(self._bytes * FOLD_RETRY_SHARE)
        else:
            self._tried.pop(log, None)
        return True

    async def _counted(self, member: Member, log: int) -> None:
        """Fold it, and count that if it came to something."""
        monotonic, handle = self._house.clocks.monotonic, member.handle
        size, compacted, began = log_bytes(self._house.store, log), self.counts.compacted_bytes, monotonic()
        try:
            await self._shorten(member, log)
        finally:
            if member.handle != handle:
                self.counts.count += 1
                self.counts.bytes_before += size - (self.counts.compacted_bytes - compacted)
                self.counts.bytes_after += log_bytes(self._house.store, log)
                self.counts.seconds = monotonic() - began

    async def _shorten(self, member: Member, log: int) -> None:
        """Fold what is too much, record it, remove it."""
        store, wall = self._house.store, self._house.clocks.wall
        while self._compacts:
            before = log_bytes(store, log)
            if not await self._wait(partial(compact, store, log, now=wall())):
                break
            self.counts.compactions += 1
            self.counts.compacted_bytes += max(0, before - log_bytes(store, log))  # it may have grown meanwhile
        policy = RetentionPolicy(self._bytes // 2, self._age_seconds)
        cannot: CannotFold | None = None
        try:
            is_wanted = partial(self._is_wanted, member)
            while await self._wait(partial(fold_prefix, store, log, policy, now=wall(), is_wanted=is_wanted)):
                pass
        except CannotFold as fault:
            cannot = fault  # what was folded before it counts, and what was before a crash
        await self._house.endings.stand_on_newest(member, FOLDED)
        await self._wait(partial(retire, store, log, now=wall()))
        if cannot is not None:
            raise cannot

    def _is_wanted(self, member: Member) -> bool:
        """Asked between the steps of a fold, on its thread. A TRUNCATE holds G until it has a base of its own."""
        is_living = self._house.collector.members.get(member.number) is member
        return is_living and member.truncated_at is None and not self._is_stopping

    async def _wait(self, work: Callable[[], object]) -> object:
        """On a thread; whoever is cancelled tells the work to end, and waits for that."""
        running = asyncio.ensure_future(in_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._is_stopping = True
            await asyncio.wait([running])
            raise
