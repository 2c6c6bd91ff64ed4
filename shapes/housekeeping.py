"""What is done from time to time: idle shapes end, tables that nobody follows leave the publication, old files go."""

import asyncio
import logging

from cdc.source.connections import Connection
from cdc.source.errors import SourceError
from shapes.household import Household
from shapes.limits import HOUSEKEEPING_SECONDS
from shapes.members import Member
from shapes.reconciliation import reconcile
from shapes.registry import EXPIRED
from shapes.snapshot_transaction import look

logger = logging.getLogger(__name__)


class Housekeeping:
    """Runs beside the stream."""

    def __init__(self, house: Household, *, idle_seconds: float, shapes_max: int) -> None:
        self._house = house
        self._idle_seconds = idle_seconds
        self._shapes_max = shapes_max

    async def run(self) -> None:
        """Go round for ever."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            if self._house.is_streaming:
                await self.go_round()

    async def go_round(self) -> None:
        """Once."""
        house = self._house
        now = house.clocks.monotonic()
        idle = house.registry.expired(now, self._idle_seconds)
        await self._expire(idle, f"nobody asked for it for {self._idle_seconds:g} s")
        await self._expire(house.registry.over(self._shapes_max), f"there are more than {self._shapes_max:,} shapes")
        await house.endings.sweep()
        try:
            await self._ask_server()
        except SourceError as fault:
            logger.debug("the server could not be asked: %s", fault)  # the stream has the same trouble, and tells it

    async def _expire(self, handles: list[str], why: str) -> None:
        for handle in handles:
            async with self._house.turn:
                member = self._member_of(handle)
                if member is not None:
                    await self._house.endings.end(member, EXPIRED, why, level=logging.INFO)

    async def _ask_server(self) -> None:
        house = self._house
        async with house.control() as connection:
            await reconcile(house, connection)
            await self._free(connection)

    async def _free(self, connection: Connection) -> None:
        """Let go of what the server need not do for us any more, and learn what it shows by now."""
        house = self._house
        streamed = house.collector.streamed
        followed = {member.table for member in house.collector.members}
        baseline = house.session.publisher.baseline
        published = set() if baseline is None else set(baseline.tables)
        leaves = {leaf for leaf in published if house.collector.partitions.roots_of(leaf)}
        unused = published - followed - leaves
        if streamed is not None and streamed.is_look_due:
            streamed.forget_seen(await look(connection))
        if unused and await house.session.publisher.release(connection, unused, house.clocks.monotonic()):
            state = house.session.publisher.baseline
            if state is not None:
                await asyncio.to_thread(house.lineage.published, state)

    def _member_of(self, handle: str) -> Member | None:
        entry = self._house.registry.find(handle)
        return None if entry is None else self._house.collector.members.of_log(entry.log)
