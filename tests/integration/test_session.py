"""The session on real servers: what it delivers, over which connections, with which rights."""

import asyncio
import gc
import itertools
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, NoReturn

import psycopg
import pytest

from cdc.source import attempt, replies
from cdc.source.attempt import Arrived
from cdc.source.connections import connect_replication, connect_sql
from cdc.source.copy_both import Framing
from cdc.source.errors import ConnectionFault, TwoServers, Unreachable
from cdc.source.fragments import Fragment
from cdc.source.identity import Fresh
from cdc.source.lsn import parse_lsn
from cdc.source.pgoutput import Decoder
from cdc.source.publication import PublicationState
from cdc.source.server_state import read_server_state
from cdc.source.session import Session
from cdc.source.text_settings import TEXT_SETTINGS
from tests.follower import following, settings_for
from tests.postgres import Database, Server
from tests.proxy import Proxy
from tests.standby import standby_of
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


async def test_a_silent_walsender_at_work_is_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It wants a row of the catalog that somebody has locked, and so answers nobody; a new one would want it, too."""
    monkeypatch.setattr(replies, "SILENCE_SECONDS_MAX", 0.5)
    monkeypatch.setattr(replies, "STATUS_SECONDS_MAX", 0.2)
    database.execute("CREATE TABLE t (i int)", "CREATE TABLE late (i int)")
    async with following(settings_for(database.conninfo(), "t", "late")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        await _looked_around(database, session)
        with database.connect() as holder, caplog.at_level(logging.WARNING):
            holder.execute("BEGIN")
            holder.execute("LOCK TABLE pg_publication_namespace IN ACCESS EXCLUSIVE MODE")
            database.execute("INSERT INTO late VALUES (1)")
            following_on = asyncio.ensure_future(follower.follow(session, lambda: follower.values("i") == ["1"]))
            await eventually(lambda: caplog.text.count("its walsender is at work: it waits for") >= 2, "two looks", 60)
            assert not following_on.done()
            holder.rollback()
        await asyncio.wait_for(following_on, 30)
        assert session.attempts_count == 1, "it was never given up"


async def _looked_around(database: Database, session: Session) -> None:
    """The second connection has read the publication, and will not want the catalog again soon."""
    assert session.attempt is not None
    await session.attempt.check_publication()
    paused = "SELECT state = 'idle' AND clock_timestamp() - state_change > '0.1 s' FROM pg_stat_activity WHERE pid = %s"
    pid = session.attempt.opened.control.info.backend_pid
    with database.connect() as admin:
        await eventually(lambda: admin.execute(paused, [pid]).fetchone() == (True,), "a pause")


async def test_a_walsender_at_work_is_not_waited_for_without_end(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = newest_database
    monkeypatch.setattr(replies, "SILENCE_SECONDS_MAX", 0.5)
    monkeypatch.setattr(replies, "STATUS_SECONDS_MAX", 0.2)
    monkeypatch.setattr(attempt, "SILENT_WORK_SECONDS_MAX", 1.0)
    database.execute("CREATE TABLE t (i int)")
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        await _looked_around(database, session)
        with database.connect() as holder:
            holder.execute("BEGIN")
            holder.execute("LOCK TABLE pg_publication_namespace IN ACCESS EXCLUSIVE MODE")
            database.execute("INSERT INTO t VALUES (1)")
            following_on = asyncio.ensure_future(follower.follow(session, lambda: follower.values("i") == ["1"]))
            await eventually(lambda: session.fault is not None, "the connection to be given up", 60)
            assert "silent" in str(session.fault)
            assert "pg_publication" not in str(session.fault)
            holder.rollback()
        await asyncio.wait_for(following_on, 30)
        assert session.attempts_count > 1


async def test_a_catalog_that_somebody_locks_ends_no_connection(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The publication cannot be looked at for a while, and what was altered shows afterwards."""
    monkeypatch.setattr(attempt, "CONNECT_SECONDS_MAX", 3.0)
    database = newest_database
    database.execute("CREATE TABLE t (i int)")
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        with database.connect() as holder, caplog.at_level(logging.WARNING):
            holder.execute("BEGIN")
            holder.execute("LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE")
            await eventually(lambda: "the publication cannot be looked at" in caplog.text, "a look in vain", 60)
            holder.execute("ALTER PUBLICATION follower DROP TABLE t")
            holder.execute("COMMIT")
        await asyncio.wait_for(follower.follow(session, lambda: bool(follower.altered)), 30)
        assert session.attempts_count == 1


async def test_a_walsender_that_does_nothing_and_says_nothing_is_given_up(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, as a machine is that was suspended, and only the second connection answers."""
    monkeypatch.setattr(replies, "SILENCE_SECONDS_MAX", 0.5)
    monkeypatch.setattr(replies, "STATUS_SECONDS_MAX", 0.2)
    database = newest_database
    database.execute("CREATE TABLE t (i int)")
    idle = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type IN ('Client', 'Activity') AND pid = %s"
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        assert session.attempt is not None
        pid = session.attempt.opened.replication.info.backend_pid
        following_on = asyncio.ensure_future(follower.follow(session, lambda: follower.values("i") == ["1"]))
        with database.connect() as admin:
            await eventually(lambda: admin.execute(idle, [pid]).fetchone() == (1,), "the walsender to be idle")
        os.kill(pid, signal.SIGSTOP)
        try:
            await eventually(lambda: session.fault is not None, "the connection to be given up")
        finally:
            os.kill(pid, signal.SIGCONT)
        database.execute("INSERT INTO t VALUES (1)")
        await asyncio.wait_for(following_on, 30)


async def test_a_lost_connection_that_still_has_the_slot_is_waited_for_and_not_run_into(
    database: Database, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Its walsender takes its time, as one that decodes does: each attempt that fails on it makes the pauses longer."""
    database.execute("CREATE TABLE t (i int)")
    settings = settings_for(database.conninfo(host="127.0.0.1", port=proxy.port), "t")
    with caplog.at_level(logging.WARNING):
        async with following(settings) as (session, follower):
            await follower.follow(session, lambda: bool(follower.connected))
            assert session.attempt is not None
            pid = session.attempt.opened.replication.info.backend_pid
            os.kill(pid, signal.SIGSTOP)
            try:
                proxy.cut()
                following_on = asyncio.ensure_future(follower.follow(session, lambda: follower.values("i") == ["1"]))
                await eventually(lambda: f"still has: process {pid} " in caplog.text, "it to be waited for")
            finally:
                os.kill(pid, signal.SIGCONT)
            database.execute("INSERT INTO t VALUES (1)")
            await asyncio.wait_for(following_on, 30)
            assert session.attempts_count == 2
    assert caplog.text.count("disconnected: ") == 1, "the cut itself"


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


async def test_a_rolled_back_sub_transaction_in_a_backlog_stops_nothing(own_server: Callable[..., Server]) -> None:
    """Postgres 18 sends a message for it that nobody asked for, whenever the decoding ran out of memory."""
    database = Database(own_server(logical_decoding_work_mem="64kB"), "postgres")
    database.execute("CREATE TABLE t (i int, x text)", "CREATE PUBLICATION follower FOR TABLE t")
    slot = database.execute("SELECT pg_create_logical_replication_slot('spy', 'pgoutput')")
    assert slot
    settings = settings_for(database.conninfo(), "t")
    async with following(settings) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
    with psycopg.connect(database.conninfo()) as writer:
        writer.execute("SAVEPOINT a")
        writer.execute("CREATE TABLE other (i int)")
        writer.execute("INSERT INTO t VALUES (1)")
        writer.execute("RELEASE a")
        writer.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i")
        writer.rollback()
    database.execute("INSERT INTO t VALUES (2)")
    async with following(settings, follower) as (session, _):
        await asyncio.wait_for(follower.follow(session, lambda: follower.values("i") == ["2"]), 20)
    strays = database.value(
        "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('spy', NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'follower') WHERE get_byte(data, 0) = ascii('A')"
    )
    assert strays, "or Postgres was mended, and this test says nothing any more"


async def test_limits_meant_for_applications_do_not_end_us(database: Database) -> None:
    """A role's time limits and its standby settings: a slot is waited for, and heartbeats go on."""
    role = f"limited_{database.name}"
    database.execute("CREATE TABLE t (i int)")
    with database.connect() as admin:
        admin.execute(f"CREATE ROLE {role} SUPERUSER LOGIN".encode())
        try:
            for name in ("statement_timeout", "lock_timeout", "idle_session_timeout"):
                admin.execute(f"ALTER ROLE {role} SET {name} = '300ms'".encode())
            if database.version >= 17:
                admin.execute(f"ALTER ROLE {role} SET transaction_timeout = '300ms'".encode())
            settings = settings_for(database.conninfo(user=role), "t")
            async with following(settings) as (session, follower):
                with psycopg.connect(database.conninfo()) as writer:
                    writer.execute("CREATE TABLE long_transaction (i int)")
                    follow = asyncio.create_task(follower.follow(session, lambda: bool(follower.connected)))
                    done, _ = await asyncio.wait([follow], timeout=1)
                    assert not done, "the slot waits for the transaction, longer than the role may"
                await asyncio.wait_for(follow, 20)
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


async def test_a_server_that_goes_silent_right_after_the_login_is_given_up(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked first on a connection has a bound like the login itself."""
    monkeypatch.setattr("cdc.source.connections.CONNECT_SECONDS_MAX", 0.5)
    connect = psycopg.AsyncConnection.connect
    with Proxy(f"{newest_database.server.host}/.s.PGSQL.{newest_database.server.port}") as proxy:

        async def connected(*arguments: Any, **named: Any) -> Any:
            made = await connect(*arguments, **named)
            proxy.freeze()
            return made

        monkeypatch.setattr("cdc.source.connections.AsyncConnection.connect", connected)
        conninfo = newest_database.conninfo(host="127.0.0.1", port=proxy.port, connect_timeout=20)
        with pytest.raises(ConnectionFault):
            await asyncio.wait_for(connect_sql(conninfo, "silent"), 10)


async def test_a_standby_that_is_away_does_not_stop_heartbeats(own_database: Database) -> None:
    """With a synchronous standby that never answers, commits of ordinary sessions wait for ever."""
    database = own_database
    settings = settings_for(database.conninfo(), heartbeat_seconds=0.1)
    database.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    try:
        async with following(settings) as (session, follower):
            beats = 0
            while beats < 3:
                delivery = await asyncio.wait_for(session.next(), 20)
                follower.take(delivery, session)
                event = delivery.event if isinstance(delivery, Arrived) else None
                beats += len(event.messages) if isinstance(event, Fragment) else 0
            assert len(follower.connected) == 1
    finally:
        database.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


async def test_a_database_that_knows_no_encoding_is_followed(newest_server: Server) -> None:
    database = Database(newest_server, "without_encoding")
    with psycopg.connect(newest_server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE without_encoding ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        database.execute("CREATE TABLE t (x text)")
        async with following(settings_for(database.conninfo(), "t")) as (session, follower):
            await follower.follow(session, lambda: bool(follower.connected))
            database.execute("INSERT INTO t VALUES ('plain')")
            await asyncio.wait_for(follower.follow(session, lambda: follower.values("x") == ["plain"]), 20)
    finally:
        database.remove()


async def test_what_cannot_be_decoded_ends_the_connection(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong behind a batch that is taken, no later one may be delivered: it would follow a hole."""
    newest_database.execute("CREATE TABLE t (i int)")
    async with following(settings_for(newest_database.conninfo(), "t")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        newest_database.execute("INSERT INTO t VALUES (1)")
        monkeypatch.setattr(Decoder, "feed", _no_memory)
        with pytest.raises(MemoryError):
            await asyncio.wait_for(follower.follow(session, lambda: False), 20)
        monkeypatch.undo()
        newest_database.execute("INSERT INTO t VALUES (2)")
        await asyncio.wait_for(follower.follow(session, lambda: follower.values("i") == ["1", "2"]), 20)
        assert len(follower.connected) == 2


def _no_memory(*_: object) -> NoReturn:
    raise MemoryError


async def test_two_hosts_that_are_two_servers_are_told_apart(own_server: Callable[..., Server]) -> None:
    """A standby has the same system identifier; that both connections met one server needs another proof."""
    primary = own_server()
    standby = standby_of(primary)
    try:
        one = await connect_sql(primary.conninfo(), "control")
        two = await connect_replication(standby.conninfo(), "stream")
        try:
            with pytest.raises(TwoServers):
                await read_server_state(one, two, "s", PublicationState("p"), {})
        finally:
            await one.close()
            await two.close()
    finally:
        standby.remove()


class _CancelledAt:
    """Runs a coroutine, and cancels its task where it waits for the nth time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], nth: int) -> None:
        self._steps = coroutine.__await__()
        self._left = nth

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(next, self._steps)
        while True:
            try:
                waited_for = step()
            except StopIteration as ended:
                return ended.value
            self._left -= 1
            if self._left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            step = partial(next, self._steps)
            try:
                yield waited_for
            except BaseException as thrown:  # noqa: BLE001 - whatever it is, it is for the coroutine
                step = partial(self._steps.throw, thrown)


@pytest.mark.parametrize("framing", [Framing.PLAIN, Framing.LIBPQ], ids=lambda framing: framing.name.lower())
async def test_a_connect_that_is_cancelled_anywhere_leaves_nothing(newest_database: Database, framing: Framing) -> None:
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY)")
    settings = settings_for(newest_database.conninfo(), "t", framing=framing, temporary=True)
    ours = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shapelog%' AND datname = current_database()"
    )
    gc.collect()
    gc.freeze()  # what other tests left need not be looked at each time
    for nth in itertools.count(1):
        session = Session(settings, known=lambda: None)
        task = asyncio.ensure_future(_run(_CancelledAt(_connect_and_close(session), nth)))
        await asyncio.wait([task], timeout=20)
        assert task.done(), f"cancelled at wait {nth}, and still there"
        if not task.cancelled():
            task.result()
            break
        await session.close()
        del task  # a cancelled task remembers where it was, and what was being made there
        assert "shapelog-reader" not in [thread.name for thread in threading.enumerate()], f"cancelled at wait {nth}"
        gc.collect()  # psycopg leaves what it was making to the collector, which nobody hurries in a busy process
        await eventually(lambda: newest_database.value(ours) == 0, f"sessions to end; cancelled at wait {nth}")
    assert nth > 20, "it waited that often"
    await eventually(lambda: not newest_database.slots(), "the temporary slot to be gone")


async def _connect_and_close(session: Session) -> None:
    try:
        await session.next()
    finally:
        await session.close()


async def _run(waited: Awaitable[None]) -> None:
    await waited


async def test_values_do_not_depend_on_the_settings_of_a_role(database: Database) -> None:
    """A snapshot asks with settings of its own: what it reads must be the same text."""
    role = f"elsewhere_{database.name}"
    database.execute("CREATE TABLE t (at timestamptz, span interval, real float8, raw bytea)")
    with database.connect() as admin:
        admin.execute(f"CREATE ROLE {role} SUPERUSER LOGIN".encode())
        try:
            for name, value in {
                "TimeZone": "Asia/Tokyo",
                "IntervalStyle": "sql_standard",
                "DateStyle": "German",
                "extra_float_digits": "-10",
                "bytea_output": "escape",
            }.items():
                admin.execute(f"ALTER ROLE {role} SET {name} = '{value}'".encode())
            async with following(settings_for(database.conninfo(user=role), "t")) as (session, follower):
                await follower.follow(session, lambda: bool(follower.connected))
                database.execute("INSERT INTO t VALUES ('2020-01-02 03:04:05+00', '1 day 2 hours', 1 / 3.0, 'ab\\001')")
                await asyncio.wait_for(follower.follow(session, lambda: bool(follower.rows)), 20)
            for name, value in TEXT_SETTINGS.items():
                admin.execute("SELECT set_config(%s, %s, false)", [name, value])
            row = admin.execute("SELECT at::text, span::text, real::text, raw::text FROM public.t").fetchone()
        finally:
            admin.execute("RESET search_path")
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())
    assert row == tuple(follower.values(name)[0] for name in ("at", "span", "real", "raw"))
    assert row == ("2020-01-02 03:04:05+00", "P1DT2H", "0.3333333333333333", "\\x616201")
