"""What is done from time to time: idle, stalled and oversized shapes end, unused tables and old files go.

Invariants:
    while the disk that all share is at fault, or does not answer, no shape ends for what it could not flush (A9);
    afterwards each has its whole grace again
    as little does one end for time in which nobody looked: the process was stopped, or waited for the disk
    a fault of the disk, or of one log's files, ends neither the round nor the program
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import psycopg

from cdc.source.connections import Connection
from cdc.source.errors import SourceError
from cdc.source.publication import parts_of
from shapes.household import Household
from shapes.limits import HOUSEKEEPING_SECONDS, SHAPE_LOG_BYTES_MAX, STALL_SECONDS_MAX
from shapes.members import Member
from shapes.reconciliation import reconcile, settle_publication
from shapes.registry import EXPIRED
from shapes.snapshot_transaction import look
from storage.errors import SharedDiskFault
from storage.log_counts import fault_of, flush_in_flight, log_bytes

logger = logging.getLogger(__name__)

STALLED: Final = "stalled"
"""Why a shape ended that held the slot: its rows did not become durable."""

LOG_TOO_LARGE: Final = "log_too_large"

_UNSEEN_SECONDS: Final = 3 * HOUSEKEEPING_SECONDS
"""Looks for stalls that are further apart know nothing of the time between."""


class Housekeeping:
    """Runs beside the stream."""

    def __init__(
        self,
        house: Household,
        *,
        idle_seconds: float,
        shapes_max: int,
        stall_seconds: float = STALL_SECONDS_MAX,
        log_bytes_max: int = SHAPE_LOG_BYTES_MAX,
    ) -> None:
        self._house = house
        self._stall_seconds = stall_seconds
        self._log_bytes_max = log_bytes_max
        self._flush_seen: int | None = None
        self._looked_at = house.clocks.monotonic()
        self._idle_seconds = idle_seconds
        self._shapes_max = shapes_max

    async def run(self) -> None:
        """Go round for ever. Stalls are looked for beside the rest, which waits for the server, and for the disk."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again_and_again(self._end_stalled), name="stalls")
            tasks.create_task(self._again_and_again(self._keep_house), name="household")

    async def go_round(self) -> None:
        """Once."""
        await self._end_stalled()
        await self._keep_house()

    async def _again_and_again(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            if self._house.is_streaming:
                await work()

    async def _keep_house(self) -> None:
        house = self._house
        now = house.clocks.monotonic()
        idle = house.registry.expired(now, self._idle_seconds)
        await self._expire(idle, f"nobody asked for it for {self._idle_seconds:g} s")
        await self._expire(house.registry.over(self._shapes_max), f"there are more than {self._shapes_max:,} shapes")
        await self._end_oversized()
        house.registry.forget_below(house.lineage.listings_needed_from)
        try:
            await house.endings.sweep()
            await self._ask_server()
        except (SourceError, psycopg.Error) as fault:
            logger.debug("the server could not be asked: %s", fault)  # the stream has the same trouble, and tells it
        except SharedDiskFault as fault:
            logger.warning("what is done from time to time waits for the disk: %s", fault)

    async def _end_stalled(self) -> None:
        """Those that hold the slot with rows that nobody flushes: a log that stopped at once, others after a grace."""
        house = self._house
        tracker, now = house.collector.tracker, house.clocks.monotonic()
        is_seen, self._looked_at = now - self._looked_at <= _UNSEEN_SECONDS, now
        if self._is_disk_at_fault() or not is_seen:
            for number in tracker.stalled(now, 0.0):
                tracker.touch(number, now)
            return
        for number in tracker.stalled(now, 0.0):
            member = house.collector.members.get(number)
            fault = None if member is None or member.log is None else fault_of(house.store, member.log)
            if member is not None and fault is not None:
                await self._end(member, fault.code, str(fault))
        for number in tracker.stalled(now, self._stall_seconds):
            member = house.collector.members.get(number)
            if member is not None:
                await self._end(member, STALLED, f"nothing of it became durable for {self._stall_seconds:g} s")

    def _is_disk_at_fault(self) -> bool:
        """A fault, or one flush that has been under way since the last look."""
        flush, seen = flush_in_flight(self._house.store), self._flush_seen
        self._flush_seen = flush
        return self._house.store.fault is not None or (flush is not None and flush == seen)

    async def _end_oversized(self) -> None:
        for member in self._house.collector.members:
            if member.log is None:
                continue
            size = log_bytes(self._house.store, member.log)
            if size > self._log_bytes_max:
                await self._end(member, LOG_TOO_LARGE, f"its log has {size:,} bytes, above {self._log_bytes_max:,}")

    async def _end(self, member: Member, reason: str, text: str) -> None:
        async with self._house.turn:
            if self._house.collector.members.get(member.number) is member:
                await self._house.endings.end(member, reason, text)

    async def _expire(self, handles: list[str], why: str) -> None:
        for handle in handles:
            async with self._house.turn:
                member = self._member_of(handle)
                if member is not None:
                    await self._house.endings.end(member, EXPIRED, why)

    async def _ask_server(self) -> None:
        """With a bound: see `Household.control`. Ends of shapes wait for the disk, and for no server."""
        house = self._house
        async with house.control() as connection:
            await reconcile(house, connection)
            await self._free(connection)

    async def _free(self, connection: Connection) -> None:
        """Let go of what the server need not do for us any more, and learn what it shows by now."""
        house = self._house
        streamed = house.collector.streamed
        if streamed is not None and streamed.is_look_due:
            streamed.forget_seen(await look(connection))
        if house.session.attempt is None:
            return  # the locks by which servers know of each other are those of a session: ours may be the one missing
        unused = self._unused()  # nothing may come between this and the call: a birth could begin to want one
        if await house.session.publisher.release(connection, unused, house.clocks.monotonic()):
            await settle_publication(house)

    def _unused(self) -> set[int]:
        """Published tables of which nobody follows anything, and that no birth waits for.

        A birth may wait longer than the publication's grace; who joined a table that has left it would miss commits.
        """
        house = self._house
        baseline = house.session.publisher.baseline
        if baseline is None:
            return set()
        published = set(baseline.tables)
        needed = {member.table for member in house.collector.members}.union(*house.wanted.values())
        through = {table for table in published if parts_of(baseline, table) & (needed - published)}
        leaves = {leaf for leaf in published if house.collector.partitions.roots_of(leaf)}
        return published - needed - through - leaves

    def _member_of(self, handle: str) -> Member | None:
        entry = self._house.registry.find(handle)
        return None if entry is None else self._house.collector.members.of_log(entry.log)
