"""What is done from time to time, beside a real server: none of it ends the program, nor a shape that is not at fault.

The disk is the real one, behind one that refuses what it is told to (`FaultyDisk`).
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

from cdc.app import AppSettings, running
from shapes import reconciliation
from shapes.limits import STOP_SECONDS_MAX
from shapes.registry import REMOVED
from storage.catalog_records import Life
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.faulty_disk import Fault, FaultyDisk, Operation
from storage.flush import FlushJob
from storage.flush_control import FlushOptions
from storage.log_counts import flush_in_flight
from storage.log_facts import list_logs
from storage.store import StoreOptions
from tests.in_memory import alive
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
ALL = "SELECT id, v FROM items"
SILENT_SECONDS = 60.0
"""Of a disk that does not answer: far longer than a stop may take, and no longer than a test."""


@pytest.fixture
def database(newest_database: Database) -> Database:
    newest_database.execute(ITEMS, "INSERT INTO items SELECT g, 'v' FROM generate_series(1, 50) g")
    return newest_database


class Refusal:
    """What the disk does not do, and with which error; and whether it answers at all."""

    def __init__(self) -> None:
        self.of: Callable[[Operation, str], int | None] = lambda _operation, _path: None
        self.refused = 0
        self.answers = threading.Event()
        self.answers.set()
        self.is_silent: Callable[[str], bool] = lambda _path: True
        """Of which files it does not answer a sync, until it does."""
        self.awaited: list[str] = []
        """Syncs that it was asked for, and has not answered or did so late."""

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:
        number = self.of(operation, path)
        self.refused += number is not None
        return None if number is None else Fault(number)


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusal]:
    made = Refusal()

    class Disk(FaultyDisk):
        def __init__(self, folder: Path) -> None:
            super().__init__(LocalDisk(folder), made)

        def sync(self, path: str) -> None:
            if made.is_silent(path) and not made.answers.is_set():
                made.awaited.append(path)
                made.answers.wait(SILENT_SECONDS)
            super().sync(path)

        def close(self) -> None:
            assert isinstance(self.disk, LocalDisk)
            self.disk.close()

    monkeypatch.setattr("cdc.app.LocalDisk", Disk)
    yield made
    made.answers.set()


async def follows(loop: Loop, statement: str) -> None:
    """The program runs, and the shape `items` with it."""
    loop.database.execute(statement.encode())  # type: ignore[arg-type]  # the tests' own
    await loop.caught_up()
    assert loop.rows(loop.living("items")) == loop.table(ALL)


@pytest.mark.parametrize("full", ["stream", "logs"])
async def test_a_disk_that_refuses_ends_neither_the_round_nor_the_program(
    database: Database, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """A table leaves the publication, which is to be written down; and the folders of logs are to be listed."""
    monkeypatch.setattr("cdc.source.publisher.PUBLICATION_GRACE_SECONDS", 0.0)
    database.execute("CREATE TABLE unused (id int PRIMARY KEY)")
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        other = await loop.add("unused", "unused")
        house = loop.app.house
        member = house.collector.members.of_log(other.log)
        assert member is not None
        async with house.turn:
            await house.endings.end(member, "removed", "by the test")
        refusal.of = {
            "stream": lambda operation, path: errno.ENOSPC if operation == "create" and "stream" in path else None,
            "logs": lambda operation, path: errno.EIO if (operation, path) == ("names", "logs") else None,
        }[full]
        for _ in range(2):
            await loop.app.housekeeping.go_round()
        assert refusal.refused
        refusal.of = lambda _operation, _path: None
        await loop.app.housekeeping.go_round()
        await follows(loop, "UPDATE items SET v = 'after' WHERE id = 1")


async def test_files_that_cannot_be_removed_are_in_nobodys_way(
    database: Database, tmp_path: Path, refusal: Refusal
) -> None:
    """Another process has put one beside them, as one does that takes a lease in that moment."""
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        ended = await loop.add("items", where="id < 10")
        house = loop.app.house
        member = house.collector.members.of_log(ended.log)
        assert member is not None
        folder = f"logs/{ended.log}"
        refusal.of = lambda operation, path: (
            errno.ENOTEMPTY if operation == "remove_folder" and path == folder else None
        )
        async with house.turn:
            await house.endings.end(member, "expired", "by the test")
        assert refusal.refused
        await loop.app.housekeeping.go_round()
        await follows(loop, "UPDATE items SET v = 'after' WHERE id = 1")
        assert ended.log not in list_logs(house.store.disk)


async def test_nobody_stalls_while_nobody_looks(
    database: Database, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was stopped for minutes, with rows on their way to the disk: that is no fault of their shapes."""
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 3600.0)  # the test's own rounds
    stopped_seconds, others = 0.0, alive(FlushJob)
    clocks = Clocks(monotonic=lambda: time.monotonic() + stopped_seconds)
    async with running(AppSettings(database.conninfo(), tmp_path), clocks) as app:
        loop, house = Loop(app, database), app.house
        entry = await loop.add("items", "items")
        await loop.caught_up()
        await loop.app.housekeeping.go_round()
        refusal.answers.clear()
        database.execute("UPDATE items SET v = 'before'")
        await eventually(lambda: flush_in_flight(house.store) is not None, "a flush")
        await eventually(lambda: bool(house.collector.tracker.stalled(clocks.monotonic(), 0.0)), "rows on their way")
        stopped_seconds = 600.0
        going = asyncio.create_task(loop.app.housekeeping.go_round())
        done, _ = await asyncio.wait([going], timeout=5)
        refusal.answers.set()
        await going
        assert done, "it waits for no disk"
        await follows(loop, "UPDATE items SET v = 'after' WHERE id = 1")
        assert loop.living("items").handle == entry.handle
        del going, done  # they remember where they were
        await eventually(lambda: alive(FlushJob) <= others, "the flush that it looked at to be gone", 5)


async def test_who_is_removed_while_its_table_is_looked_at_has_ended_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is outside of the turn: a server may take its time."""
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)  # nobody else meets the dropped table
    async with looping(database, tmp_path) as loop:
        entry, house, look = await loop.add("items"), loop.app.house, reconciliation._ends
        database.execute("DROP TABLE items")

        async def and_removed(*arguments: Any) -> Any:
            found = await look(*arguments)
            async with house.turn:
                for member, *_ in found:
                    await house.endings.end(member, REMOVED, "by the test")
            return found

        async with house.control() as connection:
            with monkeypatch.context() as patch:
                patch.setattr(reconciliation, "_ends", and_removed)
                await reconciliation.reconcile(house, connection)
        ended = house.registry.find(entry.handle)
        assert ended is not None
        assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, REMOVED)


async def test_a_full_disk_is_not_filled_by_one_base_after_another(
    database: Database, tmp_path: Path, refusal: Refusal
) -> None:
    """Each would take the room that a flush waits for, until it meets the end of the disk itself."""
    tiny = StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=1))
    async with looping(database, tmp_path, store=tiny, log_bytes_kept=1) as loop:
        both = [await loop.add("items", "items"), await loop.add("items", "some", where="id < 40")]
        for _ in range(3):
            await follows(loop, "UPDATE items SET v = v || '.'")
        refusal.of = lambda operation, path: errno.ENOSPC if operation == "append" and "base" in path else None
        await loop.app.folding.go_round()
        assert refusal.refused == 1
        assert [loop.living(name).handle for name in ("items", "some")] == [entry.handle for entry in both]
        refusal.of = lambda _operation, _path: None
        await loop.app.folding.go_round()
        assert not {loop.living(name).handle for name in ("items", "some")} & {entry.handle for entry in both}
        await follows(loop, "UPDATE items SET v = 'after'")


async def test_what_ended_is_forgotten_once_nobody_asks_for_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is rewritten from time to time, and shapes come and go for years."""
    monkeypatch.setattr("shapes.lineage.PROGRESS_RECORDS_KEPT", 1)
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        house, ended = loop.app.house, []
        for number in range(3):
            entry = await loop.add("items", where=f"id < {number}")
            ended.append(entry.handle)
            member = house.collector.members.of_log(entry.log)
            assert member is not None
            async with house.turn:
                await house.endings.end(member, "expired", "by the test")
        version = house.registry._catalog.state.version
        await eventually(
            lambda: (last := loop.app.progress.history.latest) is not None and last.catalog_version >= version,
            "a position of after the ends",
        )
        await loop.app.housekeeping.go_round()
        house.registry._catalog._log._rewrite_at = 0
        last = await loop.add("items", where="id < 10")
        assert not [handle for handle in ended if house.registry.find(handle)]
        await follows(loop, "UPDATE items SET v = 'after' WHERE id = 1")
    async with looping(database, tmp_path) as loop:
        await follows(loop, "UPDATE items SET v = 'again' WHERE id = 1")
        assert loop.app.house.registry.find(last.handle) is not None


async def test_all_of_it_is_done_without_being_asked(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody goes round here, nor writes: partitions come, columns come, and nobody asks for a shape."""
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 0.05)
    database.execute(
        "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high (id int PRIMARY KEY, v text)",
        "INSERT INTO high VALUES (11, 'was there before')",
    )
    async with looping(database, tmp_path, shape_idle_seconds=0.2) as loop:
        registry, counts = loop.app.house.registry, loop.app.house.endings.counts
        first = {name: await loop.add(table, name) for table, name in (("parted", "root"), ("items", "items"))}
        await loop.add("items")
        await eventually(lambda: counts == {"expired": 1}, "the idle shape to end")
        database.execute(
            "ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
            "ALTER TABLE items ADD COLUMN more int DEFAULT 7",
        )
        for name, before in first.items():
            await eventually(
                lambda: (
                    (entry := registry.named(name)) is not None  # noqa: B023 - called at once
                    and entry.handle != before.handle  # noqa: B023
                    and entry.shape.life is Life.READY
                ),
                f"a successor of {name}",
            )
            assert loop.rows(loop.living(name)) == loop.table(
                SQL("TABLE {}").format(Identifier(before.definition.table))
            )
        assert counts == {"expired": 1, "partitions_changed": 1, "columns_changed": 1}


@pytest.mark.parametrize("file", ["journal", "progress"])
async def test_a_stop_does_not_wait_for_a_disk_that_does_not_answer(
    database: Database, tmp_path: Path, refusal: Refusal, file: str
) -> None:
    """In the middle of a flush, or of a confirmation."""
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        await loop.caught_up()
        refusal.is_silent = lambda path: file in path
        refusal.answers.clear()
        database.execute("UPDATE items SET v = 'on its way'")
        await eventually(lambda: bool(refusal.awaited), "a sync")
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX + 3):
                await loop.app.stop()
        finally:
            refusal.answers.set()
    async with looping(database, tmp_path) as loop:
        await follows(loop, "UPDATE items SET v = 'after' WHERE id = 1")
