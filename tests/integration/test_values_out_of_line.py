"""Values that Postgres keeps beside their rows, and does not send again when they did not change."""

from pathlib import Path
from typing import LiteralString

from shapes.reconciliation import reconcile
from storage.catalog_records import Life
from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually

PAPERS = (
    "CREATE TABLE papers (id int PRIMARY KEY, part int, body text)",
    "ALTER TABLE papers ALTER body SET STORAGE EXTERNAL",
    "INSERT INTO papers SELECT g, g % 3, repeat('x', 9000 + g) FROM generate_series(1, 30) g",
)
ALL: LiteralString = "SELECT id, part, body FROM papers"
LONG: LiteralString = "SELECT id, part, body FROM papers WHERE body LIKE 'x%'"
CHANGES: tuple[LiteralString, ...] = (
    "UPDATE papers SET part = part + 1 WHERE id <= 25",
    "UPDATE papers SET id = id + 100 WHERE id % 5 = 0",
    "UPDATE papers SET body = repeat('y', 9100) WHERE id = 3",
    "UPDATE papers SET body = NULL WHERE id = 4",
    "DELETE FROM papers WHERE id IN (7, 8, 27)",
)


async def test_a_long_value_that_did_not_change_is_known_all_the_same(database: Database, tmp_path: Path) -> None:
    """Also to a condition on it, to whole rows, and over a restart that finds the changes in the slot."""
    database.execute(*PAPERS)
    async with looping(database, tmp_path) as loop:
        await loop.add("papers", "all")
        await loop.add("papers", "whole", replica="full")
        await loop.add("papers", "long", where="body LIKE 'x%'")
        firsts = {name: loop.living(name).handle for name in ("all", "whole", "long")}
        database.execute(*CHANGES)
        await loop.caught_up()
        assert loop.rows(loop.living("all")) == loop.rows(loop.living("whole")) == loop.table(ALL)
        assert loop.rows(loop.living("long")) == loop.table(LONG)
    database.execute("UPDATE papers SET part = -1", "DELETE FROM papers WHERE id > 110")
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        assert loop.rows(loop.living("all")) == loop.rows(loop.living("whole")) == loop.table(ALL)
        assert loop.rows(loop.living("long")) == loop.table(LONG)
        assert firsts == {name: loop.living(name).handle for name in firsts}


async def test_a_change_that_cannot_be_told_ends_its_shape_and_no_other(database: Database, tmp_path: Path) -> None:
    """Without the whole old row, a key that changes takes along a value that nobody sends; the slot is not held."""
    database.execute(*PAPERS)
    async with looping(database, tmp_path) as loop:
        whole = await loop.add("papers", "all")
        narrow = await loop.add("papers", "narrow", columns="id,part")
        database.execute("ALTER TABLE papers REPLICA IDENTITY DEFAULT")
        async with loop.app.house.control() as connection:
            await reconcile(loop.app.house, connection)
        database.execute("UPDATE papers SET part = part + 1", "UPDATE papers SET id = id + 1000 WHERE id = 5")
        registry = loop.app.house.registry
        await eventually(
            lambda: (
                (now := registry.named("all")) is not None
                and now.handle != whole.handle
                and now.shape.life is Life.READY
            ),
            "the end of the one that has the long column, and its successor",
        )
        await loop.caught_up()
        ended = registry.find(whole.handle)
        assert ended is not None
        assert ended.shape.reason == "key_change_incomplete"
        assert loop.living("narrow").handle == narrow.handle
        assert loop.rows(narrow) == loop.table("SELECT id, part FROM papers")
        assert loop.rows(loop.living("all")) == loop.table(ALL)
