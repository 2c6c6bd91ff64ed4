"""Two servers, each with a slot of its own, on one publication: neither takes out what the other follows."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import LiteralString

import pytest

from cdc.source.connections import connect_sql
from cdc.source.ownership import LOCK_CLASS
from cdc.source.publisher import Publisher
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

TAKE_SLOT_LOCK: LiteralString = "SELECT pg_advisory_lock(%s, hashtext(%s))"

END_STREAM_OF_ONE: LiteralString = (
    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'one'"
)

IS_WAITED_FOR: LiteralString = """
    SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database b ON b.oid = l.database
                   WHERE b.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)
"""


WAITING: LiteralString = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.source.publisher.PUBLICATION_GRACE_SECONDS", 0.0)


def members(database: Database) -> set[str]:
    return {row[0] for row in database.execute("SELECT prrelid::regclass::text FROM pg_publication_rel")}


async def rounds(*loops: Loop) -> None:
    """Each looks twice what it need not have published, and what others did to the publication."""
    for loop in (*loops, *loops):
        await loop.app.housekeeping.go_round()
        attempt = await eventually(lambda: loop.app.house.session.attempt, "a connection")  # noqa: B023
        assert attempt is not None
        await attempt.check_publication()


async def test_what_another_server_follows_stays_published(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 600.0)
    database.execute("CREATE TABLE mine (id int PRIMARY KEY)", "CREATE TABLE yours (id int PRIMARY KEY)")
    end = asyncio.get_running_loop().time() + 60
    async with looping(database, tmp_path / "one", slot="one") as one:
        mine = await one.add("mine", "mine")
        async with looping(database, tmp_path / "two", slot="two") as two:
            yours = await two.add("yours", "yours")
            await rounds(one, two)
            assert members(database) == {"mine", "yours"}
            database.execute("INSERT INTO mine VALUES (1)", "INSERT INTO yours VALUES (2)")
            await eventually(lambda: one.rows(mine) == [("1",)], "the row of one")
            await eventually(lambda: two.rows(yours) == [("2",)], "the row of the other")
            assert one.living("mine").handle == mine.handle
            assert two.living("yours").handle == yours.handle
        while members(database) != {"mine"}:  # the server notices a moment later that the other is gone
            async with asyncio.timeout_at(end):
                await rounds(one)
        assert one.living("mine").handle == mine.handle


async def test_who_is_not_connected_takes_nothing_out(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own lock is gone with its session, so the only one that is left is that of the other server."""
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 600.0)
    database = newest_database
    database.execute("CREATE TABLE mine (id int PRIMARY KEY)", "CREATE TABLE yours (id int PRIMARY KEY)")
    async with looping(database, tmp_path / "one", slot="one") as one:
        await one.add("mine", "mine")
        async with looping(database, tmp_path / "two", slot="two") as two:
            await two.add("yours", "yours")
            await rounds(one, two)
            session = one.app.house.session
            with database.connect() as somebody:
                lock = asyncio.to_thread(somebody.execute, TAKE_SLOT_LOCK, [LOCK_CLASS, "one"])
                locking = asyncio.create_task(lock)
                await eventually(lambda: database.value(IS_WAITED_FOR), "somebody who is next")
                database.execute(END_STREAM_OF_ONE)
                await locking
                await eventually(lambda: session.attempt is None, "a lost connection")
                await one.app.housekeeping.go_round()
                assert members(database) == {"mine", "yours"}
            await eventually(lambda: session.attempt, "a connection")
            await rounds(one, two)
            assert members(database) == {"mine", "yours"}


@pytest.mark.parametrize("held", ["LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE", "CREATE PUBLICATION p"])
async def test_two_that_publish_the_same_at_once_are_both_content(database: Database, held: LiteralString) -> None:
    """Each has seen that there is no such thing yet; whoever comes second finds it there."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    both = [Publisher("p", "managed") for _ in range(2)]
    async with AsyncExitStack() as stack:
        connections = [await connect_sql(database.conninfo(), "test") for _ in both]
        for connection in connections:
            stack.push_async_callback(connection.close)
        if "TABLE" in held:
            for publisher, connection in zip(both, connections, strict=True):
                await publisher.publish(connection, [])
        with database.connect() as holder, holder.transaction(force_rollback=True):
            holder.execute(held)
            publishing = [
                asyncio.create_task(publisher.publish(connection, ["t"]))
                for publisher, connection in zip(both, connections, strict=True)
            ]
            await eventually(lambda: database.value(WAITING) == len(both), "both to wait for the lock")
        for published in await asyncio.gather(*publishing):
            assert {table.oid for table in published.tables.values()} == set(published.state.tables)
    assert members(database) == {"t"}


async def test_a_server_that_is_alone_lets_go(database: Database, tmp_path: Path) -> None:
    """Its own connections count once, however many they are."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    async with looping(database, tmp_path) as loop, loop.app.house.control() as connection:
        publisher: Publisher = loop.app.house.session.publisher
        await publisher.publish(connection, ["t"])
        assert members(database) == {"t"}
        oid: int = database.value("SELECT 't'::regclass::oid::bigint")
        assert await publisher.release(connection, [oid], 0.0) == (oid,)
        assert members(database) == set()
