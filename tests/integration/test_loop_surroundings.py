"""What others do to tables and servers while the loop runs, beside a real server."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from cdc.source.connections import Connection
from cdc.source.ownership import share_publication
from shapes.nursery import Order
from shapes.reconciliation import reconcile
from shapes.requests import Request
from shapes.service import ShapeService
from storage.catalog_records import Life
from storage.log_facts import list_logs
from tests.loop import Loop, looping
from tests.postgres import Database, Server, new_database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 100) g"
ALL = "SELECT id, v FROM items"
PARTED = (
    "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100)",
    "INSERT INTO parted SELECT g, 'v' FROM generate_series(1, 10) g",
)


async def compare(loop: Loop) -> None:
    """What is done from time to time."""
    async with loop.app.house.control() as connection:
        await reconcile(loop.app.house, connection)


async def is_ready(loop: Loop, name: str, seconds: float = 20.0) -> None:
    def found() -> bool:
        entry = loop.app.house.registry.named(name)
        return entry is not None and entry.shape.life is Life.READY

    await eventually(found, f"{name} to be ready", seconds)


def ended(loop: Loop, handle: str) -> bool:
    entry = loop.app.house.registry.find(handle)
    return entry is not None and entry.shape.life is Life.ENDED


async def test_a_start_does_not_wait_for_tables_that_somebody_has_for_himself(
    database: Database, tmp_path: Path
) -> None:
    """Hours of VACUUM FULL of one table are not to hold the slot, and with it every other table."""
    database.execute(ITEMS, "CREATE TABLE others (id int PRIMARY KEY)", *PARTED)
    async with looping(database, tmp_path) as loop:
        for table in ("items", "others", "parted"):
            await loop.add(table, table)
        await loop.caught_up()
    with psycopg.connect(database.conninfo()) as holder:
        holder.execute("LOCK TABLE items, parted_1 IN ACCESS EXCLUSIVE MODE")
        async with looping(database, tmp_path) as loop:
            database.execute("INSERT INTO others VALUES (1)")
            await loop.caught_up()
            assert loop.rows(loop.living("others")) == [("1",)]
            await asyncio.wait_for(compare(loop), 20)


async def test_the_partitions_of_a_root_that_nobody_follows_are_let_go(
    newest_database: Database, tmp_path: Path
) -> None:
    newest_database.execute(*PARTED)
    async with looping(newest_database, tmp_path) as loop:
        some, other = await loop.add("parted", "some"), await loop.add("parted", "other", where="id > 3")
        service, partitions = ShapeService(loop.app.house, loop.app.nursery), loop.app.house.collector.partitions
        await service.remove(some.handle)
        assert partitions.leaves_of(some.definition.oid)
        await service.remove(other.handle)
        assert partitions.leaves_of(some.definition.oid) is None


async def test_a_name_whose_table_was_dropped_begins_anew_when_somebody_asks(
    newest_database: Database, tmp_path: Path
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path) as loop:
        first = await loop.add("items", "items")
        newest_database.execute("DROP TABLE items")
        await compare(loop)
        await eventually(lambda: bool(loop.app.nursery.awaited), "the search for a table to end")
        newest_database.execute(ITEMS, "INSERT INTO items VALUES (7, 'anew')")
        order = await ShapeService(loop.app.house, loop.app.nursery).add_named("items", Request(), None)
        assert isinstance(order, Order)
        assert await order.done
        newest_database.execute("INSERT INTO items VALUES (8, 'followed')")
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        ended = loop.app.house.registry.find(first.handle)
        assert ended is not None
        assert ended.shape.successor == loop.living("items").handle


async def test_a_log_whose_table_was_altered_before_the_start_stays_for_its_name(
    newest_database: Database, tmp_path: Path
) -> None:
    """The lake follows the name, and may not have read it to its end."""
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path) as loop:
        named, some = await loop.add("items", "items"), await loop.add("items")
        assert named.log != some.log
        newest_database.execute("INSERT INTO items VALUES (1001, 'x')")
        confirmed = await loop.caught_up()
    newest_database.execute("ALTER TABLE items RENAME TO former")
    async with looping(newest_database, tmp_path) as loop:
        house = loop.app.house
        await eventually(lambda: house.is_streaming, "the stream")
        await house.endings.sweep()
        assert list_logs(house.store.disk) == [named.log]
        ended = house.registry.find(named.handle)
        assert ended is not None
        assert ended.shape.ended_at is not None
        assert ended.shape.ended_at.tx >= confirmed - 1, "the log is whole up to what was confirmed"
        newest_database.execute(ITEMS)
        await ShapeService(house, loop.app.nursery).add_named("items", Request(), None)
        await is_ready(loop, "items")
        await house.endings.sweep()
        assert list_logs(house.store.disk) == [loop.living("items").log]


async def test_a_failover_that_lost_commits_keeps_no_shape_from_being_born(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    """A6 does not wait for what was streamed in a history that is over: no snapshot would ever show it."""
    server = own_server()
    database = new_database(server)
    database.execute(ITEMS, FILL)
    data, behind = server.folder / "data", server.folder / "behind"
    async with looping(database, tmp_path) as loop:
        first = await loop.add("items", "items")
        await loop.caught_up()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.run, "cp", "-a", data, behind)
        await asyncio.to_thread(server.start)
        with database.connect() as writer:
            for number in range(1000, 1050):
                writer.execute("INSERT INTO items VALUES (%s, 'lost')", [number])
        await loop.caught_up(40)
        await asyncio.to_thread(server.stop, "immediate")
        shutil.rmtree(data)
        behind.rename(data)
        (data / "standby.signal").touch()
        await asyncio.to_thread(server.start)
        database.execute("SELECT pg_promote()")
        registry = loop.app.house.registry
        await eventually(
            lambda: (entry := registry.find(first.handle)) is not None and entry.shape.life is Life.ENDED, "the end", 40
        )
        await is_ready(loop, "items", 40)
        database.execute("INSERT INTO items VALUES (2000, 'second history')")
        await loop.caught_up(40)
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_ids_that_a_crash_of_the_server_took_back_keep_no_shape_from_being_born(
    own_server: Callable[..., Server], tmp_path: Path
) -> None:
    """A6 (b) waits for what ran when the stream began: where nobody writes, no snapshot would ever say that it is over.

    A process begins beside open transactions, and the server crashes before its WAL writer comes to write anything.
    """
    server = own_server(wal_writer_delay="10s")
    database = new_database(server)
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        await eventually(lambda: loop.app.house.is_streaming, "the slot")
    writers = [database.connect() for _ in range(3)]
    for writer in writers:
        writer.execute("BEGIN")
        writer.execute("SELECT pg_current_xact_id()")
    async with looping(database, tmp_path) as loop:
        await eventually(lambda: loop.app.house.is_streaming, "the stream")
        await asyncio.to_thread(server.stop, "immediate")
        for writer in writers:
            writer.close()
        await asyncio.to_thread(server.start)
        await loop.add("items", "items")
        await is_ready(loop, "items", 20)
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)


@pytest.mark.parametrize("is_altered", [False, True])
async def test_a_birth_beside_a_connection_that_takes_its_time(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_altered: bool
) -> None:
    """The connection was asked for before the birth published its table, and looks at the publication after that.

    What the birth did itself ends nothing; what somebody else did since ends the shape, though the publication is then
    as it was when the connection was asked for.
    """
    newest_database.execute(ITEMS, FILL, "CREATE TABLE others (id int PRIMARY KEY)")
    is_on_its_way, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(connection: Connection, publication: str) -> None:
        is_on_its_way.set()
        await may_go_on.wait()
        await share_publication(connection, publication)

    async with looping(newest_database, tmp_path) as loop:
        await loop.add("others", "others")
        monkeypatch.setattr("cdc.source.handshake.share_publication", slow)
        newest_database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        await is_on_its_way.wait()
        entry = await loop.add("items", "items")
        if is_altered:
            newest_database.execute("ALTER PUBLICATION shapelog DROP TABLE items")
        may_go_on.set()
        newest_database.execute("INSERT INTO items VALUES (1000, 'new')")
        if is_altered:
            await eventually(lambda: ended(loop, entry.handle), "the end of a shape with a hole", 40)
            await is_ready(loop, "items", 40)
        await loop.caught_up(40)
        assert (loop.living("items").handle == entry.handle) is not is_altered
        assert loop.rows(loop.living("items")) == loop.table(ALL)


TRUNCATED = {
    "items": ALL,
    "even": "SELECT id, v FROM items WHERE id % 2 = 0",
    "parts": "SELECT id, item FROM parts",
    "keyless": "SELECT a FROM keyless",
}


async def test_a_truncate_amid_a_large_transaction_over_several_tables(
    newest_database: Database, tmp_path: Path
) -> None:
    """Rows before it and after it, by CASCADE and twice, in many fragments; and what a restart makes of it."""
    newest_database.execute(
        ITEMS,
        "CREATE TABLE parts (id int PRIMARY KEY, item int REFERENCES items)",
        "CREATE TABLE keyless (a int)",
        FILL,
    )
    async with looping(newest_database, tmp_path) as loop:
        for name, where in (("items", None), ("even", "id % 2 = 0")):
            await loop.add("items", name, where=where)
        await loop.add("parts", "parts")
        await loop.add("keyless", "keyless")
        with psycopg.connect(newest_database.conninfo()) as writer:
            writer.execute("INSERT INTO items SELECT g, repeat('x', 300) FROM generate_series(1000, 40000) g")
            writer.execute("INSERT INTO parts SELECT g, g FROM generate_series(1000, 40000) g")
            writer.execute("TRUNCATE items, keyless CASCADE")
            writer.execute("INSERT INTO items SELECT g, repeat('x', 300) FROM generate_series(1, 40000) g")
            writer.execute("INSERT INTO parts SELECT g, g FROM generate_series(1, 20000) g")
            writer.execute("TRUNCATE keyless")
            writer.execute("INSERT INTO keyless VALUES (7)")
        await loop.caught_up(40)
        for name, query in TRUNCATED.items():
            assert loop.rows(loop.living(name)) == loop.table(query), name
    async with looping(newest_database, tmp_path) as loop:
        newest_database.execute("DELETE FROM parts WHERE id > 9000")
        await loop.caught_up(40)
        for name, query in TRUNCATED.items():
            assert loop.rows(loop.living(name)) == loop.table(query), name


async def test_odd_names_and_types(database: Database, tmp_path: Path) -> None:
    """A name of 63 bytes with capitals and quotes; a key in another order than its columns; enums and domains."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        'CREATE SCHEMA "A schema."',
        'CREATE TABLE "A schema."."Löööööööööööööööööööööööööööööö" '
        '("A""b" int, "b.c" text, m mood, p positive, PRIMARY KEY ("b.c", "A""b"))',
    )
    async with looping(database, tmp_path) as loop:
        name = '"A schema."."Löööööööööööööööööööööööööööööö"'
        every = await loop.add(name, "every")
        some = await loop.add(name, "some", where="m = 'ok' AND p > 3")
        database.execute(
            'INSERT INTO "A schema."."Löööööööööööööööööööööööööööööö" '
            "SELECT g, 'k' || g, CASE g % 3 WHEN 0 THEN 'ok' WHEN 1 THEN 'sad' END::mood, g "
            "FROM generate_series(1, 20) g",
            'UPDATE "A schema."."Löööööööööööööööööööööööööööööö" SET "A""b" = "A""b" + 100, p = p + 1 WHERE p % 2 = 0',
            'UPDATE "A schema."."Löööööööööööööööööööööööööööööö" SET m = \'ok\' WHERE p < 10',
            'DELETE FROM "A schema."."Löööööööööööööööööööööööööööööö" WHERE p = 11',
        )
        await loop.caught_up()
        assert loop.rows(every) == loop.table('SELECT * FROM "A schema."."Löööööööööööööööööööööööööööööö"')
        assert loop.rows(some) == loop.table(
            'SELECT * FROM "A schema."."Löööööööööööööööööööööööööööööö" WHERE m = \'ok\' AND p > 3'
        )
        await compare(loop)
        assert not loop.app.house.endings.counts
