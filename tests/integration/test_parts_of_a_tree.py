"""Parts of a partitioned table that are followed by themselves, published only through the table above them.

What happens to that table is then no change of theirs, and yet it decides whether their changes are sent. Beside a real
server, as other tests of the loop.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from cdc.source.attempt import Attempt
from cdc.source.connections import Connection
from shapes.household import Household
from shapes.reconciliation import reconcile
from shapes.registry import Entry
from shapes.restore import restore
from shapes.service import ShapeService
from storage.catalog_records import Life
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

TREE = (
    "CREATE TABLE tree (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE branch PARTITION OF tree FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF branch FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high PARTITION OF branch FOR VALUES FROM (10) TO (100)",
    "CREATE TABLE far PARTITION OF tree FOR VALUES FROM (100) TO (200)",
)
TABLES = ("tree", "branch", "low", "far")
BOTH: LiteralString = "INSERT INTO tree VALUES (1, 'low'), (11, 'high')"
"""One transaction in two leaves of the branch."""
DETACH: LiteralString = "ALTER TABLE branch DETACH PARTITION low"


@pytest.fixture
def database(newest_database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """With the tree; what is looked at from time to time is looked at when the test says so."""

    async def nothing(_attempt: Attempt, _now: float) -> None: ...

    monkeypatch.setattr(Attempt, "_look_at_publication", nothing)
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 600.0)
    newest_database.execute(*TREE)
    return newest_database


async def followed(loop: Loop) -> dict[str, Entry]:
    """A shape for each, of which only the first makes its table a member of the publication."""
    shapes = {table: await loop.add(table, table) for table in TABLES}
    members = loop.table("SELECT tablename FROM pg_publication_tables UNION SELECT 'tree' FROM pg_publication_rel")
    assert members == [("far",), ("high",), ("low",), ("tree",)]
    assert loop.table("SELECT count(*) FROM pg_publication_rel") == [("1",)]
    return shapes


async def look(loop: Loop) -> None:
    """At the publication, as is done by itself."""
    attempt = await eventually(lambda: loop.app.house.session.attempt, "a connection")
    assert attempt is not None
    await attempt.check_publication()


def is_new(loop: Loop, first: Entry) -> bool:
    assert first.shape.name is not None
    entry = loop.app.house.registry.named(first.shape.name)
    return entry is not None and entry.handle != first.handle and entry.shape.life is Life.READY


async def agree(loop: Loop, *names: str) -> None:
    """These have what their tables have, also after a change of each."""
    for name in names:
        with loop.database.connect() as writer:
            writer.execute(SQL("UPDATE {} SET v = v || '!'").format(Identifier(name)))
    await loop.caught_up()
    for name in names:
        assert loop.rows(loop.living(name)) == loop.table(SQL("SELECT id, v FROM {}").format(Identifier(name))), name


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "at the next start"])
async def test_a_part_that_was_taken_off_begins_anew(database: Database, tmp_path: Path, *, is_running: bool) -> None:
    """Nobody publishes it any more, and no row of it says so; a branch has lost rows without a change."""
    taken: tuple[LiteralString, ...] = (BOTH, DETACH, "INSERT INTO low VALUES (2, 'not sent')")
    async with looping(database, tmp_path) as loop:
        firsts = await followed(loop)
        await loop.caught_up()
        if is_running:
            database.execute(*taken)
            await look(loop)
            await began_anew(loop, firsts)
    if not is_running:
        database.execute(*taken)
    async with looping(database, tmp_path) as loop:
        await began_anew(loop, firsts)


async def began_anew(loop: Loop, firsts: dict[str, Entry]) -> None:
    for name in ("tree", "branch", "low"):
        await eventually(lambda: is_new(loop, firsts[name]), f"a successor of {name}")  # noqa: B023
    assert loop.living("far").handle == firsts["far"].handle, "nothing happened to it"
    await agree(loop, *TABLES)


async def test_a_part_that_is_being_taken_off_is_none(database: Database, tmp_path: Path) -> None:
    """A concurrent DETACH may wait for others for hours between its two halves; the second one changes nothing."""
    with ThreadPoolExecutor() as threads, psycopg.connect(database.conninfo()) as reader:
        async with looping(database, tmp_path) as loop:
            firsts = await followed(loop)
            reader.execute("SELECT FROM tree")
            detach = threads.submit(database.execute, f"{DETACH} CONCURRENTLY")
            pending: LiteralString = "SELECT bool_or(inhdetachpending) FROM pg_inherits"
            await eventually(lambda: database.value(pending), "the first half")
            database.execute("INSERT INTO low VALUES (2, 'not sent')")
            await look(loop)
            await began_anew(loop, firsts)
            seconds = {name: loop.living(name).handle for name in TABLES}
        async with looping(database, tmp_path) as loop:
            await loop.caught_up()
            for is_detached in (False, True):
                if is_detached:
                    reader.rollback()
                    await eventually(detach.done, "the second half")
                await loop.app.housekeeping.go_round()
                await look(loop)
                await agree(loop, *TABLES)
                assert seconds == {name: loop.living(name).handle for name in TABLES}


async def test_what_was_taken_off_during_a_start_tears_no_transaction(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream brings what was written before: all of it is the table's, until a look ends its shapes."""
    async with looping(database, tmp_path) as loop:
        firsts = await followed(loop)
        await loop.caught_up()
    database.execute(BOTH)

    async def restored(house: Household, connection: Connection) -> None:
        database.execute(DETACH)  # the connection was judged before
        await restore(house, connection)

    monkeypatch.setattr("shapes.capture.restore", restored)
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        for name in ("tree", "branch"):
            assert loop.living(name).handle == firsts[name].handle, "nobody has looked since"
            assert loop.rows(loop.living(name)) == [("1", "low"), ("11", "high")], "the whole transaction"
        async with loop.app.house.control() as connection:
            await reconcile(loop.app.house, connection)
        for name in ("tree", "branch"):
            await eventually(lambda: is_new(loop, firsts[name]), f"a successor of {name}")  # noqa: B023
            assert loop.rows(loop.living(name)) == [("11", "high")]


async def test_what_leaves_the_publication_takes_its_parts_along(database: Database, tmp_path: Path) -> None:
    async with looping(database, tmp_path) as loop:
        firsts = await followed(loop)
        database.execute("ALTER PUBLICATION shapelog DROP TABLE tree", BOTH)
        await look(loop)
        for name in TABLES:
            await eventually(lambda: is_new(loop, firsts[name]), f"a successor of {name}")  # noqa: B023
        await agree(loop, *TABLES)


async def test_a_table_stays_published_for_who_follows_a_part_of_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.source.publisher.PUBLICATION_GRACE_SECONDS", 0.0)
    async with looping(database, tmp_path) as loop:
        shapes = await followed(loop)
        service = ShapeService(loop.app.house, loop.app.nursery)
        for name in ("tree", "branch", "far"):
            await service.remove(shapes[name].handle)
        for _ in range(2):
            await loop.app.housekeeping.go_round()
        database.execute(BOTH)
        await agree(loop, "low")
        assert loop.living("low").handle == shapes["low"].handle
        await service.remove(shapes["low"].handle)
        for _ in range(2):
            await loop.app.housekeeping.go_round()
        assert loop.table("SELECT count(*) FROM pg_publication_rel") == [("0",)]
