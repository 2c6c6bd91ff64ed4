"""Which tables get REPLICA IDENTITY FULL, since it costs their owners WAL: those alone whose shapes need it."""

from pathlib import Path
from typing import LiteralString

import pytest

from cdc.source.connections import connect_sql
from cdc.source.errors import NotPublished
from cdc.source.publisher import Publisher
from storage.catalog_records import Life
from storage.rows import Kind
from tests.loop import fold, looping
from tests.postgres import Database
from tests.waiting import eventually

PLAIN: LiteralString = "CREATE TABLE plain (id int PRIMARY KEY, n int, at timestamptz)"
WRITES: tuple[LiteralString, ...] = (
    "INSERT INTO plain SELECT g, g FROM generate_series(1, 20) g",
    "UPDATE plain SET n = n + 100 WHERE id <= 10",
    "UPDATE plain SET id = id + 1000 WHERE id % 4 = 0",
    "UPDATE plain SET id = -id, n = NULL WHERE id % 5 = 0",
    "DELETE FROM plain WHERE id % 3 = 0",
    "INSERT INTO plain VALUES (4, 44)",
)
SELECT: LiteralString = "SELECT id, n, at FROM plain"


def identities(database: Database) -> dict[str, str]:
    rows = database.execute(
        "SELECT relname::text, relreplident::text FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
    )
    return {str(name): str(identity) for name, identity in rows}


async def test_a_plain_table_stays_as_it_is_and_all_that_happens_to_it_is_right(
    database: Database, tmp_path: Path
) -> None:
    """The default identity sends an old key only where it changed, and of an UPDATE otherwise the new row."""
    database.execute(PLAIN, "INSERT INTO plain VALUES (0, 0)")
    async with looping(database, tmp_path) as loop:
        shape = await loop.add("plain", "plain")
        narrow = await loop.add("plain", "narrow", columns="id,n")
        assert identities(database) == {"plain": "d"}
        database.execute(*WRITES)
        await loop.caught_up()
        assert loop.rows(shape) == loop.table(SELECT)
        assert loop.rows(narrow) == loop.table("SELECT id, n FROM plain")
        assert set(fold(loop.app, shape).kinds) == {Kind.INSERT, Kind.UPDATE, Kind.DELETE}
    database.execute("UPDATE plain SET id = id + 5000 WHERE id % 2 = 1", "DELETE FROM plain WHERE n > 100")
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        assert loop.living("plain").handle == shape.handle
        assert loop.rows(shape) == loop.table(SELECT)


@pytest.mark.parametrize("request_", [{"where": "n > 105"}, {"replica": "full"}], ids=["condition", "whole rows"])
async def test_a_shape_that_comes_later_and_needs_whole_rows_raises_the_identity(
    newest_database: Database, tmp_path: Path, request_: dict[str, str]
) -> None:
    """Those that are there go on, over changes of both kinds, and the new one misses nothing."""
    newest_database.execute(PLAIN)
    async with looping(newest_database, tmp_path) as loop:
        first = await loop.add("plain", "first")
        newest_database.execute(*WRITES)
        assert identities(newest_database) == {"plain": "d"}
        later = await loop.add("plain", "later", **request_)
        assert identities(newest_database) == {"plain": "f"}
        newest_database.execute("UPDATE plain SET n = n + 4 WHERE id > 0", "DELETE FROM plain WHERE id = 7")
        await loop.caught_up()
        assert loop.rows(first) == loop.table(SELECT)
        condition: LiteralString = SELECT + " WHERE n > 105" if "where" in request_ else SELECT
        assert loop.rows(later) == loop.table(condition)
        assert loop.living("first").handle == first.handle
        await loop.add("plain", "again", columns="id,n")
        assert identities(newest_database) == {"plain": "f"}, "no shape takes it away from another"


async def test_tables_without_a_key_or_with_long_values_get_it_with_their_first_shape(
    database: Database, tmp_path: Path
) -> None:
    tables: dict[str, LiteralString] = {
        "keyless": "CREATE TABLE keyless (n int)",
        "texts": "CREATE TABLE texts (id int PRIMARY KEY, body text)",
        "arrays": "CREATE TABLE arrays (id int PRIMARY KEY, many int[])",
        "late": "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, n int)",
        "silent": "CREATE TABLE silent (id int PRIMARY KEY, n int)",
        "other": "CREATE TABLE other (id int PRIMARY KEY, n int UNIQUE NOT NULL)",
        "short": "CREATE TABLE short (id int PRIMARY KEY, gone text)",
        "untouched": "CREATE TABLE untouched (id int PRIMARY KEY, body text)",
    }
    database.execute(
        *tables.values(),
        "ALTER TABLE silent REPLICA IDENTITY NOTHING",
        "ALTER TABLE other REPLICA IDENTITY USING INDEX other_n_key",
        "ALTER TABLE short DROP COLUMN gone",
    )
    async with looping(database, tmp_path) as loop:
        for name in tables.keys() - {"untouched"}:
            await loop.add(name, name)
    assert identities(database) == dict.fromkeys(tables, "f") | {"short": "d", "untouched": "d"}


async def test_partitions_have_each_their_own_identity(database: Database, tmp_path: Path) -> None:
    """That of the root is never used. A partition that comes later comes with what its root's shapes need."""
    database.execute(
        "CREATE TABLE root (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF root FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (id)",
        "CREATE TABLE high_low PARTITION OF high FOR VALUES FROM (10) TO (50)",
    )
    rows: LiteralString = "SELECT id, n FROM root"
    async with looping(database, tmp_path) as loop:
        plain = await loop.add("root", "plain")
        assert identities(database) == dict.fromkeys(("root", "low", "high", "high_low"), "d")
        database.execute(
            "INSERT INTO root VALUES (1, 1), (2, 2), (11, 11), (12, 12)",
            "UPDATE root SET id = id + 1 WHERE id = 12",
            "UPDATE root SET id = 14 WHERE id = 2",  # from one partition to another
            "DELETE FROM root WHERE id = 11",
        )
        await loop.caught_up()
        assert loop.rows(plain) == loop.table(rows)
        few = await loop.add("root", "few", where="n < 10")
        assert identities(database) == {"root": "d", "low": "f", "high": "d", "high_low": "f"}
        database.execute("CREATE TABLE top PARTITION OF root FOR VALUES FROM (100) TO (200)")
        database.execute("INSERT INTO root VALUES (100, 5)")
        await eventually(lambda: identities(database)["top"] == "f", "the successor of the one with a condition", 90)
        registry = loop.app.house.registry
        await eventually(
            lambda: (
                (now := registry.named("few")) is not None and now.handle != few.handle and now.shape.life is Life.READY
            ),
            "it to be ready",
        )
        database.execute("UPDATE root SET n = 50 WHERE id IN (1, 100)", "UPDATE root SET n = 6 WHERE id = 13")
        await loop.caught_up()
        assert loop.rows(loop.living("few")) == loop.table(rows + " WHERE n < 10")


async def test_in_manual_mode_only_what_cannot_be_done_without_is_asked_for(newest_database: Database) -> None:
    newest_database.execute(
        "CREATE TABLE texts (id int PRIMARY KEY, body text)",
        "CREATE TABLE keyless (n int)",
        "CREATE PUBLICATION p FOR TABLE texts, keyless WITH (publish_generated_columns = stored)",
    )
    publisher = Publisher("p", "manual")
    connection = await connect_sql(newest_database.conninfo(), "test")
    try:
        await publisher.publish(connection, ["texts"])
        with pytest.raises(NotPublished, match='keyless" REPLICA IDENTITY FULL'):
            await publisher.publish(connection, ["texts", "keyless"])
    finally:
        await connection.close()
    assert identities(newest_database) == {"texts": "d", "keyless": "d"}
