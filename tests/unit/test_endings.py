"""What comes after a TRUNCATE, and how a shape ends beside it: a base at its place, a new handle, and once.

The real parts on a disk in memory: store, catalog, collector, endings; the stream is made up (`plain_stream`).
"""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable, Iterable
from typing import Final

import pytest

from cdc.source.fragments import RelationChange
from cdc.source.lsn import Lsn
from cdc.source.publication import PublicationChange
from cdc.source.relations import Relation
from flush_tracker.tracker import FlushTracker
from shapes.collector import Collector
from shapes.endings import TRUNCATED, Endings
from shapes.members import Member
from shapes.registry import Registry
from storage.catalog import Catalog
from storage.catalog_records import Ended, Life, Snapshot
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.log_facts import LogFacts, list_logs
from storage.memory_disk import Crashed, MemoryDisk, luckiest, strictest
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.retention import retire
from storage.store import Store
from storage.store_reader import StoreReader
from tests.unit.builders import Clock, to_journal
from tests.unit.plain_stream import Draw, PlainStream
from tests.unit.table_strategies import column, defined, table

TABLE: Final = table(column("id", 1, pk_index=0), column("part", 2), oid=1, name="t1", root=1)
SNAPSHOT: Final = Snapshot(700, 700, (), 1_000)
PUT = Draw(1, "put", "1", "0")
TRUNCATE = Draw(1, "truncate", "1", "0")


class Life1:
    """One process on a folder, with one shape of the table."""

    def __init__(self, disk: MemoryDisk, stream: PlainStream, confirmed: int) -> None:
        clock = Clock()
        self.disk, self.stream, self.confirmed = disk, stream, confirmed
        self.store = Store(disk, clock.clocks(), to_journal(), confirmed_tx=confirmed)
        self.registry = Registry(Catalog(disk), clock.clocks().wall, 0.0)
        self.collector = Collector(self.store, FlushTracker("this slot", confirmed))
        self.endings = Endings(self.collector, self.registry, self.store, clock.clocks())
        for entry in self.registry.living():
            self.member = self.collector.restore(entry.definition, None, entry.shape)
        stream.connect(confirmed)
        self.collector.resume(confirmed)

    def make_shape(self, name: str | None = None, *, is_copied: bool = True) -> Member:
        entry = self.registry.born(defined(TABLE), SNAPSHOT, 0.0, name=name)
        self.store.create_log(LogFacts(entry.log, entry.handle, ("id",)))
        base = self.store.new_base(entry.log)
        if is_copied:
            made = base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0)
            entry = self.registry.ready(entry.handle, made.number)
        self.member = self.collector.restore(entry.definition, None, entry.shape)
        return self.member

    async def receive(self, count: int = 1_000) -> None:
        """As the shell does: what is planned is done in order."""
        fragment = self.stream.send(count)
        if fragment is not None:
            plan = self.collector.plan(fragment, 0.0)
            for number, at in plan.repeated.items():
                await self.endings.rebase(number, at)
            self.collector.commit(plan, 0.0)
            self.collector.append(plan)
            self.collector.finish(plan)

    def flush(self) -> None:
        for member in self.collector.flushed(self.store.flush(demand=[self.log]), 0.0):
            self.endings.truncated(member)

    async def be_quiet(self) -> None:
        await self.receive()
        self.flush()
        await self.endings.settled()

    @property
    def log(self) -> int:
        assert self.member.log is not None
        return self.member.log

    def lives(self) -> list[Life]:
        """Of the log's handles, the oldest first."""
        handles = [self.registry.find(handle) for handle in self.handles()]
        return [entry.shape.life for entry in handles if entry is not None]

    def handles(self) -> list[str]:
        return list(Catalog(self.disk).state.shapes)


def begun(*transactions: list[Draw]) -> tuple[Life1, PlainStream]:
    stream = PlainStream()
    life = Life1(MemoryDisk(), stream, 1_000)
    life.make_shape()
    for draws in transactions:
        stream.commit(draws, 0)
    return life, stream


async def test_a_truncate_holds_g_until_its_base_is_recorded() -> None:
    life, stream = begun([PUT, TRUNCATE, PUT])
    await life.receive()
    life.flush()
    assert life.collector.tracker.g.lsn == 1_000, "its rows are durable, and its base is not there"
    old = life.member.handle
    await life.endings.settled()
    assert life.collector.tracker.g.lsn == stream.lsn
    assert life.lives() == [Life.REBASED, Life.READY]
    assert life.member.handle != old
    entry = life.registry.find(str(old))
    assert entry is not None
    assert entry.shape.reason == TRUNCATED


@pytest.mark.parametrize("choose", [strictest, luckiest])
async def test_a_crash_between_truncate_base_and_record_is_made_good_once(choose: Callable[[int], int]) -> None:
    """At each sync from the flush on; the next process gets the TRUNCATE again, for nobody has confirmed it."""
    seen = set()
    for sync in range(1, 40):
        life, stream = begun([PUT], [PUT, TRUNCATE, PUT], [PUT])
        await life.receive()
        life.disk.crash_at_sync = life.disk.syncs + sync
        with contextlib.suppress(Crashed):
            life.flush()
        await life.endings.settled()
        confirmed = life.collector.tracker.g.lsn
        again = Life1(life.disk.crash_image(choose), stream, confirmed)
        seen.add((life.disk.crashed, tuple(again.lives())))
        await again.be_quiet()
        assert again.collector.tracker.g.lsn == stream.lsn
        assert again.lives() == [Life.REBASED, Life.READY], f"a crash at sync {sync}"
        third = Life1(again.disk.crash_image(strictest), stream, confirmed)
        await third.be_quiet()
        assert third.handles() == again.handles(), "what is done is not done again"
        if not life.disk.crashed:
            break
    assert (True, (Life.READY,)) in seen
    assert (False, (Life.REBASED, Life.READY)) in seen


@pytest.mark.parametrize("steps", range(6))
async def test_a_truncate_that_comes_while_the_base_of_another_is_made_has_its_own(steps: int) -> None:
    life, stream = begun([PUT, TRUNCATE])
    await life.receive()
    life.flush()
    for _ in range(steps):
        await asyncio.sleep(0)
    stream.commit([PUT, TRUNCATE], 0)
    await life.receive()
    life.flush()  # the first base is still being made, for some of the steps
    await life.endings.settled()
    assert life.collector.tracker.g.lsn == stream.lsn
    assert life.lives()[-1] is Life.READY
    newest = max(StoreReader(life.store).bases(life.log), key=lambda base: base.last)
    assert newest.last.tx == stream.transactions[-1].commit


async def test_of_two_truncates_that_come_together_the_last_one_empties() -> None:
    life, stream = begun([PUT, TRUNCATE, PUT], [TRUNCATE, PUT])
    await life.be_quiet()
    newest = max(StoreReader(life.store).bases(life.log), key=lambda base: base.last)
    assert newest.last.tx == stream.transactions[-1].commit
    assert life.collector.tracker.g.lsn == stream.lsn


async def test_another_stream_ends_a_truncated_shape_whose_snapshot_is_still_copied() -> None:
    """Its base would be that of before the TRUNCATE, and nothing holds G for it any more."""
    stream = PlainStream()
    life = Life1(MemoryDisk(), stream, 1_000)
    life.make_shape(is_copied=False)
    stream.commit([PUT, TRUNCATE], 0)
    await life.receive()
    life.collector.flushed(life.store.flush(demand=[life.log]), 0.0)
    await life.endings.settle_truncates()
    assert life.lives() == [Life.ENDED]
    assert not list(life.collector.members)


@pytest.mark.parametrize("steps", range(6))
async def test_a_shape_that_ends_while_it_is_rebased_has_ended(steps: int) -> None:
    """Whichever comes first: the end is that of the newest handle, and a start brings none of them back."""
    life, stream = begun([PUT, TRUNCATE])
    await life.receive()
    life.flush()
    for _ in range(steps):
        await asyncio.sleep(0)
    await life.endings.end(life.member, "by the test", "it was enough")
    await life.endings.settled()
    assert set(life.lives()) == {Life.ENDED}
    assert life.registry.living() == []
    assert life.collector.tracker.g.lsn == stream.lsn
    assert Registry(Catalog(life.disk.crash_image(strictest)), lambda: 0, 0.0).living() == []


async def test_an_end_is_on_disk_before_the_tracker_lets_go() -> None:
    """A11: else a crash brings the shape back with a hole."""
    for sync in range(1, 20):
        life, stream = begun([PUT])
        await life.receive()
        life.disk.crash_at_sync = life.disk.syncs + sync
        with contextlib.suppress(Crashed):
            await life.endings.end(life.member, "by the test", "it was enough")
        g = life.collector.tracker.g.lsn
        again = Life1(life.disk.crash_image(strictest), stream, g)
        assert g == 1_000 or not again.registry.living(), f"G is {g}, and a crash at sync {sync} brings it back"
        if not life.disk.crashed:
            assert g == stream.lsn
            return
    raise AssertionError("an end never ends")


async def test_thousands_end_with_one_sync_and_their_files_go_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another stream ends all shapes, and its first event waits for that."""
    monkeypatch.setattr("shapes.endings.LOGS_SWEPT_AT_ONCE", 30)
    life, stream = begun([PUT])
    named = life.make_shape("kept")
    for _ in range(70):
        life.make_shape()
    awaited: list[str] = []
    life.endings.succeed = lambda entry: awaited.append(entry.handle)
    await life.receive()
    syncs = life.disk.syncs
    await life.endings.everything("by the test", "it was enough")
    assert life.disk.syncs - syncs <= 2
    assert life.registry.living() == []
    assert life.collector.tracker.g.lsn == stream.lsn
    assert awaited == [named.handle]
    assert Registry(Catalog(life.disk.crash_image(strictest)), lambda: 0, 0.0).living() == []
    left = [len(list_logs(life.disk))]
    for _ in range(4):
        await life.endings.sweep()
        left.append(len(list_logs(life.disk)))
    assert left == [72, 42, 12, 1, 1], "that of the name stays for its successor"


async def test_an_end_says_where_the_stream_was_and_at_a_start_what_was_confirmed() -> None:
    life, _ = begun([PUT])
    await life.receive()
    handle = str(life.member.handle)
    await life.endings.end(life.member, "by the test", "it was enough")
    ended = life.registry.find(handle)
    assert ended is not None
    assert ended.shape.ended_at == life.collector.upto
    young = Life1(MemoryDisk(), PlainStream(), 5_000)
    young.collector.upto = SNAPSHOT_END  # nothing has come yet
    assert young.endings.place == LogOffset(4_999, OP_INFINITE)


async def test_who_is_cancelled_in_an_end_leaves_no_shape_that_is_fed_and_has_ended() -> None:
    life, _ = begun([PUT])
    may_sync, ended = threading.Event(), life.registry.all_ended

    def slow(ends: Iterable[Ended]) -> None:
        may_sync.wait(20)
        ended(ends)

    life.registry.all_ended = slow  # type: ignore[method-assign]  # a disk that takes its time
    ending = asyncio.create_task(life.endings.end(life.member, "by the test", "it was enough"))
    await asyncio.wait([ending], timeout=0.01)
    ending.cancel()
    await asyncio.wait([ending], timeout=0.01)
    assert not ending.done(), "the record is on its way, and whoever goes on now would not know how it ended"
    may_sync.set()
    with contextlib.suppress(asyncio.CancelledError):
        await ending
    assert life.registry.living() == []
    assert len(life.collector.members) == 0


async def test_a_full_disk_delays_an_end_and_a_base_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A9: both are tried again until there is room."""
    monkeypatch.setattr("shapes.threads.FAULT_RETRY_SECONDS", 0.001)
    life, stream = begun([PUT, TRUNCATE])
    await life.receive()
    rules = [Rule(operation, Fault(errno.ENOSPC), first=1, calls=3) for operation in ("create", "append")]
    life.flush()
    faulty = life.store.disk = FaultyDisk(life.disk, Script(*rules))
    await life.endings.settled()
    assert life.lives() == [Life.REBASED, Life.READY]
    assert life.collector.tracker.g.lsn == stream.lsn
    assert len(faulty.log) == 6, "each was refused three times"


async def test_of_two_bases_at_the_same_place_a_shape_stands_on_the_newer_one_which_stays() -> None:
    life, _ = begun()
    for _ in range(2):  # as a start finds them, when the maker of the first was told that it had failed
        life.store.new_base(life.log).finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0)
    await life.endings.stand_on_newest(life.member, TRUNCATED)
    retire(life.store, life.log, now=0)
    entry = life.registry.find(str(life.member.handle))
    assert entry is not None
    assert [entry.shape.base] == [base.number for base in StoreReader(life.store).bases(life.log)]


@pytest.mark.parametrize(
    ("commit_lsn", "xid", "ends"),
    [(900, 699, False), (900, 700, True), (1_000, 699, True), (0, 0, True)],
    ids=["seen", "not seen", "after its birth", "outside of any"],
)
async def test_what_a_transaction_says_of_a_table_counts_where_the_snapshot_has_not_seen_it(
    commit_lsn: int, xid: int, ends: bool
) -> None:
    """In a backlog the stream describes the table as it was before the shape was defined."""
    life, _ = begun()
    old = Relation(1, "public", "t1", "d", ())
    await life.endings.by_relation(RelationChange(old, None, Lsn(commit_lsn), xid))
    assert life.lives() == [Life.ENDED if ends else Life.READY]


async def test_what_a_partition_says_of_itself_ends_the_shapes_of_its_root() -> None:
    """The stream speaks of partitions only: who alters a root alters them too, and of the root nothing comes."""
    life, _ = begun()
    life.collector.partitions.follow(Relation(1, "public", "t1", "d", ()), [2])
    await life.endings.by_relation(RelationChange(Relation(3, "public", "other", "d", ()), None, Lsn(0), 0))
    assert life.lives() == [Life.READY]
    await life.endings.by_relation(RelationChange(Relation(2, "public", "t1_low", "d", ()), None, Lsn(0), 0))
    assert life.lives() == [Life.ENDED]


async def test_partitions_belong_to_their_root_for_as_long_as_somebody_follows_it() -> None:
    life, _ = begun()
    first, second = life.member, life.make_shape()
    partitions = life.collector.partitions
    partitions.follow(Relation(1, "public", "t1", "d", ()), [2])
    await life.endings.end(first, "by the test", "it was enough")
    assert partitions.roots_of(2) == (1,), "rows of the other would be lost"
    await life.endings.end(second, "by the test", "it was enough")
    assert partitions.roots_of(2) == ()


async def test_a_partition_that_somebody_took_out_of_the_publication_ends_the_shapes_of_its_root() -> None:
    """It may be published by itself, or by its schema: then nothing is told of the root."""
    life, _ = begun()
    life.collector.partitions.follow(Relation(1, "public", "t1", "d", ()), [2])
    await life.endings.by_publication([PublicationChange(3, "another table")])
    assert life.lives() == [Life.READY]
    await life.endings.by_publication([PublicationChange(2, "the partition")])
    assert life.lives() == [Life.ENDED]
