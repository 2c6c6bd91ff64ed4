"""Tables and partitions that write no logical changes: Postgres lets them hide behind a published root or schema.

A snapshot of the root has their rows, and the stream never says a word of them: so no shape may stand on one.
"""

from pathlib import Path
from typing import LiteralString

import pytest

from cdc.source.checks import check_publication, check_tables
from cdc.source.connections import connect_sql
from cdc.source.errors import CannotPublish
from cdc.source.facts import Level
from cdc.source.publisher import Publisher
from cdc.source.server_facts import read_facts
from shapes.errors import DefinitionError
from shapes.reconciliation import reconcile
from storage.catalog_records import Life
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

ROOT: tuple[LiteralString, ...] = (
    "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (100)",
    "INSERT INTO root VALUES (1, 'logged')",
)
SILENT: dict[str, tuple[LiteralString, ...]] = {
    "unlogged": ("CREATE UNLOGGED TABLE high PARTITION OF root FOR VALUES FROM (100) TO (200)",),
    "foreign": (
        "CREATE FOREIGN DATA WRAPPER nowhere",
        "CREATE SERVER far FOREIGN DATA WRAPPER nowhere",
        "CREATE FOREIGN TABLE high PARTITION OF root FOR VALUES FROM (100) TO (200) SERVER far",
    ),
}


@pytest.mark.parametrize("kind", SILENT)
async def test_a_root_with_a_silent_partition_is_refused_by_name(database: Database, tmp_path: Path, kind: str) -> None:
    """If only its leaves were looked at when the shape is born, the request would wait in vain: it is told at once."""
    words = {"unlogged": "unlogged", "foreign": "a foreign table"}[kind]
    database.execute(*ROOT, "ALTER TABLE root DROP CONSTRAINT root_pkey", *SILENT[kind])
    async with looping(database, tmp_path) as loop:
        with pytest.raises(DefinitionError, match=r"public\.high"):
            await loop.add("root")
    connection = await connect_sql(database.conninfo(), "unlogged")
    async with connection:
        with pytest.raises(CannotPublish, match=rf"public\.high.*{words}"):
            await Publisher("p", "managed").publish(connection, ["root"])
        facts = await read_facts(connection, "s", "p", ["root"], "managed", sample_seconds=0)
    [found] = check_tables(facts)
    assert "public.high" in found.text
    assert not [one for one in check_publication(facts) if one.level is Level.FAULT], "one finding is enough"


async def waits_for_a_log(loop: Loop) -> None:
    """Look at the tables, as is done from time to time, until the name has ended and its successor was refused."""
    async with loop.app.house.control() as connection:
        await reconcile(loop.app.house, connection)
    refused = "the name to wait for a successor"
    await eventually(lambda: any("unlogged" in one.reason for one in loop.app.nursery.awaited), refused)


def is_new(loop: Loop, name: str, first: str) -> bool:
    entry = loop.app.house.registry.named(name)
    return entry is not None and entry.handle != first and entry.shape.life is Life.READY


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE low SET UNLOGGED", "CREATE UNLOGGED TABLE high PARTITION OF root FOR VALUES FROM (100) TO (200)"],
)
async def test_a_partition_that_falls_silent_ends_the_shapes_of_its_root(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: LiteralString
) -> None:
    """It begins anew by itself when the partition is logged again, with what was written meanwhile."""
    monkeypatch.setattr("shapes.nursery.SUCCESSOR_SECONDS_MIN", 0.1)
    database.execute(*ROOT)
    async with looping(database, tmp_path) as loop:
        first = await loop.add("root", "root")
        database.execute(change)
        await waits_for_a_log(loop)
        assert loop.app.house.registry.named("root") is None
        database.execute("INSERT INTO root VALUES (2, 'not sent')")
        database.execute("ALTER TABLE low SET LOGGED" if "low" in change else "ALTER TABLE high SET LOGGED")
        await eventually(lambda: is_new(loop, "root", first.handle), "a successor")
        database.execute("INSERT INTO root VALUES (3, 'sent')")
        await loop.caught_up()
        assert loop.rows(loop.living("root")) == loop.table("SELECT id, v FROM root")


async def test_a_table_of_a_published_schema_that_falls_silent_ends_its_shapes(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres refuses SET UNLOGGED only where the table itself is in the publication."""
    monkeypatch.setattr("shapes.nursery.SUCCESSOR_SECONDS_MIN", 0.1)
    newest_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION shapelog FOR TABLES IN SCHEMA public WITH (publish_generated_columns = stored)",
    )
    async with looping(newest_database, tmp_path, mode="manual") as loop:
        first = await loop.add("t", "t")
        newest_database.execute("ALTER TABLE t SET UNLOGGED", "INSERT INTO t VALUES (1, 'not sent')")
        await waits_for_a_log(loop)
        newest_database.execute("ALTER TABLE t SET LOGGED")
        await eventually(lambda: is_new(loop, "t", first.handle), "a successor")
        assert loop.rows(loop.living("t")) == loop.table("SELECT id, v FROM t")
