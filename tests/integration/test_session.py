"""The session on real servers: what it delivers, over which connections, with which rights."""

import asyncio
import logging

import pytest

from cdc.source import attempt
from cdc.source.copy_both import Framing
from cdc.source.errors import Unreachable
from cdc.source.identity import Fresh
from cdc.source.lsn import parse_lsn
from tests.follower import following, settings_for
from tests.postgres import Database
from tests.proxy import Proxy
from tests.waiting import eventually


@pytest.mark.parametrize("framing", [Framing.PLAIN, Framing.LIBPQ], ids=lambda framing: framing.name.lower())
@pytest.mark.parametrize("way", ["unix", "tcp"])
async def test_delivers_what_is_committed(database: Database, way: str, framing: Framing) -> None:
    database.execute("CREATE TABLE t (i int PRIMARY KEY, text text)")
    conninfo = database.tcp() if way == "tcp" else database.conninfo()
    async with following(settings_for(conninfo, "t", framing=framing)) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        database.execute("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i")
        database.execute("INSERT INTO t VALUES (1001, 'y')")
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) == 1001), 20)
    assert follower.values("i") == [str(i) for i in range(1, 1002)]
    # The server notices a moment after us that the connection has ended.
    await eventually(lambda: database.slots()["follower"]["active"] is False, "the slot to be free")


async def test_a_connection_says_what_it_found(database: Database) -> None:
    async with following(settings_for(database.conninfo())) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        (first,) = follower.connected
        assert first.verdict == Fresh(None)
        assert first.identity.system == database.value("SELECT system_identifier::text FROM pg_control_system()")
        assert first.identity.database == database.name
        assert first.identity.timeline == 1
        assert first.start == parse_lsn(database.slots()["follower"]["confirmed_flush_lsn"])
        assert first.slot is not None
        assert session.attempt is not None


async def test_a_role_with_the_least_rights_follows(database: Database) -> None:
    """What docs/doctor.md promises: a publication by somebody else, LOGIN, REPLICATION and SELECT will do."""
    role = f"least_{database.name}"
    with database.connect() as admin:
        admin.execute("CREATE TABLE t (i int PRIMARY KEY)")
        admin.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        generated = ", publish_generated_columns = stored" if database.version >= 18 else ""
        options = f"publish = 'insert, update, delete, truncate'{generated}"
        admin.execute(f"CREATE PUBLICATION follower FOR TABLE t WITH ({options})".encode())
        admin.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        admin.execute(f"GRANT SELECT ON t TO {role}".encode())
        try:
            settings = settings_for(database.conninfo(user=role), "t", mode="manual")
            async with following(settings) as (session, follower):
                await follower.follow(session, lambda: bool(follower.connected))
                database.execute("INSERT INTO t VALUES (1)")
                await asyncio.wait_for(follower.follow(session, lambda: follower.values("i") == ["1"]), 20)
            async with following(settings, follower) as (session, _):
                await asyncio.wait_for(follower.follow(session, lambda: len(follower.connected) == 2), 20)
        finally:
            admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


async def test_a_frozen_network_is_noticed(newest_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is closed, nothing arrives: only asking tells."""
    monkeypatch.setattr(attempt, "CONNECT_SECONDS_MAX", 0.5)
    database = newest_database
    database.execute("CREATE TABLE t (i int)")
    with Proxy(("127.0.0.1", database.server.port)) as proxy:
        await _freeze(database, proxy)


async def _freeze(database: Database, proxy: Proxy) -> None:
    conninfo = database.conninfo(host="127.0.0.1", port=proxy.port, connect_timeout=2)
    async with following(settings_for(conninfo, "t", shutdown_seconds=0.5)) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        proxy.freeze()
        database.execute("INSERT INTO t VALUES (1)")
        await asyncio.wait_for(follower.follow(session, lambda: bool(follower.stopping)), 20)
        proxy.cut()
        proxy.thaw()
        await asyncio.wait_for(follower.follow(session, lambda: follower.values("i") == ["1"]), 30)


async def test_a_reader_that_is_in_the_way_is_named(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else streams from our slot: not a reason to end him, nor to give up at once."""
    settings = settings_for(database.conninfo(), patience_seconds=1.0)
    async with following(settings) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
    await eventually(lambda: not database.slots()["follower"]["active"], "our own walsender to end")
    with caplog.at_level(logging.WARNING):
        server = database.server
        other = await asyncio.create_subprocess_exec(
            server.programs / "pg_recvlogical",
            *("-h", server.host, "-p", str(server.port), "-U", "postgres", "-d", database.name),
            *(
                "-S",
                "follower",
                "--start",
                "-f",
                "/dev/null",
                "-o",
                "proto_version=1",
                "-o",
                "publication_names=follower",
            ),
        )
        try:
            await eventually(lambda: database.slots()["follower"]["active"], "the other reader")
            async with following(settings, follower) as (session, _):
                with pytest.raises(Unreachable, match="pg_recvlogical"):
                    await asyncio.wait_for(follower.follow(session, lambda: len(follower.connected) == 2), 20)
        finally:
            other.terminate()
            await other.wait()
