"""The publication on real servers: what we alter, whom we wait for, and what others altered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from cdc.source.attempt import Arrived, PublicationAltered
from cdc.source.catalog import read_publication, read_published
from cdc.source.connections import Connection, connect_sql
from cdc.source.errors import CannotPublish, NotPublished, TableBusy
from cdc.source.fragments import Fragment
from cdc.source.holders import Holder
from cdc.source.identity import PublicationChanged
from cdc.source.limits import PUBLICATION_GRACE_SECONDS
from cdc.source.publication import leaves_to_roots
from cdc.source.publisher import Publisher
from cdc.source.session import Session
from tests.follower import Follower, following, settings_for
from tests.postgres import Database
from tests.waiting import eventually


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[Connection]:
    connection = await connect_sql(database.conninfo(), "test")
    try:
        yield connection
    finally:
        await connection.close()


def identity_of(database: Database, table: str) -> str:
    return str(dict(database.execute("SELECT relname::text, relreplident::text FROM pg_class"))[table])


async def test_a_table_is_published_whole(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)", 'CREATE TABLE "Odd ""Name" (i int)')
    publisher = Publisher("p", "managed")
    async with connected(database) as connection:
        published = await publisher.publish(connection, ["t", '"Odd ""Name"'])
        again = await publisher.publish(connection, ["t", '"Odd ""Name"'])
    assert {table.name for table in published.tables.values()} == {"t", 'Odd "Name'}
    assert again.state == published.state, "the second time there is nothing to alter"
    assert again.changes == published.changes == ()
    assert identity_of(database, "t") == identity_of(database, 'Odd "Name') == "f"


async def test_partitions_are_published_as_leaves_and_mapped_to_their_root(database: Database) -> None:
    database.execute(
        "CREATE TABLE root (i int) PARTITION BY RANGE (i)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF root FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (i)",
        "CREATE TABLE high_low PARTITION OF high FOR VALUES FROM (10) TO (50)",
    )
    async with following(settings_for(database.conninfo(), "root")) as (session, follower):
        await start(session, follower)
        database.execute("INSERT INTO root VALUES (1), (11)", "TRUNCATE low")
        truncated: list[int] = []
        while not truncated:
            delivery = await asyncio.wait_for(session.next(), 20)
            follower.take(delivery, session)
            if isinstance(delivery, Arrived) and isinstance(delivery.event, Fragment):
                truncated += [oid for truncate in delivery.event.truncates for oid in truncate.relations]
        async with connected(database) as connection:
            leaves = await read_published(connection, "follower")
    assert {str(table) for table in leaves.values()} == {"public.low", "public.high_low"}
    roots = leaves_to_roots(leaves.values())
    assert set(roots) == set(leaves)
    assert set(roots.values()) == {database.value("SELECT 'root'::regclass::oid::bigint")}
    assert [leaves[oid].name for oid in truncated] == ["low"]
    assert follower.values("i", "public.high_low") == ["11"]


async def start(session: Session, follower: Follower) -> None:
    await asyncio.wait_for(follower.follow(session, lambda: bool(follower.connected)), 30)


async def test_writers_from_before_are_waited_for_and_named_but_later_ones_are_not(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    shown: list[tuple[str, tuple[Holder, ...]]] = []
    publisher = Publisher("p", "managed", waiting=lambda what, holders: shown.append((what, holders)))
    with (
        psycopg.connect(database.conninfo(application_name="early")) as early,
        psycopg.connect(database.conninfo(application_name="late")) as late,
        psycopg.connect(database.conninfo(application_name="reader")) as reader,
    ):
        early.execute("INSERT INTO t VALUES (1)")
        reader.execute("SELECT * FROM t")
        async with connected(database) as connection:
            publishing = asyncio.create_task(publisher.publish(connection, ["t"]))
            await eventually(lambda: bool(shown), "the writer to be shown")
            assert [holder.application for holder in shown[-1][1]] == ["early"]
            late.execute("INSERT INTO t VALUES (2)")
            assert not publishing.done()
            early.commit()
            await asyncio.wait_for(publishing, 20)
            await asyncio.wait_for(publisher.publish(connection, ["t"]), 20)  # settled: nobody is waited for again


async def test_a_prepared_writer_is_waited_for(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    with psycopg.connect(database.conninfo()) as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        writer.execute("PREPARE TRANSACTION 'held'")
    shown: list[tuple[Holder, ...]] = []
    publisher = Publisher("p", "managed", waiting=lambda _, holders: shown.append(holders))
    async with connected(database) as connection:
        publishing = asyncio.create_task(publisher.publish(connection, ["t"]))
        await eventually(lambda: bool(shown), "the prepared transaction to be shown")
        assert [holder.prepared for holder in shown[-1]] == ["held"]
        database.execute("COMMIT PREPARED 'held'")
        await asyncio.wait_for(publishing, 20)


async def test_a_busy_table_is_asked_for_in_short_and_others_pass(newest_database: Database) -> None:
    """REPLICA IDENTITY FULL wants the table alone: while we wait in its queue, everybody behind us waits too."""
    newest_database.execute("CREATE TABLE t (i int)")
    publisher = Publisher("p", "managed", lock_seconds_max=3)
    with psycopg.connect(newest_database.conninfo(application_name="the busy one")) as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        async with connected(newest_database) as connection:
            publishing = asyncio.create_task(publisher.publish(connection, ["t"]))
            longest = 0.0
            loop = asyncio.get_running_loop()
            while not publishing.done():
                started = loop.time()
                await asyncio.to_thread(newest_database.execute, "INSERT INTO t VALUES (2)")
                longest = max(longest, loop.time() - started)
            with pytest.raises(TableBusy, match="the busy one"):
                publishing.result()
            assert longest < 2
    assert identity_of(newest_database, "t") == "d"


async def test_manual_mode_alters_nothing_and_prints_what_would_do(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)")
    publisher = Publisher("p", "manual")
    async with connected(database) as connection:
        with pytest.raises(NotPublished) as caught:
            await publisher.publish(connection, ["t"])
        assert (await read_publication(connection, "p")).oid is None
        assert identity_of(database, "t") == "d"
        statements = [line for line in str(caught.value).split("\n") if line.endswith(";")]
        assert len(statements) == 3
        for statement in statements:
            await connection.execute(statement.encode())
        await publisher.publish(connection, ["t"])


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("CREATE VIEW t AS SELECT 1 AS i", "a view"),
        ("CREATE UNLOGGED TABLE t (i int)", "unlogged"),
        ("CREATE SEQUENCE t", "a sequence"),
        ("SELECT 1", "no such table"),
    ],
)
async def test_what_cannot_be_followed_is_refused(newest_database: Database, definition: str, reason: str) -> None:
    with newest_database.connect() as admin:
        admin.execute(definition.encode())
    async with connected(newest_database) as connection:
        with pytest.raises(CannotPublish, match=reason):
            await Publisher("p", "managed").publish(connection, ["t"])


async def test_a_change_by_somebody_else_is_noticed_while_connected(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)")
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await start(session, follower)
        assert session.attempt is not None
        await session.attempt.check_publication()
        database.execute("ALTER PUBLICATION follower DROP TABLE t", "ALTER PUBLICATION follower ADD TABLE t")
        await session.attempt.check_publication()
        altered = await asyncio.wait_for(_altered(session, follower), 20)
        oid = database.value("SELECT 't'::regclass::oid::bigint")
        assert [change.table for change in altered.changes] == [oid]
        await session.attempt.check_publication()
        assert follower.altered == [altered], "noticed once"


async def _altered(session: Session, follower: Follower) -> PublicationAltered:
    await follower.follow(session, lambda: bool(follower.altered))
    return follower.altered[-1]


async def test_a_change_by_somebody_else_is_noticed_at_the_next_connection(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)")
    settings = settings_for(database.conninfo(), "t")
    async with following(settings) as (session, follower):
        await start(session, follower)
    database.execute("ALTER PUBLICATION follower SET (publish = 'insert')")
    async with following(settings, follower) as (session, _):
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.connected) == 2), 20)
    verdict = follower.connected[-1].verdict
    assert isinstance(verdict, PublicationChanged)
    assert [change.table for change in verdict.changes] == [None]


async def test_what_we_publish_ourselves_is_no_change(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)", "CREATE TABLE later (i int)")
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await start(session, follower)
        async with connected(database) as connection:
            published = await session.publisher.publish(connection, ["later"])
        assert published.changes == ()
        assert session.attempt is not None
        await session.attempt.check_publication()
        database.execute("INSERT INTO later VALUES (1)")
        await asyncio.wait_for(follower.follow(session, lambda: follower.values("i", "public.later") == ["1"]), 20)
        assert follower.altered == []


async def test_a_publication_that_is_gone_is_refused(database: Database) -> None:
    settings = settings_for(database.conninfo())
    async with following(settings) as (session, follower):
        await start(session, follower)
    database.execute("DROP PUBLICATION follower")
    async with following(settings, follower) as (session, _):
        with pytest.raises(NotPublished, match="is gone"):
            await asyncio.wait_for(follower.follow(session, lambda: False), 20)


async def test_a_table_leaves_the_publication_after_a_grace_time(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int)", "CREATE TABLE kept (i int)")
    publisher = Publisher("p", "managed")
    async with connected(newest_database) as connection:
        published = await publisher.publish(connection, ["t", "kept"])
        oids = {name: table.oid for name, table in published.tables.items()}
        assert await publisher.release(connection, oids.values(), now=0) == ()
        await publisher.publish(connection, ["kept"])  # followed again in time
        assert await publisher.release(connection, [], now=PUBLICATION_GRACE_SECONDS) == (oids["t"],)
        assert set((await read_publication(connection, "p")).tables) == {oids["kept"]}
        assert await publisher.changes(connection) == ()
