"""Another timeline: a server that was promoted. Who goes on, and who begins anew (A2)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.source.attempt import Connected
from cdc.source.identity import OtherTimeline
from cdc.source.lsn import Lsn
from shapes.capture import Capture
from shapes.endings import STREAM_REPLACED, Endings
from shapes.members import Member
from storage.catalog_records import Life
from tests.loop import Loop, looping
from tests.postgres import Database, Server, new_database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
ALL = "SELECT id, v FROM items"


def promote(server: Server, database: Database) -> None:
    """A failover as we see it: the server goes away, a standby of the same data answers, and is promoted."""
    server.stop("fast")
    (server.folder / "data/standby.signal").touch()
    server.start()
    database.execute("SELECT pg_promote()")


async def on_timeline(loop: Loop, timeline: int) -> None:
    lineage = loop.app.house.lineage
    await eventually(
        lambda: lineage.incarnation is not None and lineage.incarnation.timeline == timeline, "the timeline", 40
    )


async def test_shapes_go_on_when_all_that_came_lies_below_the_switch(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = own_server()
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("items", "items")
        database.execute("INSERT INTO items VALUES (2, 'first timeline')")
        await loop.caught_up()
        first = loop.app.house.lineage.incarnation
        await asyncio.to_thread(promote, server, database)
        database.execute("INSERT INTO items VALUES (3, 'second timeline')")
        await on_timeline(loop, 2)
        await loop.caught_up(40)
        assert loop.living("items").handle == entry.handle
        assert loop.rows(entry) == loop.table(ALL)
        second = loop.app.house.lineage.incarnation
        assert first is not None
        assert second is not None
        assert second.slot_epoch > first.slot_epoch, "G is that of another life"
    async with looping(database, tmp_path) as loop:
        database.execute("INSERT INTO items VALUES (4, 'after a restart')")
        await loop.caught_up()
        assert loop.living("items").handle == entry.handle
        assert loop.rows(entry) == loop.table(ALL)


async def test_a_publication_that_was_altered_before_a_switch_ends_the_shapes_of_that_table(
    own_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other timeline is not all that is new."""
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)  # nobody looks between the statements below
    server = own_server()
    database = new_database(server)
    database.execute(ITEMS, "CREATE TABLE others (id int PRIMARY KEY)", "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        items, others = await loop.add("items", "items"), await loop.add("others", "others")
        await loop.caught_up()
        database.execute(
            "ALTER PUBLICATION shapelog DROP TABLE items",
            "INSERT INTO items VALUES (2, 'unseen')",
            "ALTER PUBLICATION shapelog ADD TABLE items",
        )
        await asyncio.to_thread(promote, server, database)
        await on_timeline(loop, 2)
        await eventually(
            lambda: (
                (entry := loop.app.house.registry.named("items")) is not None
                and entry.handle != items.handle
                and entry.shape.life is Life.READY
            ),
            "a successor",
            40,
        )
        await loop.caught_up(40)
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        assert loop.living("others").handle == others.handle


async def test_a_truncate_has_its_base_before_another_timeline_counts(
    own_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker forgets at the switch that the TRUNCATE waits for its base, and G may pass it: nobody sends it again.

    The task that makes the base is slow here, and gets no turn before the end.
    """
    may_go_on, rebase = asyncio.Event(), Endings._rebase

    async def slow(endings: Endings, member: Member) -> None:
        await may_go_on.wait()
        await rebase(endings, member)

    monkeypatch.setattr(Endings, "_rebase", slow)
    server = own_server()
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("items", "items")
        await loop.caught_up()
        database.execute("TRUNCATE items", "INSERT INTO items VALUES (2, 'after the TRUNCATE')")
        store = loop.app.house.store
        await eventually(lambda: store.marks(entry.log)[1].tx > 0, "the TRUNCATE to be durable")
        before = loop.app.house.collector.tracker.g.lsn
        await asyncio.to_thread(promote, server, database)
        await on_timeline(loop, 2)
        await loop.caught_up(40)
        living = loop.living("items")
        assert loop.confirmed() > before
        assert (living.log, living.shape.base) != (entry.log, entry.shape.base), "G passed a TRUNCATE without a base"
        may_go_on.set()
        await loop.app.house.endings.settled()
        assert loop.living("items").handle == living.handle, "what is done is not done again"
        assert loop.rows(living) == loop.table(ALL)


async def test_nothing_is_confirmed_to_a_connection_that_was_not_judged(
    own_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lead to another stream, where G means something else."""
    may_judge, judged = asyncio.Event(), Capture._connected

    async def late(capture: Capture, connected: Connected) -> None:
        if connected.attempt > 1:
            await may_judge.wait()
        await judged(capture, connected)

    monkeypatch.setattr(Capture, "_connected", late)
    server = own_server()
    database = new_database(server)
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        await loop.caught_up()
        session = loop.app.house.session
        told: list[int] = []
        confirm = session.confirm

        def heard(attempt: int, lsn: Lsn) -> None:
            told.append(attempt)
            confirm(attempt, lsn)

        monkeypatch.setattr(session, "confirm", heard)
        database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        await eventually(lambda: session.attempt is not None and session.attempt.number > 1, "a new connection", 40)
        told.clear()
        await loop.app.acknowledger.acknowledge()
        assert told
        assert session.attempt is not None
        assert session.attempt.number not in told
        may_judge.set()
        database.execute("INSERT INTO items VALUES (1, 'after')")
        await loop.caught_up(40)
        assert session.attempt.number in told


async def test_after_a_restart_of_ours_everybody_begins_anew(own_server: Callable[..., Server], tmp_path: Path) -> None:
    """Nobody knows any more what the process before received of the timeline that was left."""
    server = own_server()
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        named, some = await loop.add("items", "items"), await loop.add("items", where="id < 100")
        await loop.caught_up()
    promote(server, database)
    database.execute("INSERT INTO items VALUES (2, 'second timeline')")
    async with looping(database, tmp_path) as loop:
        registry = loop.app.house.registry
        await on_timeline(loop, 2)
        await eventually(
            lambda: (entry := registry.named("items")) is not None and entry.shape.life is Life.READY, "a successor", 40
        )
        await loop.caught_up()
        assert loop.living("items").handle != named.handle
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        for ended in (registry.find(named.handle), registry.find(some.handle)):
            assert ended is not None
            assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, STREAM_REPLACED)


async def test_a_birth_above_the_switch_is_no_part_of_the_new_history(
    newest_database: Database, tmp_path: Path
) -> None:
    """Its snapshot may have what the standby never got, though nothing of that was streamed yet."""
    newest_database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(newest_database, tmp_path) as loop:
        entry = await loop.add("items", "items")
        birth = entry.shape.snapshot.birth
        loop.app.capture._received = 1
        for switch, goes_on in ((birth - 1, False), (birth, True)):
            assert loop.app.capture._continues(OtherTimeline(2, Lsn(switch), Lsn(1))) is goes_on
