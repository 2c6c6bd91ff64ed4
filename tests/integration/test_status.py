"""What a status says while the loop runs: who holds G, by which transaction, and what the server does for the slot."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cdc.source.connections import connect_sql
from cdc.source.errors import StreamEnded
from cdc.source.limits import STANDSTILL_FAILURES
from cdc.source.lsn import Lsn, parse_lsn
from cdc.status.change_rates import ChangeRates
from cdc.status.report import StatusDesk
from cdc.status.show import show_status
from cdc.status.slot_watch import SlotWatch, look_at_slot
from shapes.service import ShapeService
from storage.flush_control import FlushOptions
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.loop import looping
from tests.postgres import Database, Server, new_database
from tests.waiting import eventually


async def test_transactions_that_went_to_the_servers_disk_are_counted(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    database = new_database(own_server(logical_decoding_work_mem="64kB"))
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)")
    async with looping(database, tmp_path) as loop:
        await loop.add("items")
        connection = await connect_sql(database.conninfo(), "tests")
        try:
            before = (await look_at_slot(connection, "shapelog", time.monotonic())).decoding
            assert before is not None
            assert before.spilled_bytes == 0
            database.execute("INSERT INTO items SELECT g, repeat('x', 100) FROM generate_series(1, 5000) g")
            await loop.caught_up()

            async def is_told() -> bool:
                found = (await look_at_slot(connection, "shapelog", time.monotonic())).decoding
                assert found is not None
                assert found.catalog_xmin_age is not None
                return (
                    found.walsender_state == "streaming" and (found.decoded_bytes or 0) > (found.spilled_bytes or 0) > 0
                )

            told: Callable[[], bool | Awaitable[bool]] = is_told
            await eventually(told, "the statistics")
            assert (await look_at_slot(connection, "nobody's", time.monotonic())).decoding is None
        finally:
            await connection.close()


LAZY = StoreOptions(BufferOptions(flush_age_seconds=3600.0, flushes_when_quiet=False), FlushOptions())
"""Nothing is flushed by itself."""


async def test_the_holder_of_g_is_named(newest_database: Database, tmp_path: Path) -> None:
    database = newest_database
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int PRIMARY KEY)")
    async with looping(database, tmp_path, store=LAZY) as loop:
        app = loop.app
        entry = await loop.add("items", "items")
        await loop.add("other", "other")
        watch = SlotWatch(database.conninfo(), "shapelog", "tests")
        desk = StatusDesk(app, ShapeService(app.house, app.nursery), watch, ChangeRates())
        async with watch.running():
            database.execute("INSERT INTO items VALUES (1, 'in memory')", "INSERT INTO items VALUES (2, 'too')")
            end = parse_lsn(database.value("SELECT pg_current_wal_lsn()::text"))
            await eventually(lambda: app.house.collector.tracker.seen.lsn >= end, "the rows")
            held = await desk.status()
            app.capture.flushed(await asyncio.to_thread(app.house.store.flush_all))
            await loop.caught_up()
            free = await desk.status()
    told = held["held_by"]
    assert (told["handle"], told["name"], told["hold"], told["transactions_pending"]) == (
        entry.handle,
        "items",
        "rows",
        2,
    )
    assert parse_lsn(held["global_flushed_lsn"]) <= parse_lsn(told["transaction"]) < parse_lsn(held["seen_lsn"])
    assert told["bytes_pending"] > 0
    assert "flush of the shape" in told["freed_by"]
    assert "items" in held["explanation"]
    (items,) = [shape for shape in held["shapes"] if shape["name"] == "items"]
    assert items["visible"] > items["durable"]
    assert parse_lsn(held["confirmed_flush_lsn"]) <= parse_lsn(held["global_flushed_lsn"])
    assert free["held_by"] is None
    assert parse_lsn(free["global_flushed_lsn"]) >= end
    (items,) = [shape for shape in free["shapes"] if shape["name"] == "items"]
    assert items["visible"] == items["durable"]


async def test_a_stream_that_stands_still_is_told_with_the_way_out(
    newest_database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while a connection is up: it has not come to the place yet where the last ones failed."""
    newest_database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    async with looping(newest_database, tmp_path) as loop:
        app = loop.app
        await loop.add("items", "items")
        newest_database.execute("INSERT INTO items VALUES (1)")
        await loop.caught_up()
        watch = SlotWatch(newest_database.conninfo(), "shapelog", "tests")
        desk = StatusDesk(app, ShapeService(app.house, app.nursery), watch, ChangeRates())
        async with watch.running():
            lag = app.capture.commit_lag_seconds
            assert lag is not None
            assert 0 <= lag < 60
            assert (await desk.status())["connection"]["stuck"] is None
            standstill = app.house.session.standstill
            for _ in range(STANDSTILL_FAILURES):
                standstill.failed(StreamEnded("it has no room", sqlstate="XX000"), Lsn(1 << 60))
            status = await desk.status()
            show_status(status)
            assert "[stream_stuck]" in status["connection"]["stuck"]
    said = capsys.readouterr().out
    assert "THE STREAM STANDS STILL  [stream_stuck]" in said
    assert "recover --resnapshot --new-stream" in said
