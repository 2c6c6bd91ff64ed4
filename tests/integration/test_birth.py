"""Births on a real server: whatever the server and other sessions do meanwhile, base and log are the table."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from cdc.source.lsn import parse_lsn
from shapes.birth import Status
from shapes.birth_steps import Step
from tests.birth_ground import QUICK, Crash, Home, Process, Shape
from tests.postgres import Database, Server, make_server, new_database
from tests.waiting import eventually, until


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def database(newest_database: Database) -> Database:
    return newest_database


@pytest.fixture(scope="module")
def lonely_server() -> Iterator[Server]:
    """A session may ask that its commits wait for a standby that there is not."""
    server = make_server("15")
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("ALTER ROLE postgres SET synchronous_commit = local")
    server.configure(synchronous_standby_names="nobody")
    server.stop()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def lonely(lonely_server: Server) -> Iterator[Database]:
    made = new_database(lonely_server)
    make_table(made)
    yield made
    made.remove()


def process_on(database: Database, home: Home, *, confirming: bool = True) -> Process:
    return Process(database, home, database.conninfo(), confirming)


def make_table(database: Database, rows: int = 10) -> None:
    database.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    with database.connect() as connection:
        connection.execute("INSERT INTO t SELECT i, 'before' FROM generate_series(1, %s) i", [rows])


def steps(shape: Shape) -> list[Step]:
    return [status.step for status in shape.statuses]


class HangingCommit:
    """A transaction whose commit is in the WAL, and waits for the standby."""

    def __init__(self, database: Database, statement: LiteralString) -> None:
        self.database = database
        self.connection = database.connect(options="-c synchronous_commit=on")
        self.pid = self.connection.info.backend_pid
        self.thread = threading.Thread(target=self.connection.execute, args=(statement,))
        self.thread.start()
        until(self.is_waiting, "the commit to wait for the standby")

    def is_waiting(self) -> bool:
        with self.database.connect() as connection:
            query = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
            return connection.execute(query, [self.pid]).rowcount == 1

    def release(self) -> None:
        """Wait no longer: the transaction becomes visible."""
        with self.database.connect() as connection:
            connection.execute("SELECT pg_cancel_backend(%s)", [self.pid])
        self.thread.join()
        self.connection.close()


Hang = Callable[[LiteralString], HangingCommit]


@pytest.fixture
def hang(lonely: Database) -> Iterator[Hang]:
    made: list[HangingCommit] = []

    def hang(statement: LiteralString) -> HangingCommit:
        made.append(HangingCommit(lonely, statement))
        return made[-1]

    yield hang
    for commit in made:
        if commit.thread.is_alive():
            commit.release()


async def test_a_quiet_table(database: Database, home: Home) -> None:
    make_table(database)
    async with process_on(database, home) as process:
        shape = process.shape("t")
        assert await shape.be_born()
        await process.check(shape)
    wanted = [Step.PUBLISHING, Step.JOINING, Step.LOOKING, Step.RECORDING, Step.COPYING, Step.FINISHING, Step.READY]
    assert list(dict.fromkeys(steps(shape))) == wanted


async def test_an_empty_table_and_one_that_is_written_later(database: Database, home: Home) -> None:
    make_table(database, rows=0)
    async with process_on(database, home) as process:
        shape = process.shape("t")
        assert await shape.be_born()
        await process.check(shape)
        database.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'", "INSERT INTO t VALUES (2, NULL)")
        await process.check(shape)


async def test_the_clause_decides(database: Database, home: Home) -> None:
    make_table(database)
    async with process_on(database, home) as process:
        shape = process.shape("t", where="k > 3 AND v = 'before'")
        assert await shape.be_born()
        await process.check(shape)


async def test_a_commit_is_streamed_before_it_is_visible(lonely: Database, home: Home, hang: Hang) -> None:
    """A6 (a): the snapshot of a shape that joins behind it must have it, and is taken until it does."""
    async with process_on(lonely, home) as process:
        first = process.shape("t")
        assert await first.be_born()  # from now on the table is published, and nobody waits for its writers
        commit = hang("INSERT INTO t VALUES (100, 'streamed, not visible')")
        await process.caught_up()
        second = process.shape("t")
        birth = asyncio.ensure_future(second.be_born())
        await eventually(lambda: any(status.holders for status in second.statuses), "the holder to be shown")
        shown = next(status for status in second.statuses if status.holders)
        assert shown.step is Step.LOOKING
        assert shown.holders[0].pid == commit.pid
        assert Step.RECORDING not in steps(second)
        commit.release()
        assert await birth
        await process.check(second)
        await process.check(first)


@pytest.mark.parametrize("careless", [False, True], ids=["with care", "without"])
async def test_an_earlier_process_had_confirmed_it(lonely: Database, home: Home, hang: Hang, careless: bool) -> None:
    """A6 (b): nobody streams it again. Without care the row is in neither snapshot nor stream: the trap is real."""
    async with process_on(lonely, home) as process:
        assert await process.shape("t").be_born()
        commit = hang("INSERT INTO t VALUES (100, 'confirmed, not visible')")
        await process.caught_up()
        assert process.home.known is not None
        confirmed = process.durable
    async with process_on(lonely, home) as process:
        assert process.durable >= confirmed
        # Without this the publisher, which is as new as the process, would wait for the writer before anybody looks.
        process.publisher._settled.add(lonely.value("SELECT 't'::regclass::oid::int8"))
        shape = process.shape("t")
        shape.careless = careless
        birth = asyncio.ensure_future(shape.be_born())
        looked = Step.READY if careless else Step.LOOKING
        await eventually(lambda: looked in steps(shape) and (careless or shape.statuses[-1].holders), "a look")
        commit.release()
        assert await birth
        if careless:
            await process.caught_up()
            assert ("100",) not in shape.fold()
        else:
            await process.check(shape)


async def test_who_waits_too_long_leaves_and_lets_g_go(lonely: Database, home: Home, hang: Hang) -> None:
    async with process_on(lonely, home) as process:
        assert await process.shape("t").be_born()
        commit = hang("INSERT INTO t VALUES (100, 'x')")
        await process.caught_up()
        shape = process.shape("t")
        birth = asyncio.ensure_future(shape.be_born(replace(QUICK, joined_seconds=0.3)))
        await eventually(lambda: Step.OUTSIDE in steps(shape), "the shape to leave")
        before = process.durable
        lonely.execute("INSERT INTO t VALUES (101, 'while it is outside')")
        await eventually(lambda: process.durable > before, "G to move on while the shape waits outside")
        commit.release()
        assert await birth
        assert shape.joins >= 2
        await process.check(shape)


async def test_what_never_becomes_visible_ends_the_birth(lonely: Database, home: Home, hang: Hang) -> None:
    async with process_on(lonely, home) as process:
        assert await process.shape("t").be_born()
        commit = hang("INSERT INTO t VALUES (100, 'x')")
        await process.caught_up()
        shape = process.shape("t")
        assert not await shape.be_born(replace(QUICK, joined_seconds=0.2, unseen_seconds=0.5))
        commit.release()
    assert shape.failure is not None
    reason, hint = shape.failure
    assert f"process {commit.pid}" in reason
    assert hint == f"SELECT pg_terminate_backend({commit.pid});"


@pytest.mark.parametrize("is_killed", [False, True], ids=["looking", "crashing"])
async def test_a_commit_that_a_crash_of_the_server_undoes(
    own_server: Callable[..., Server], home: Home, is_killed: bool
) -> None:
    """`synchronous_commit = off`: what is visible is not yet on the server's disk. No base may have it before it is."""
    server = own_server("15", wal_writer_delay="10s")
    database = new_database(server)
    make_table(database)
    async with process_on(database, home) as process:
        assert await process.shape("t").be_born()
        flushed = "SELECT pg_current_wal_flush_lsn()::text"
        with database.connect(options="-c synchronous_commit=off") as writer:

            def commit_beside_the_disk() -> bool:
                writer.execute("INSERT INTO t SELECT count(*) + 1, 'not on disk' FROM t")
                query = "SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()"
                return writer.execute(query).fetchone() == (True,)

            until(commit_beside_the_disk, "a commit that the WAL writer did not see at once")
            end = parse_lsn(database.value("SELECT pg_current_wal_insert_lsn()::text"))
            rows = database.value("SELECT count(*) FROM t")
            shape = process.shape("t")
            assert await shape.be_born()
        assert shape.snapshot is not None
        assert shape.snapshot.birth >= end
        if is_killed:
            server.stop("immediate")
            server.start()
            assert database.value("SELECT count(*) FROM t") == rows
        assert parse_lsn(database.value(flushed)) >= shape.snapshot.birth
        await process.check(shape)


async def test_a_writer_on_both_sides_of_add_table(database: Database, home: Home) -> None:
    """Postgres would stream the second half of its transaction only."""
    make_table(database)
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")  # which needs a lock that the writer would keep
    async with process_on(database, home) as process:
        with database.connect() as writer:
            writer.execute("BEGIN")
            writer.execute("INSERT INTO t VALUES (100, 'before ADD TABLE')")
            shape = process.shape("t")
            birth = asyncio.ensure_future(shape.be_born())
            published = "SELECT count(*) FROM pg_publication_rel"
            await eventually(lambda: database.value(published) == 1, "the table to be published")
            writer.execute("INSERT INTO t VALUES (101, 'after it')")
            assert set(steps(shape)) == {Step.PUBLISHING}
            writer.execute("COMMIT")
        assert await birth
        await process.check(shape)


async def test_transactions_end_in_another_order_than_they_began(database: Database, home: Home) -> None:
    """Old ones that end after the birth, young ones that end before it, and a prepared one."""
    make_table(database)
    async with process_on(database, home) as process:
        assert await process.shape("t").be_born()
        writers = [database.connect() for _ in range(4)]
        for number, writer in enumerate(writers):
            writer.execute("BEGIN")
            writer.execute("INSERT INTO t VALUES (%s, 'ordered')", [100 + number])
        writers[3].execute("COMMIT")
        writers[2].execute("PREPARE TRANSACTION 'ordered'")
        shape = process.shape("t")
        assert await shape.be_born()
        assert shape.snapshot is not None
        assert len(shape.snapshot.xip) == 3
        writers[1].execute("COMMIT")
        writers[2].execute("COMMIT PREPARED 'ordered'")
        writers[0].execute("ROLLBACK")
        for writer in writers:
            writer.close()
        await process.check(shape)


@pytest.mark.parametrize("seed", range(3))
async def test_many_writers_meanwhile(database: Database, home: Home, seed: int) -> None:
    make_table(database, rows=2000)
    stop = threading.Event()
    writers = [
        threading.Thread(target=write, args=(database, random.Random(seed * 10 + one), one, stop)) for one in range(3)
    ]
    async with process_on(database, home) as process:
        for writer in writers:
            writer.start()
        try:
            for _ in range(3):
                assert await process.shape("t").be_born()
        finally:
            stop.set()
            for writer in writers:
                await asyncio.to_thread(writer.join)
        for shape in process.shapes:
            await process.check(shape)


def write(database: Database, chance: random.Random, number: int, stop: threading.Event) -> None:
    """Transactions of a few changes each, with keys of this writer's own; one in five rolls back."""
    own = 10_000 * (number + 1)
    with database.connect() as connection:
        while not stop.is_set():
            connection.execute("BEGIN")
            for _ in range(chance.randint(1, 4)):
                key = own + chance.randint(0, 30)
                connection.execute(
                    "INSERT INTO t VALUES (%s, %s) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                    [key, str(chance.random())],
                )
                connection.execute("DELETE FROM t WHERE k = %s", [own + chance.randint(0, 30)])
                connection.execute(
                    "UPDATE t SET v = 'changed' WHERE k = %s", [1 + number * 600 + chance.randint(0, 599)]
                )
            connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


async def test_a_replay_from_before_the_birth(database: Database, home: Home) -> None:
    """The filter is for life (A7): what the snapshot has comes again, and stays out again."""
    make_table(database)
    async with process_on(database, home, confirming=False) as process:
        assert await process.shape("t").be_born()
        database.execute("INSERT INTO t VALUES (100, 'in the snapshot of the second')")
        with database.connect() as old:
            old.execute("BEGIN")
            old.execute("INSERT INTO t VALUES (101, 'before the birth, and not in its snapshot')")
            shape = process.shape("t")
            assert await shape.be_born()
            old.execute("COMMIT")
        database.execute("INSERT INTO t VALUES (102, 'after it')")
        await process.check(shape)
        handle = shape.handle
    for recorded in [one for one in process.catalog.state.living() if one.handle != handle]:
        process.remove(recorded, recorded.log)
    database.execute("UPDATE t SET v = 'while nobody was there' WHERE k = 102")
    async with process_on(database, home) as process:
        (again,) = process.shapes
        assert again.handle == handle
        await process.check(again)


CRASHES = [
    *(step.value for step in (Step.PUBLISHING, Step.JOINING, Step.LOOKING, Step.RECORDING)),
    *("before the record", "before the log", "before what is held", "before the copy"),
    *(Step.COPYING.value, "copying, some rows", Step.FINISHING.value, "before ready", "after ready"),
]


@pytest.mark.parametrize("crash_at", CRASHES)
async def test_a_crash_at_each_step(database: Database, home: Home, crash_at: str) -> None:
    make_table(database, rows=3000)
    async with process_on(database, home) as process:
        shape = process.shape("t", crash_at)
        birth = asyncio.ensure_future(shape.be_born())
        with pytest.raises(Crash):
            await birth
        database.execute("INSERT INTO t VALUES (100001, 'by then')")
        process.pump.cancel()
        await asyncio.wait([process.pump])
    database.execute("UPDATE t SET v = 'while nobody was there' WHERE k = 1")
    async with process_on(database, home) as process:
        survives = crash_at == "after ready"
        assert bool(process.catalog.state.living()) == survives
        if survives:
            (again,) = process.shapes
        else:
            interrupted = set(process.catalog.state.shapes)
            again = process.shape("t")
            assert await again.be_born()
            assert again.handle not in interrupted
        database.execute("DELETE FROM t WHERE k = 2")
        await process.check(again)


async def test_a_full_disk_ends_no_birth(database: Database, home: Home) -> None:
    """A9: whatever step meets it, it is tried again, and not counted. What it had begun is removed first."""
    make_table(database)
    async with process_on(database, home) as process:
        shape = process.shape("t")
        shape.faults = ["before the log", "before what is held", "before the copy", "leaving it", "before ready"]
        assert await shape.be_born(replace(QUICK, retakes=0))
        assert shape.faults == []
        assert shape.statuses[-1].attempt == 1
        assert set(process.disk.names("logs")) == {str(shape.log)}
        await process.check(shape)


class Terminator:
    """Ends the session that copies, at its first rows, a number of times."""

    def __init__(self, database: Database, shape: Shape, times: int) -> None:
        self.database = database
        self.shape = shape
        self.left = times
        self.handles: list[str | None] = []

    def watch(self, status: Status) -> None:
        self.shape.statuses.append(status)
        if status.progress is not None and self.left and status.attempt > len(self.handles):
            self.left -= 1
            self.handles.append(self.shape.handle)
            query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'COPY%'"
            assert self.database.value(query) == 1


def make_large_table(database: Database) -> None:
    """More than what the socket and our buffers hold."""
    database.execute(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, repeat('x', 400) FROM generate_series(1, 50000) i",
    )


async def test_a_snapshot_that_is_killed_is_taken_again(
    database: Database, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_large_table(database)
    async with process_on(database, home) as process:
        shape = process.shape("t")
        terminator = Terminator(database, shape, times=2)
        monkeypatch.setattr(shape, "watch", terminator.watch)
        assert await shape.be_born()
        await process.check(shape)
        assert shape.statuses[-1].attempt == 3
        assert len({*terminator.handles, shape.handle}) == 3, "each attempt has a handle of its own (A12)"
        lives = {one.handle: one.life for one in process.catalog.state.shapes.values()}
        assert all(lives[handle] == "ended" for handle in terminator.handles if handle)
        assert set(process.disk.names("logs")) == {str(shape.log)}


async def test_a_snapshot_that_is_always_killed_ends_the_shape(
    database: Database, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_large_table(database)
    async with process_on(database, home) as process:
        shape = process.shape("t")
        monkeypatch.setattr(shape, "watch", Terminator(database, shape, times=99).watch)
        assert not await shape.be_born(replace(QUICK, retakes=2))
        assert shape.failure is not None
        assert "given up after 3 attempts" in shape.failure[0]
        assert "the snapshot of public.t ended" in shape.failure[0]  # a full socket has no room for the server's words
        assert process.catalog.state.living() == []
        assert process.disk.names("logs") == []


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        pytest.param(["DROP TABLE t"], "public.t is gone", id="dropped"),
        pytest.param(["DROP TABLE t", "CREATE TABLE t (k int, v text)"], "made anew", id="made anew"),
        pytest.param(["ALTER TABLE t DROP COLUMN v"], "v", id="column dropped"),
    ],
)
async def test_a_table_that_changes_in_between(
    database: Database, home: Home, monkeypatch: pytest.MonkeyPatch, statements: list[LiteralString], reason: str
) -> None:
    make_table(database)
    async with process_on(database, home) as process:
        shape = process.shape("t")

        def watch(status: Status) -> None:
            if status.step is Step.JOINING:
                database.execute(*statements)

        monkeypatch.setattr(shape, "watch", watch)
        assert not await shape.be_born()
        assert shape.failure is not None
        assert reason in shape.failure[0]
        assert shape.failure[1]
        assert process.catalog.state.living() == []


async def test_a_truncate_is_waited_for(database: Database, home: Home) -> None:
    """No snapshot looks behind a TRUNCATE, so it is either before the snapshot, and seen, or after the copy."""
    make_table(database)
    async with process_on(database, home) as process:
        assert await process.shape("t").be_born()
        with database.connect() as other:
            other.execute("BEGIN")
            other.execute("TRUNCATE t")
            shape = process.shape("t")
            birth = asyncio.ensure_future(shape.be_born())
            await eventually(
                lambda: any("is locked by process" in one.reason for one in shape.statuses), "the lock to be met"
            )
            other.execute("INSERT INTO t VALUES (1, 'after it')")
            other.execute("COMMIT")
        assert await birth
        await process.check(shape)


async def test_the_stream_breaks_while_a_shape_has_joined(lonely: Database, home: Home, hang: Hang) -> None:
    async with process_on(lonely, home) as process:
        assert await process.shape("t").be_born()
        commit = hang("INSERT INTO t VALUES (100, 'x')")
        await process.caught_up()
        shape = process.shape("t")
        birth = asyncio.ensure_future(shape.be_born())
        await eventually(lambda: any(status.holders for status in shape.statuses), "a look")
        lonely.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'follower'")
        await eventually(lambda: Step.LEAVING in steps(shape), "the shape to leave")
        commit.release()
        assert await birth
        await process.check(shape)
