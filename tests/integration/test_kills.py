"""Killed again and again, under load: nothing is lost, nothing comes twice, and the server was never told too much.

Shapes come and go meanwhile, and their tables are altered and truncated (`tests.kill_story`). Every second kill comes
right after an acknowledgement. After each, a slot beside ours says what was committed below G, and all of it must be on
disk; before each it says what was confirmed by then, and all of it must be durable by the word of the process itself.
`make nemesis` kills more than a hundred times. A failure prints its seed.
"""

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.source.lsn import parse_lsn
from shapes.registry import Entry
from storage.catalog_records import Life
from storage.disk import LocalDisk
from storage.progress import ProgressReader
from tests.kill_story import Story, marks_of
from tests.loop import looping
from tests.postgres import Database, Server, new_database
from tests.slot_oracle import SlotOracle
from tests.waiting import eventually, until

SEED = int(os.environ.get("SHAPELOG_SEED", str(random.SystemRandom().randrange(1 << 32))))

SERVER_KILLS_EVERY = 3
"""Kills of ours between two of the server."""

CATCHING_UP_SECONDS_MAX = 240
"""A hundred kills leave gigabytes to be read: what is begun anew again and again falls behind its load."""

TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text, credit int)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, state text, remark text)",
    "INSERT INTO customers SELECT g, 'c' || g, 0 FROM generate_series(1, 50) g",
)
SHAPES = {"customers": ("customers", None), "orders": ("orders", None), "open": ("orders", "state = 'open'")}
"""Those that are there from the beginning to the end."""


class Writer(threading.Thread):
    """Transactions over both tables: small ones, some large, some rolled back; keys change, rows go."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        super().__init__(name="writer", daemon=True)
        self._database = database
        self._chance = chance
        self._stopping = threading.Event()
        self.written = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._database.conninfo()) as connection:
                    while not self._stopping.is_set():
                        self._transaction(connection)
            except psycopg.OperationalError:
                self._stopping.wait(0.05)  # the server was killed, and comes back
            except BaseException as failure:  # noqa: BLE001 - told to the test
                self.failure = failure
                return

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)
        assert self.failure is None, f"seed {SEED}: {self.failure}"

    def _transaction(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        chance = self._chance
        rows = chance.choice([1, 1, 2, 5, 5, 20, 3000])
        first, self.written = self.written, self.written + rows
        connection.execute(
            "INSERT INTO orders SELECT %s::int + g, g %% 50, CASE g %% 3 WHEN 0 THEN 'open' ELSE 'done' END,"
            " repeat('r', %s) FROM generate_series(1, %s) g",
            [first, chance.choice([3, 3, 100, 9000 if rows < 20 else 9]), rows],
        )
        connection.execute("UPDATE customers SET credit = credit + %s WHERE id %% 7 = %s", [rows, chance.randrange(7)])
        connection.execute(
            "UPDATE orders SET state = CASE state WHEN 'open' THEN 'done' ELSE 'open' END WHERE id %% 101 = %s",
            [chance.randrange(101)],
        )
        connection.execute("DELETE FROM orders WHERE id < %s AND id %% 13 = 0", [first - 3_000])
        if not chance.randrange(5):
            connection.execute("UPDATE orders SET id = -id WHERE id = (SELECT max(id) FROM orders)")
        if chance.randrange(10):
            connection.commit()
        else:
            connection.rollback()


@contextmanager
def writing(database: Database, chance: random.Random) -> Iterator[Writer]:
    writer = Writer(database, chance)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


@contextmanager
def process(database: Database, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The app, streaming; killed at the end."""
    command = [sys.executable, "-m", "tests.loop_process", database.conninfo(), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "streaming\n", f"seed {SEED}: it did not come so far"
            yield running
        finally:
            running.kill()


def check_confirmed(database: Database, folder: Path) -> None:
    """The server may have heard of no more than the G log has on disk."""
    confirmed = int(parse_lsn(database.slots()["shapelog"]["confirmed_flush_lsn"]))
    disk = LocalDisk(folder)
    try:
        reader = ProgressReader(disk)
        reader.refresh()
        latest = reader.history.latest
        assert latest is not None
        assert confirmed <= latest.lsn, f"seed {SEED}: confirmed {confirmed}, and G is {latest.lsn}"
    finally:
        disk.close()


async def make_shapes(database: Database, folder: Path) -> None:
    database.execute(*TABLES)
    async with looping(database, folder) as loop:
        for name, (table, where) in SHAPES.items():
            await loop.add(table, name, where=where)


async def check_shapes(database: Database, folder: Path) -> None:
    async with looping(database, folder) as loop:
        await loop.caught_up(CATCHING_UP_SECONDS_MAX)
        nursery, registry = loop.app.nursery, loop.app.house.registry
        await eventually(
            lambda: not nursery.orders and not registry.awaiting(), "births and successors", CATCHING_UP_SECONDS_MAX
        )
        await loop.caught_up(CATCHING_UP_SECONDS_MAX)
        found = registry.living()
        assert {entry.shape.name for entry in found} >= SHAPES.keys(), f"seed {SEED}"
        for entry in found:
            assert entry.shape.life is Life.READY, f"seed {SEED}: {entry}"
            assert loop.rows(entry) == loop.table(query_of(entry).encode()), f"seed {SEED}: {entry}"


def query_of(entry: Entry) -> str:
    """What Postgres is asked for the shape's rows."""
    columns = ", ".join(column.name for column in entry.definition.columns)
    return f"SELECT {columns} FROM {entry.definition.table} WHERE {entry.definition.where or 'true'}"  # noqa: S608 - ours


def confirmed(database: Database) -> int:
    return int(parse_lsn(database.slots()["shapelog"]["confirmed_flush_lsn"]))


def look_at(
    database: Database, running: "subprocess.Popen[str]", oracle: SlotOracle
) -> tuple[int, list[dict[str, Any]]]:
    """What is confirmed, and the shapes; asked for in this order, since what was confirmed is durable ever after."""
    upto = confirmed(database)
    shapes = marks_of(running)
    oracle.check_marks(upto, shapes)
    return upto, shapes


def kill_and_check(database: Database, folder: Path, kills: int, server: Server | None = None) -> None:
    """Not a coroutine: what waits for processes has no event loop, nor the bound that coroutines have."""
    try:
        _kill_and_check(database, folder, kills, server)
    except BaseException as failure:
        failure.add_note(f"SHAPELOG_SEED={SEED} in the environment repeats the load and the pauses")
        raise


def _kill_and_check(database: Database, folder: Path, kills: int, server: Server | None) -> None:
    chance = random.Random(SEED)
    asyncio.run(make_shapes(database, folder))
    oracle = SlotOracle(database)
    story = Story(database, random.Random(SEED + 2), frozenset(SHAPES))
    with writing(database, random.Random(SEED + 1)):
        for number in range(kills):
            with process(database, folder) as running:
                before, shapes = look_at(database, running, oracle)
                story.go_on(running, shapes)
                if number % 2:
                    look = partial(look_at, database, running, oracle)
                    until(lambda: look()[0] > before, "an acknowledgement", 60)  # noqa: B023 - called at once
                else:
                    threading.Event().wait(chance.uniform(0.0, 0.35))
                    look_at(database, running, oracle)
                    threading.Event().wait(chance.uniform(0.0, 0.35))
                if server is not None and number % SERVER_KILLS_EVERY == 1:
                    server.stop("immediate")
                    server.start()
            if server is None:
                check_confirmed(database, folder)
            oracle.check(folder)
    asyncio.run(check_shapes(database, folder))
    assert oracle.found_count > kills, "it was asked about next to nothing"
    assert oracle.seen_count, f"nothing was confirmed while it ran: {story.done}"


@pytest.mark.timeout(300)  # seconds: on a busy machine the load is long in coming
def test_a_process_that_is_killed_loses_nothing(newest_database: Database, tmp_path: Path) -> None:
    kill_and_check(newest_database, tmp_path, 5)


@pytest.mark.nemesis
@pytest.mark.timeout(1800)
def test_a_process_that_is_killed_a_hundred_times_loses_nothing(database: Database, tmp_path: Path) -> None:
    kill_and_check(database, tmp_path, 120)


@pytest.mark.timeout(300)
def test_a_server_that_is_killed_under_load_loses_nothing(own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server()
    kill_and_check(new_database(server), tmp_path, 4, server)
