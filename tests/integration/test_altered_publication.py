"""An altered publication: what is recorded of it comes after all ends, whoever dies or gives up on the way to them.

A record that came first would hide the alteration from the next process, and a shape would go on without the rows that
were written while its table was not published.
"""

import asyncio
from pathlib import Path

import pytest

from cdc.source.catalog import read_publication
from cdc.source.connections import connect_sql
from cdc.source.publication import changes_between
from shapes.reconciliation import note_publication, settle_publication
from shapes.stream_record import read_stream_record
from storage.catalog import Catalog
from storage.catalog_records import Life
from storage.disk import LocalDisk
from tests.integration.test_failpoints import dying
from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually

POINTS = [
    "before shapes.endings:Endings.by_publication",
    "before shapes.registry:Registry.all_ended",
    "after shapes.registry:Registry.all_ended",
    "before shapes.lineage:write_stream_record",
    "after shapes.lineage:write_stream_record",
]
NAMES = ("orders", "scraps")


@pytest.mark.parametrize("point", POINTS)
async def test_an_altered_publication_is_recorded_only_after_the_ends(
    newest_database: Database, tmp_path: Path, point: str
) -> None:
    database = newest_database
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in NAMES))
    async with looping(database, tmp_path) as loop:
        firsts = {name: await loop.add(name, name) for name in NAMES}
        await loop.caught_up()
    with dying(database, tmp_path, point) as (_, writer):
        writer.execute("ALTER PUBLICATION shapelog DROP TABLE scraps")
        writer.execute("INSERT INTO scraps VALUES (1, 'not sent')")
        writer.execute("ALTER PUBLICATION shapelog ADD TABLE scraps")
        writer.execute("INSERT INTO orders VALUES (1, 'sent')")
    has_ended = ended_on_disk(tmp_path, firsts["scraps"].handle)
    assert has_ended or await is_still_told(database, tmp_path), "the next process sees no difference"
    assert has_ended == (point.startswith("after") or "write_stream" in point)
    async with looping(database, tmp_path) as loop:
        registry = loop.app.house.registry
        await eventually(
            lambda: (
                (now := registry.named("scraps")) is not None
                and now.shape.life is Life.READY
                and now.handle != firsts["scraps"].handle
            ),
            "a successor",
            40,
        )
        await loop.caught_up(30)
        assert loop.rows(loop.living("scraps")) == loop.table("TABLE scraps")
        assert loop.rows(loop.living("orders")) == loop.table("TABLE orders")
        assert loop.living("orders").handle == firsts["orders"].handle, "nobody altered anything of it"


async def test_what_somebody_else_has_in_hand_is_not_recorded_as_dealt_with(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)  # nobody looks between the statements below
    database = newest_database
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in NAMES))
    async with looping(database, tmp_path) as loop:
        house, handles = loop.app.house, {name: (await loop.add(name)).handle for name in NAMES}
        found = []
        async with house.control() as connection:
            for name in reversed(NAMES):
                database.execute(f"ALTER PUBLICATION shapelog DROP TABLE {name}")
                found.append(await house.session.publisher.changes(connection))
        in_hand, other = found
        async with house.turn:
            await note_publication(house, other)
        assert ended_on_disk(tmp_path, handles["orders"])
        assert not ended_on_disk(tmp_path, handles["scraps"])
        assert await is_still_told(database, tmp_path)
        async with house.turn:
            await note_publication(house, in_hand)
        assert ended_on_disk(tmp_path, handles["scraps"])
        assert not await is_still_told(database, tmp_path)


async def test_who_is_cancelled_on_the_way_leaves_an_alteration_to_the_next(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A birth meets an alteration of another table, and is removed: every later birth would wait for it."""
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)
    database = newest_database
    database.execute("CREATE TABLE scraps (id int PRIMARY KEY, v text)")
    async with looping(database, tmp_path) as loop:
        house, handle = loop.app.house, (await loop.add("scraps")).handle
        alterations = house.session.publisher.alterations
        database.execute("ALTER PUBLICATION shapelog DROP TABLE scraps")
        async with house.control() as connection:
            changes = await house.session.publisher.changes(connection)
        alterations.give_back(changes)
        async with house.endings._handles:  # so an end waits
            settling = asyncio.create_task(settle_publication(house))
            await eventually(lambda: not alterations.found, "somebody to take it")
            settling.cancel()
            await asyncio.wait([settling])
        assert alterations.found == changes
        assert not ended_on_disk(tmp_path, handle)
        await settle_publication(house)
        assert ended_on_disk(tmp_path, handle)
        assert not await is_still_told(database, tmp_path)


def ended_on_disk(folder: Path, handle: str) -> bool:
    disk = LocalDisk(folder)
    try:
        return handle not in {shape.handle for shape in Catalog(disk).state.living()}
    finally:
        disk.close()


async def is_still_told(database: Database, folder: Path) -> bool:
    """Whether a process that begins now finds the publication other than it was recorded."""
    disk = LocalDisk(folder)
    try:
        record = read_stream_record(disk)
    finally:
        disk.close()
    assert record is not None
    assert record.identity is not None
    connection = await connect_sql(database.conninfo(), "test")
    try:
        now = await read_publication(connection, "shapelog")
    finally:
        await connection.close()
    scraps = database.value("SELECT 'scraps'::regclass::oid::bigint")
    return scraps in {change.table for change in changes_between(record.identity.publication, now)}
