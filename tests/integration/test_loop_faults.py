"""The loop in trouble, on a real server: disks that are full or slow, connections that break during births, and stops.

The disk is the real one, behind one that refuses or delays what it is told to (`FaultyDisk`).
"""

import asyncio
import errno
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shapes.birth import Born
from shapes.birth_steps import Step
from shapes.endings import PUBLICATION_ALTERED
from shapes.ground import ShapeGround
from shapes.limits import STOP_SECONDS_MAX
from shapes.nursery import Order
from shapes.requests import Request, define
from shapes.tables import find_table
from storage.catalog_records import Life, Snapshot
from storage.disk import LocalDisk
from storage.errors import PermissionLost, StorageError, WriterStops
from storage.faulty_disk import Fault, FaultyDisk, Operation
from storage.store import Store, StoreOptions
from storage.write_buffer import BufferOptions
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, part int)"
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 10 FROM generate_series(1, 200) g"
BACKLOG = "INSERT INTO items SELECT g, repeat('x', 300), 1 FROM generate_series(1001, 61000) g"
ALL = "SELECT id, v, part FROM items"
CUT = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"


@pytest.fixture
def database(newest_database: Database) -> Database:
    return newest_database


class Weather:
    """What becomes of the disk while the process runs."""

    def __init__(self) -> None:
        self.is_full = False
        self.keeps_files = False
        self.takes_no_bases = False
        self.sync_seconds = 0.0
        self.answers = threading.Event()
        """Cleared: no sync returns."""
        self.answers.set()
        self.refused = 0

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:
        if self.is_full and operation in {"create", "append", "make_folder"}:
            self.refused += 1
            return Fault(errno.ENOSPC)
        if self.keeps_files and operation in {"remove", "remove_folder"}:
            self.refused += 1
            return Fault(errno.EROFS)
        if self.takes_no_bases and operation == "create" and ".base" in path:
            self.refused += 1
            return Fault(errno.EACCES)
        if self.sync_seconds and operation == "sync":
            threading.Event().wait(self.sync_seconds)
        if operation == "sync":
            self.answers.wait(60)
        return None


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    """Every disk of the app is under it."""
    made = Weather()

    class Disk(FaultyDisk):
        def __init__(self, folder: Path) -> None:
            super().__init__(LocalDisk(folder), made)

        def close(self) -> None:
            assert isinstance(self.disk, LocalDisk)
            self.disk.close()

    monkeypatch.setattr("cdc.app.LocalDisk", Disk)
    return made


async def test_a_full_disk_ends_no_shape_and_the_loop_resumes(
    database: Database, tmp_path: Path, weather: Weather
) -> None:
    """A9: commits, a TRUNCATE and an altered table meet a disk without room; all is done once there is some."""
    database.execute(ITEMS, FILL, "CREATE TABLE others (id int PRIMARY KEY)")
    async with looping(database, tmp_path) as loop:
        entry, others = await loop.add("items", "items"), await loop.add("others", "others")
        await loop.caught_up()
        before = loop.confirmed()
        weather.is_full = True
        database.execute("UPDATE items SET part = part + 1", "INSERT INTO others VALUES (1)", BACKLOG)
        await eventually(lambda: loop.app.store.fault is not None, "the disk to refuse")
        database.execute("DELETE FROM items WHERE id <= 10")
        await eventually(lambda: weather.refused >= 3, "more tries")
        assert loop.confirmed() <= before + 1_000, "what is not on disk is not confirmed"
        weather.is_full = False
        await loop.caught_up()
        assert loop.living("items").handle == entry.handle
        assert loop.living("others").handle == others.handle
        assert loop.rows(entry) == loop.table(ALL)
        assert not loop.app.house.endings.counts


async def test_a_truncate_that_comes_again_and_gets_no_base_ends_its_shape_alone(
    database: Database, tmp_path: Path, weather: Weather, caplog: pytest.LogCaptureFixture
) -> None:
    """What is durable of it is not appended again, so nothing but its base is missing; others go on beside it."""
    database.execute(ITEMS, FILL, "CREATE TABLE others (id int PRIMARY KEY)")
    async with looping(database, tmp_path) as loop:
        emptied, others = await loop.add("items"), await loop.add("others", "others")
        await loop.caught_up()
        weather.takes_no_bases = True
        database.execute("TRUNCATE items; INSERT INTO items VALUES (1, 'v', 1); INSERT INTO others VALUES (1)")
        await eventually(lambda: weather.refused > 0, "an attempt to make its base")
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        ended = loop.app.house.registry.find(emptied.handle)
        assert ended is not None
        assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, "permission_lost")
        [told] = [record.message for record in caplog.records if "ended: permission_lost" in record.message]
        assert told.count(PermissionLost.hint) == 1
        assert loop.living("others").handle == others.handle
        assert loop.rows(others) == [("1",)]


async def test_an_end_waits_for_a_full_disk_and_the_stream_with_it(
    database: Database, tmp_path: Path, weather: Weather
) -> None:
    """A11 and A9: an altered table ends its shape when that can be written down, not before."""
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("items", "items")
        await loop.caught_up()
        weather.is_full = True
        database.execute("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (1001, 'x', 3, 4)")
        await eventually(lambda: weather.refused >= 1, "the end to be refused")
        assert loop.living("items").handle == entry.handle
        weather.is_full = False
        await eventually(lambda: is_succeeded(loop, "items", entry.handle), "a successor")
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table("SELECT id, v, part, more FROM items")


def is_succeeded(loop: Loop, name: str, handle: str) -> bool:
    entry = loop.app.house.registry.named(name)
    return entry is not None and entry.handle != handle and entry.shape.life is Life.READY


async def test_a_slow_disk_holds_the_slot_for_some_syncs_and_no_longer(
    database: Database, tmp_path: Path, weather: Weather
) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("items")
        await loop.caught_up()
        weather.sync_seconds = 0.2
        with database.connect() as writer:
            for number in range(40):
                writer.execute("INSERT INTO items VALUES (%s, 'slow', 1)", [number])
        await loop.caught_up(4)  # forty transactions, and not forty syncs of a fifth of a second
        weather.sync_seconds = 0.0
        assert loop.rows(entry) == loop.table(ALL)


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """Transactions of some thousand rows, one after the other, so that a cut is in the middle of one."""
    stop = threading.Event()

    def write() -> None:
        number = 10_000
        with database.connect() as writer:
            while not stop.is_set():
                writer.execute(
                    "INSERT INTO items SELECT g, repeat('x', 200), 1 FROM generate_series(%s::int, %s::int) g",
                    [number, number + 3_000],
                )
                number += 3_001
                stop.wait(0.02)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def order(loop: Loop, table: str, name: str) -> Order:
    async with loop.app.house.control() as connection:
        facts = await find_table(connection, table)
    return loop.app.nursery.order(define(Request(), facts), name)


@pytest.mark.parametrize("step", [Step.JOINING, Step.RECORDING, Step.COPYING])
async def test_a_connection_that_breaks_during_a_birth_costs_no_row(
    database: Database, tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3 and A6: a shape that had joined leaves and joins again; one that was recorded goes on."""
    database.execute(ITEMS, FILL)
    cuts = 0
    join, born = ShapeGround.join, ShapeGround.born

    async def cut() -> None:
        nonlocal cuts
        cuts += 1
        await asyncio.to_thread(database.execute, CUT)

    async def joins(ground: ShapeGround) -> None:
        await join(ground)
        if step is Step.JOINING and not cuts:
            await cut()

    async def is_born(ground: ShapeGround, snapshot: Snapshot) -> Born:
        if step is Step.RECORDING and not cuts:
            attempts = ground._house.session.attempts_count
            await cut()
            await eventually(lambda: ground._house.session.attempts_count > attempts, "the next connection")
        result = await born(ground, snapshot)
        if step is Step.COPYING and not cuts:
            await cut()
        return result

    async with looping(database, tmp_path) as loop:
        await loop.add("items", "first", where="part = 1")
        monkeypatch.setattr(ShapeGround, "join", joins)
        monkeypatch.setattr(ShapeGround, "born", is_born)
        with writing(database):
            entry = await loop.add("items", "items")
        assert cuts == 1
        await loop.caught_up(40)
        assert loop.rows(entry) == loop.table(ALL)
        assert loop.rows(loop.living("first")) == loop.table("SELECT id, v, part FROM items WHERE part = 1")


async def test_a_name_is_free_when_its_birth_failed_though_the_disk_did_too(
    database: Database, tmp_path: Path, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The birth ends its shape on disk, cannot remove its log, and tries again: that end is its own, and nobody else's.

    Taken for somebody else's it would leave the name to a successor, whom nobody asked for and no process would try.
    """
    database.execute(ITEMS, FILL)
    born = ShapeGround.born

    async def is_born(ground: ShapeGround, snapshot: Snapshot) -> Born:
        result = await born(ground, snapshot)
        weather.keeps_files = True
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL"
        await asyncio.to_thread(database.execute, f"{kill} AND pid <> pg_backend_pid()")
        return result

    async with looping(database, tmp_path) as loop:
        await eventually(lambda: loop.app.house.is_streaming, "the stream")
        monkeypatch.setattr(ShapeGround, "born", is_born)
        asked = await order(loop, "items", "items")
        await eventually(lambda: weather.refused > 0, "a log that cannot be removed")
        database.execute("ALTER TABLE items DROP COLUMN v")
        weather.keeps_files = False
        await eventually(asked.done.done, "the end of the birth", 60)
        assert asked.failure is not None
        registry = loop.app.house.registry
        assert not registry.awaiting(), "whoever asked was told, and nobody waits for the name"
        monkeypatch.setattr(ShapeGround, "born", born)
        entry = await loop.add("items", "items")
        assert loop.rows(entry) == loop.table("SELECT id, part FROM items")


async def test_a_publication_that_is_altered_while_we_stream_ends_the_shapes_of_that_table(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)  # nobody looks between the statements below
    database.execute(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)", FILL)
    async with looping(database, tmp_path) as loop:
        items, other = await loop.add("items", "items"), await loop.add("other", "other")
        database.execute(
            "ALTER PUBLICATION shapelog DROP TABLE items",
            "INSERT INTO items VALUES (999, 'unseen', 3)",
            "ALTER PUBLICATION shapelog ADD TABLE items",
        )
        attempt = loop.app.house.session.attempt
        assert attempt is not None
        await attempt.check_publication()  # as it does by itself
        await eventually(lambda: is_succeeded(loop, "items", items.handle), "a successor")
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        assert loop.living("other").handle == other.handle
        assert loop.app.house.endings.counts == {PUBLICATION_ALTERED: 1}


@pytest.mark.parametrize("is_cut", [False, True], ids=["while connected", "at the next connection"])
async def test_a_table_that_is_dropped_is_gone_and_not_taken_out(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    """It has left the publication too, which is noticed first."""
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 60.0)
    parts = "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (9)"
    database.execute(ITEMS, "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)", parts)
    async with looping(database, tmp_path) as loop:
        items, parted = await loop.add("items", "items"), await loop.add("parts", "parts")
        attempt = loop.app.house.session.attempt
        assert attempt is not None
        database.execute("DROP TABLE items", "DROP TABLE low")
        if is_cut:
            database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        else:
            await attempt.check_publication()  # as it does by itself
        registry, ended = loop.app.house.registry, []
        await eventually(lambda: len(loop.app.house.endings.counts) > 1, "both to end")
        for handle in (items.handle, parted.handle):
            entry = registry.find(handle)
            assert entry is not None
            ended.append(entry.shape.reason)
        assert ended == ["table_gone", "partitions_changed"]


@asynccontextmanager
async def stopped_in(seconds: float, database: Database, folder: Path, **settings: Any) -> AsyncIterator[Loop]:
    async with looping(database, folder, **settings) as loop:
        yield loop
        began = time.monotonic()
    assert time.monotonic() - began < seconds


@pytest.mark.parametrize("work", [BACKLOG, "TRUNCATE items"], ids=["a backlog", "a truncate"])
async def test_a_stop_ends_in_time_whatever_is_in_flight(database: Database, tmp_path: Path, work: Any) -> None:
    database.execute(ITEMS, FILL)
    async with stopped_in(STOP_SECONDS_MAX + 1, database, tmp_path) as loop:
        await loop.add("items", "items")
        upto = loop.app.house.collector.upto
        database.execute(work)
        await eventually(lambda: loop.app.house.collector.upto > upto, "some of it to come")
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_a_stop_does_not_wait_for_a_full_disk(database: Database, tmp_path: Path, weather: Weather) -> None:
    """What it could not write is sent again."""
    database.execute(ITEMS, FILL)
    async with stopped_in(STOP_SECONDS_MAX + 2, database, tmp_path) as loop:
        await loop.add("items", "items")
        weather.is_full = True
        database.execute("DELETE FROM items WHERE id < 100", BACKLOG)
        await eventually(lambda: loop.app.store.fault is not None, "the disk to refuse")
    weather.is_full = False
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)


@pytest.mark.parametrize("is_silent", [False, True], ids=["full", "silent"])
async def test_a_stop_lets_go_of_whoever_waits_for_room(
    database: Database, tmp_path: Path, weather: Weather, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """Until then it asks from time to time, and not in a circle. What found no room is sent again."""
    began: list[float] = []
    ended: list[bool | type[StorageError]] = []
    wait_for_room = Store.wait_for_room

    def watched(store: Store, size: int, seconds: float, **of: Any) -> bool:
        began.append(seconds)
        try:
            ended.append(wait_for_room(store, size, seconds, **of))
        except StorageError as error:
            ended.append(type(error))
            raise
        return bool(ended[-1])

    monkeypatch.setattr(Store, "wait_for_room", watched)
    monkeypatch.setattr("shapes.capture.ROOM_SECONDS", 0.05)
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path, store=StoreOptions(BufferOptions(bytes_max=2_000_000))) as loop:
        await loop.add("items", "items")
        await loop.caught_up()
        weather.is_full = not is_silent
        if is_silent:
            weather.answers.clear()
        database.execute(BACKLOG)
        try:
            await eventually(lambda: len(ended) >= 3, "a full buffer")
            assert not any(ended), "nobody is told of room that there is not"
            monkeypatch.setattr("shapes.capture.ROOM_SECONDS", 3600.0)
            await eventually(lambda: began[-1] == 3600.0, "a wait that only a stop ends")
            async with asyncio.timeout(STOP_SECONDS_MAX + 3):
                await loop.app.stop()
            await eventually(lambda: len(ended) == len(began), "the wait to end")
            assert ended[-1] is WriterStops
        finally:
            weather.answers.set()
    weather.is_full = False
    monkeypatch.undo()
    async with looping(database, tmp_path) as loop:
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)
