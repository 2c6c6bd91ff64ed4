"""Statements of ours that an administrator cancels: they are asked again, and neither the program nor a shape ends."""

from pathlib import Path

from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
WAITING = """
    SELECT pg_cancel_backend(pid) FROM pg_stat_activity
    WHERE application_name LIKE 'shapelog%' AND wait_event_type = 'Lock' AND datname = current_database()
"""


async def test_the_program_goes_on_when_its_look_at_the_publication_is_cancelled(
    newest_database: Database, tmp_path: Path
) -> None:
    newest_database.execute(ITEMS, "INSERT INTO items VALUES (1, 'v')")
    async with looping(newest_database, tmp_path) as loop:
        entry = await loop.add("items", "items")
        with newest_database.connect() as holder, holder.transaction():
            holder.execute("LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE")
            await eventually(lambda: bool(newest_database.execute(WAITING)), "the look")
        newest_database.execute("UPDATE items SET v = 'w'")
        await loop.caught_up()
        assert loop.living("items").handle == entry.handle
        assert loop.rows(entry) == loop.table("SELECT id, v FROM items")
