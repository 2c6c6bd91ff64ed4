"""The loop with many shapes, and over their lives: a commit for a thousand, idle ones, names and generations."""

import asyncio
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest

from cdc.source.fragments import Fragment
from shapes.definition import Definition
from shapes.errors import UnknownShape
from shapes.household import Household
from shapes.housekeeping import Housekeeping
from shapes.limits import ACKNOWLEDGE_SECONDS
from shapes.registry import EXPIRED, REMOVED, Entry, Registry
from shapes.requests import Request, define
from shapes.service import ShapeService
from shapes.tables import find_table
from storage.catalog import Catalog
from storage.catalog_records import Life
from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.flush import FlushJob
from storage.flush_control import FlushOptions
from storage.log_facts import LogFacts, list_logs
from storage.offset import SNAPSHOT_END
from storage.store import Store, StoreOptions
from storage.write_buffer import BufferOptions
from tests.in_memory import alive
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, part int)"
ALL = "SELECT id, v, part FROM items"
SHAPES_COUNT = 1_000
SOON_SECONDS = 5
"""Before the server's next word, which lets go of what came before it."""


@pytest.fixture
def database(newest_database: Database) -> Database:
    return newest_database


async def definitions(loop: Loop) -> list[Definition]:
    async with loop.app.house.control() as connection:
        facts = await find_table(connection, "items")
    return [define(Request(where=f"part = {part}"), facts) for part in range(1, SHAPES_COUNT)]


def make_shapes(folder: Path, model: Entry, wanted: list[Definition]) -> None:
    """What their births would have written: the table is empty, so all have the snapshot and the base of the first."""
    with folder_of(LocalDisk(folder)) as disk:
        clocks = Clocks()
        store, registry = Store(disk, clocks), Registry(Catalog(disk), clocks.wall, clocks.monotonic())
        for definition in wanted:
            entry = registry.born(definition, model.shape.snapshot, clocks.monotonic())
            store.create_log(LogFacts(entry.log, entry.handle, definition.view.key))
            base = store.new_base(entry.log).finish(
                floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=clocks.wall()
            )
            registry.ready(entry.handle, base.number)


async def test_a_commit_for_a_thousand_shapes_is_confirmed_by_a_few_replies(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        first = await loop.add("items", "items")
        wanted = await definitions(loop)
    make_shapes(tmp_path, first, wanted)
    async with looping(database, tmp_path) as loop:
        house = loop.app.house
        await eventually(lambda: len(house.collector.members) == SHAPES_COUNT, "the shapes to be restored")
        await loop.caught_up()
        records = sum(1 for _ in loop.app.progress.history.newest_first())
        database.execute("INSERT INTO items SELECT g, 'v', g % 1000 FROM generate_series(1, 3000) g")
        await loop.caught_up(10)
        replies = sum(1 for _ in loop.app.progress.history.newest_first()) - records
        assert replies < 30, "one commit, and not a reply for each shape"
        assert loop.rows(first) == loop.table(ALL)
        for definition in wanted[::97]:
            entry = house.registry.defined(definition)
            assert entry is not None
            expected = [
                row for row in loop.table(ALL) if definition.where is not None and f"'{row[2]}'" in definition.where
            ]
            assert len(expected) == 3
            assert loop.rows(entry) == expected


async def test_commits_one_by_one_are_confirmed_together(database: Database, tmp_path: Path) -> None:
    """B8: each is flushed at once, and each flush lets G grow; the server hears of it ten times a second."""
    database.execute(ITEMS)
    eager = StoreOptions(BufferOptions(flush_log_bytes=1, flush_age_seconds=0.001), FlushOptions())
    async with looping(database, tmp_path, store=eager) as loop:
        await loop.add("items", "items")
        await loop.caught_up()

        def records() -> int:
            return sum(1 for _ in loop.app.progress.history.newest_first())

        def write() -> None:
            with database.connect() as writer:
                for number in range(300):
                    writer.execute("INSERT INTO items VALUES (%s, 'v', 1)", [number])

        before, began = records(), time.monotonic()
        await asyncio.to_thread(write)
        await loop.caught_up()
        assert records() - before <= (time.monotonic() - began) / ACKNOWLEDGE_SECONDS + 3


async def test_what_the_server_shows_is_demanded_no_longer(database: Database, tmp_path: Path) -> None:
    """A6 keeps the number of each streamed transaction until a look has seen it: else memory would grow for ever."""
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        streamed = loop.app.house.collector.streamed
        assert streamed is not None
        streamed._xids_max = 8
        for number in range(5):
            with database.connect() as writer:
                writer.execute("INSERT INTO items VALUES (%s, 'v', 1)", [number])
        await loop.caught_up()
        await loop.app.housekeeping.go_round()
        assert not streamed.is_look_due


async def test_what_was_taken_does_not_stay_in_memory(database: Database, tmp_path: Path) -> None:
    """Until something else comes, which may take hours: a backlog's last fragment may have megabytes."""
    others = alive(Fragment, FlushJob)
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        await loop.add("items")
        database.execute("INSERT INTO items SELECT n, md5(n::text), 0 FROM generate_series(1, 5000) n")
        await loop.caught_up()
        await loop.app.housekeeping.go_round()
        await eventually(lambda: alive(Fragment, FlushJob) <= others, "fragments and flushes to be gone", SOON_SECONDS)


async def test_idle_shapes_without_a_name_end_and_free_slot_and_disk(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        house, registry = loop.app.house, loop.app.house.registry
        named, idle, read = (
            await loop.add("items", "items"),
            await loop.add("items"),
            await loop.add("items", columns="id"),
        )
        registry.enter(read.handle, house.clocks.monotonic())
        await Housekeeping(house, idle_seconds=0.0, shapes_max=10).go_round()
        ended = registry.find(idle.handle)
        assert ended is not None
        assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, EXPIRED)
        assert {entry.handle for entry in registry.living()} == {named.handle, read.handle}
        assert idle.log not in list_logs(house.store.disk)
        database.execute("INSERT INTO items VALUES (1, 'v', 1)")
        await loop.caught_up()
        assert loop.rows(named) == loop.table(ALL)


async def test_a_server_that_does_not_answer_holds_nobody_for_ever(database: Database) -> None:
    """Neither does who waits for it, when he is told to give up: the connection is cut from our side."""
    house = cast("Household", SimpleNamespace(conninfo=database.conninfo(), application="by the test"))
    backends: list[int] = []

    async def ask() -> None:
        async with Household.control(house, 0.5) as connection:
            backends.append(connection.info.backend_pid)
            os.kill(backends[0], signal.SIGSTOP)
            await connection.execute("SELECT 1")

    try:
        with pytest.raises(psycopg.OperationalError):
            await asyncio.wait_for(ask(), 20)
    finally:
        os.kill(backends[0], signal.SIGCONT)


async def test_above_the_limit_the_longest_unused_shapes_end(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        house, registry = loop.app.house, loop.app.house.registry
        named = await loop.add("items", "items")
        some = [await loop.add("items", where=f"part = {part}") for part in range(3)]
        registry.touch(some[0].handle, house.clocks.monotonic())
        await Housekeeping(house, idle_seconds=3600.0, shapes_max=2).go_round()
        assert {entry.handle for entry in registry.living()} == {named.handle, some[0].handle}


async def test_who_removes_a_shape_twice_removes_no_equal_one(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        service = ShapeService(loop.app.house, loop.app.nursery)
        mine, theirs = await loop.add("items"), await loop.add("items", "theirs")
        assert mine.definition.identity == theirs.definition.identity
        assert await service.remove_named(mine.handle) == mine.handle
        with pytest.raises(UnknownShape, match="removed"):
            await service.remove_named(mine.handle)
        assert service.living(mine.handle).handle == theirs.handle, "its readers find the equal one"
        assert await service.remove_named("theirs") == theirs.handle


async def test_a_name_leads_to_the_present_generation(database: Database, tmp_path: Path) -> None:
    """Three lives of a table: each old handle is told who stands in its place, and its files go; then it is removed."""
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'v', 1)")
    handles: list[str] = []
    async with looping(database, tmp_path) as loop:
        house, registry = loop.app.house, loop.app.house.registry
        handles.append((await loop.add("items", "kept")).handle)
        for life in ("one", "two"):
            database.execute(*ALTERATIONS[life])
            await eventually(
                lambda: (
                    (entry := registry.named("kept")) is not None
                    and entry.handle not in handles
                    and entry.shape.life is Life.READY
                ),
                "a successor",
            )
            handles.append(loop.living("kept").handle)
        await loop.caught_up()
        assert loop.rows(loop.living("kept")) == loop.table("SELECT * FROM items")
        for handle in handles:
            replacement = registry.replacement(handle)
            assert replacement is not None
            assert replacement.handle == handles[-1]
        await house.endings.sweep()
        assert list_logs(house.store.disk) == [loop.living("kept").log]
        member = house.collector.members.of_log(loop.living("kept").log)
        assert member is not None
        async with house.turn:
            await house.endings.end(member, REMOVED, "by the test")
        assert registry.named("kept") is None
        assert not registry.awaiting(), "nobody asks for a successor of what was removed"
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        assert not loop.app.house.registry.living()


ALTERATIONS = {
    "one": ("ALTER TABLE items ADD COLUMN one int", "INSERT INTO items VALUES (2, 'v', 1, 1)"),
    "two": ("ALTER TABLE items DROP COLUMN v", "INSERT INTO items VALUES (3, 1, 1)"),
}
