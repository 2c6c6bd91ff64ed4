"""Rows of many megabytes: they arrive, however slow the way is, at the first attempt."""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from cdc.source import replies
from cdc.source.copy_both import Framing
from tests.follower import following, settings_for
from tests.loop import looping
from tests.postgres import Database
from tests.proxy import Proxy
from tests.waiting import eventually

MEGABYTES = 12


class SlowProxy(Proxy):
    """What the server sends comes in small pieces, with pauses."""

    def _pump(self, source: socket.socket, sink: socket.socket, from_server: bool) -> None:
        if from_server:
            source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        super()._pump(source, sink, from_server)

    def _is_cut_now(self, size: int) -> bool:
        threading.Event().wait(size / 65_536 * 0.02)
        return super()._is_cut_now(size)


@pytest.mark.parametrize("framing", [Framing.PLAIN, Framing.LIBPQ], ids=lambda framing: framing.name.lower())
async def test_a_server_in_the_middle_of_a_message_is_not_silent(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch, framing: Framing
) -> None:
    """Whoever gave it up would get the same message from its start, again and again, and the slot would stand still."""
    monkeypatch.setattr(replies, "SILENCE_SECONDS_MAX", 0.5)
    monkeypatch.setattr(replies, "STATUS_SECONDS_MAX", 0.2)
    server = newest_database.server
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY, v text)")
    with SlowProxy(f"{server.host}/.s.PGSQL.{server.port}") as proxy:
        conninfo = newest_database.conninfo(host="127.0.0.1", port=proxy.port)
        async with following(settings_for(conninfo, "t", framing=framing)) as (session, follower):
            await follower.follow(session, lambda: bool(follower.connected))
            with newest_database.connect() as writer:
                writer.execute("INSERT INTO t SELECT 1, repeat('x', %s)", [MEGABYTES << 20])
            await asyncio.wait_for(follower.follow(session, lambda: follower.values("i") == ["1"]), 60)
            assert session.attempts_count == 1, "it was never given up"


async def test_a_large_row_goes_all_the_way(newest_database: Database, tmp_path: Path) -> None:
    """From the snapshot, from the stream, and beside small ones."""
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY, v text)")
    with newest_database.connect() as writer:
        for i in (1, 2):
            writer.execute("INSERT INTO t SELECT %s, repeat('x', %s)", [i, MEGABYTES << 20])
    async with looping(newest_database, tmp_path) as loop:
        entry = await loop.add("t", "t")
        with newest_database.connect() as writer, writer.transaction():
            writer.execute("INSERT INTO t VALUES (3, 'small')")
            writer.execute("INSERT INTO t SELECT 4, repeat('y', %s)", [MEGABYTES << 20])
            writer.execute("UPDATE t SET v = v || '!' WHERE i = 1")
        await loop.caught_up(60)
        assert loop.rows(entry) == loop.table("SELECT i, v FROM t")


@pytest.mark.nemesis
async def test_a_row_that_the_server_cannot_send_is_told(newest_database: Database, tmp_path: Path) -> None:
    """Postgres stores 600 MB of bytes, and has no room to write them as text."""
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY, v bytea)")
    async with looping(newest_database, tmp_path) as loop:
        await loop.add("t", "t")
        await loop.caught_up()
        newest_database.execute("INSERT INTO t SELECT 1, convert_to(repeat('x', 600000000), 'UTF8')")
        standstill = loop.app.house.session.standstill
        await eventually(lambda: standstill.fault is not None, "the standstill", 300)
        assert "recover --resnapshot --new-stream" in str(standstill.fault)
