"""Shapes that cannot go on do not hold the slot: they end with their reason, and nobody ends for the shared disk."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.source.lsn import parse_lsn
from shapes.housekeeping import LOG_TOO_LARGE, STALLED
from storage.catalog_records import Life
from storage.disk import LocalDisk
from storage.errors import SharedDiskFault
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 50) g"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Parts of paths whose files take nothing, each with the error that they give."""
    faults: dict[str, int] = {}
    append = LocalDisk.append

    def fail(disk: LocalDisk, path: str, buffers: list[bytes]) -> None:
        for part, number in faults.items():
            if part in path:
                raise OSError(number, "made up", path)
        append(disk, path, buffers)

    monkeypatch.setattr(LocalDisk, "append", fail)
    yield faults
    faults.clear()


async def ended(loop: Loop, handle: str, reasons: set[str]) -> None:
    """Let housekeeping go round until it has ended the shape."""
    async with asyncio.timeout(20):
        while (entry := loop.app.house.registry.find(handle)) is None or entry.shape.life is not Life.ENDED:
            await loop.app.housekeeping.go_round()
    assert entry.shape.reason in reasons


@pytest.mark.parametrize("rows", [3, 50], ids=["one flush", "several"])
async def test_a_log_that_stopped_ends_its_shape_and_frees_g(
    newest_database: Database, tmp_path: Path, failing: dict[str, int], rows: int
) -> None:
    """Whether more comes, which the log refuses, or nothing, so that no append would ever find out."""
    newest_database.execute(ITEMS, FILL, "CREATE TABLE other (id int PRIMARY KEY)")
    async with looping(newest_database, tmp_path) as loop:
        broken, sound = await loop.add("items", "items"), await loop.add("other", "other")
        failing[f"logs/{broken.log}/"] = errno.EFBIG
        with newest_database.connect() as writer:
            writer.execute("UPDATE items SET v = repeat('x', 100000) WHERE id <= %s", [rows])
            writer.execute("INSERT INTO other VALUES (1)")
        await ended(loop, broken.handle, {"log_fault", "log_poisoned"})
        failing.clear()
        await loop.caught_up()
        await eventually(
            lambda: (entry := loop.app.house.registry.named("items")) is not None and entry.shape.life is Life.READY,
            "the successor",
        )
        assert loop.rows(loop.living("items")) == loop.table("SELECT id, v FROM items")
        assert loop.living("other").handle == sound.handle


async def test_a_fault_of_the_shared_disk_ends_nobody(
    newest_database: Database, tmp_path: Path, failing: dict[str, int]
) -> None:
    """A9, also when it lasts longer than the grace, and in the moment in which it ends."""
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, stall_seconds=0.2) as loop:
        entry = await loop.add("items", "items")
        await loop.caught_up()
        failing["logs/"] = failing["journal/"] = errno.ENOSPC
        newest_database.execute("UPDATE items SET v = 'w'")
        house = loop.app.house
        await eventually(lambda: isinstance(house.store.fault, SharedDiskFault), "the fault")
        confirmed, began = loop.confirmed(), house.clocks.monotonic()
        while house.clocks.monotonic() - began < 1:  # five times the grace
            await loop.app.housekeeping.go_round()
        assert loop.confirmed() == confirmed < parse_lsn(newest_database.value("SELECT pg_current_wal_lsn()::text"))
        failing.clear()
        await loop.app.housekeeping.go_round()
        await loop.caught_up()
        assert loop.living("items").handle == entry.handle
        assert loop.rows(entry) == loop.table("SELECT id, v FROM items")


async def test_what_nobody_flushes_stalls(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker is told of rows of one shape that no flush ever reports: a defect, whatever it is, holds no slot."""
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, stall_seconds=0.3) as loop:
        entry = await loop.add("items", "items")
        await loop.caught_up()
        monkeypatch.setattr(loop.app.house.collector, "durable", lambda *_: None)
        newest_database.execute("UPDATE items SET v = 'w'")
        await ended(loop, entry.handle, {STALLED})
        await loop.caught_up()


async def test_a_log_above_its_bound_begins_anew(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, log_bytes_max=1_000_000) as loop:
        first = await loop.add("items", "items")
        newest_database.execute("UPDATE items SET v = repeat(md5(id::text), 1000)")
        await loop.caught_up()
        await ended(loop, first.handle, {LOG_TOO_LARGE})
        await eventually(
            lambda: (entry := loop.app.house.registry.named("items")) is not None and entry.shape.life is Life.READY,
            "the successor",
        )
        assert loop.rows(loop.living("items")) == loop.table("SELECT id, v FROM items")
