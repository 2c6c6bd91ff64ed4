"""Slots on real servers: their making behind long transactions, their loss, and who may read them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from cdc.source import handshake
from cdc.source.connections import Connection, connect_sql
from cdc.source.copy_both import start_stream
from cdc.source.errors import OwnedElsewhere, ServerUnfit, SlotAhead, SlotCreationBlocked, SlotExists, SlotLost
from cdc.source.holders import Holder
from cdc.source.identity import Behind, Fresh, OtherTimeline, Resume
from cdc.source.lsn import parse_lsn
from cdc.source.ownership import own_slot
from cdc.source.session import Session
from cdc.source.slot_commands import create_slot, drop_slot, read_slot
from tests.follower import Follower, following, settings_for
from tests.postgres import WANTED, Database, Server, new_database
from tests.standby import standby_of
from tests.waiting import eventually


@asynccontextmanager
async def two_connections(database: Database) -> AsyncIterator[tuple[Connection, Connection]]:
    control, maker = [await connect_sql(database.conninfo(), "test") for _ in range(2)]
    try:
        yield control, maker
    finally:
        await control.close()
        await maker.close()


async def test_a_slot_is_made_read_and_dropped(database: Database) -> None:
    async with two_connections(database) as (control, maker):
        start = await create_slot(control, maker, "made")
        state = await read_slot(control, "made")
        assert state is not None
        assert (state.confirmed_flush_lsn, state.database, state.loss) == (start, database.name, None)
        assert state.failover == (True if database.version >= 17 else None)
        await drop_slot(control, "made")
        await drop_slot(control, "made")
        assert await read_slot(control, "made") is None


async def test_a_slot_that_exists_is_not_touched(database: Database) -> None:
    async with two_connections(database) as (control, maker):
        await create_slot(control, maker, "made")
        with pytest.raises(SlotExists):
            await create_slot(control, maker, "made")
        assert await read_slot(control, "made") is not None


@pytest.fixture
def long_transaction(database: Database) -> "psycopg.Connection[tuple[int, ...]]":
    """Open, with a transaction number: what a slot's creation waits for."""
    connection = psycopg.connect(database.conninfo(application_name="the long one"))
    connection.execute("SELECT pg_current_xact_id()")
    return connection


async def test_the_long_transaction_that_a_slot_waits_for_is_named(
    database: Database, long_transaction: "psycopg.Connection[tuple[int, ...]]"
) -> None:
    shown: list[tuple[Holder, ...]] = []
    async with two_connections(database) as (control, maker):
        making = asyncio.create_task(create_slot(control, maker, "made", waiting=shown.append))
        await eventually(lambda: bool(shown and shown[-1]), "a holder to be shown")
        assert shown[-1][0].application == "the long one"
        assert shown[-1][0].pid == long_transaction.info.backend_pid
        long_transaction.close()
        assert await asyncio.wait_for(making, 20) > 0


async def test_a_prepared_transaction_that_a_slot_waits_for_is_named(database: Database) -> None:
    database.execute("CREATE TABLE t (i int)")
    with psycopg.connect(database.conninfo()) as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        writer.execute("PREPARE TRANSACTION 'held'")
    shown: list[tuple[Holder, ...]] = []
    async with two_connections(database) as (control, maker):
        making = asyncio.create_task(create_slot(control, maker, "made", waiting=shown.append))
        await eventually(lambda: bool(shown and shown[-1]), "a holder to be shown")
        assert [holder.prepared for holder in shown[-1]] == ["held"]
        assert shown[-1][0].mend == "ROLLBACK PREPARED 'held';"
        database.execute("ROLLBACK PREPARED 'held'")
        await asyncio.wait_for(making, 20)


async def test_a_cancelled_creation_leaves_no_slot(
    database: Database, long_transaction: "psycopg.Connection[tuple[int, ...]]"
) -> None:
    shown: list[tuple[Holder, ...]] = []
    async with two_connections(database) as (control, maker):
        making = asyncio.create_task(create_slot(control, maker, "made", waiting=shown.append))
        await eventually(lambda: bool(shown), "the creation to wait")
        making.cancel()
        await asyncio.wait([making])
        assert making.cancelled()
        await eventually(lambda: not database.slots(), "the half-made slot to go")
    long_transaction.close()


async def test_a_creation_that_takes_too_long_leaves_no_slot(
    database: Database, long_transaction: "psycopg.Connection[tuple[int, ...]]"
) -> None:
    async with two_connections(database) as (control, maker):
        with pytest.raises(SlotCreationBlocked, match="the long one") as caught:
            await create_slot(control, maker, "made", seconds_max=0.5)
        assert f"pg_terminate_backend({long_transaction.info.backend_pid})" in str(caught.value)
        await eventually(lambda: not database.slots(), "the half-made slot to go")
    long_transaction.close()


async def start(session: Session, follower: Follower) -> None:
    await asyncio.wait_for(follower.follow(session, lambda: bool(follower.connected)), 30)


async def test_a_temporary_slot_leaves_nothing(database: Database) -> None:
    async with following(settings_for(database.conninfo(), temporary=True)) as (session, follower):
        await start(session, follower)
        assert database.slots()["follower"]["temporary"]
    await eventually(lambda: not database.slots(), "the slot to end with its connection")


async def test_a_slot_of_somebody_else_is_not_taken(database: Database) -> None:
    async with two_connections(database) as (control, maker):
        await create_slot(control, maker, "follower")
    settings = settings_for(database.conninfo())
    async with following(settings) as (session, follower):
        with pytest.raises(SlotExists):
            await start(session, follower)
    async with following(replace(settings, adopt=True)) as (session, follower):
        await start(session, follower)
        assert isinstance(follower.connected[0].verdict, Fresh)


async def run_once(database: Database) -> Follower:
    """A session that ended cleanly."""
    async with following(settings_for(database.conninfo())) as (session, follower):
        await start(session, follower)
        database.execute("SELECT pg_logical_emit_message(true, 'test', 'moves the slot')")
        end = parse_lsn(database.value("SELECT pg_current_wal_insert_lsn()"))
        await asyncio.wait_for(follower.follow(session, lambda: follower.durable >= end), 20)
    await eventually(lambda: not database.slots()["follower"]["active"], "the server to notice the end")
    return follower


async def restart(database: Database, follower: Follower) -> None:
    async with following(settings_for(database.conninfo()), follower) as (session, _):
        attempts = len(follower.connected)
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.connected) > attempts), 30)


async def test_a_clean_end_resumes(database: Database) -> None:
    follower = await run_once(database)
    await restart(database, follower)
    assert follower.connected[-1].verdict == Resume(follower.durable)


async def test_a_slot_behind_us_is_told_where_we_are(database: Database) -> None:
    follower = await run_once(database)
    confirmed = follower.durable
    database.execute("SELECT pg_logical_emit_message(true, 'test', 'is durable here, but nobody told the slot')")
    follower.durable = parse_lsn(database.value("SELECT pg_current_wal_flush_lsn()"))
    await restart(database, follower)
    assert follower.connected[-1].verdict == Behind(follower.durable, confirmed)


async def test_a_slot_ahead_of_us_is_a_gap(database: Database) -> None:
    follower = await run_once(database)
    database.execute("SELECT pg_logical_emit_message(true, 'test', 'somebody else takes this')")
    database.execute("SELECT pg_replication_slot_advance('follower', pg_current_wal_insert_lsn())")
    with pytest.raises(SlotAhead, match="recover --resnapshot"):
        await restart(database, follower)


async def test_a_slot_made_anew_is_a_gap(database: Database) -> None:
    """The server silently forwards a start below what a slot has; nothing of that is relied on."""
    follower = await run_once(database)
    database.execute(
        "SELECT pg_drop_replication_slot('follower')",
        "SELECT pg_logical_emit_message(true, 'test', 'nobody hears this')",
        "SELECT pg_create_logical_replication_slot('follower', 'pgoutput')",
    )
    with pytest.raises(SlotAhead):
        await restart(database, follower)


async def test_a_dropped_slot_is_lost(database: Database) -> None:
    follower = await run_once(database)
    database.execute("SELECT pg_drop_replication_slot('follower')")
    with pytest.raises(SlotLost, match="no such slot"):
        await restart(database, follower)


async def test_a_slot_whose_wal_was_removed_is_lost_and_says_why(own_server: Callable[..., Server]) -> None:
    server = own_server("18", max_slot_wal_keep_size="2MB", min_wal_size="32MB", max_wal_size="32MB")
    database = new_database(server)
    follower = await run_once(database)
    for _ in range(4):
        database.execute(
            "SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000))", "SELECT pg_switch_wal()"
        )
    database.execute("CHECKPOINT")
    assert database.slots()["follower"]["wal_status"] == "lost"
    with pytest.raises(SlotLost, match="max_slot_wal_keep_size"):
        await restart(database, follower)


async def test_another_server_is_not_taken_for_ours(database: Database, newest_server: Server) -> None:
    follower = await run_once(database)
    other = new_database(newest_server)
    try:
        with pytest.raises(Exception, match="system identifier"):
            await restart(other, follower)
    finally:
        other.remove()


@pytest.mark.parametrize("version", WANTED)
async def test_a_standby_is_waited_for_and_its_timeline_tells_where_ours_was_left(
    version: str, own_server: Callable[..., Server]
) -> None:
    """A failover, as we see it: the server goes away, a standby answers, and then it is promoted."""
    server = own_server(version)
    own_database = new_database(server)
    follower = await run_once(own_database)
    server.stop("fast")
    (server.folder / "data/standby.signal").touch()
    server.start()
    async with following(settings_for(own_database.conninfo()), follower) as (session, _):
        follow = asyncio.create_task(follower.follow(session, lambda: len(follower.connected) == 2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(follow), 1)
        own_database.execute("SELECT pg_promote()")
        await asyncio.wait_for(follow, 30)
    verdict = follower.connected[-1].verdict
    assert isinstance(verdict, OtherTimeline)
    assert verdict.timeline == 2
    assert verdict.switch_point is not None
    assert verdict.switch_point >= follower.durable
    assert verdict.continues(follower.durable)


async def test_a_failover_slot_goes_on_at_the_standby(own_server: Callable[..., Server]) -> None:
    """The primary dies for good; on the promoted standby the same session goes on, and nothing is missing."""
    primary = own_server()
    standby = standby_of(primary, started=False)  # the first look of its slot worker shall find our slot
    try:
        database, copied = Database(primary, "postgres"), Database(standby, "postgres")
        database.execute("CREATE TABLE t (i int)")
        both = psycopg.conninfo.make_conninfo(
            host=f"{primary.host},{standby.host}", port=f"{primary.port},{standby.port}", user="postgres",
            dbname="postgres", target_session_attrs="read-write",
        )  # fmt: skip
        async with following(settings_for(both, "t")) as (session, follower):
            await follower.follow(session, lambda: bool(follower.connected))
            database.execute("INSERT INTO t VALUES (1)")
            await asyncio.wait_for(follower.follow(session, lambda: follower.values("i") == ["1"]), 20)
            standby.start()
            follow = asyncio.create_task(follower.follow(session, lambda: follower.values("i") == ["1", "2", "3"]))
            await eventually(lambda: _is_synced(copied), "the slot to be ready on the standby", 60)
            follower.flushing = False  # not confirmed any more: the standby's slot must bring it again
            database.execute("INSERT INTO t VALUES (2)")
            end = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
            await eventually(lambda: _replayed(copied) >= end, "the standby to have all of it")
            primary.stop("immediate")
            copied.execute("SELECT pg_promote()")
            copied.execute("INSERT INTO t VALUES (3)")
            await asyncio.wait_for(follow, 40)
        verdict = follower.connected[-1].verdict
        assert isinstance(verdict, OtherTimeline)
        assert verdict.continues(follower.durable)
    finally:
        standby.remove()


def _is_synced(standby: Database) -> bool:
    slot = standby.slots().get("follower", {})
    return bool(slot.get("synced")) and not slot["temporary"]


def _replayed(standby: Database) -> int:
    return parse_lsn(standby.value("SELECT pg_last_wal_replay_lsn()"))


async def test_a_slot_that_moves_while_we_connect_is_a_gap(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged too early: Postgres would silently skip what lies between."""
    follower = await run_once(newest_database)

    async def start_late(*arguments: Any, **more: Any) -> Any:
        newest_database.execute("SELECT pg_logical_emit_message(true, 'test', 'somebody else takes this')")
        newest_database.execute("SELECT pg_replication_slot_advance('follower', pg_current_wal_lsn())")
        return await start_stream(*arguments, **more)

    monkeypatch.setattr(handshake, "start_stream", start_late)
    async with following(settings_for(newest_database.conninfo()), follower) as (session, _):
        with pytest.raises(SlotAhead):
            await asyncio.wait_for(follower.follow(session, lambda: False), 20)
    await eventually(lambda: not newest_database.slots()["follower"]["active"], "the stream to end")


async def test_an_unfit_server_is_refused_with_the_statement_that_mends_it(own_server: Callable[..., Server]) -> None:
    database = new_database(own_server("18", wal_level="replica"))
    with pytest.raises(ServerUnfit, match="ALTER SYSTEM SET wal_level = 'logical';"):
        await run_once(database)


async def test_the_owner_of_a_slot_is_named_and_waited_for(database: Database) -> None:
    shown: list[Holder | None] = []
    async with two_connections(database) as (first, second):
        await own_slot(first, "s", "the first one")
        with pytest.raises(OwnedElsewhere, match="is in use by process"):
            await own_slot(second, "s", "the second one", shown.append, seconds_max=0.3)
        assert [holder.pid for holder in shown if holder] == [first.info.backend_pid]
        await own_slot(second, "another", "the second one", seconds_max=0.3)
        waiting = asyncio.create_task(own_slot(second, "s", "the second one"))
        await first.close()
        await asyncio.wait_for(waiting, 20)


async def test_our_own_dead_connection_does_not_keep_us_out(database: Database) -> None:
    first = await connect_sql(database.conninfo(), "shapelog s 1")
    second = await connect_sql(database.conninfo(), "shapelog s 1")
    try:
        await own_slot(first, "s", "shapelog s 1")
        await own_slot(second, "s", "shapelog s 1", seconds_max=10)
        with pytest.raises(psycopg.OperationalError):
            await first.execute("SELECT 1")
    finally:
        await first.close()
        await second.close()
