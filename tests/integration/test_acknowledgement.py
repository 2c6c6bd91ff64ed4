"""What the server is told, and may forget: promises that lose a transaction for ever when broken (A1, A4)."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from cdc.source.attempt import Arrived, Attempt, Connected
from cdc.source.fragments import KeepAlive
from cdc.source.lsn import parse_lsn
from cdc.source.session import Session
from tests.follower import Follower, following, settings_for
from tests.postgres import Database, Server, new_database
from tests.waiting import eventually

GIB = 1024**3


def confirmed(database: Database) -> int:
    return int(parse_lsn(database.slots()["follower"]["confirmed_flush_lsn"]))


async def connect(session: Session, follower: Follower) -> None:
    await follower.follow(session, lambda: bool(follower.connected))


async def test_an_open_transaction_survives_the_acknowledgement_of_the_wal_end(database: Database) -> None:
    """B1: its commit record begins exactly where the acknowledged WAL ends. One byte more, and it is never sent."""
    database.execute("CREATE TABLE t (i int)")
    settings = settings_for(database.conninfo(), "t")
    with psycopg.connect(database.conninfo()) as writer:
        async with following(settings) as (session, follower):
            await connect(session, follower)
            writer.execute("INSERT INTO t VALUES (1)")
            # A commit elsewhere makes the server flush, and say how far its WAL goes. After that nothing is written
            # until the writer's commit, which therefore starts at that very place.
            database.execute("SELECT pg_logical_emit_message(true, 'test', 'flush')")
            end = parse_lsn(database.value("SELECT pg_current_wal_insert_lsn()"))
            await asyncio.wait_for(follower.follow(session, lambda: follower.durable >= end), 20)
            known = follower.known()
        assert confirmed(database) >= end, "the end of the WAL is acknowledged while the transaction is open"
        writer.commit()
    later = Follower(connected=follower.connected, durable=follower.durable)
    assert known is not None
    async with following(settings, later) as (session, _):
        await asyncio.wait_for(later.follow(session, lambda: later.values("i") == ["1"]), 20)


async def test_the_slot_passes_wal_that_is_not_ours(database: Database) -> None:
    """A gigabyte of another database's WAL, and a table that nobody follows: keepalives alone move the slot."""
    other = new_database(database.server)
    try:
        async with following(settings_for(database.conninfo())) as (session, follower):
            await connect(session, follower)
            follow = asyncio.create_task(follower.follow(session, lambda: False))
            fill = "SELECT count(pg_logical_emit_message(false, 'filler', repeat('x', 1000000)))"
            await asyncio.to_thread(other.execute, fill + " FROM generate_series(1, 1074)")
            await asyncio.to_thread(
                database.execute, "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 32000)"
            )
            end = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
            await eventually(lambda: confirmed(database) >= end, "the slot to pass the other database's WAL", 60)
            await eventually(lambda: retained_bytes(database) < GIB // 16, "the server to be free to forget it", 60)
            follow.cancel()
            await asyncio.wait([follow])
    finally:
        other.remove()


def retained_bytes(database: Database) -> int:
    """After a checkpoint: it says in the WAL which transactions run, and without that no slot lets go."""
    query = "SELECT (pg_current_wal_lsn() - restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 'follower'"
    return int(database.execute("CHECKPOINT", query)[0][0])


async def test_a_heartbeat_is_a_transaction_of_our_own(newest_database: Database) -> None:
    settings = settings_for(newest_database.conninfo(), heartbeat_seconds=0.1)
    async with following(settings) as (session, follower):
        while True:
            delivery = await asyncio.wait_for(session.next(), 20)
            follower.take(delivery, session)
            event = delivery.event if isinstance(delivery, Arrived) else None
            if messages := getattr(event, "messages", ()):
                break
    (message,) = messages
    assert (message.prefix, message.content) == ("shapelog.heartbeat", b"follower")
    assert message.transactional, "else the server does not find out that it needs less WAL"


async def test_a_confirmation_of_an_earlier_connection_moves_nothing(database: Database) -> None:
    async with following(settings_for(database.conninfo()), Follower(flushing=False)) as (session, follower):
        await connect(session, follower)
        before = confirmed(database)
        database.execute("SELECT pg_logical_emit_message(true, 'test', 'moves the WAL')")
        end = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
        assert session.attempt is not None
        session.confirm(1, end)
        assert session.attempt.replies.flushed == before, "this connection did not bring it yet"
        await asyncio.wait_for(follower.follow(session, lambda: session.received >= end), 20)
        await eventually(lambda: confirmed(database) >= end, "the confirmation to arrive")
        database.execute("SELECT pg_logical_emit_message(true, 'test', 'moves it further')")
        later = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
        await asyncio.wait_for(follower.follow(session, lambda: session.received >= later), 20)
        session.confirm(0, later)
        assert session.attempt.replies.flushed < later, "it may be about other rows"


async def test_nothing_is_confirmed_that_was_not_told(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.source.replies.STATUS_SECONDS_MAX", 0.1)  # replies go out all the while
    database.execute("CREATE TABLE t (i int)")
    async with following(settings_for(database.conninfo(), "t"), Follower(flushing=False)) as (session, follower):
        await connect(session, follower)
        before = confirmed(database)
        database.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) == 1000), 20)
        await asyncio.wait_for(follower.follow(session, lambda: not follower.is_open), 20)
        end = session.received
        follow = asyncio.create_task(follower.follow(session, lambda: False))
        await eventually(lambda: reported(database) >= end, "a reply that says how much was received", 40)
        follow.cancel()
        await asyncio.wait([follow])
    assert confirmed(database) == before


def reported(database: Database) -> int:
    """How far the server knows that we have received its stream."""
    text = database.value(
        "SELECT max(write_lsn)::text FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid "
        "WHERE database = current_database()"
    )
    return 0 if text is None else int(parse_lsn(text))


async def stop_fast(server: Server) -> float:
    started = time.monotonic()
    server.signal_stop("fast")
    await asyncio.to_thread(server.wait_stopped, 30)
    return time.monotonic() - started


async def test_a_fast_stop_with_an_unconfirmed_backlog_ends_and_loses_nothing(own_database: Database) -> None:
    """A4: a consumer that reads but cannot confirm keeps the server waiting for no longer than promised."""
    own_database.execute("CREATE TABLE t (i int)")
    patience = {} if own_database.version == 18 else {"shutdown_seconds": 1.0}  # once as it is by default
    settings = settings_for(own_database.conninfo(), "t", **patience)
    follower = Follower(flushing=False)
    async with following(settings, follower) as (session, _):
        await connect(session, follower)
        own_database.execute("INSERT INTO t SELECT generate_series(1, 20000)")
        follow = asyncio.create_task(follower.follow(session, lambda: False))
        await eventually(lambda: len(follower.rows) == 20000, "the backlog")
        seconds = await stop_fast(own_database.server)
        assert seconds < 10
        assert follower.stopping, "the consumer was told"
        own_database.server.start()
        own_database.execute("INSERT INTO t VALUES (20001)")
        await eventually(lambda: len(follower.rows) == 20001, "what came after the restart")
        follow.cancel()
        await asyncio.wait([follow])
    assert sorted(map(int, filter(None, follower.values("i")))) == list(range(1, 20002))
    assert follower.replayed == 20000, "it was not confirmed, so it came again"


async def test_a_fast_stop_is_seen_by_the_flood_alone(
    own_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A4, while the second connection tells nothing: the walsender asks for replies at one place, again and again."""

    async def sees_nothing(_: Attempt) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Attempt, "_watch", sees_nothing)
    database = new_database(own_server())
    database.execute("CREATE TABLE t (i int)")
    settings = settings_for(database.conninfo(), "t", shutdown_seconds=0.5)
    async with following(settings, Follower(flushing=False)) as (session, follower):
        await connect(session, follower)
        database.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        follow = asyncio.create_task(follower.follow(session, lambda: False))
        await eventually(lambda: len(follower.rows) == 1000, "the backlog")
        assert await stop_fast(database.server) < 10
        assert ["again and again" in notice.reason for notice in follower.stopping] == [True]
        follow.cancel()
        await asyncio.wait([follow])


async def test_a_fast_stop_does_not_wait_for_a_consumer_that_is_away(own_database: Database) -> None:
    """A4, while nobody reads: the flood of requests is not even seen; the second connection's end is."""
    own_database.execute("CREATE TABLE t (i int)")
    settings = settings_for(own_database.conninfo(), "t", shutdown_seconds=1)
    async with following(settings, Follower(flushing=False)) as (session, follower):
        await connect(session, follower)
        own_database.execute("INSERT INTO t SELECT generate_series(1, 200000)")
        assert await stop_fast(own_database.server) < 6
        own_database.server.start()
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) == 200000), 40)


async def test_a_confirmed_consumer_lets_the_server_stop_at_once(own_database: Database) -> None:
    own_database.execute("CREATE TABLE t (i int)")
    settings = settings_for(own_database.conninfo(), "t")
    async with following(settings) as (session, follower):
        await connect(session, follower)
        own_database.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        follow = asyncio.create_task(follower.follow(session, lambda: False))
        await eventually(lambda: len(follower.rows) == 1000, "the rows")
        assert await stop_fast(own_database.server) < 4
        follow.cancel()
        await asyncio.wait([follow])


async def keeps_streaming_while_away(database: Database, away_seconds: float, **more: Any) -> None:
    """A consumer that does not ask for anything for a while still has its connection, and gets all."""
    database.execute("CREATE TABLE t (i int, text text)")
    async with following(settings_for(database.conninfo(), "t", **more)) as (session, follower):
        await connect(session, follower)
        database.execute("INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 50000) i")
        await asyncio.wait_for(follower.follow(session, lambda: bool(follower.open_rows or follower.rows)), 20)
        await eventually(_after(away_seconds), "the consumer to come back", away_seconds + 5)
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) == 50000), 20)
        assert [connected.attempt for connected in follower.connected] == [1]


def _after(seconds: float) -> Any:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


async def test_a_short_sender_timeout_is_respected_while_the_consumer_is_away(database: Database) -> None:
    database.execute("ALTER ROLE postgres SET wal_sender_timeout = '1s'")
    try:
        await keeps_streaming_while_away(database, 3.5)
    finally:
        database.execute("ALTER ROLE postgres RESET wal_sender_timeout")


async def test_a_server_without_a_sender_timeout_is_asked(database: Database) -> None:
    """Then it sends no keepalives of its own, and the slot would stand still on a quiet server."""
    database.execute("ALTER ROLE postgres SET wal_sender_timeout = 0")
    try:
        async with following(settings_for(database.conninfo())) as (session, follower):
            await connect(session, follower)
            assert session.attempt is not None
            session.attempt.replies.interval = 0.2
            session.attempt.confirm(follower.durable)  # wakes the task that would wait for the old interval
            session.attempt._poked.set()
            seen = 0
            while seen < 3:
                delivery = await asyncio.wait_for(session.next(), 20)
                assert not isinstance(delivery, Connected)
                seen += isinstance(delivery, Arrived) and isinstance(delivery.event, KeepAlive)
    finally:
        database.execute("ALTER ROLE postgres RESET wal_sender_timeout")
