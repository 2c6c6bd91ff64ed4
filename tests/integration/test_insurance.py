"""Slot insurance on a real server that keeps little WAL: steps are taken before the slot is lost, and left again."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import cdc.insurance.ladder as ladder_module
from cdc.insurance.insurer import WAL_BUDGET, Insurer
from cdc.insurance.ladder import Rung, Terms
from cdc.status.slot_watch import SlotWatch
from shapes.birth_steps import Step
from storage.catalog_records import Life
from storage.disk import LocalDisk
from storage.errors import SharedDiskFault
from tests.loop import Loop, looping
from tests.postgres import Database, Server, new_database
from tests.served import serving, shapelog
from tests.waiting import eventually, until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 50) g"
WAL = "SELECT pg_logical_emit_message(false, 'noise', repeat('x', 4000000))"
SEGMENT = 16 << 20


@pytest.fixture
def small(own_server: Callable[..., Server]) -> Iterator[Database]:
    """A database on a server that keeps 96 MB of WAL for a slot."""
    server = own_server(
        "18", max_slot_wal_keep_size="96MB", wal_keep_size="0", min_wal_size="32MB", max_wal_size="64MB"
    )
    made = new_database(server)
    yield made
    made.remove()


@dataclass
class Insured:
    """A running loop, its insurance, and a way to look at both at once."""

    loop: Loop
    watch: SlotWatch
    insurer: Insurer

    async def look(self) -> Rung:
        assert await self.watch.look() is not None, self.watch.fault
        await self.insurer.go_round()
        return self.insurer.ladder.rung

    async def write_until(self, rung: Rung) -> None:
        """Write WAL that no shape has, a few megabytes at a time, until a step is taken."""
        async with asyncio.timeout(60):
            while await self.look() < rung:
                await asyncio.to_thread(self.loop.database.execute, WAL)


@asynccontextmanager
async def insured(database: Database, folder: Path, terms: Terms) -> AsyncIterator[Insured]:
    async with looping(database, folder, stall_seconds=3600) as loop:
        watch = SlotWatch(database.conninfo(), "shapelog", "insurance test")
        async with watch.running():
            yield Insured(loop, watch, Insurer(loop.app, watch, terms))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """With short pauses in which a step shows what it does; a flush takes a tenth of a second."""
    monkeypatch.setattr(ladder_module, "WAL_HOLD_SECONDS", 1.0)
    monkeypatch.setattr(ladder_module, "WAL_SETTLE_SECONDS", 0.5)


def hold(loop: Loop, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nobody hears that this shape's rows are durable: a defect that holds the slot."""
    collector = loop.app.house.collector
    durable = collector.durable

    def deaf(member: object, *more: object) -> object:
        is_held = getattr(member, "number", None) == number
        return None if is_held else durable(member, *more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(collector, "durable", deaf)


async def test_the_shape_that_holds_the_slot_ends_before_the_slot_does(
    small: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    """All the way up, and down again: the slot and the other shape live, and the ended one comes back by its name."""
    caplog.set_level(logging.INFO)
    small.execute(ITEMS, FILL, "CREATE TABLE other (id int PRIMARY KEY)")
    async with insured(small, tmp_path, Terms(None, 0.2, 0.4, 0.6)) as run:
        loop = run.loop
        worst, sound = await loop.add("items", "items"), await loop.add("other", "other")
        member = loop.app.house.collector.members.of_log(worst.log)
        assert member is not None
        await loop.caught_up()
        assert await run.look() is Rung.CALM
        hold(loop, member.number, monkeypatch)
        small.execute("UPDATE items SET v = 'w'", "INSERT INTO other VALUES (1)")
        await run.write_until(Rung.ALERT)
        assert loop.living("items").handle == worst.handle
        await run.write_until(Rung.PAUSE)
        waits = loop.app.nursery.order(worst.definition, "second")
        await eventually(lambda: "no snapshot begins" in waits.status.reason, "the birth to wait")
        assert waits.status.step is Step.PUBLISHING
        await run.write_until(Rung.END)
        async with asyncio.timeout(30):
            while loop.app.house.endings.counts[WAL_BUDGET] == 0:
                await run.look()
        ended = loop.app.house.registry.find(worst.handle)
        assert ended is not None
        assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, WAL_BUDGET)
        async with asyncio.timeout(30):
            while await run.look() > Rung.CALM:  # the server forgets at its next checkpoint and running-xacts record
                await asyncio.to_thread(
                    small.execute, "CHECKPOINT", "INSERT INTO other VALUES (2) ON CONFLICT DO NOTHING"
                )
        assert await waits.done
        registry = loop.app.house.registry
        await eventually(
            lambda: (entry := registry.named("items")) is not None and entry.shape.life is Life.READY, "the successor"
        )
        await loop.caught_up()
        assert loop.living("other").handle == sound.handle
        assert loop.app.house.endings.counts == {WAL_BUDGET: 1}
        assert run.watch.last is not None
        assert run.watch.last.slot is not None
        assert run.watch.last.slot.loss is None
    told = [record.getMessage() for record in caplog.records if record.name == "cdc.insurance.insurer"]
    assert ["nothing is done yet" in told[0], "no snapshot begins" in told[1], "all is as usual" in told[-1]] == [
        True
    ] * 3
    assert "max_slot_wal_keep_size" in told[0]


async def test_no_shape_ends_for_the_shared_disk(
    small: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    """A9: while it refuses, even at the last step all shapes live."""
    append, is_full = LocalDisk.append, False

    def fail(disk: LocalDisk, path: str, buffers: list[bytes]) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "made up", path)
        append(disk, path, buffers)

    monkeypatch.setattr(LocalDisk, "append", fail)
    small.execute(ITEMS, FILL)
    async with insured(small, tmp_path, Terms(None, 0.2, 0.3, 0.4)) as run:
        entry = await run.loop.add("items", "items")
        await run.loop.caught_up()
        is_full = True
        small.execute("UPDATE items SET v = 'w'")
        store = run.loop.app.house.store
        await eventually(lambda: isinstance(store.fault, SharedDiskFault), "the fault")
        await run.write_until(Rung.END)
        for _ in range(10):
            assert await run.look() is Rung.END
        assert "the disk" in run.insurer.facts["ends_nobody_because"]
        is_full = False
        await run.loop.caught_up()
        assert run.loop.living("items").handle == entry.handle
        assert not run.loop.app.house.endings.counts


async def test_a_budget_of_ones_own_where_the_server_has_none(
    newest_database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    newest_database.execute(ITEMS, FILL)
    async with insured(newest_database, tmp_path, Terms(2 * SEGMENT, 0.5, 0, 0)) as run:
        await run.loop.add("items", "items")
        with newest_database.connect() as writer:  # an open transaction holds restart_lsn, and no shape does
            writer.execute("BEGIN")
            writer.execute("INSERT INTO items VALUES (1000, 'open')")
            await run.write_until(Rung.ALERT)
            assert run.insurer.facts["budget_is_own"]
            assert run.insurer.facts["step"] == "alert"
    assert "--wal-budget" in caplog.text


def test_an_operator_is_told_who_keeps_the_wal_and_what_frees_it(newest_database: Database, tmp_path: Path) -> None:
    """A transaction that somebody left open is named, with its statement; and so is a slot that nobody reads."""
    newest_database.execute(ITEMS, FILL)
    settings = tmp_path / "settings.toml"
    settings.write_text("wal-budget = 120\nwal-alert-at = 60\nwal-pause-at = 0\nwal-end-at = 0\n")
    with serving(
        newest_database,
        tmp_path / "data",
        SHAPELOG_CONFIG=str(settings),
        SHAPELOG_WAL_ALERT_AT="50",
        SHAPELOG_WAL_BUDGE="1",
    ) as served:
        assert served.told("SHAPELOG_WAL_BUDGE is the variable of no setting; did you mean SHAPELOG_WAL_BUDGET?")
        served.add("items")
        with newest_database.connect(application_name="forgotten") as writer:
            writer.execute("BEGIN")
            writer.execute("INSERT INTO items VALUES (1000, 'open')")
            pid = writer.info.backend_pid
            newest_database.execute(*[WAL] * 25)
            served.caught_up()
            until(lambda: served.status()["insurance"]["step"] == "alert", "the alert")
            answer = served.run("status")
            said = answer.stdout + answer.stderr
            assert f"held by a transaction on the server: process {pid} (forgotten)" in said
            assert f"SELECT pg_terminate_backend({pid});" in said
            assert "of the WAL budget of 120.0 MB (--wal-budget) is used: nothing is done yet" in said
            steps = served.status()["insurance"]["steps"]
            assert steps == {"alert": 50.0}
            metrics = served.get("/metrics").text
            assert 'shapelog_insurance_step{step="alert"} 1.0' in metrics
            assert "shapelog_wal_budget_bytes 1.2582912e+08" in metrics
            events = [one["text"] for one in served.get("/v1/admin/events").json()["events"]]
            (told,) = [text for text in events if "--wal-budget" in text]
            assert f"held by a transaction on the server: process {pid}" in told
            newest_database.execute(*[WAL] * 6)
        assert served.stop() == 0
    said = shapelog("status", "--data-dir", tmp_path / "data", "-d", newest_database.conninfo()).stdout
    assert "held by nobody: no process reads the slot" in said
    assert "SELECT pg_drop_replication_slot('shapelog');" in said
