"""Tables as real servers describe them: types, keys, partitions and odd names; and what alterations mean to shapes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import LiteralString

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from cdc.source.connections import Connection, connect_sql, fetch
from cdc.source.relations import Relation, Relations
from shapes.column_schema import column_schemas
from shapes.definition import Definition, Table, TableColumn
from shapes.errors import DefinitionError
from shapes.relevance import Ends, Reason, relevance
from shapes.tables import find_table, find_tables, read_tables
from shapes.where.types import Collation
from tests.postgres import Database
from tests.unit.table_strategies import defined


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[Connection]:
    connection = await connect_sql(database.conninfo(), "test")
    try:
        yield connection
    finally:
        await connection.close()


async def table_of(database: Database, text: str) -> Table:
    async with connected(database) as connection:
        return await find_table(connection, text)


def named(table: Table) -> dict[str, TableColumn]:
    return {column.name: column for column in table.columns}


async def test_every_family_of_types(database: Database) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'so''so', 'ok')",
        "CREATE TYPE pair AS (x int, y int)",
        "CREATE TABLE t (a int8, b varchar(8), c char(4), d numeric(5,2), e numeric(2,-1), f numeric, g bit(3),"
        " h varbit(7), i time(3), j timestamptz(0), k interval, l interval(3), m interval day to second(2),"
        " n interval year, o int[][], p varchar(3)[], q mood, r mood[], s pair, u uuid, v jsonb, w bytea, x inet,"
        " y int4range, z point, zz name)",
    )
    columns = (await table_of(database, "t")).columns
    assert column_schemas(columns) == {
        "a": {"type": "int8"},
        "b": {"type": "varchar", "max_length": 8},
        "c": {"type": "bpchar", "length": 4},
        "d": {"type": "numeric", "precision": 5, "scale": 2},
        "e": {"type": "numeric", "precision": 2, "scale": -1},
        "f": {"type": "numeric"},
        "g": {"type": "bit", "length": 3},
        "h": {"type": "varbit", "length": 7},
        "i": {"type": "time", "precision": 3},
        "j": {"type": "timestamptz", "precision": 0},
        "k": {"type": "interval"},
        "l": {"type": "interval", "precision": 3},
        "m": {"type": "interval", "precision": 2, "fields": "DAY TO SECOND"},
        "n": {"type": "interval", "fields": "YEAR"},
        "o": {"type": "int4", "dims": 2},
        "p": {"type": "varchar", "dims": 1, "max_length": 3},
        "q": {"type": "mood"},
        "r": {"type": "mood", "dims": 1},
        "s": {"type": "pair"},
        "u": {"type": "uuid"},
        "v": {"type": "jsonb"},
        "w": {"type": "bytea"},
        "x": {"type": "inet"},
        "y": {"type": "int4range"},
        "z": {"type": "point"},
        "zz": {"type": "name"},
    }
    assert [column.name for column in columns] == list(column_schemas(columns)), "in the table's order"
    [mood] = [column for column in columns if column.name == "q"]
    assert mood.labels == ("sad", "so'so", "ok")
    assert mood.for_where.is_enum
    types = dict(database.execute("SELECT typname::text, oid::bigint FROM pg_type"))
    assert mood.type_oid == types["mood"]


async def test_domains_are_seen_through(database: Database) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE DOMAIN short AS varchar(5)",
        "CREATE DOMAIN shorter AS short NOT NULL",
        "CREATE DOMAIN feeling AS mood",
        "CREATE TABLE t (a short, b shorter, c feeling)",
    )
    columns = named(await table_of(database, "t"))
    varchar = 1043
    for name in "ab":
        assert (columns[name].for_where.oid, columns[name].for_where.typmod) == (varchar, 9)
        assert columns[name].type_oid not in {0, varchar}
    assert columns["b"].type_name == "shorter"
    assert columns["c"].for_where.is_enum


async def test_the_key_has_its_own_order(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (a int, b int, c int NOT NULL, d int, PRIMARY KEY (d, b) INCLUDE (a))",
        "ALTER TABLE t DROP COLUMN a CASCADE, ADD PRIMARY KEY (d, b)",
        "CREATE TABLE later (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE keyless (id int UNIQUE NOT NULL)",
    )
    table = await table_of(database, "t")
    assert table.key == ("d", "b")
    assert {name: column.not_null for name, column in named(table).items()} == {"b": True, "c": True, "d": True}
    assert [column.number for column in table.columns] == [2, 3, 4], "a dropped column leaves its number unused"
    for name in ("later", "keyless"):
        assert (await table_of(database, name)).key == ()


async def test_generated_columns(database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED)")
    if database.version >= 18:
        database.execute("ALTER TABLE t ADD COLUMN c int GENERATED ALWAYS AS (a + 1) VIRTUAL")
    table = await table_of(database, "t")
    assert {column.name: column.generated for column in table.columns if column.generated}.items() <= {
        "b": "s",
        "c": "v",
    }.items()
    with pytest.raises(DefinitionError, match="are generated and cannot be included in the shape: b"):
        defined(table)
    assert defined(table, columns="a").view.columns == ("a",)


async def test_collations(database: Database) -> None:
    database.execute(
        'CREATE TABLE t (a text, b text COLLATE "C", c text COLLATE "POSIX", d varchar[] COLLATE "C", e int, g name)'
    )
    # Each is of bytes, by default too: the servers of tests are made with --locale=C.
    expected = {**dict.fromkeys("abcdg", Collation.C), "e": Collation.LANGUAGE}
    if database.value("""SELECT to_regcollation('"und-x-icu"') IS NOT NULL"""):  # not every build has ICU
        database.execute(
            "CREATE COLLATION loose (provider = icu, locale = 'und', deterministic = false)",
            'ALTER TABLE t ADD COLUMN h text COLLATE "und-x-icu", ADD COLUMN i text COLLATE loose',
        )
        expected |= {"h": Collation.LANGUAGE, "i": Collation.LOOSE}
    columns = named(await table_of(database, "t"))
    assert {name: column.collation for name, column in columns.items()} == expected


async def test_the_databases_collation_is_looked_up(database: Database) -> None:
    expected: dict[LiteralString, Collation] = {"LOCALE 'C.UTF-8'": Collation.BYTES, "LOCALE 'C'": Collation.C}
    if database.version >= 17:
        expected |= {
            "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'": Collation.BYTES,
            "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C'": Collation.C,
        }
    for number, (options, collation) in enumerate(expected.items()):
        other = Database(database.server, f"{database.name}_{number}")
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(
            sql.Identifier(other.name), sql.SQL(options)
        )
        with database.connect() as connection:
            connection.execute(create)
        try:
            other.execute("CREATE TABLE t (a text)")
            assert named(await table_of(other, "t"))["a"].collation is collation
        finally:
            other.remove()


async def test_partitions(database: Database) -> None:
    database.execute(
        "CREATE TABLE root (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF root FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (id)",
        "CREATE TABLE high_low PARTITION OF high FOR VALUES FROM (10) TO (50)",
        "CREATE TABLE empty (id int) PARTITION BY RANGE (id)",
    )
    oids = dict(database.execute("SELECT relname::text, oid::bigint FROM pg_class"))
    async with connected(database) as connection:
        found = await read_tables(connection, [oids[name] for name in ("root", "low", "high", "high_low", "empty")])
    assert {table.name: table.kind for table in found.values()} == {
        "root": "p", "low": "r", "high": "p", "high_low": "r", "empty": "p",
    }  # fmt: skip
    assert {table.name: set(table.leaves) for table in found.values()} == {
        "root": {oids["low"], oids["high_low"]}, "high": {oids["high_low"]}, "low": set(), "high_low": set(),
        "empty": set(),
    }  # fmt: skip
    roots = {table.name: table.root for table in found.values()}
    assert roots.pop("empty") == oids["empty"]
    assert set(roots.values()) == {oids["root"]}
    assert {table.key for table in found.values() if table.name != "empty"} == {("id",)}


async def test_many_tables_by_odd_names_in_one_statement(database: Database) -> None:
    database.execute(
        'CREATE SCHEMA "S.x"',
        'CREATE TABLE "S.x"."T ""q""" ("Ä b" int)',
        "CREATE TABLE t (a int)",
        "CREATE VIEW v AS TABLE t",
    )
    wanted = [("S.x", 'T "q"'), ("public", "t"), ("public", "v"), ("public", "T"), ("S.x", "t")]
    async with connected(database) as connection:
        found = await find_tables(connection, wanted)
        assert set(found) == set(wanted[:3])
        assert await find_table(connection, '"S.x"."T ""q"""') == found["S.x", 'T "q"']
        assert await find_table(connection, "PUBLIC.T") == found["public", "t"]
        assert await read_tables(connection, [found["public", "t"].oid, 1]) == {
            found["public", "t"].oid: found["public", "t"]
        }
    assert named(found["S.x", 'T "q"']).keys() == {"Ä b"}
    with pytest.raises(DefinitionError, match="neither an ordinary nor a partitioned table"):
        defined(found["public", "v"])


async def test_an_unknown_table_has_the_protocols_error(database: Database) -> None:
    for text, shown in {"t": '"public"."t"', 'S."T"': '"s"."T"', "pg_class": '"public"."pg_class"'}.items():
        with pytest.raises(DefinitionError) as caught:
            await table_of(database, text)
        advice = "If the table name contains capitals or special characters you must quote it."
        assert caught.value.fields == {"table": (f"Table {shown} does not exist. {advice}",)}


async def test_a_table_that_cannot_be_followed(database: Database) -> None:
    database.execute("CREATE UNLOGGED TABLE t (a int)", "CREATE TABLE nothing ()")
    for name, words in {"t": "unlogged", "nothing": "no columns"}.items():
        with pytest.raises(DefinitionError, match=words):
            defined(await table_of(database, name))


# What is done to the table, and the reason for which each shape ends; by the stream, if that can tell.
ALTERATIONS: list[tuple[LiteralString, dict[str, Reason], bool]] = [
    ("ALTER TABLE t ADD COLUMN new int DEFAULT 7", {"all": Reason.COLUMNS_CHANGED}, True),
    ("ALTER TABLE t DROP COLUMN v", {"all": Reason.COLUMN_GONE, "where": Reason.COLUMN_GONE}, True),
    ("ALTER TABLE t RENAME v TO new", {"all": Reason.COLUMN_GONE, "where": Reason.COLUMN_GONE}, True),
    ("ALTER TABLE t ALTER v TYPE varchar(9)", {"all": Reason.COLUMN_RETYPED, "where": Reason.COLUMN_RETYPED}, True),
    ("ALTER TABLE t ALTER n TYPE numeric(8,3)", {"all": Reason.COLUMN_RETYPED}, True),
    ("ALTER TABLE t DROP COLUMN n, ADD COLUMN n numeric(8,2)", {"all": Reason.COLUMN_GONE}, False),
    ("ALTER TABLE t RENAME TO other", dict.fromkeys(("all", "where", "id"), Reason.TABLE_RENAMED), True),
    ("ALTER TABLE t REPLICA IDENTITY DEFAULT", {"where": Reason.IDENTITY_LOST}, True),
    ("ALTER TABLE t DROP CONSTRAINT t_pkey", dict.fromkeys(("all", "where", "id"), Reason.KEY_CHANGED), False),
    ("ALTER TABLE t ALTER v SET DEFAULT 'x', ALTER v SET NOT NULL, ADD CHECK (id > 0)", {}, True),
    ("CREATE INDEX ON t (v)", {}, True),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "ends", "is_sent"), ALTERATIONS, ids=lambda value: str(value)[:40])
async def test_an_alteration_ends_whom_it_concerns(
    database: Database, statement: LiteralString, ends: dict[str, Reason], is_sent: bool
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(8), n numeric(8,2))",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    before = await table_of(database, "t")
    shapes = {
        "all": defined(before),
        "where": defined(before, columns="id", where="v = 'x'"),
        "id": defined(before, columns="id"),
    }
    assert reasons(shapes, before) == {}
    assert reasons(shapes, sent(database, "t")) == {}
    database.execute(statement)
    async with connected(database) as connection:
        after = (await read_tables(connection, [before.oid]))[before.oid]
    assert reasons(shapes, after) == ends
    assert reasons(shapes, sent(database, after.name)) == (ends if is_sent else {})
    database.execute("DROP TABLE IF EXISTS t, other")
    async with connected(database) as connection:
        gone = (await read_tables(connection, [before.oid])).get(before.oid)
    assert reasons(shapes, gone) == dict.fromkeys(shapes, Reason.TABLE_GONE)


def reasons(shapes: dict[str, Definition], now: Table | Relation | None) -> dict[str, Reason]:
    verdicts = {name: relevance(definition, now) for name, definition in shapes.items()}
    return {name: verdict.reason for name, verdict in verdicts.items() if isinstance(verdict, Ends)}


def sent(database: Database, table: str) -> Relation:
    """The table's description as the stream has it before the next change, which is made here."""
    with database.connect() as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('relevance', 'pgoutput')")
        insert = sql.SQL("INSERT INTO {table} SELECT * FROM jsonb_populate_record(NULL::{table}, %s)")
        row = {"id": connection.info.backend_pid, "v": "x", "new": "7"}
        connection.execute(insert.format(table=sql.Identifier(table)), [Jsonb(row)])
        messages = connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes("
            "'relevance', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        ).fetchall()
        connection.execute("SELECT pg_drop_replication_slot('relevance')")
    [described] = [bytes(data) for (data,) in messages if bytes(data)[:1] == b"R"]
    found = Relations().describe(described)
    assert found is not None
    return found[0]


async def test_questions_are_never_compiled(database: Database) -> None:
    """The planner takes a catalog that is asked with recursion for large: compiling took 20 times as long as asking."""
    async with connected(database) as connection:
        (shown,) = await fetch(connection, "SHOW jit")
    assert shown == {"jit": "off"}
