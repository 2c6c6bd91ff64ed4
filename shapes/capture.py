"""The shell around the collector: takes what the session brings, waits where somebody has to, and lets shapes end.

One event at a time, in `turn`; births and endings take the turn between two events. What became durable is reported by
the flusher's thread and told to the collector here.

Invariants:
    a shape's end is in the catalog, synced, before the collector lets go of it (A11)
    a new connection's first event is handed on when the open transactions are off the disk (A3)
    only a fault of one shape ends that shape; a fault of the disk makes everybody wait (A9)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import psycopg

from cdc.source.attempt import Arrived, Connected, Delivery, PublicationAltered, Stopping
from cdc.source.connections import Connection
from cdc.source.errors import ConnectionFault
from cdc.source.fragments import Fragment, KeepAlive, RelationChange
from cdc.source.identity import Behind, Fresh, OtherHistory, OtherTimeline, PublicationChanged, Resume
from cdc.source.limits import POLL_SECONDS
from cdc.source.lsn import Lsn
from shapes.acknowledge import Acknowledger
from shapes.endings import HISTORY_REPLACED, STREAM_REPLACED
from shapes.faults import ShapeFault, log_stopped
from shapes.feeds import Plan
from shapes.gathering import Gathering
from shapes.household import Household
from shapes.limits import ROOM_SECONDS
from shapes.reconciliation import by_publication, note_publication
from shapes.restore import restore
from shapes.snapshot_transaction import look_at_all_running
from shapes.streamed import Streamed
from shapes.threads import in_thread, until_done
from storage.errors import BufferFull, LogFault, SharedDiskFault
from storage.flush import Flushed
from storage.limits import FAULT_RETRY_SECONDS

logger = logging.getLogger(__name__)

_REPLACED: Final[dict[type, str]] = {
    Fresh: "the slot is new: what was committed before it began is not in the stream",
    OtherTimeline: "the server is on another timeline, and what was received may not be in its history",
}


class Capture:
    """Feeds the shapes of one folder from one slot."""

    def __init__(self, house: Household, acknowledger: Acknowledger) -> None:
        self._house = house
        self._acknowledger = acknowledger
        self._received = 0
        """The greatest place of the WAL that anything received lies at."""
        self.commit_lag_seconds: float | None = None
        """Of the last transaction that was taken in: from its commit, by the server's clock, until then, by ours."""
        self._gathering = Gathering(house.session.next, self._is_receiving, house.store.quiet)
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Take what comes, for ever; raises what the session refuses to go on with."""
        while True:
            await self._go_on()

    async def _go_on(self) -> None:
        """What comes next, to its end: nothing of it is in hand while the next one is waited for."""
        delivery = await self._gathering.next(self._house.collector.touched_count)
        async with self._house.turn:
            await self._take(delivery)
            self._house.turn.notify_all()
        self._acknowledger.wake()

    def _is_receiving(self) -> bool:
        return self._house.session.is_receiving

    async def _take(self, delivery: Delivery) -> None:
        match delivery:
            case Connected():
                await self._connected(delivery)
            case Arrived(_, Fragment() as fragment):
                self._note_received(fragment)
                await self._fragment(fragment)
            case Arrived(_, KeepAlive() as keepalive):
                self._received = max(self._received, keepalive.wal_end)
                self._house.collector.idle_at(keepalive.wal_end)
            case Arrived(_, RelationChange() as change):
                await self._house.endings.by_relation(change)
            case PublicationAltered():
                await note_publication(self._house, delivery.changes)
            case Stopping():
                await self._hurry()

    def _note_received(self, fragment: Fragment) -> None:
        transactions = fragment.transactions
        if len(transactions):
            last = max(int(transactions.commit_lsn[-1]) + 1, int(transactions.end_lsn.max()))
            self._received = max(self._received, last)

    async def _fragment(self, fragment: Fragment) -> None:
        """All steps of one fragment."""
        plan = await self._plan(fragment)
        await self._end(plan.faults)
        for number, at in plan.repeated.items():
            try:
                await self._house.endings.rebase(number, at)
            except LogFault as fault:
                await self._end({number: log_stopped(fault)})
                plan.without([number])
        self._house.collector.commit(plan, self._house.clocks.monotonic())
        while not await self._append(plan):
            pass
        self._house.collector.finish(plan)
        if count := fragment.ended_count:
            committed = int(fragment.transactions.commit_time[count - 1])
            self.commit_lag_seconds = max(0, self._house.clocks.wall() - committed) / 1_000_000

    async def _plan(self, fragment: Fragment) -> Plan:
        """Planning opens logs of an earlier life, so it waits for the disk that all share (A9), and begins again."""
        while True:
            try:
                return self._house.collector.plan(fragment, self._house.clocks.monotonic())
            except SharedDiskFault as fault:
                logger.warning("waiting for the disk: %s", fault)
                await asyncio.sleep(FAULT_RETRY_SECONDS)

    async def _append(self, plan: Plan) -> bool:
        """Append what fits; False when it is to be tried again."""
        try:
            self._house.collector.append(plan)
        except BufferFull as full:
            # The socket is not read meanwhile, and TCP pushes back; replies to the server go on.
            size, log = full.facts["size"], full.facts.get("log")
            await asyncio.to_thread(self._house.store.wait_for_room, size, ROOM_SECONDS, log=log)
            return False
        except LogFault as fault:
            member = self._house.collector.members.of_log(fault.facts.get("log", -1))
            if member is None:
                raise
            await self._end({member.number: log_stopped(fault)})
            plan.without([member.number])
            return False
        return True

    async def _end(self, faults: Mapping[int, ShapeFault]) -> None:
        for number, fault in faults.items():
            await self._house.endings.by_fault(number, fault)

    async def _hurry(self) -> None:
        """The server waits for us to end (A4): what is whole becomes durable, and is confirmed, at once."""
        try:
            self.flushed(await in_thread(self._house.store.flush_all))
            await self._acknowledger.acknowledge()
        except SharedDiskFault as fault:
            logger.warning("the server stops, and not all of it could be made durable: %s", fault)

    # From the flusher's thread

    def on_flushed(self, news: Sequence[Flushed]) -> None:
        """What the flusher tells, in its thread."""
        self._loop.call_soon_threadsafe(self.flushed, news)

    def flushed(self, news: Sequence[Flushed]) -> None:
        """Logs are durable further."""
        for member in self._house.collector.flushed(news, self._house.clocks.monotonic()):
            self._house.endings.truncated(member)
        self._acknowledger.wake()

    # Connections

    async def _connected(self, connected: Connected) -> None:
        house = self._house
        await self._drop_open()
        if not house.is_streaming:
            await self._ask(partial(restore, house))
        await self._judge(connected)
        house.session.publisher.alterations.judged()
        if house.collector.streamed is None:
            await self._ask(self._look_what_runs)
        if not house.is_streaming:
            # What earlier processes received is on our disk, and is no more than the server had when we first came.
            self._received = max(self._received, connected.wal_end)
        house.collector.resume(connected.start)
        house.wal_end_at_connect = connected.wal_end
        house.is_streaming = True
        house.attempt = connected.attempt

    async def _ask(self, question: Callable[[Connection], Awaitable[None]]) -> None:
        """Ask the server something; again and again, until it answers."""
        while True:
            try:
                async with self._house.control() as connection:
                    return await question(connection)
            except (ConnectionFault, psycopg.OperationalError) as fault:
                logger.warning("the server does not answer, and is asked again: %s", fault)
                await asyncio.sleep(POLL_SECONDS)

    async def _look_what_runs(self, connection: Connection) -> None:
        self._house.collector.streamed = Streamed(await look_at_all_running(connection))

    async def _drop_open(self) -> None:
        """Nothing of the new connection is taken before what was open is off the disk (A3)."""
        for member in self._house.collector.joining():
            self._house.collector.end(member.number)  # its birth notices, and joins again
        await until_done(self._house.store.abandon)

    async def _judge(self, connected: Connected) -> None:
        """What the verdict on the stream's identity means to the shapes (A2)."""
        verdict, lineage, collector = connected.verdict, self._house.lineage, self._house.collector
        match verdict:
            case Resume() | Behind() | PublicationChanged():
                if changes := lineage.altered_since(connected.identity):
                    await by_publication(self._house, changes)
                    await until_done(partial(lineage.settled, connected.identity))
            case Fresh() | OtherTimeline() | OtherHistory():
                if isinstance(verdict, OtherTimeline) and self._continues(verdict):
                    await by_publication(self._house, lineage.altered_since(connected.identity))
                    self.flushed(await until_done(self._house.store.flush_all))
                    await self._house.endings.settle_truncates()
                elif isinstance(verdict, OtherHistory):
                    await self._house.endings.everything(HISTORY_REPLACED, verdict.reason)
                else:
                    await self._house.endings.everything(STREAM_REPLACED, _REPLACED[type(verdict)])
                # What was streamed is visible there by now, or no part of this history, and what ran is gone: then no
                # snapshot would ever show it. Who prepared a transaction, though, has it still: it is looked at anew.
                collector.streamed = None
                incarnation = await until_done(partial(lineage.begin, connected.identity, connected.start))
                collector.tracker.reset(incarnation, connected.start)
                collector.members.detach_all()

    def _continues(self, verdict: OtherTimeline) -> bool:
        """Whether all that this process ever received, births included, lies below the fork. Never after a restart."""
        if not self._house.is_streaming:
            return False
        births = (member.snapshot.birth for member in self._house.collector.members if member.snapshot is not None)
        return verdict.continues(Lsn(max(self._received, *births, 0)))
