"""The publication on real servers: what we alter, whom we wait for, and what others altered."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import LiteralString

import psycopg
import pytest

from cdc.source import attempt
from cdc.source import publisher as publisher_module
from cdc.source.attempt import Arrived, PublicationAltered
from cdc.source.catalog import read_publication, read_published
from cdc.source.connections import Connection, connect_sql
from cdc.source.errors import CannotPublish, NotPublished, TableBusy
from cdc.source.fragments import Fragment
from cdc.source.holders import Holder
from cdc.source.identity import PublicationChanged
from cdc.source.limits import POLL_SECONDS, PUBLICATION_CHECK_SECONDS, PUBLICATION_GRACE_SECONDS
from cdc.source.publication import Mode, OldRow, PublicationChange, leaves_to_roots
from cdc.source.publisher import Publisher
from cdc.source.server_bugs import Bug
from cdc.source.session import Session
from tests.follower import Follower, following, settings_for
from tests.postgres import Database, Server
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
            roots = leaves_to_roots(await read_publication(connection, "follower"))
    assert {str(table) for table in leaves.values()} == {"public.low", "public.high_low"}
    assert set(roots) == set(leaves)
    assert set(roots.values()) == {database.value("SELECT 'root'::regclass::oid::bigint")}
    assert [leaves[oid].name for oid in truncated] == ["low"]
    assert follower.values("i", "public.high_low") == ["11"]


async def test_partitions_that_come_and_go_are_told(database: Database) -> None:
    """Postgres sends nothing of it; and one that leaves and comes back between two looks brings other rows."""
    database.execute(
        "CREATE TABLE root (i int) PARTITION BY RANGE (i)",
        "CREATE TABLE other (i int) PARTITION BY RANGE (i)",
        "CREATE TABLE low PARTITION OF other FOR VALUES FROM (0) TO (10)",
    )
    changes: list[LiteralString] = [
        "CREATE TABLE first PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (i)",
        "CREATE TABLE leaf PARTITION OF first FOR VALUES FROM (0) TO (5)",
        "ALTER TABLE root DETACH PARTITION first",
        "ALTER TABLE root ATTACH PARTITION first FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE root DETACH PARTITION first; ALTER TABLE root ATTACH PARTITION first FOR VALUES FROM (0) TO (10)",
        "DROP TABLE leaf",
    ]
    oid = database.value("SELECT 'root'::regclass::oid::bigint")
    publisher = Publisher("p", "managed")
    async with connected(database) as connection:
        await publisher.publish(connection, ["root", "other"])
        told = []
        for statements in changes:
            database.execute(*statements.split("; "))
            told.append([change.table for change in await publisher.changes(connection)])
        assert told == [[], [oid], [oid], [oid], [oid], [oid]]
        database.execute("INSERT INTO other VALUES (1)")
        assert await publisher.changes(connection) == ()


async def test_a_table_that_leaves_a_published_schema_for_a_moment_is_told(database: Database) -> None:
    """What is written meanwhile is sent to nobody, and the publication's own rows in the catalog stay as they are."""
    database.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (i int)",
        "CREATE TABLE shop.other (i int)",
        "CREATE PUBLICATION follower FOR TABLES IN SCHEMA shop",
    )
    oid = database.value("SELECT 'shop.t'::regclass::oid::bigint")
    async with following(settings_for(database.conninfo(), "shop.t")) as (session, follower):
        await start(session, follower)
        assert session.attempt is not None
        database.execute("VACUUM FULL shop.t", "TRUNCATE shop.other", "GRANT SELECT ON shop.t TO PUBLIC")
        database.execute("CREATE TABLE shop.later (i int)", "ALTER TABLE shop.other ADD COLUMN j int")
        await session.attempt.check_publication()
        assert follower.altered == [], "nothing was away"
        database.execute(
            "ALTER TABLE shop.t SET SCHEMA public",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t SET SCHEMA shop",
            "INSERT INTO shop.t VALUES (2)",
        )
        await session.attempt.check_publication()
        altered = await asyncio.wait_for(_altered(session, follower), 20)
        assert [change.table for change in altered.changes] == [oid]
        await asyncio.wait_for(follower.follow(session, lambda: "2" in follower.values("i", "shop.t")), 20)
        assert follower.values("i", "shop.t") == ["2"], "the other is missing, and so it was right to tell"
        database.execute("DROP TABLE shop.other")
        await session.attempt.check_publication()
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.altered) == 2), 20)


async def test_a_schema_that_was_taken_out_for_a_moment_is_noticed_within_seconds(newest_database: Database) -> None:
    database = newest_database
    database.execute(
        "CREATE SCHEMA shop", "CREATE TABLE shop.t (i int)", "CREATE PUBLICATION follower FOR TABLES IN SCHEMA shop"
    )
    async with following(settings_for(database.conninfo(), "shop.t")) as (session, follower):
        await start(session, follower)
        assert session.attempt is not None
        await session.attempt.check_publication()  # from here on only a mark that is another is a reason to look
        with database.connect() as admin, admin.transaction():
            admin.execute("ALTER PUBLICATION follower DROP TABLES IN SCHEMA shop")
            admin.execute("ALTER PUBLICATION follower ADD TABLES IN SCHEMA shop")
        altered = await asyncio.wait_for(_altered(session, follower), PUBLICATION_CHECK_SECONDS / 3)
        assert [change.table for change in altered.changes] == [None]


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


async def test_tables_that_inherit_are_left_alone(database: Database) -> None:
    database.execute("CREATE TABLE parent (i int)", "CREATE TABLE child () INHERITS (parent)")
    async with connected(database) as connection:
        published = await Publisher("p", "managed").publish(connection, ["parent"])
    assert [member.name for member in published.state.tables.values()] == ["public.parent"]
    database.execute("INSERT INTO child VALUES (1)", "UPDATE child SET i = 2")


@asynccontextmanager
async def waiting_for_a_table(database: Database, publisher: Publisher) -> AsyncIterator[None]:
    """In here `publisher` waits for the table `busy`, which is free again at the end; then it is published."""
    waiting = asyncio.Event()
    publisher._waiting = lambda _what, _holders: waiting.set()
    with psycopg.connect(database.conninfo()) as writer:
        writer.execute("INSERT INTO busy VALUES (1)")
        async with connected(database) as connection:
            publishing = asyncio.create_task(publisher.publish(connection, ["busy"]))
            await asyncio.wait_for(waiting.wait(), 20)
            yield
            writer.commit()
            await asyncio.wait_for(publishing, 30)


async def test_who_looks_at_the_publication_does_not_wait_for_a_busy_table(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the watch over the server would take the wait for a server that is lost, and end the stream."""
    monkeypatch.setattr(attempt, "PUBLICATION_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(attempt, "CONNECT_SECONDS_MAX", 4.5)
    newest_database.execute("CREATE TABLE t (i int)", "CREATE TABLE busy (i int)")
    async with following(settings_for(newest_database.conninfo(), "t")) as (session, follower):
        await start(session, follower)
        async with waiting_for_a_table(newest_database, session.publisher), connected(newest_database) as mine:
            for rows in (1, 2, 3):
                await asyncio.wait_for(session.publisher.changes(mine), 4.5)
                await asyncio.to_thread(newest_database.execute, "INSERT INTO t VALUES (1)")
                await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) >= rows), 20)  # noqa: B023 - awaited here
        assert follower.stopping == []
        assert len(follower.connected) == 1


async def test_what_others_alter_while_we_wait_for_a_table_is_told(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int)", "CREATE TABLE busy (i int)")
    publisher = Publisher("p", "managed")
    async with connected(newest_database) as connection:
        await publisher.publish(connection, ["t"])
        async with waiting_for_a_table(newest_database, publisher):
            newest_database.execute("ALTER PUBLICATION p DROP TABLE t", "ALTER PUBLICATION p ADD TABLE t")
            found = await publisher.changes(connection)
        assert [change.table for change in found] == [newest_database.value("SELECT 't'::regclass::oid::bigint")]
        assert await publisher.changes(connection) == (), "told once, and what we did ourselves never"


async def test_a_table_that_others_took_out_and_added_waits_for_its_writers_again(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int)")
    shown: list[tuple[Holder, ...]] = []
    publisher = Publisher("p", "managed", waiting=lambda _, holders: shown.append(holders))
    async with connected(newest_database) as connection:
        await publisher.publish(connection, ["t"])
        newest_database.execute("ALTER PUBLICATION p DROP TABLE t")
        with psycopg.connect(newest_database.conninfo()) as writer:
            writer.execute("INSERT INTO t VALUES (1)")  # not sent; what it writes from now on is
            newest_database.execute("ALTER PUBLICATION p ADD TABLE t")
            publishing = asyncio.create_task(publisher.publish(connection, ["t"]))
            await eventually(lambda: bool(shown), "the writer to be waited for")
            writer.commit()
        published = await asyncio.wait_for(publishing, 20)
    assert [change.text.split(" ", 3)[3] for change in published.changes] == [
        "was taken out and added again, or its filter or columns were altered"
    ]


def remembers(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server count as one that remembers what was published before a writer ended."""
    monkeypatch.setattr(publisher_module, "STALE_PUBLICATION", Bug("", "", {database.version: (0, 99)}))


async def test_who_may_not_make_a_server_forget_is_told_and_followed_all_the_same(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, role = newest_database, f"least_{newest_database.name}"
    remembers(database, monkeypatch)
    database.execute(
        "CREATE TABLE t (i int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_generated_columns = stored)",
    )
    with database.connect() as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            connection = await connect_sql(database.conninfo(user=role), "test")
            with caplog.at_level(logging.WARNING):
                published = await Publisher("p", "managed").publish(connection, ["t"])
            await connection.close()
        finally:
            admin.execute(f"DROP ROLE {role}".encode())
    assert set(published.tables) == {"t"}
    assert "changes of public.t may be missing" in caplog.text


@pytest.mark.parametrize("mode", ["managed", "manual"])
async def test_a_server_that_remembers_what_was_published_forgets_it_whenever_a_writer_has_ended(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Those before May 2025 take the table for unpublished after such a writer, and send nothing of later ones."""
    remembers(newest_database, monkeypatch)
    newest_database.execute(
        "CREATE TABLE t (i int)",
        "CREATE TABLE other (i int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE other WITH (publish_generated_columns = stored)",
        "SELECT pg_create_logical_replication_slot('looking', 'pgoutput')",
    )

    def sent() -> str:
        """The kinds of messages: an insert of a writer, and ours."""
        peek: LiteralString = """
            SELECT chr(get_byte(data, 0)) FROM pg_logical_slot_peek_binary_changes(
                'looking', NULL, NULL, 'proto_version', '1', 'publication_names', 'p', 'messages', 'true'
            )
        """
        return "".join(found for (found,) in newest_database.execute(peek) if found in "IM")

    async with connected(newest_database) as connection:
        with psycopg.connect(newest_database.conninfo()) as first, psycopg.connect(newest_database.conninfo()) as last:
            for writer in (first, last):
                writer.execute("INSERT INTO t VALUES (1)")
                writer.execute("INSERT INTO other VALUES (1)")
            if mode == "manual":
                newest_database.execute("ALTER PUBLICATION p ADD TABLE t")
            shown: list[tuple[Holder, ...]] = []
            publisher = Publisher("p", mode, waiting=lambda _, holders: shown.append(holders))
            publishing = asyncio.create_task(publisher.publish(connection, ["t"]))
            await eventually(lambda: len(shown) == 1, "both writers to be waited for")
            first.commit()
            await eventually(lambda: len(shown) == 2, "the first to be missed")
            last.commit()
        published = await asyncio.wait_for(publishing, 20)
        assert published.changes == await publisher.changes(connection) == (), "nobody altered anything"
    assert sent() == ("MIMIM" if mode == "managed" else "II")
    assert newest_database.value("SELECT count(*) FROM pg_publication") == 1
    newest_database.execute("SELECT pg_drop_replication_slot('looking')")


async def test_a_table_that_others_take_out_while_its_writers_are_waited_for_is_published_again(
    newest_database: Database,
) -> None:
    """Somebody else may be told of it: whoever asked for the table finds it published, or is told nothing of it."""
    newest_database.execute("CREATE TABLE t (i int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    shown: list[tuple[Holder, ...]] = []
    publisher = Publisher("p", "managed", waiting=lambda _, holders: shown.append(holders))
    async with connected(newest_database) as connection, connected(newest_database) as other:
        with psycopg.connect(newest_database.conninfo()) as writer:
            writer.execute("INSERT INTO t VALUES (1)")
            publishing = asyncio.create_task(publisher.publish(connection, ["t"]))
            await eventually(lambda: bool(shown), "the writer to be waited for")
            newest_database.execute("ALTER PUBLICATION p DROP TABLE t")
            assert len(await publisher.changes(other)) == 1
            writer.commit()
        published = await asyncio.wait_for(publishing, 20)
    assert published.tables["t"].oid in published.state.tables


async def test_a_table_that_is_wanted_again_does_not_leave(newest_database: Database) -> None:
    """Its grace time is over at the very moment at which somebody wants it."""
    newest_database.execute("CREATE TABLE t (i int)", "CREATE TABLE busy (i int)")
    publisher = Publisher("p", "managed")
    async with connected(newest_database) as connection, connected(newest_database) as other:
        published = await publisher.publish(connection, ["t"])
        oid = published.tables["t"].oid
        await publisher.release(connection, [oid], now=0)
        async with waiting_for_a_table(newest_database, publisher):
            wanted = asyncio.create_task(publisher.publish(connection, ["t"]))
            await asyncio.sleep(0)
            released = asyncio.create_task(publisher.release(other, [oid], now=PUBLICATION_GRACE_SECONDS))
        await asyncio.wait_for(asyncio.gather(wanted, released), 20)
        assert oid in (await read_publication(connection, "p")).tables


async def test_an_autovacuum_makes_way(own_server: Callable[..., Server]) -> None:
    """It does so for who waits longer than `deadlock_timeout`, and nobody may wait so long for the table alone."""
    database = Database(own_server(autovacuum_naptime="1s"), "postgres")
    database.execute(
        "CREATE TABLE t (i int PRIMARY KEY, x text) WITH (autovacuum_vacuum_cost_delay = 100, "
        "autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 1)",
        "INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 50000) i",
        "DELETE FROM t WHERE i % 2 = 0",
    )
    query = "SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = 't'::regclass"
    await eventually(lambda: database.value(query) == 1, "an autovacuum of the table", 60)
    async with connected(database) as connection:
        await asyncio.wait_for(Publisher("p", "managed", lock_seconds_max=20).publish(connection, ["t"]), 30)


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


async def test_a_publication_that_was_made_again_is_noticed_within_seconds(newest_database: Database) -> None:
    """Not by the stream: Postgres 18 goes on without a word, and what was changed meanwhile is never sent."""
    database = newest_database
    database.execute("CREATE TABLE t (i int)", "CREATE TABLE other (i int)")
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await start(session, follower)
        database.execute(
            "DROP PUBLICATION follower", "INSERT INTO t VALUES (1)", "CREATE PUBLICATION follower FOR TABLE t"
        )
        altered = await asyncio.wait_for(_altered(session, follower), PUBLICATION_CHECK_SECONDS / 3)
        assert [change.table for change in altered.changes] == [None]
        database.execute("INSERT INTO t VALUES (2)")
        await asyncio.wait_for(follower.follow(session, lambda: "2" in follower.values("i")), 20)
        assert follower.values("i") == ["2"], "the other is missing, and so it was right to end what is followed"


async def test_a_table_that_was_taken_out_for_a_moment_is_noticed_within_seconds(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)", "CREATE TABLE other (i int)")
    async with following(settings_for(database.conninfo(), "t", "other")) as (session, follower):
        await start(session, follower)
        with database.connect() as admin, admin.transaction():
            admin.execute("ALTER PUBLICATION follower DROP TABLE t")
            admin.execute("ALTER PUBLICATION follower ADD TABLE t")
        altered = await asyncio.wait_for(_altered(session, follower), PUBLICATION_CHECK_SECONDS / 3)
        assert [change.table for change in altered.changes] == [database.value("SELECT 't'::regclass::oid::bigint")]


async def test_a_change_by_somebody_else_is_noticed_while_connected(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "WATCH_SECONDS", 60.0)  # we look ourselves
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


async def test_what_is_altered_during_a_look_is_noticed_by_the_next(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the look, and before whoever looked has gone: the mark that he goes by is of before."""
    monkeypatch.setattr(attempt, "WATCH_SECONDS", 60.0)  # we look ourselves
    newest_database.execute("CREATE TABLE t (i int)")
    async with following(settings_for(newest_database.conninfo(), "t")) as (session, follower):
        await start(session, follower)
        assert session.attempt is not None
        await session.attempt.check_publication()
        changes = Publisher.changes

        async def and_altered(publisher: Publisher, connection: Connection) -> tuple[PublicationChange, ...]:
            found = await changes(publisher, connection)
            newest_database.execute("ALTER PUBLICATION follower DROP TABLE t", "ALTER PUBLICATION follower ADD TABLE t")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "changes", and_altered)
            await session.attempt.check_publication()
        assert not follower.altered
        await session.attempt._look_at_publication(time.monotonic())
        altered = await asyncio.wait_for(_altered(session, follower), 20)
        assert [change.table for change in altered.changes] == [
            newest_database.value("SELECT 't'::regclass::oid::bigint")
        ]


async def test_what_leaves_no_mark_is_noticed_when_the_time_has_come(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that is attached alters no row of the publication's own: it is read again from time to time."""
    monkeypatch.setattr(attempt, "PUBLICATION_CHECK_SECONDS", 0.5)
    newest_database.execute(
        "CREATE TABLE t (i int) PARTITION BY RANGE (i)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high (i int)",
    )
    async with following(settings_for(newest_database.conninfo(), "t")) as (session, follower):
        await start(session, follower)
        assert session.attempt is not None
        first = session.attempt._publication_due
        await eventually(lambda: session.attempt and session.attempt._publication_due > first, "the first look")
        newest_database.execute("ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (20)")
        altered = await asyncio.wait_for(_altered(session, follower), 20)
        oid = newest_database.value("SELECT 't'::regclass::oid::bigint")
        assert oid in [change.table for change in altered.changes]


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
        await publisher.publish(connection, ["kept"])  # wanted again in time
        assert await publisher.release(connection, oids.values(), now=PUBLICATION_GRACE_SECONDS) == (oids["t"],)
        assert set((await read_publication(connection, "p")).tables) == {oids["kept"]}
        assert await publisher.changes(connection) == ()


async def test_a_table_that_is_followed_meanwhile_has_its_grace_anew(newest_database: Database) -> None:
    """Whoever asks knows who is unused at the moment; what was so before does not count."""
    newest_database.execute("CREATE TABLE t (i int)")
    publisher = Publisher("p", "managed")
    async with connected(newest_database) as connection:
        oid = (await publisher.publish(connection, ["t"])).tables["t"].oid
        assert await publisher.release(connection, [oid], now=0) == ()
        assert await publisher.release(connection, [], now=PUBLICATION_GRACE_SECONDS) == ()
        assert await publisher.release(connection, [oid], now=PUBLICATION_GRACE_SECONDS) == ()
        assert set((await read_publication(connection, "p")).tables) == {oid}
        assert await publisher.release(connection, [oid], now=2 * PUBLICATION_GRACE_SECONDS) == (oid,)


async def test_a_table_that_left_while_another_could_not_waits_for_its_writers_again(newest_database: Database) -> None:
    """Who published it again without that wait would send a transaction that writes to it now by halves."""
    tables = ("first", "second")
    left = 0
    async with connected(newest_database) as connection:
        for locked in tables:
            newest_database.execute("DROP TABLE IF EXISTS first, second")
            newest_database.execute("CREATE TABLE first (i int)", "CREATE TABLE second (i int)")
            publisher = Publisher("p", "managed", lock_seconds_max=0.1)
            oids = {(await publisher.publish(connection, [t])).tables[t].oid: t for t in tables}
            assert await publisher.release(connection, oids, now=0) == ()
            with psycopg.connect(newest_database.conninfo()) as holder:
                holder.execute(f"LOCK TABLE {locked} IN SHARE UPDATE EXCLUSIVE MODE".encode())
                with pytest.raises(TableBusy):
                    await publisher.release(connection, oids, now=PUBLICATION_GRACE_SECONDS)
            kept = set((await read_publication(connection, "p")).tables)
            for name in (oids[oid] for oid in oids.keys() - kept):
                left += 1
                with psycopg.connect(newest_database.conninfo(application_name="early")) as early:
                    early.execute(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE".encode())
                    publishing = asyncio.create_task(publisher.publish(connection, [name], OldRow.ANY))
                    done, _ = await asyncio.wait([publishing], timeout=10 * POLL_SECONDS)
                    assert not done, "the writer has not ended"
                    early.commit()
                await asyncio.wait_for(publishing, 20)
    assert left == 1, "one of them is asked for first"
