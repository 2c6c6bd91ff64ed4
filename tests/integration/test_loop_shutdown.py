"""The server or the loop is told to stop while rows are in memory only: they are flushed and confirmed first (A4)."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from cdc.source.limits import SHUTDOWN_SECONDS_MAX
from cdc.source.lsn import parse_lsn
from storage.flush_control import FlushOptions
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.loop import looping
from tests.postgres import Database, Server, new_database
from tests.waiting import eventually

LAZY = StoreOptions(BufferOptions(flush_age_seconds=3600.0, flushes_when_quiet=False), FlushOptions())
"""Nothing is flushed by itself."""


async def test_a_server_that_stops_hears_first_that_all_is_on_disk(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = own_server()
    database = new_database(server)
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)")
    async with looping(database, tmp_path, store=LAZY) as loop:
        entry = await loop.add("items", "items")
        database.execute("INSERT INTO items VALUES (1, 'in memory only')")
        end = int(parse_lsn(database.value("SELECT pg_current_wal_lsn()::text")))
        await eventually(lambda: loop.app.house.collector.tracker.seen.lsn >= end, "the row")
        assert loop.confirmed() < end
        began = time.monotonic()
        server.signal_stop("fast")
        await asyncio.to_thread(server.wait_stopped, 30)
        assert time.monotonic() - began < SHUTDOWN_SECONDS_MAX + 5
        visible, durable = loop.app.house.store.marks(entry.log)
        assert visible == durable
        await asyncio.to_thread(server.start)
        assert loop.confirmed() >= end, "the server knew it when it stopped"
        database.execute("INSERT INTO items VALUES (2, 'after')")
        await eventually(lambda: len(loop.rows(entry)) == 2, "the stream to go on")


async def test_a_stop_of_ours_confirms_what_was_in_memory(newest_database: Database, tmp_path: Path) -> None:
    """Else the next start would get all of it again."""
    database = newest_database
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)")
    async with looping(database, tmp_path, store=LAZY) as loop:
        await loop.add("items", "items")
        database.execute("INSERT INTO items VALUES (1, 'in memory only')")
        end = int(parse_lsn(database.value("SELECT pg_current_wal_lsn()::text")))
        await eventually(lambda: loop.app.house.collector.tracker.seen.lsn >= end, "the row")
        assert loop.confirmed() < end
    assert loop.confirmed() >= end
