"""The loop on real servers: from commits to logs to what the server may forget, through races, restarts and cuts."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import LiteralString
from unittest import mock

import psycopg
import pytest

from cdc.source.errors import SlotAhead
from shapes.reconciliation import reconcile
from shapes.registry import REMOVED
from shapes.stream_record import forget_stream
from storage.catalog_records import Life
from storage.disk import LocalDisk, folder_of
from storage.flush_control import FlushOptions
from storage.metrics import Metric
from storage.rows import Kind
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions, Trigger
from tests.loop import Loop, fold, looping
from tests.postgres import Database
from tests.waiting import eventually, until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, part int)"
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 10 FROM generate_series(1, 200) g"
ALL = "SELECT id, v, part FROM items"
PART_3 = "SELECT id, v, part FROM items WHERE part = 3"

EAGER = StoreOptions(BufferOptions(flush_log_bytes=1, flush_age_seconds=0.001), FlushOptions())
"""Each fragment is flushed at once: the flush comes before the commit's fragment (1.10 of the problem's history)."""

BY_AGE = StoreOptions(BufferOptions(flush_age_seconds=0.02))
"""The timer falls into the gap between the rows of a shape and the commit, which comes many fragments later."""

ROWS_60_000 = (
    "INSERT INTO items SELECT n + g, repeat('x', 500), g % 10 FROM generate_series(1, 60000) g, "
    "(SELECT coalesce(max(id), 0) AS n FROM items) i"
)
ROWS_25_000 = (
    "INSERT INTO items SELECT n + g, repeat('x', 500), g % 10 FROM generate_series(1, 25000) g, "
    "(SELECT coalesce(max(id), 0) AS n FROM items) i"
)
"""More than is read ahead."""

OTHERS = (
    "INSERT INTO other SELECT n + g, repeat('y', 1000) FROM generate_series(1, 20000) g, "
    "(SELECT coalesce(max(id), 0) AS n FROM other) o"
)
CONFIRMED_SECONDS_MAX = 2.0
"""From a commit on the server to the slot that has passed it, if nothing follows."""

TRIES = 5

CUTS = 2
"""At least: what the first leaves behind, the second would meet."""

FEW_CHANGES = 4_096
"""That are taken at once, where a transaction is to be met in its middle."""


async def test_a_shape_has_the_tables_rows_and_follows_them_over_restarts(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    for life in range(3):
        async with looping(database, tmp_path) as loop:
            if not life:
                await loop.add("items", "items")
                await loop.add("items", "third", where="part = 3")
            database.execute(
                "UPDATE items SET part = part + 1 WHERE id <= 40",
                "DELETE FROM items WHERE id = (SELECT min(id) FROM items)",
                "INSERT INTO items SELECT max(id) + 1, repeat('x', 70000), 3 FROM items",
            )
            await loop.caught_up()
            assert loop.rows(loop.living("items")) == loop.table(ALL)
            assert loop.rows(loop.living("third")) == loop.table(PART_3)
        # Nobody runs: it is the first that the next one gets.
        database.execute("INSERT INTO items SELECT max(id) + 1, 'meanwhile', 3 FROM items")


async def test_without_shapes_the_slot_follows_the_server(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path) as loop:
        await loop.caught_up()
        entry = await loop.add("items", "items")
        async with loop.app.house.turn:
            [member] = loop.app.house.collector.members
            await loop.app.house.endings.end(member, REMOVED, "by the test")
        newest_database.execute("UPDATE items SET v = 'of a table that is published, and nobody follows'")
        await loop.caught_up()
        newest_database.execute("CREATE TABLE filler AS SELECT generate_series(1, 10000)")
        await loop.caught_up()
        ended = loop.app.house.registry.find(entry.handle)
        assert ended is not None
        assert ended.shape.life is Life.ENDED
    async with looping(newest_database, tmp_path) as loop:
        newest_database.execute("UPDATE items SET v = 'neither after a restart'")
        await loop.caught_up()


@pytest.mark.parametrize("options", [BY_AGE, EAGER], ids=["by age", "each fragment"])
async def test_a_flush_before_the_commit_holds_the_slot_no_longer_than_its_commit(
    database: Database, tmp_path: Path, options: StoreOptions
) -> None:
    """1.10: the shape's last row lies far below the transaction's end, its flush comes first; then silence.

    A machine that is busy with other things may take its time, but not again and again.
    """
    database.execute(ITEMS, "CREATE TABLE other (id int PRIMARY KEY, v text)")
    async with looping(database, tmp_path, store=options) as loop:
        entry = await loop.add("items")
        await loop.add("other", where="id = -1")  # it is in the stream, and no row of it is wanted
        metrics = loop.app.house.store.metrics
        seconds: list[float] = []
        while len(seconds) < TRIES and (
            min(seconds, default=inf) > CONFIRMED_SECONDS_MAX or not metrics.value(Metric.FLUSHES, Trigger.COMMIT)
        ):
            with psycopg.connect(database.conninfo()) as writer:
                writer.execute("INSERT INTO items SELECT count(*) + 1, repeat('x', 70000), 3 FROM items")
                writer.execute(OTHERS)
            committed_at = time.monotonic()
            await loop.caught_up()
            seconds.append(time.monotonic() - committed_at)
            assert len(fold(loop.app, entry).rows) == len(seconds)
            visible, durable = loop.app.house.store.marks(entry.log)
            assert visible == durable
        assert min(seconds) <= CONFIRMED_SECONDS_MAX, seconds
        assert metrics.value(Metric.FLUSHES, Trigger.COMMIT), "no flush came before the commit"


@asynccontextmanager
async def received_in_part(loop: Loop, statement: LiteralString) -> AsyncIterator[None]:
    """The collector's turn, when some of a transaction's rows were received and not all of them."""
    house = loop.app.house
    with mock.patch("shapes.gathering.GATHERED_CHANGES_MAX", FEW_CHANGES):  # or it is taken whole, if it comes fast
        writing = asyncio.create_task(asyncio.to_thread(loop.database.execute, statement))
        async with house.turn:
            await asyncio.wait_for(house.turn.wait_for(lambda: len(house.collector.opened) > 0), 60)
            yield
        await writing


async def test_a_shape_that_is_removed_in_mid_transaction_frees_the_slot(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        house = loop.app.house
        seconds: list[float] = []
        while min(seconds, default=inf) > CONFIRMED_SECONDS_MAX and len(seconds) < TRIES:
            entry = await loop.add("items", "items")
            async with received_in_part(loop, ROWS_60_000):
                member = house.collector.members.of_log(entry.log)
                assert member is not None
                assert member.number in house.collector.opened
                await house.endings.end(member, REMOVED, "by the test")
                removed_at = time.monotonic()
            await loop.caught_up()
            seconds.append(time.monotonic() - removed_at)
            ended = house.registry.find(entry.handle)
            assert ended is not None
            assert ended.shape.life is Life.ENDED
        assert min(seconds) <= CONFIRMED_SECONDS_MAX, seconds


async def test_a_connection_that_is_cut_in_mid_transaction_doubles_nothing(database: Database, tmp_path: Path) -> None:
    """And the slot passes the transaction no later than without the cut."""
    database.execute(ITEMS)
    async with looping(database, tmp_path, store=EAGER) as loop:
        house = loop.app.house
        entry = await loop.add("items")
        seconds: list[float] = []
        while len(seconds) < CUTS or (min(seconds) > CONFIRMED_SECONDS_MAX and len(seconds) < TRIES):
            connected = house.attempt
            database.execute(
                "CHECKPOINT"
            )  # or the server reads what the tries before wrote, too, and each takes longer
            async with received_in_part(loop, ROWS_25_000):
                cut: LiteralString = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
                await asyncio.to_thread(database.execute, cut)
                cut_at = time.monotonic()
            await loop.caught_up(60)
            seconds.append(time.monotonic() - cut_at)
            assert house.attempt > connected
        assert min(seconds) <= CONFIRMED_SECONDS_MAX, seconds
        assert loop.rows(entry) == loop.table(ALL)


async def test_keys_that_change_are_deleted_and_inserted(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("items")
        database.execute("UPDATE items SET id = id + 1000 WHERE id <= 5")
        await loop.caught_up()
        assert loop.rows(entry) == loop.table(ALL)
        assert fold(loop.app, entry).kinds == [Kind.DELETE, Kind.INSERT] * 5


async def test_a_truncate_gives_readers_a_new_handle_with_an_empty_base(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        entries = [await loop.add("items", "items"), await loop.add("items", "third", where="part = 3")]
        database.execute("TRUNCATE items", "INSERT INTO items VALUES (7, 'after', 3)")
        await loop.caught_up()
        for entry in entries:
            assert entry.shape.name is not None
            newer = loop.living(entry.shape.name)
            assert newer.handle != entry.handle
            assert newer.log == entry.log
            assert loop.rows(newer) == loop.table(ALL) == [("7", "after", "3")]
            old = loop.app.house.registry.find(entry.handle)
            assert old is not None
            assert old.shape.life is Life.REBASED
    async with looping(database, tmp_path) as loop:
        for name in ("items", "third"):
            assert loop.rows(loop.living(name)) == [("7", "after", "3")]


async def test_an_altered_table_ends_its_shapes_and_a_named_one_begins_anew(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapes.housekeeping.HOUSEKEEPING_SECONDS", 60.0)  # the stream tells, before its next change
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        named = await loop.add("items", "items")
        some = await loop.add("items", columns="id,v")
        database.execute("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (1001, 'x', 3, 4)")
        registry = loop.app.house.registry
        await eventually(
            lambda: (
                (entry := registry.named("items")) is not None
                and entry.handle != named.handle
                and entry.shape.life is Life.READY
            ),
            "a successor",
        )
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table("SELECT id, v, part, more FROM items")
        ended = registry.find(named.handle)
        assert ended is not None
        assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, "columns_changed")
        assert registry.find(some.handle) is not None
        assert loop.rows(some) == loop.table("SELECT id, v FROM items"), "it has none of the new column, and goes on"


async def test_a_shape_is_born_while_others_write(database: Database, tmp_path: Path) -> None:
    """Rows before, in and after the snapshot: each is there once."""
    database.execute(ITEMS, FILL)
    stop = asyncio.Event()

    async def write() -> None:
        async with await psycopg.AsyncConnection.connect(database.conninfo(), autocommit=True) as writer:
            number = 1_000
            while not stop.is_set():
                number += 1
                await writer.execute("INSERT INTO items VALUES (%s, 'live', %s)", [number, number % 10])
                await writer.execute("UPDATE items SET v = v || '.' WHERE id = %s", [number - 3])

    async with looping(database, tmp_path) as loop:
        writers = asyncio.create_task(write())
        try:
            born = [await loop.add("items", f"number-{number}", where=f"part < {number}") for number in range(1, 10)]
        finally:
            stop.set()
            await writers
        await loop.caught_up()
        for number, entry in enumerate(born, 1):
            expected = [row for row in loop.table(ALL) if int(str(row[2])) < number]
            assert loop.rows(entry) == expected


PARTED = (
    "CREATE TABLE parted (id int, at date, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2025-01-01') TO ('2025-02-01')",
    "CREATE TABLE parted_2 (v text, at date NOT NULL, id int NOT NULL, PRIMARY KEY (id, at))",
    "ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM ('2025-02-01') TO ('2025-03-01')",
    "INSERT INTO parted SELECT g, date '2025-01-01' + g % 50, 'v' || g FROM generate_series(1, 300) g",
)
PARTED_ROWS = "SELECT id, at, v FROM parted"


async def test_a_partitioned_table_is_followed_through_its_leaves(database: Database, tmp_path: Path) -> None:
    database.execute(*PARTED)
    async with looping(database, tmp_path) as loop:
        root = await loop.add("parted", "root")
        leaf = await loop.add("parted_2", "leaf")
        database.execute(
            "UPDATE parted SET v = v || '!' WHERE id % 3 = 0",
            "UPDATE parted SET at = at + 31 WHERE id < 20 AND at < '2025-01-20'",  # from one leaf to another
            "DELETE FROM parted WHERE id % 7 = 0",
        )
        await loop.caught_up()
        assert loop.rows(root) == loop.table(PARTED_ROWS)
        assert loop.rows(leaf) == loop.table("SELECT v, at, id FROM parted_2")


@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE parted_1",
        "ALTER TABLE parted DETACH PARTITION parted_1",
        "CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')",
    ],
)
async def test_a_root_begins_anew_when_its_partitions_are_others(
    database: Database, tmp_path: Path, change: LiteralString
) -> None:
    database.execute(*PARTED)
    async with looping(database, tmp_path) as loop:
        first = await loop.add("parted", "root")
        database.execute(change)
        house, registry = loop.app.house, loop.app.house.registry

        def is_succeeded() -> bool:
            entry = registry.named("root")
            return entry is not None and entry.handle != first.handle and entry.shape.life is Life.READY

        async with house.control() as connection:
            await reconcile(house, connection)
        await eventually(is_succeeded, "a successor")
        database.execute("INSERT INTO parted SELECT 1000 + g, date '2025-02-03', 'new' FROM generate_series(1, 9) g")
        await loop.caught_up()
        assert loop.rows(loop.living("root")) == loop.table(PARTED_ROWS)


async def test_a_publication_that_somebody_altered_ends_the_shapes_of_that_table(
    database: Database, tmp_path: Path
) -> None:
    database.execute(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)", FILL)
    async with looping(database, tmp_path) as loop:
        items, other = await loop.add("items", "items"), await loop.add("other", "other")
    database.execute(
        "ALTER PUBLICATION shapelog DROP TABLE items",
        "INSERT INTO items VALUES (999, 'unseen', 3)",
        "ALTER PUBLICATION shapelog ADD TABLE items",
    )
    async with looping(database, tmp_path) as loop:
        registry = loop.app.house.registry

        def is_succeeded() -> bool:
            entry = registry.named("items")
            return entry is not None and entry.handle != items.handle and entry.shape.life is Life.READY

        await eventually(is_succeeded, "a successor")
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        assert loop.living("other").handle == other.handle


async def test_a_dropped_table_ends_its_shapes(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        entry = await loop.add("items")
        database.execute("DROP TABLE items")
        async with loop.app.house.control() as connection:
            await reconcile(loop.app.house, connection)
        ended = loop.app.house.registry.find(entry.handle)
        assert ended is not None
        assert ended.shape.reason == "table_gone"
        await loop.caught_up()


async def test_of_many_shapes_of_a_table_those_end_that_an_alteration_concerns(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    async with looping(database, tmp_path) as loop:
        reads = {"a is 1": {"where": "a = 1"}, "a is 2": {"where": "a = 2"}, "b is 1": {"where": "b = 1"}}
        shapes = {name: await loop.add("t", columns="id", **request) for name, request in reads.items()}
        shapes |= {"with b": await loop.add("t", columns="id,b"), "all": await loop.add("t")}
        database.execute("ALTER TABLE t DROP COLUMN b")
        async with loop.app.house.control() as connection:
            await reconcile(loop.app.house, connection)
        registry = loop.app.house.registry
        found = {name: registry.find(entry.handle) for name, entry in shapes.items()}
        ended = {name for name, entry in found.items() if entry is None or entry.shape.life is Life.ENDED}
        assert ended == {"b is 1", "with b", "all"}


async def test_another_slot_of_the_same_name_gives_everybody_new_handles(database: Database, tmp_path: Path) -> None:
    """A2: what the old slot would have sent is not in the new one. It is refused, and then forgotten."""
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path) as loop:
        first, some = await loop.add("items", "items"), await loop.add("items")
        await loop.caught_up()
    until(lambda: not database.slots()["shapelog"]["active"], "the slot to be free")
    database.execute(
        "SELECT pg_drop_replication_slot('shapelog')",
        "UPDATE items SET v = 'nobody hears of it'",
        "SELECT pg_create_logical_replication_slot('shapelog', 'pgoutput')",
    )
    with pytest.raises(SlotAhead):
        async with looping(database, tmp_path) as loop:
            await asyncio.Event().wait()
    database.execute("SELECT pg_drop_replication_slot('shapelog')")
    with folder_of(LocalDisk(tmp_path)) as disk:
        forget_stream(disk)
    async with looping(database, tmp_path) as loop:
        registry = loop.app.house.registry
        await eventually(
            lambda: (
                (entry := registry.named("items")) is not None
                and entry.handle != first.handle
                and entry.shape.life is Life.READY
            ),
            "a successor",
        )
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        for handle in (first.handle, some.handle):
            ended = registry.find(handle)
            assert ended is not None
            assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, "stream_replaced")
