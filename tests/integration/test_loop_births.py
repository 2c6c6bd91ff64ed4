"""Births amid what others do to the publication, the disk and the tables meanwhile; successors that cannot be born."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from starlette.applications import Starlette

from cdc.http.admin import Admin
from cdc.shapes_output import print_shapes
from cdc.source.numbers import Words
from cdc.source.publisher import Waiting
from cdc.status.change_rates import ChangeRates
from cdc.status.report import StatusDesk
from cdc.status.shape_facts import awaited_facts, birth_facts
from cdc.status.slot_watch import SlotWatch
from cdc.telemetry.metrics import exposition
from shapes.birth_steps import Step
from shapes.errors import TableChanged
from shapes.ground import ShapeGround
from shapes.http.app import ShapeApp
from shapes.http.settings import HttpSettings
from shapes.nursery import Order
from shapes.reconciliation import reconcile
from shapes.requests import Request, define
from shapes.service import ShapeService
from shapes.snapshot_transaction import Selection
from shapes.tables import find_table
from storage.catalog_records import Life, Snapshot
from storage.errors import SharedDiskFault
from tests.loop import Loop, looping, stand_still
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FULL = "ALTER TABLE items REPLICA IDENTITY FULL"
ALL = "SELECT id, v FROM items"


@pytest.fixture
def database(newest_database: Database) -> Database:
    newest_database.execute(ITEMS, FULL, "INSERT INTO items VALUES (1, 'before')")
    return newest_database


async def is_streaming(loop: Loop) -> None:
    """Else it is the slot that waits for writers."""
    await eventually(lambda: loop.app.house.is_streaming, "the stream")


async def ordered(loop: Loop, name: str | None = None) -> Order:
    """A birth that has just been asked for."""
    async with loop.app.house.control() as connection:
        facts = await find_table(connection, "items")
    return loop.app.nursery.order(define(Request(), facts), name)


async def has_rows(loop: Loop, order: Order) -> None:
    """It is born, and has what the table has."""
    assert await asyncio.wait_for(order.done, 40), order.status
    assert order.entry is not None
    await loop.caught_up()
    assert loop.rows(order.entry) == loop.table(ALL)


async def shown(loop: Loop) -> dict[str, Any]:
    """What the server lists, and its metrics."""
    app = loop.app
    service = ShapeService(app.house, app.nursery)
    watch = SlotWatch(loop.database.conninfo(), "shapelog", "tests")
    desk = StatusDesk(app, service, watch, ChangeRates())
    metrics = await exposition(app, service, desk, ShapeApp(service, HttpSettings()))()
    server = httpx.ASGITransport(Starlette(routes=Admin(service, desk).routes()))
    async with httpx.AsyncClient(transport=server, base_url="http://here") as client:
        return {**(await client.get("/v1/admin/shapes")).json(), "metrics": metrics.decode()}


async def test_a_table_whose_writers_outlast_the_grace_stays_published(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody follows it yet; without it in the publication, the shape would join and never hear of a change."""
    monkeypatch.setattr("cdc.source.publisher.PUBLICATION_GRACE_SECONDS", 0.0)
    async with looping(database, tmp_path) as loop:
        await is_streaming(loop)
        with psycopg.connect(database.conninfo(application_name="a long writer")) as writer:
            writer.execute("INSERT INTO items VALUES (2, 'long')")
            order = await ordered(loop)
            await eventually(lambda: bool(order.status.holders), "the writer to be waited for")
            for _ in range(2):
                await loop.app.housekeeping.go_round()
            assert order.status.step is Step.PUBLISHING
            facts = birth_facts(order)
            [holder] = facts["waits_for"]
            assert f"process {writer.info.backend_pid} (a long writer)" in holder
            assert facts["mend"] == [f"SELECT pg_terminate_backend({writer.info.backend_pid});"]
        await eventually(order.born.done, "the birth", 40)
        database.execute("INSERT INTO items VALUES (3, 'after')")
        await has_rows(loop, order)
        assert not birth_facts(order)["waits_for"]
        assert not loop.app.house.wanted


async def test_a_publication_that_is_altered_before_the_join_is_waited_for_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out and in again: the stream has the second half of a transaction that wrote before and after."""
    monkeypatch.setattr("cdc.source.attempt.WATCH_SECONDS", 60.0)  # nobody looks between the statements below
    may_join, join = asyncio.Event(), ShapeGround.join

    async def late(ground: ShapeGround) -> None:
        await may_join.wait()
        await join(ground)

    monkeypatch.setattr(ShapeGround, "join", late)
    async with looping(database, tmp_path) as loop:
        order = await ordered(loop)
        await eventually(lambda: order.status.step is Step.JOINING, "the table to be published")
        with psycopg.connect(database.conninfo()) as writer:
            database.execute("ALTER PUBLICATION shapelog DROP TABLE items")
            writer.execute("INSERT INTO items VALUES (2, 'first half')")
            database.execute("ALTER PUBLICATION shapelog ADD TABLE items")
            publisher = loop.app.house.session.publisher
            async with loop.app.house.control() as connection:
                changes = await publisher.changes(connection)
            assert changes
            publisher.alterations.handled(changes)
            may_join.set()
            await eventually(
                lambda: order.born.done() or bool(order.status.holders), "the birth, or whom it waits for", 40
            )
            writer.execute("INSERT INTO items VALUES (3, 'second half')")
        await has_rows(loop, order)


async def test_who_waits_outside_publishes_again_before_it_joins(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publication may be another by then, and nobody has told a shape that is not fed."""
    published: list[int] = []
    publish, must_leave = ShapeGround.publish, ShapeGround.must_leave

    async def counted(ground: ShapeGround, waiting: Waiting) -> Selection:
        published.append(1)
        return await publish(ground, waiting)

    async def leaves_once(ground: ShapeGround) -> str:
        if len(published) == 1:
            return "by the test"
        return await must_leave(ground)

    monkeypatch.setattr(ShapeGround, "publish", counted)
    monkeypatch.setattr(ShapeGround, "must_leave", leaves_once)
    async with looping(database, tmp_path) as loop:
        order = await ordered(loop)
        await has_rows(loop, order)
        assert len(published) == 2


async def test_a_birth_that_is_removed_ends_nothing_but_itself(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its clearing-up meets: a full disk is waited for, and somebody who was faster is fine."""
    faults: list[Exception] = [SharedDiskFault("no room"), SharedDiskFault("no room"), TableChanged("it was removed")]
    leave = ShapeGround.leave

    async def refused(ground: ShapeGround, reason: str) -> None:
        if faults:
            raise faults.pop(0)
        await leave(ground, reason)

    monkeypatch.setattr(ShapeGround, "leave", refused)
    monkeypatch.setattr("shapes.nursery.FAULT_RETRY_SECONDS", 0.01)
    async with looping(database, tmp_path) as loop:
        await is_streaming(loop)
        with psycopg.connect(database.conninfo()) as writer:
            writer.execute("INSERT INTO items VALUES (2, 'long')")
            order = await ordered(loop, "items")
            await eventually(lambda: bool(order.status.holders), "the writer to be waited for")
            await asyncio.wait_for(ShapeService(loop.app.house, loop.app.nursery).remove_named("items"), 20)
        assert not faults
        assert order.failure is not None
        assert not loop.app.house.wanted
        await has_rows(loop, await ordered(loop, "items"))


async def test_a_successor_that_cannot_be_born_is_tried_again_and_shown(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is made again by a migration, minutes later, and nobody asks for the shape."""
    monkeypatch.setattr("shapes.nursery.SUCCESSOR_SECONDS_MIN", 0.05)
    async with looping(database, tmp_path) as loop:
        first = await loop.add("items", "items")
        database.execute("DROP TABLE items")
        async with loop.app.house.control() as connection:
            await reconcile(loop.app.house, connection)
        await eventually(
            lambda: bool(loop.app.nursery.awaited) and loop.app.nursery.awaited[0].attempts > 2, "some attempts"
        )
        [awaited] = loop.app.nursery.awaited
        facts = awaited_facts(awaited)
        assert (facts["name"], facts["table"], facts["step"]) == ("items", "public.items", "waiting")
        assert "is gone" in facts["reason"]
        assert awaited.again_at - awaited.since >= 0.2 * 1_000_000, "the pauses grow"
        listed = await shown(loop)
        assert listed["births"] == [facts]
        print_shapes(listed["shapes"], listed["births"])
        assert re.search(
            r"^items: its successor could not be born yet; .* is gone", capsys.readouterr().out, re.MULTILINE
        )
        assert 'shapelog_births{step="waiting"} 1.0' in listed["metrics"]
        database.execute(ITEMS, "INSERT INTO items VALUES (7, 'anew')")
        registry = loop.app.house.registry
        await eventually(
            lambda: (entry := registry.named("items")) is not None and entry.shape.life is Life.READY, "a successor", 40
        )
        await loop.caught_up()
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        assert loop.living("items").handle != first.handle
        await eventually(lambda: not loop.app.nursery.tasks and not loop.app.nursery.awaited, "the attempts to end")


async def test_a_successor_that_nobody_wants_any_more_is_not_tried_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapes.nursery.SUCCESSOR_SECONDS_MIN", 0.05)
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        database.execute("DROP TABLE items")
        async with loop.app.house.control() as connection:
            await reconcile(loop.app.house, connection)
        await eventually(lambda: bool(loop.app.nursery.awaited), "an attempt that failed")
        await ShapeService(loop.app.house, loop.app.nursery).remove_named("items")
        assert not loop.app.nursery.awaited
        await eventually(lambda: not loop.app.nursery.tasks, "the attempts to end")
        database.execute(ITEMS)
        assert not loop.app.house.registry.living()


@pytest.mark.parametrize(
    ("alteration", "told"),
    [
        ("ALTER TABLE items ADD COLUMN w int", "got new ones: w"),
        ("ALTER TABLE items ALTER v TYPE varchar(9)", "the column v has another type"),
    ],
)
async def test_a_table_that_is_altered_after_the_look_up_is_not_born_as_it_was(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alteration: str, told: str
) -> None:
    """The stream has described it as it is now before the shape joins, and will not do so again."""
    monkeypatch.setattr("shapes.nursery.SUCCESSOR_SECONDS_MIN", 0.05)
    may_join, join = asyncio.Event(), ShapeGround.join

    async def late(ground: ShapeGround) -> None:
        await may_join.wait()
        await join(ground)

    monkeypatch.setattr(ShapeGround, "join", late)
    async with looping(database, tmp_path) as loop:
        order = await ordered(loop, "items")
        await eventually(lambda: order.status.step is Step.JOINING, "the table to be published")
        database.execute(alteration, "INSERT INTO items VALUES (2, 'described')")
        await loop.caught_up()
        may_join.set()
        assert not await asyncio.wait_for(order.done, 40), "it has a definition of another table"
        assert order.failure is not None
        assert told in str(order.failure)
        again = await loop.add("items", "items")
        await loop.caught_up()
        assert loop.rows(again) == loop.table("TABLE items")


async def test_a_partition_that_comes_after_the_look_up_is_published_before_the_birth(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "DROP TABLE items",
        "CREATE TABLE items (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (10)",
        "INSERT INTO items VALUES (1, 'before')",
    )
    looked: list[int] = []
    join = ShapeGround.join

    async def late(ground: ShapeGround) -> None:
        if not looked:
            database.execute("CREATE TABLE high PARTITION OF items FOR VALUES FROM (10) TO (20)")
        looked.append(1)
        await join(ground)

    monkeypatch.setattr(ShapeGround, "join", late)
    async with looping(database, tmp_path) as loop:
        order = await ordered(loop)
        await eventually(order.born.done, "the birth", 40)
        database.execute("INSERT INTO items VALUES (11, 'in the new one')")
        await has_rows(loop, order)
        assert len(looked) == 2
        assert not loop.app.house.endings.counts


async def test_who_holds_too_much_while_it_waits_leaves_and_lets_g_go(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows since the join are in memory, and only so many of them."""
    caplog.set_level("INFO", "shapes")
    monkeypatch.setattr("shapes.ground.HELD_BYTES_MAX", 1_000)
    unseen, may_see = ShapeGround.unseen, asyncio.Event()

    def blind(ground: ShapeGround, snapshot: Snapshot) -> Words:
        return unseen(ground, snapshot) if may_see.is_set() else np.array([1], np.uint32)

    monkeypatch.setattr(ShapeGround, "unseen", blind)
    async with looping(database, tmp_path) as loop:
        order = await ordered(loop)
        await eventually(lambda: order.status.step is Step.LOOKING, "the shape to join", 40)
        database.execute("INSERT INTO items SELECT g, repeat('x', 100) FROM generate_series(10, 60) g")
        await eventually(lambda: order.status.step is Step.OUTSIDE, "the shape to leave", 40)
        assert "more than 1,000 bytes" in caplog.text  # its status soon says what it waits for outside
        assert not loop.app.house.collector.joining()
        await loop.caught_up()
        may_see.set()
        await has_rows(loop, order)


async def test_what_runs_when_the_stream_begins_must_be_in_the_snapshots(database: Database, tmp_path: Path) -> None:
    """A6 (b): an earlier process may have confirmed its commit, and nobody streams it again."""
    async with looping(database, tmp_path) as loop:
        await is_streaming(loop)
    with database.connect() as writer, writer.transaction():
        xid = writer.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
        async with looping(database, tmp_path) as loop:
            await is_streaming(loop)
            assert loop.app.house.collector.streamed is not None
            assert xid is not None
            assert xid[0] % (1 << 32) in loop.app.house.collector.streamed.demand().xids.tolist()


async def test_no_more_births_than_allowed_are_under_way(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a connection and a snapshot, which the server has to bear."""
    monkeypatch.setattr("shapes.nursery.BIRTHS_AT_ONCE", 2)
    publish, may_publish = ShapeGround.publish, asyncio.Event()
    begun: list[ShapeGround] = []

    async def gated(ground: ShapeGround, waiting: Waiting) -> Selection:
        begun.append(ground)
        await may_publish.wait()
        return await publish(ground, waiting)

    monkeypatch.setattr(ShapeGround, "publish", gated)
    async with looping(database, tmp_path) as loop:
        orders = [await ordered(loop, f"number-{number}") for number in range(4)]
        await eventually(lambda: len(begun) >= 2, "two to begin")
        await stand_still(loop, lambda: begun, "no more to begin")
        assert len(begun) == 2
        may_publish.set()
        for order in orders:
            await has_rows(loop, order)
