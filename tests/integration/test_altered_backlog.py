"""Alterations in a backlog: the stream describes a table as it was, to shapes that are defined as it is now."""

from collections import Counter
from pathlib import Path

import pytest
from psycopg import sql

from cdc.source.fragments import RelationChange
from shapes.endings import Endings
from shapes.registry import Entry
from shapes.relevance import Reason
from storage.catalog_records import Life
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

ALL = "SELECT * FROM items"


async def has_successor(loop: Loop, old: Entry) -> Entry:
    def is_ready() -> bool:
        entry = loop.app.house.registry.named("items")
        return entry is not None and entry.handle != old.handle and entry.shape.life is Life.READY

    await eventually(is_ready, "a successor", 60)
    return loop.living("items")


async def test_a_successor_is_not_ended_by_descriptions_of_before_its_birth(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[RelationChange] = []
    by_relation = Endings.by_relation

    async def noting(endings: Endings, change: RelationChange) -> None:
        described.append(change)
        await by_relation(endings, change)

    monkeypatch.setattr(Endings, "by_relation", noting)
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, v text)", "CREATE TABLE large (id int PRIMARY KEY, v text)"
    )
    async with looping(database, tmp_path) as loop:
        await loop.add("large", "large")
        before = await loop.add("items", "items")
        await loop.caught_up()
    with database.connect() as connection:
        for number in range(4):  # between two alterations enough that the stream has not passed them at the birth
            bounds = (100_000 * number, 100_000 * number + 99_999)
            connection.execute("INSERT INTO large SELECT g, 'v' FROM generate_series(%s::int, %s) g", bounds)
            connection.execute("INSERT INTO items (id, v) VALUES (%s, 'a')", (number,))
            column = sql.Identifier(f"n{number}")
            connection.execute(sql.SQL("ALTER TABLE items ADD COLUMN {} int DEFAULT 7").format(column))
    described.clear()
    async with looping(database, tmp_path) as loop:
        born = await has_successor(loop, before)
        await loop.caught_up(120)
        assert loop.living("items").handle == born.handle
        assert loop.app.house.endings.counts == Counter()
        assert loop.rows(born) == loop.table(ALL)
        birth = born.shape.snapshot.birth
        stale = [one for one in described if one.relation.name == "items" and one.commit_lsn < birth]
        assert stale, "the stream described the table as it was before"

        database.execute("ALTER TABLE items ADD COLUMN later int", "INSERT INTO items (id) VALUES (90)")
        later = await has_successor(loop, born)
        await loop.caught_up(60)
        assert loop.app.house.endings.counts == {Reason.COLUMNS_CHANGED: 1}
        assert loop.rows(later) == loop.table(ALL)
