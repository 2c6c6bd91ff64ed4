"""How shapes end, one by one or many at once; and what comes after a TRUNCATE, which ends only their bases.

Each end is on disk before the collector lets go of what the shape held (A11). A shape with a name gets a successor by
itself, unless a person removed it.

Invariants:
    whatever ended is in the catalog with its reason, and is told in the log of events
    thousands end with one sync; their files go in the background
    the files of a shape with a name stay until its successor is ready (see `sweep`)
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from cdc.source.fragments import RelationChange
from cdc.source.publication import PublicationChange
from shapes.collector import Collector
from shapes.faults import ShapeFault
from shapes.limits import LOGS_REMOVED_AT_ONCE, LOGS_SWEPT_AT_ONCE
from shapes.members import Member
from shapes.registry import EXPIRED, REMOVED, Entry, Registry
from shapes.relevance import Ends, relevance
from shapes.threads import until_done
from storage.catalog_records import Ended, Life
from storage.clocks import Clocks
from storage.errors import LogFault, UnknownLog, named_faults
from storage.layout import LOGS
from storage.log_facts import list_logs
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.store import Store
from storage.store_reader import StoreReader
from storage.truncation import empty_base

logger = logging.getLogger(__name__)

TRUNCATED: Final = "truncate"
"""Why a log has a new base; its old handle's readers begin anew."""

PUBLICATION_ALTERED: Final = "publication_altered"
STREAM_REPLACED: Final = "stream_replaced"
HISTORY_REPLACED: Final = "history_replaced"
"""The server was set back, and written to since: its rows are not those that we had."""

_WANTED: Final = frozenset({REMOVED, EXPIRED})
"""Ends that nobody need look into."""

_COPY_LOOK_SECONDS: Final = 0.05
"""Between two looks whether a copy is recorded."""


class Endings:
    """Ends shapes. Called in the collector's turn."""

    def __init__(
        self,
        collector: Collector,
        registry: Registry,
        store: Store,
        clocks: Clocks,
    ) -> None:
        self._collector = collector
        self._registry = registry
        self._store = store
        self._reader = StoreReader(store)
        self._clocks = clocks
        self.succeed: Callable[[Entry], None] = lambda _: None
        """Told of ended shapes that shall have a successor."""
        self.counts: Counter[str] = Counter()
        """Ends by their reason, in this process."""
        self._rebasing: dict[int, asyncio.Task[None]] = {}
        self._handles = asyncio.Lock()
        """Held while a member's handle changes: an end is that of its newest one, and nothing follows an end."""

    @property
    def place(self) -> LogOffset:
        """Where the stream is. Before it begins, that is G: every log is whole below it."""
        return max(self._collector.upto, below(self._collector.tracker.g.lsn))

    async def end(self, member: Member, reason: str, text: str) -> None:
        """End one shape."""
        await self._end_all([member], reason, text)

    async def _end_all(self, members: Iterable[Member], reason: str, text: str) -> None:
        """End them with one record, so to speak: thousands take as many syncs as one."""
        async with self._handles:
            ending, place = list(members), self.place
            handles = [member.handle for member in ending if member.handle is not None]
            try:
                await until_done(lambda: self._registry.all_ended(Ended(handle, place, reason) for handle in handles))
            finally:  # whoever is cancelled leaves nobody behind who is fed and has ended
                for member in ending:
                    if member.handle is None or self._has_ended(member.handle):
                        self._collector.end(member.number)  # of one that was not born, its birth notices
        unused = [log for member in ending if (log := self._after_end(member, reason, text)) is not None]
        await self.remove_logs(unused)

    def _after_end(self, member: Member, reason: str, text: str) -> int | None:
        """Tell of it, and see to a successor. Its log, if nobody follows that by a name."""
        handle = member.handle
        if handle is None:
            return None
        self.counts[reason] += 1
        level = logging.INFO if reason in _WANTED else logging.WARNING
        logger.log(level, "shape %s (%s) ended: %s: %s", handle, member.definition, reason, text)
        entry = self._registry.find(handle)
        name = None if entry is None else entry.shape.name
        if name is None:
            return member.log
        if (awaited := self._registry.awaited(name)) is not None and awaited.handle == handle:
            self.succeed(awaited)
        return None

    async def remove_logs(self, logs: Sequence[int]) -> None:
        """Files of ended shapes: of a few at once; those of many are left to `sweep`, for nobody need wait for them."""
        if len(logs) <= LOGS_REMOVED_AT_ONCE:
            for log in logs:
                await self._remove_log(log)

    async def _remove_log(self, log: int) -> None:
        """What cannot be removed is in nobody's way: somebody has put a file there, or taken our rights."""
        try:
            await until_done(partial(self._store.remove_log, log))
        except LogFault as fault:
            logger.warning("files of log %d, whose shape ended, are still there, and go later: %s", log, fault)

    async def by_fault(self, number: int, fault: ShapeFault) -> None:
        """A shape cannot go on."""
        member = self._collector.members.get(number)
        if member is not None:
            await self.end(member, fault.code, " ".join(filter(None, (fault.text, fault.hint))))

    async def by_relation(self, change: RelationChange) -> None:
        """A table has another definition from here on: end the shapes that it concerns.

        In a backlog it is one of long ago. A shape whose snapshot has seen the transaction was defined later, under a
        lock that no alteration passes, and gets nothing of it. What was altered later is described anew.
        """
        relation = change.relation
        for table in (relation.oid, *self._collector.partitions.roots_of(relation.oid)):
            for member in self._collector.members.of_table(table):
                if change.commit_lsn and member.has_seen(change.commit_lsn, change.xid):
                    continue
                verdict = relevance(member.definition, relation)
                if isinstance(verdict, Ends):
                    await self.end(member, verdict.reason, verdict.text)

    async def by_publication(self, changes: Iterable[PublicationChange]) -> None:
        """Somebody altered the publication: what was followed through it may have had a hole."""
        for change in changes:
            tables = self._collector.members.tables() if change.table is None else change.tables
            for table in tables:
                for oid in (table, *self._collector.partitions.roots_of(table)):
                    await self._end_all(self._collector.members.of_table(oid), PUBLICATION_ALTERED, change.text)

    async def everything(self, reason: str, text: str) -> None:
        """Another stream begins: what all shapes have cannot be continued with it."""
        await self._end_all(self._collector.members, reason, text)

    async def sweep(self) -> None:
        """Remove logs of ended shapes whose names have a ready successor, or that were removed; a part at a time."""
        with named_faults(LOGS, shared=True):
            logs = await asyncio.to_thread(list_logs, self._store.disk)
        for log in islice(filter(self._registry.is_over, logs), LOGS_SWEPT_AT_ONCE):
            await self._remove_log(log)

    def truncated(self, member: Member) -> None:
        """A TRUNCATE is durable: give the log an empty base there and a new handle; until then it holds G."""
        if member.number not in self._rebasing:
            self._rebasing[member.number] = asyncio.get_running_loop().create_task(self._rebase(member))

    async def rebase(self, number: int, at: LogOffset) -> None:
        """A TRUNCATE came again that was durable before: do what is missing. In the collector's turn."""
        member = self._collector.members.get(number)
        if member is not None and number not in self._rebasing:
            await self._give_base(member, at)

    async def settle_truncates(self) -> None:
        """Give every durable TRUNCATE its base now: the tracker is about to forget what it held for them.

        In the collector's turn, with everything flushed.
        """
        for member in self._collector.members:
            at = member.truncated_at
            if at is None:
                continue
            if self._is_being_copied(member):
                await self.end(member, STREAM_REPLACED, "its table was truncated before its snapshot was complete")
                continue
            try:
                await self._give_base(member, at)
            except (LogFault, UnknownLog) as fault:
                await self.end(member, fault.code, str(fault))

    async def settled(self) -> None:
        """Wait for the bases that were begun. Whoever is cancelled meanwhile leaves none of them running."""
        try:
            while self._rebasing:
                await asyncio.wait(list(self._rebasing.values()))
        except asyncio.CancelledError:
            begun = list(self._rebasing.values())
            for task in begun:
                task.cancel()
            await asyncio.wait(begun)
            raise

    async def give_up(self) -> None:
        """End what was begun and is not settled: the TRUNCATE comes again after the next start."""
        tasks = list(self._rebasing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _rebase(self, member: Member) -> None:
        """Until no durable TRUNCATE is left without a base: another may come meanwhile."""
        log = member.log
        assert log is not None, "what is durable has a log"
        try:
            while (at := member.truncated_at) is not None and at <= self._store.marks(log)[1]:
                if self._is_being_copied(member):
                    await asyncio.sleep(_COPY_LOOK_SECONDS)
                    continue
                await self._give_base(member, at)
                if member.truncated_at == at:
                    member.truncated_at = None
            if self._is_living(member):
                self._collector.durable(member, self._store.marks(log)[1], self._clocks.monotonic())
        except (LogFault, UnknownLog) as fault:
            if self._is_living(member):
                # It holds G, and its log has stopped: its next row, or the next start, ends it.
                logger.error("%s has no base after a TRUNCATE: %s", member.handle, fault)  # noqa: TRY400 - it says all
        finally:
            del self._rebasing[member.number]

    async def _give_base(self, member: Member, at: LogOffset) -> None:
        log = member.log
        if log is None or not self._is_living(member):
            return
        await until_done(lambda: empty_base(self._store, log, at, written_at=self._clocks.wall()))
        await self.stand_on_newest(member, TRUNCATED)

    async def stand_on_newest(self, member: Member, why: str) -> None:
        """Let a shape go on under a new handle, if its log has a base that its handle does not stand on."""
        async with self._handles:
            old = None if member.handle is None else self._registry.find(member.handle)
            if old is None or member.log is None or not self._is_living(member):
                return  # it ended meanwhile
            # Not only the base that was made just now: a crash may have come between one and its record.
            # Of two that end at the same place only the newer one stays: a start may find one whose maker was told that
            # it had failed, and who made another.
            base = max((one for one in self._reader.bases(member.log) if one.is_complete), key=lambda one: one.number)
            if old.shape.base == base.number:
                return
            if member.truncated_at is not None and member.truncated_at <= base.last:
                why = TRUNCATED  # a fold that came first: nobody may read on past the TRUNCATE under the old handle
            record = partial(self._registry.rebased, old.handle, base.number, base.floor, why)
            member.handle = (await until_done(record)).handle
            logger.info("shape %s goes on as %s, on base %d: %s", old.handle, member.handle, base.number, why)

    def _has_ended(self, handle: str) -> bool:
        entry = self._registry.find(handle)
        return entry is None or entry.shape.life is Life.ENDED

    def _is_living(self, member: Member) -> bool:
        return self._collector.members.get(member.number) is member

    def _is_being_copied(self, member: Member) -> bool:
        """Its snapshot is read, but not recorded yet: that is a matter of moments."""
        entry = None if member.handle is None else self._registry.find(member.handle)
        return self._is_living(member) and entry is not None and entry.shape.life is Life.BORN


def below(g: int) -> LogOffset:
    """The greatest offset below G: up to there every log is whole."""
    return LogOffset(g - 1, OP_INFINITE) if g else SNAPSHOT_END
