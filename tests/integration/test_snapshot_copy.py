"""Copies of real tables: the same text as the stream's for every type, whole or not at all, in bounded memory."""

import asyncio
import errno
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from cdc.source.connections import connect_sql
from cdc.source.copy_both import Framing, start_stream
from cdc.source.errors import StreamEnded
from cdc.source.fragments import Fragment
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.text_settings import TEXT_SETTINGS, text_options
from shapes.copy_out import CopyOut
from shapes.copy_text import parse_rows
from shapes.errors import SnapshotLost, SnapshotRefused
from shapes.snapshot_copy import CopyProgress, copy_snapshot
from shapes.snapshot_transaction import Selection, SnapshotTransaction
from storage.bases import Base
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.errors import StorageError
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.log_facts import LogFacts
from storage.rows import NEW
from storage.store import Store
from storage.store_reader import StoreReader
from tests.postgres import Database
from tests.waiting import eventually

TYPES = {
    "boolean": ["true", "false"],
    "smallint": ["-32768"],
    "bigint": ["9223372036854775807"],
    "real": ["0.1", "'NaN'", "1e-30"],
    "double precision": ["0.1", "'-Infinity'", "1.0/3"],
    "numeric": ["1.00", "'NaN'", "-12345678901234567890.0987654321"],
    "money": ["12.5"],
    "char(5)": ["'ab'"],
    "varchar(9)": ["'a b  '"],
    "text": [r"E'a\tb\nc\\d\re\bf\fg\vh'", r"'\N'", "''", "'é€😀'", r"'\\'"],
    '"char"': ["'x'"],
    "name": ["'a_name'"],
    "bytea": [r"'\x00ff5c09'"],
    "date": ["'2024-02-29'", "'infinity'", "'0044-03-15 BC'"],
    "time": ["'12:34:56.789'"],
    "timetz": ["'12:34:56+05:30'"],
    "timestamp": ["'2024-02-29 12:34:56.123456'"],
    "timestamptz": ["'2024-02-29 12:34:56.123456+09'", "'-infinity'"],
    "interval": ["'1 year 2 mons -3 days 04:05:06.7'", "'-1 mon'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "json": ['\'{"a": "\\n\\t"}\''],
    "jsonb": ["'{\"a\": [1, null]}'"],
    "inet": ["'192.168.0.1'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "bit(3)": ["B'101'"],
    "bit varying": ["B'1'"],
    "tsvector": ["'a fat cat'"],
    "point": ["'(1.5,0.1)'"],
    "int4range": ["'[1,5)'"],
    "tstzrange": ["'[2024-01-01 00:00+00,)'"],
    "regclass": ["'sorts'"],
    "integer[]": ["'{{1,2},{3,NULL}}'", "'{}'"],
    "text[]": [r"""ARRAY['a,b', NULL, 'NULL', '"', E'\\', '']"""],
    "boolean[]": ["'{t,f}'"],
    "timestamptz[]": ["'{2024-02-29 12:34:56+09}'"],
    "mood": ["'so so'"],
    "yes": ["true"],
    "pair": ["ROW(true, 'a\"b')", "ROW(NULL, NULL)"],
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(LocalDisk(tmp_path), Clocks())
    made.create_log(LogFacts(1, "copied"))
    return made


def selection_of(database: Database, table: str, where: str | None = None, schema: str = "public") -> Selection:
    with database.connect() as connection:
        query = (
            "SELECT c.oid::int8, c.relkind::text, array_agg(a.attname::text ORDER BY attnum) FROM pg_class c "
            "JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped "
            "WHERE c.relname = %s GROUP BY 1, 2"
        )
        row = connection.execute(query, [table]).fetchone()
        assert row is not None
        oid, kind, columns = row
    return Selection(oid, schema, table, tuple(columns), where, is_partitioned=kind == "p")


@asynccontextmanager
async def snapshot_of(database: Database, selection: Selection) -> AsyncIterator[SnapshotTransaction]:
    transaction = await SnapshotTransaction.open(database.conninfo(), "copy", selection)
    try:
        yield transaction
    finally:
        await transaction.close()


async def copied(database: Database, store: Store, selection: Selection) -> tuple[Base, list[dict[str, Any]]]:
    async with snapshot_of(database, selection) as transaction:
        base = await copy_snapshot(transaction, store.new_base(1), 4096, Clocks())
    reader = StoreReader(store)
    chunks = [reader.read_chunk(1, base.number, number) for number in range(len(base.chunks))]
    return base, [row for chunk in chunks if chunk is not None for row in chunk.column(NEW).to_pylist()]


async def streamed(database: Database, statement: bytes, rows: int) -> list[dict[str, Any]]:
    """The new rows that a stream with the settings for text tells of."""
    database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with database.connect() as connection:
        connection.execute(statement)
    replication = await psycopg.AsyncConnection.connect(
        database.conninfo(options=text_options()), autocommit=True, replication="database"
    )
    command = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')"
    stream = await start_stream(replication, command)
    decoder, found = Decoder(Relations()), list[dict[str, Any]]()
    try:
        async with asyncio.timeout(20):
            while len(found) < rows:
                for event in decoder.feed(await stream.batch()):
                    if isinstance(event, Fragment):
                        found += [row for one in event.changes for row in one.rows.column("new").to_pylist()]
    finally:
        stream.close()
        await replication.close()
    return found


async def test_snapshot_and_stream_agree_on_every_type(database: Database, store: Store) -> None:
    """Whatever role and database have set."""
    with database.connect() as admin:
        admin.execute("CREATE TYPE mood AS ENUM ('so so', 'fine')")
        admin.execute("CREATE DOMAIN yes AS boolean CHECK (value)")
        admin.execute("CREATE TYPE pair AS (b boolean, t text)")
        columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
        admin.execute(f"CREATE TABLE sorts (id int PRIMARY KEY, {columns})".encode())
        admin.execute("CREATE PUBLICATION p FOR TABLE sorts")
        for name, value in {
            "DateStyle": "SQL, MDY",
            "TimeZone": "Asia/Tokyo",
            "IntervalStyle": "postgres_verbose",
            "bytea_output": "escape",
            "extra_float_digits": "-5",
            "search_path": "public",
        }.items():
            admin.execute(f"ALTER DATABASE {database.name} SET {name} = '{value}'".encode())
    count = max(map(len, TYPES.values()))
    rows = []
    for number in range(count):
        row = [values[number] if number < len(values) else "NULL" for values in TYPES.values()]
        rows.append(f"({number}, {', '.join(row)})")
    statement = f"INSERT INTO sorts VALUES {', '.join(rows)}"  # noqa: S608 - the values above
    told = await streamed(database, statement.encode(), count)
    _, shown = await copied(database, store, selection_of(database, "sorts"))
    assert told == shown
    first = {kind: shown[0][f"c{number}"] for number, kind in enumerate(TYPES)}
    assert first["boolean"] == "t"
    assert first["timestamptz"] == "2024-02-29 03:34:56.123456+00"
    assert first["interval"] == "P1Y2M-3DT4H5M6.7S"
    assert first["char(5)"] == "ab   "
    assert first["regclass"] == "public.sorts"
    assert shown[1]["c9"] == shown[1][f"c{list(TYPES).index('text')}"] == "\\N"


async def test_settings_are_those_of_the_snapshot(database: Database) -> None:
    database.execute("CREATE TABLE t (a int)")
    async with snapshot_of(database, selection_of(database, "t")) as transaction:
        for name, value in TEXT_SETTINGS.items():
            cursor = await transaction.connection.execute("SELECT current_setting(%s) AS value", [name])
            assert await cursor.fetchone() == {"value": value}


@pytest.mark.parametrize("framing", [Framing.PLAIN, Framing.LIBPQ], ids=lambda framing: framing.name.lower())
@pytest.mark.parametrize("where", ["unix", "tcp"])
async def test_both_ways_to_read_tell_the_same(database: Database, framing: Framing, where: str) -> None:
    connection = await connect_sql(database.tcp() if where == "tcp" else database.conninfo(), "copy")
    kind = pa.struct([pa.field("i", pa.string()), pa.field("t", pa.string())])
    statement = r"COPY (SELECT i, repeat(E'x\\', i % 500) FROM generate_series(1, 20000) i) TO STDOUT"
    found = list[Any]()
    try:
        async with await CopyOut.start(connection, statement, framing) as copy:
            while (batch := await copy.batch()) is not None:
                found += parse_rows(batch, kind, copy.head_bytes).to_pylist()
    finally:
        await connection.close()
    assert found == [{"i": str(i), "t": "x\\" * (i % 500)} for i in range(1, 20001)]


@pytest.mark.parametrize("framing", [Framing.PLAIN, Framing.LIBPQ], ids=lambda framing: framing.name.lower())
async def test_what_ends_a_copy_has_its_reason(database: Database, framing: Framing) -> None:
    connection = await connect_sql(database.conninfo(), "copy")
    try:
        statement = "COPY (SELECT 1 / (500 - i) FROM generate_series(1, 1000) i) TO STDOUT"
        async with await CopyOut.start(connection, statement, framing) as copy:
            with pytest.raises(StreamEnded) as ended:
                await drained(copy)
        assert (ended.value.message, ended.value.sqlstate) == ("division by zero", "22012")
    finally:
        await connection.close()


async def drained(copy: CopyOut) -> None:
    while await copy.batch() is not None:
        pass


async def test_partitions_are_one_table_and_children_are_not(database: Database, store: Store) -> None:
    database.execute(
        "CREATE TABLE parts (k int, v text) PARTITION BY RANGE (k)",
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high (v text, k int)",
        "ALTER TABLE parts ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parts SELECT i, 'v' || i FROM generate_series(0, 19) i",
        "CREATE TABLE parent (k int)",
        "CREATE TABLE child () INHERITS (parent)",
        "INSERT INTO child VALUES (1)",
        "INSERT INTO parent VALUES (2)",
    )
    _, rows = await copied(database, store, selection_of(database, "parts"))
    assert sorted(int(row["k"]) for row in rows) == list(range(20))
    assert {row["v"] for row in rows} == {f"v{i}" for i in range(20)}
    _, rows = await copied(database, store, selection_of(database, "parent"))
    assert rows == [{"k": "2"}]


async def test_names_and_clauses_are_as_they_are(database: Database, store: Store) -> None:
    database.execute(
        'CREATE SCHEMA "my schema"',
        'CREATE TABLE "my schema"."Odd ""one"" " ("a b" int, "select" text)',
        """INSERT INTO "my schema"."Odd ""one"" " VALUES (1, 'x'), (2, 'y')""",
    )
    selection = selection_of(database, 'Odd "one" ', where="\"select\" = 'y'", schema="my schema")
    base, rows = await copied(database, store, selection)
    assert rows == [{"a b": "2", "select": "y"}]
    assert base.is_complete


async def test_progress_is_told(newest_database: Database, store: Store) -> None:
    database = newest_database
    database.execute("CREATE TABLE t AS SELECT i, repeat('x', 200) AS x FROM generate_series(1, 20000) i", "ANALYZE t")
    told: list[CopyProgress] = []
    async with snapshot_of(database, selection_of(database, "t")) as transaction:
        await copy_snapshot(transaction, store.new_base(1), 4096, Clocks(), told.append)
    assert len(told) > 3
    assert [one.rows for one in told] == sorted(one.rows for one in told)
    assert told[-1] == CopyProgress(20000, 20000 * 300 + sum(len(str(i)) for i in range(1, 20001)), 1.0)


async def test_a_clause_that_fails_for_a_row_is_refused(newest_database: Database, store: Store) -> None:
    newest_database.execute("CREATE TABLE t AS SELECT i FROM generate_series(0, 9) i")
    with pytest.raises(SnapshotRefused, match="division by zero"):
        await copied(newest_database, store, selection_of(newest_database, "t", where="1 / (i - 5) = 1"))


async def test_hidden_rows_and_missing_rights_are_refused(newest_database: Database, store: Store) -> None:
    database = newest_database
    role = f"reader_{database.name}"
    with database.connect() as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        admin.execute("CREATE TABLE t AS SELECT i FROM generate_series(0, 9) i")
        selection = selection_of(database, "t")
        try:
            with pytest.raises(SnapshotRefused, match="permission denied") as refused:
                await SnapshotTransaction.open(database.conninfo(user=role), "copy", selection)
            assert "GRANT SELECT" in refused.value.advice
            admin.execute(f"GRANT SELECT ON t TO {role}".encode())
            admin.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
            transaction = await SnapshotTransaction.open(database.conninfo(user=role), "copy", selection)
            with pytest.raises(SnapshotRefused, match="row-level security"):
                await copy_snapshot(transaction, store.new_base(1), 4096, Clocks())
            await transaction.close()
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


async def test_a_disk_without_room_is_waited_for(newest_database: Database, tmp_path: Path) -> None:
    """Half of a chunk is written, then none; the snapshot stays open until there is room (A9)."""
    newest_database.execute("CREATE TABLE t AS SELECT i, repeat('x', 100) AS x FROM generate_series(1, 500) i")
    full = Rule("append", Fault(errno.ENOSPC, happens=True, appended=100), "*.base*", first=3)
    disk = FaultyDisk(LocalDisk(tmp_path), Script(full))
    store = Store(disk, Clocks())
    store.create_log(LogFacts(1, "copied"))
    base, rows = await copied(newest_database, store, selection_of(newest_database, "t"))
    assert [int(row["i"]) for row in rows] == list(range(1, 501))
    assert len(base.chunks) > 3
    assert len(disk.log) == 1, "the fault was met"


async def test_a_failed_sync_gives_the_base_up(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 500) i")
    store = Store(FaultyDisk(LocalDisk(tmp_path), Script(Rule("sync", Fault(errno.EIO), "*.base*"))), Clocks())
    store.create_log(LogFacts(1, "copied"))
    with pytest.raises(StorageError):
        await copied(newest_database, store, selection_of(newest_database, "t"))
    assert [base.is_complete for base in StoreReader(store).bases(1)] == [False]


async def test_a_cancelled_copy_leaves_nobody_behind(newest_database: Database, store: Store) -> None:
    database = newest_database
    database.execute("CREATE TABLE t AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 50000) i")
    told: list[CopyProgress] = []
    async with snapshot_of(database, selection_of(database, "t")) as transaction:
        copying = asyncio.ensure_future(copy_snapshot(transaction, store.new_base(1), 4096, Clocks(), told.append))
        await eventually(lambda: told, "some rows")
        copying.cancel()
        await asyncio.wait([copying])
        assert copying.cancelled()
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'copy'"
    await eventually(lambda: database.value(query) == 0, "the server to notice")
    with pytest.raises(SnapshotLost):
        await copy_snapshot(transaction, store.new_base(1), 4096, Clocks())


async def test_memory_does_not_grow_with_the_table(newest_database: Database, store: Store) -> None:
    """Twenty times the rows take the same memory: Python's, and Arrow's."""
    database = newest_database
    database.execute("CREATE TABLE t AS SELECT i, repeat('x', 300) AS x FROM generate_series(1, 100000) i")
    peaks = []
    for rows in (5000, 100_000):
        selection = selection_of(database, "t", where=f"i <= {rows}")
        async with snapshot_of(database, selection) as transaction:
            tracemalloc.start()
            arrow = 0

            def note(_: CopyProgress) -> None:
                nonlocal arrow
                arrow = max(arrow, pa.total_allocated_bytes())

            await copy_snapshot(transaction, store.new_base(1), 1 << 20, Clocks(), note)
            peaks.append(tracemalloc.get_traced_memory()[1] + arrow)
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 16 * 1024 * 1024
