"""Logs above their bound go on from a new base, beside a real server: nobody misses a row, whoever reads from where."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shapes.endings import TRUNCATED
from shapes.folding import FOLDED, Folding
from shapes.housekeeping import LOG_TOO_LARGE
from shapes.http.settings import HttpSettings
from shapes.registry import Entry
from storage.bases import Base
from storage.catalog_records import Life
from storage.errors import CannotFold
from storage.flush_control import FlushOptions
from storage.lake.lake_reader import open_lake
from storage.lake.materialize import Order, Told, materialize
from storage.lake.spark import run_here
from storage.leases import Lease, end_lease, take_lease
from storage.log_counts import log_bytes, segment_count
from storage.offset import SNAPSHOT_END
from storage.retention import RetentionPolicy, fold_prefix
from storage.store import StoreOptions
from storage.store_reader import StoreReader
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.shape_server import Reader, serving_shapes
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, part int NOT NULL)"
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 5 FROM generate_series(1, 100) g"
ALL = "SELECT id, v, part FROM items"
TINY = StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=1))
"""Each flush makes a segment."""
BOUND = 40_000
QUICK = HttpSettings(long_poll_seconds=1.0)
SETTINGS: dict[str, Any] = {"store": TINY, "log_bytes_kept": BOUND, "chunk_bytes": 4_000}


def member_of(loop: Loop, entry: Entry) -> Any:
    member = loop.app.house.collector.members.of_log(entry.log)
    assert member is not None
    return member


def size_of(loop: Loop, entry: Entry) -> int:
    return log_bytes(loop.app.house.store, entry.log)


async def grow(loop: Loop, entry: Entry) -> None:
    """Change every row again and again, until the log is above its bound."""
    while size_of(loop, entry) <= BOUND or segment_count(loop.app.house.store, entry.log) < 4:
        loop.database.execute("UPDATE items SET v = v || '.'")
        await loop.caught_up()


async def test_a_log_above_its_bound_goes_on_from_a_new_base(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    async with looping(database, tmp_path, **SETTINGS) as loop:
        first = await loop.add("items", "items")
        await loop.app.folding.go_round()
        assert loop.living("items").handle == first.handle, "it is small"
        for _ in range(3):
            before = loop.living("items")
            await grow(loop, before)
            await loop.app.folding.go_round()
            after = loop.living("items")
            assert (after.log, after.handle != before.handle) == (first.log, True)
            old = loop.app.house.registry.find(before.handle)
            assert old is not None
            assert (old.shape.life, old.shape.reason) == (Life.REBASED, FOLDED)
            assert size_of(loop, after) <= BOUND
            assert loop.rows(after) == loop.table(ALL)
        counts = loop.app.folding.counts
        assert counts.count == 3
        assert counts.bytes_before > 3 * BOUND >= counts.bytes_after
        assert counts.seconds > 0
        assert not counts.failures
        assert [one.number for one in StoreReader(loop.app.house.store).bases(first.log)] == [after.shape.base]
    async with looping(database, tmp_path, **SETTINGS) as loop:
        database.execute("DELETE FROM items WHERE id % 3 = 0")
        await loop.caught_up()
        assert loop.living("items").handle == after.handle
        assert loop.rows(after) == loop.table(ALL)


async def test_who_reads_at_the_end_reads_on_and_others_begin_anew(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, **SETTINGS) as server:
        loop = server.living
        present, in_base, behind = server.reader("items"), server.reader("items"), server.reader("items")
        await behind.catch_up()
        newest_database.execute("UPDATE items SET v = 'first' WHERE id = 1")
        await loop.caught_up()
        await behind.catch_up()  # to where no page of the others begins: those that are kept are good for ever
        await in_base.step()
        assert in_base.offset == "0_0"
        entry = loop.app.house.registry.find(in_base.handle or "")
        assert entry is not None
        await grow(loop, entry)
        await present.catch_up()
        held = asyncio.create_task(present.step(live="true"))
        await loop.app.folding.go_round()
        newest_database.execute("UPDATE items SET v = 'after' WHERE id = 7")
        await held
        await loop.caught_up()
        newest = loop.app.house.registry.replacement(entry.handle)
        assert newest is not None
        assert newest.handle != entry.handle
        for reader in (present, in_base, behind):
            await reader.catch_up()
            assert rows_of(reader) == loop.table(ALL)
        assert (present.refetches, present.handle) == (0, entry.handle)
        assert (in_base.refetches, in_base.handle) == (1, newest.handle)
        assert (behind.refetches, behind.handle) == (1, newest.handle)
        late = server.reader("items")
        await late.catch_up()
        assert (late.handle, rows_of(late)) == (newest.handle, loop.table(ALL))
        newest_database.execute("TRUNCATE items", "INSERT INTO items VALUES (1, 'anew', 1)")
        await loop.caught_up()
        for reader in (present, behind):
            await reader.catch_up()
            assert rows_of(reader) == loop.table(ALL)
        assert (present.refetches, behind.refetches) == (1, 2), "an old handle does not go on past a TRUNCATE"


async def test_who_is_behind_a_compaction_reads_on(newest_database: Database, tmp_path: Path) -> None:
    """With less to read, and the same rows at the end; the handle stays."""
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, **SETTINGS, log_compaction=True) as server:
        loop = server.living
        behind, in_base = server.reader("items"), server.reader("items")
        await behind.catch_up()
        await in_base.step()
        entry = loop.app.house.registry.find(behind.handle or "")
        assert entry is not None
        for _ in range(2):
            await grow(loop, entry)
            before = size_of(loop, entry)
            await loop.app.folding.go_round()
            assert size_of(loop, entry) < before / 2
            newest_database.execute("DELETE FROM items WHERE id % 7 = 0", "UPDATE items SET part = 9 WHERE id = 1")
            await loop.caught_up()
            await behind.catch_up()
            assert rows_of(behind) == loop.table(ALL)
        late = server.reader("items")
        for reader in (in_base, late):
            await reader.catch_up()
            assert rows_of(reader) == loop.table(ALL)
        assert {reader.handle for reader in (behind, in_base, late)} == {entry.handle}
        counts = loop.app.folding.counts
        assert counts.count == 0, "what is short enough is not folded"
        assert counts.compactions >= 2
        assert counts.compacted_bytes > before / 2
    async with looping(newest_database, tmp_path, **SETTINGS) as again:
        found = again.app.house.registry.find(entry.handle)
        assert found is not None
        assert again.rows(found) == again.table(ALL)


async def test_what_a_compaction_leaves_too_long_is_folded(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS, log_compaction=True) as loop:
        entry = await loop.add("items", "items")
        while size_of(loop, entry) <= BOUND:
            newest_database.execute("DELETE FROM items", FILL, *["UPDATE items SET v = v || '.'"] * 2)
            await loop.caught_up()
        before, counts = size_of(loop, entry), loop.app.folding.counts
        await loop.app.folding.go_round()
        assert counts.compacted_bytes > 0
        assert counts.bytes_before == before - counts.compacted_bytes
        assert loop.living("items").handle != entry.handle
        assert size_of(loop, entry) <= BOUND
        assert loop.rows(loop.living("items")) == loop.table(ALL)


def rows_of(reader: Reader) -> list[tuple[str | None, ...]]:
    return sorted((tuple(row.values()) for row in reader.rows.values()), key=str)


async def test_what_a_lease_holds_stays(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry, store = await loop.add("items", "items"), loop.app.house.store
        now = loop.app.house.clocks.wall()
        take_lease(store.disk, Lease(entry.log, "reader", SNAPSHOT_END, now + 3_600_000_000), now=now)
        await grow(loop, entry)
        before = size_of(loop, entry)
        await loop.app.folding.go_round()
        assert (loop.living("items").handle, size_of(loop, entry)) == (entry.handle, before)
        end_lease(store.disk, entry.log, "reader")
        await Folding(loop.app.house, log_bytes_kept=BOUND).go_round()
        assert size_of(loop, entry) <= BOUND
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_a_log_that_cannot_be_made_smaller_is_tried_again_when_it_has_grown(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_database.execute(ITEMS, FILL)
    tries: list[int] = []

    def counted(*_: Any, **__: Any) -> None:
        tries.append(1)

    monkeypatch.setattr("shapes.folding.fold_prefix", counted)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        await grow(loop, entry)
        for _ in range(3):
            await loop.app.folding.go_round()
        assert len(tries) == 1
        before = size_of(loop, entry)
        while size_of(loop, entry) < before + BOUND / 2:
            newest_database.execute("UPDATE items SET v = v || 'x'")
            await loop.caught_up()
        await loop.app.folding.go_round()
        assert len(tries) == 2


async def test_a_base_that_a_crash_left_without_its_record_is_recorded(
    newest_database: Database, tmp_path: Path
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        await grow(loop, entry)
        made = fold_prefix(loop.app.house.store, entry.log, RetentionPolicy(0), now=loop.app.house.clocks.wall())
        assert made is not None
        assert loop.rows(entry) == loop.table(ALL), "under its old base, which is still there"
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        newest_database.execute("UPDATE items SET v = 'later' WHERE id = 1")
        await loop.caught_up()
        assert loop.living("items").handle == entry.handle
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        await loop.app.folding.go_round()
        newest = loop.living("items")
        assert newest.handle != entry.handle
        assert newest.shape.base == made.number
        assert loop.rows(newest) == loop.table(ALL)


async def test_a_truncate_that_waits_for_its_base_is_told_to_old_readers(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold that comes between a TRUNCATE and its empty base: nobody reads on past it under the old handle."""
    newest_database.execute(ITEMS, FILL)
    is_over = asyncio.Event()

    async def waiting(*_: Any) -> None:
        await is_over.wait()

    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        member, store = member_of(loop, entry), loop.app.house.store
        give = loop.app.house.endings._give_base
        monkeypatch.setattr(loop.app.house.endings, "_give_base", waiting)
        newest_database.execute("TRUNCATE items", "INSERT INTO items VALUES (1, 'one', 1)")
        await eventually(
            lambda: segment_count(store, entry.log) > 0 and member.truncated_at is not None, "the TRUNCATE"
        )
        newest_database.execute("INSERT INTO items VALUES (2, 'two', 2)")
        await eventually(lambda: segment_count(store, entry.log) > 1, "what follows")
        await Folding(loop.app.house, log_bytes_kept=1).go_round()
        assert loop.living("items").handle == entry.handle, "the TRUNCATE comes first"
        made = fold_prefix(store, entry.log, RetentionPolicy(0), now=loop.app.house.clocks.wall())
        assert made is not None
        await loop.app.house.endings.stand_on_newest(member, FOLDED)
        old = loop.app.house.registry.find(entry.handle)
        assert old is not None
        assert old.shape.reason == TRUNCATED
        monkeypatch.setattr(loop.app.house.endings, "_give_base", give)
        is_over.set()
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_rows_that_are_old_are_folded_too(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        folding = Folding(loop.app.house, log_age_seconds=3600.0)
        for _ in range(4):
            newest_database.execute("UPDATE items SET v = v || '.'")
            await loop.caught_up()
        newest_database.execute("UPDATE items SET v = 'last' WHERE id = 1")  # one row: it is in one segment, always
        await loop.caught_up()
        await folding.go_round()
        assert loop.living("items").handle == entry.handle, "nothing is an hour old"
        await Folding(loop.app.house, log_age_seconds=1e-6).go_round()
        assert loop.living("items").handle != entry.handle
        assert segment_count(loop.app.house.store, entry.log) == 1, "the newest stays"
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_a_base_of_any_size_is_folded(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Base and transactions are far above what a fold holds at a time."""
    monkeypatch.setattr("shapes.folding.RetentionPolicy", partial(RetentionPolicy, step_bytes=2_000))
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        for _ in range(2):
            entry = loop.living("items") if len(loop.app.house.collector.members) else await loop.add("items", "items")
            await grow(loop, entry)
            newest_database.execute("DELETE FROM items WHERE id % 9 = 0", "INSERT INTO items VALUES (9, 'again', 1)")
            await loop.caught_up()
            await loop.app.folding.go_round()
            assert not loop.app.folding.counts.failures
            assert loop.living("items").handle != entry.handle
            assert size_of(loop, entry) <= BOUND
            assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_a_log_that_cannot_be_folded_ends_in_a_new_snapshot(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise CannotFold("a living row has no value for 'v'")  # as it may say of a log that has lost its base

    monkeypatch.setattr("shapes.folding.fold_prefix", refused)
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS, log_bytes_max=BOUND) as loop:
        entry = await loop.add("items", "items")
        await grow(loop, entry)
        await loop.app.folding.go_round()
        assert loop.app.folding.counts.failures == {CannotFold.code: 1}
        assert loop.app.folding.counts.count == 0
        assert loop.living("items").handle == entry.handle
        await loop.app.housekeeping.go_round()
        ended = loop.app.house.registry.find(entry.handle)
        assert ended is not None
        assert ended.shape.reason == LOG_TOO_LARGE
        registry = loop.app.house.registry
        await eventually(
            lambda: (now := registry.named("items")) is not None and now.shape.life is Life.READY, "a successor", 40
        )
        assert loop.living("items").log != entry.log
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_shapes_whose_logs_do_not_fold_are_left_alone(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL, "CREATE TABLE bare (v text)", "INSERT INTO bare VALUES ('same'), ('same')")
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        changes = await loop.add("items", "changes", log="changes_only")
        bare = await loop.add("bare", "bare")
        for _ in range(3):
            newest_database.execute("UPDATE items SET v = v || 'x'", "INSERT INTO bare VALUES ('more')")
            await loop.caught_up()
        await Folding(loop.app.house, log_bytes_kept=1).go_round()
        assert (loop.living("changes").handle, loop.living("bare").handle) == (changes.handle, bare.handle)


async def a_fold_that_goes_on(loop: Loop, entry: Entry, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    """A round whose fold has begun, and works on the log until nobody wants it."""
    has_begun = asyncio.Event()
    running = asyncio.get_running_loop()

    def slow(*arguments: Any, is_wanted: Callable[[], bool], **more: Any) -> Base | None:
        with loop.app.house.store.maintain(entry.log):
            running.call_soon_threadsafe(has_begun.set)
            while is_wanted():
                pass
        return fold_prefix(*arguments, is_wanted=is_wanted, **more)

    monkeypatch.setattr("shapes.folding.fold_prefix", slow)
    going = asyncio.create_task(loop.app.folding.go_round())
    await has_begun.wait()
    return going


async def test_a_stop_does_not_wait_for_a_fold(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends between two steps, and leaves nothing."""
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        await grow(loop, entry)
        going = await a_fold_that_goes_on(loop, entry, monkeypatch)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert loop.living("items").handle == entry.handle
        assert [base.number for base in StoreReader(loop.app.house.store).bases(entry.log)] == [entry.shape.base]
        assert loop.rows(entry) == loop.table(ALL)


async def test_a_truncate_does_not_wait_for_a_fold(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody wants the fold of what the table had before, and the TRUNCATE holds G until it has a base of its own."""
    newest_database.execute(ITEMS, FILL)
    async with looping(newest_database, tmp_path, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        await grow(loop, entry)
        going = await a_fold_that_goes_on(loop, entry, monkeypatch)
        newest_database.execute("TRUNCATE items", "INSERT INTO items VALUES (1, 'one', 1)")
        await loop.caught_up()
        await going
        old = loop.app.house.registry.find(entry.handle)
        assert old is not None
        assert old.shape.reason == TRUNCATED
        assert loop.rows(loop.living("items")) == loop.table(ALL)


async def test_the_lake_sees_no_seam(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    data, lake = tmp_path / "data", tmp_path / "lake"

    def step() -> int:
        told: list[Told] = []
        materialize(Order(data, lake), run_here, told.append)
        return sum(one.step.rows for one in told)

    async with looping(newest_database, data, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        await loop.caught_up()
        await asyncio.to_thread(step)
        for _ in range(2):
            await grow(loop, entry)
            await asyncio.to_thread(step)
            await loop.app.folding.go_round()
            assert loop.living("items").log == entry.log
            newest_database.execute("UPDATE items SET v = 'seam' WHERE id < 10")
            await loop.caught_up()
            rows = await asyncio.to_thread(step)
            assert rows == 9, "the changes, and not the base anew"
        assert loop.living("items").handle != entry.handle
        table = open_latest(lake)
        assert table == loop.table(ALL)


def open_latest(lake: Path) -> list[tuple[str | None, ...]]:
    rows = open_lake(lake).latest().table("items").arrow().to_pylist()
    return sorted(((str(row["id"]), row["v"], str(row["part"])) for row in rows), key=str)


@pytest.mark.parametrize("seed", range(3))
async def test_at_random(newest_database: Database, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    newest_database.execute(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL", FILL)
    bound = 8_000
    settings = SETTINGS | {"log_bytes_kept": bound}
    statements = [
        "UPDATE items SET v = v || 'x', part = (part + 1) % 5 WHERE id % 7 = {}",
        "DELETE FROM items WHERE id % 11 = {}",
        "INSERT INTO items SELECT g, 'new', g % 5 FROM generate_series({}, 100, 9) g ON CONFLICT DO NOTHING",
        "UPDATE items SET id = id + 1000 WHERE id % 13 = {} AND id < 1000",
        "TRUNCATE items",
    ]
    handles: set[str] = set()
    for _ in range(3):
        async with looping(newest_database, tmp_path, **settings) as loop:
            registry = loop.app.house.registry
            if not handles:
                await loop.add("items", "all")
                await loop.add("items", "some", where="part < 3", replica="full")
            for _ in range(12):
                picked = chance.choices(statements, [8, 2, 4, 1, 0.3])[0]
                newest_database.execute(picked.format(chance.randrange(7)))
                if chance.random() < 0.7:
                    await loop.caught_up()
                await loop.app.folding.go_round()
            await loop.caught_up()
            handles |= {entry.handle for entry in registry.living()}
            assert loop.rows(loop.living("all")) == loop.table(ALL)
            assert loop.rows(loop.living("some")) == loop.table(f"{ALL} WHERE part < 3")
    assert len(handles) > 4, "there was something to fold"
