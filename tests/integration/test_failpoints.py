"""Killed at a named point: between any two steps that reach the disk or the server, and right after what was told.

Each process is given all kinds of work at once: commits of two tables, a TRUNCATE, an altered table, a birth, a broken
connection. It dies at its point, whatever reaches it first; the next one must have the tables' rows. Folds have
processes of their own, whose logs grow until they are folded.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from cdc.source.lsn import parse_lsn
from storage.log_counts import log_bytes
from storage.store_reader import StoreReader
from tests.dying_process import DIED, FOLDED_ABOVE_BYTES, FOLDING, LATE
from tests.integration.test_kills import check_confirmed, confirmed, process
from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually, until

TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, v text)",
    "CREATE TABLE scraps (id int PRIMARY KEY, v text)",
    "CREATE TABLE altered (id int PRIMARY KEY, v text)",
    "INSERT INTO orders SELECT g, 'v' FROM generate_series(1, 50) g",
    "INSERT INTO scraps SELECT g, 'v' FROM generate_series(1, 50) g",
    "INSERT INTO altered SELECT g, 'v' FROM generate_series(1, 50) g",
)
NAMES = ("orders", "scraps", "altered")

POINTS = [
    "after shapes.collector:Collector.plan",
    "after shapes.collector:Collector.commit",
    "after shapes.collector:Collector.append",
    "after shapes.collector:Collector.finish",
    "before storage.flush:FlushJob.run",
    "after storage.flush:FlushJob.run",
    "after storage.store:Store.end_flush",
    "before storage.progress:ProgressLog.append",
    "after storage.progress:ProgressLog.append",
    "after cdc.source.session:Session.confirm",
    "after cdc.source.replies:Replies.take",
    "before storage.store:Store.abandon",
    "after storage.store:Store.abandon",
    "before shapes.registry:Registry.born",
    "after shapes.registry:Registry.born",
    "after storage.store:Store.create_log",
    "before shapes.registry:Registry.ready",
    "after shapes.registry:Registry.ready",
    "before shapes.registry:Registry.all_ended",
    "after shapes.registry:Registry.all_ended",
    "after shapes.endings:empty_base",
    "after shapes.registry:Registry.rebased",
]


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_that_dies_there_loses_nothing(newest_database: Database, tmp_path: Path, point: str) -> None:
    database = newest_database
    database.execute(*TABLES)
    async with looping(database, tmp_path) as loop:
        for name in NAMES:
            await loop.add(name, name)
        await loop.caught_up()
    work_until_it_dies(database, tmp_path, point)
    check_confirmed(database, tmp_path)
    database.execute("INSERT INTO orders VALUES (-1, 'after')")
    async with looping(database, tmp_path) as loop:
        registry = loop.app.house.registry
        await loop.caught_up(30)
        await eventually(lambda: not registry.awaiting() and not loop.app.nursery.orders, "successors")
        await loop.caught_up()
        for name in NAMES:
            assert loop.rows(loop.living(name)) == loop.table(SQL("TABLE {}").format(Identifier(name))), name
        if registry.named(LATE) is not None:
            assert loop.rows(loop.living(LATE)) == loop.table("SELECT * FROM orders WHERE id > 0")


def test_a_process_that_dies_right_after_the_acknowledgement_loses_nothing(
    newest_database: Database, tmp_path: Path
) -> None:
    """1.10, and then the end in the moment in which the slot has passed the commit: nothing of it is sent again."""
    database = newest_database
    database.execute(*TABLES)
    asyncio.run(make_shapes(database, tmp_path))
    with process(database, tmp_path) as running:
        with database.connect() as writer, writer.transaction():
            writer.execute("INSERT INTO orders VALUES (900, repeat('x', 70000))")
            writer.execute("INSERT INTO scraps SELECT g, repeat('y', 500) FROM generate_series(1001, 41000) g")
        end = int(parse_lsn(database.value("SELECT pg_current_wal_lsn()::text")))
        until(lambda: confirmed(database) >= end, "the acknowledgement", 60)
        running.kill()
        running.wait()
    check_confirmed(database, tmp_path)
    asyncio.run(check_rows(database, tmp_path))


async def make_shapes(database: Database, folder: Path) -> None:
    async with looping(database, folder) as loop:
        for name in NAMES:
            await loop.add(name, name)
        await loop.caught_up()


async def check_rows(database: Database, folder: Path) -> None:
    """As the table has them; folding finds rows that came twice."""
    async with looping(database, folder) as loop:
        for name in NAMES:
            assert loop.rows(loop.living(name)) == loop.table(SQL("TABLE {}").format(Identifier(name))), name


START_POINTS = [
    "before shapes.lineage:Lineage.claim",
    "after shapes.lineage:Lineage.claim",
    "before cdc.source.handshake:create_slot",
    "after cdc.source.handshake:create_slot",
    "before shapes.lineage:Lineage.begin",
    "after shapes.lineage:Lineage.begin",
    "before storage.progress:ProgressLog.append",
    "after storage.progress:ProgressLog.append",
]


@pytest.mark.parametrize("point", START_POINTS)
async def test_a_process_that_dies_at_its_first_start_leaves_no_slot_to_nobody(
    newest_database: Database, tmp_path: Path, point: str
) -> None:
    """The next one takes the slot that was made for the folder, and G is that of a stream that it knows."""
    database = newest_database
    database.execute(*TABLES)
    start_until_it_dies(database, tmp_path, point)
    database.execute("INSERT INTO orders VALUES (-1, 'nobody is there')")
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("orders", "orders")
        database.execute("UPDATE orders SET v = 'followed' WHERE id < 9")
        await loop.caught_up()
        assert loop.rows(entry) == loop.table("TABLE orders")
        assert list(database.slots()) == ["shapelog"]
    check_confirmed(database, tmp_path)


FOLD_POINTS = [
    "before storage.retention:_Fold._write",
    "after storage.retention:_Fold._write",
    "after storage.bases:BaseWriter.chunk",
    "before storage.bases:BaseWriter.finish",
    "after storage.bases:BaseWriter.finish",
    "after shapes.folding:fold_prefix",
    "before shapes.registry:Registry.rebased",
    "after shapes.registry:Registry.rebased",
    "before shapes.folding:retire",
    "before storage.retention:remove_files",
    "after storage.disk:LocalDisk.remove",
    "after storage.retention:remove_files",
]


@pytest.mark.parametrize("point", FOLD_POINTS)
async def test_a_process_that_dies_in_a_fold_loses_nothing(
    newest_database: Database, tmp_path: Path, point: str
) -> None:
    """Nor does it leave anything: the next one's folds record what has no record, and remove what is too much."""
    database = newest_database
    database.execute(*TABLES)
    async with looping(database, tmp_path, **FOLDING) as loop:
        first = await loop.add("orders", "orders")
        await loop.caught_up()
    with dying(database, tmp_path, point, "fold") as (process, writer):

        def write_more() -> bool:
            writer.execute("UPDATE orders SET v = v || '.' WHERE id % 3 > 0")
            writer.execute("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)")
            writer.execute("INSERT INTO orders SELECT max(id) + 1, 'new' FROM orders")
            return process.poll() is not None

        until(write_more, f"the process to die {point}")
    check_confirmed(database, tmp_path)
    database.execute("INSERT INTO orders VALUES (-1, 'after')")
    async with looping(database, tmp_path, **FOLDING) as loop:
        await loop.caught_up(30)
        entry = loop.living("orders")
        assert entry.log == first.log
        assert loop.rows(entry) == loop.table("TABLE orders")
        database.execute("UPDATE orders SET v = v || '!'")
        await loop.caught_up()
        await loop.app.folding.go_round()
        entry, store = loop.living("orders"), loop.app.house.store
        assert entry.handle != first.handle
        assert log_bytes(store, entry.log) <= FOLDED_ABOVE_BYTES
        assert [one.number for one in StoreReader(store).bases(entry.log)] == [entry.shape.base]
        assert loop.rows(entry) == loop.table("TABLE orders")


def work_until_it_dies(database: Database, folder: Path, point: str) -> None:
    with dying(database, folder, point) as (_, writer):
        # First what may be flushed before its commit comes: a large row, and then many of another table (1.10).
        with writer.transaction():
            writer.execute("INSERT INTO orders VALUES (900, repeat('x', 70000))")
            writer.execute("INSERT INTO scraps SELECT g, repeat('y', 500) FROM generate_series(1001, 41000) g")
        writer.execute("ALTER TABLE altered ADD COLUMN w int")
        writer.execute("INSERT INTO altered VALUES (1001, 'x', 7)")
        writer.execute("TRUNCATE scraps")
        writer.execute("INSERT INTO orders SELECT g, repeat('x', 100) FROM generate_series(1000, 4000) g")
        writer.execute("INSERT INTO scraps VALUES (7, 'after')")
        writer.execute("UPDATE orders SET v = v || '!' WHERE id % 7 = 0")
        writer.execute("DELETE FROM orders WHERE id BETWEEN 20 AND 30")
        if "abandon" in point:
            writer.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")


def start_until_it_dies(database: Database, folder: Path, point: str) -> None:
    command = [sys.executable, "-m", "tests.dying_process", database.conninfo(), str(folder), point, "start"]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=60).returncode == DIED


@contextlib.contextmanager
def dying(
    database: Database, folder: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], psycopg.Connection[Any]]]:
    """A process that streams, and somebody who writes; at the end it is waited for until it has died at its point."""
    command = [sys.executable, "-m", "tests.dying_process", database.conninfo(), str(folder), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, database.connect() as writer:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "streaming\n"
            yield process, writer
            until(lambda: process.poll() is not None, f"the process to die {arguments[0]}")
            assert process.returncode == DIED
        finally:
            process.kill()
