"""One process of ours, made as plainly as possible: a stream, a store, a catalog, and shapes that are born in it.

What tests of births stand on. A `Process` is begun anew over the same `Home` to play a restart; whatever it had in
memory is gone, what it wrote is there.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from cdc.source.attempt import Arrived, Connected
from cdc.source.connections import connect_sql
from cdc.source.fragments import Fragment, KeepAlive, Kind
from cdc.source.identity import Known
from cdc.source.lsn import LSN_ZERO, Lsn, parse_lsn
from cdc.source.numbers import Words
from cdc.source.publisher import Publisher, Waiting
from cdc.source.session import Session
from shapes.birth import Birth, Born, Status
from shapes.birth_steps import Patience
from shapes.errors import MustLeave
from shapes.snapshot_filter import is_to_append
from shapes.snapshot_transaction import Selection, look_at_all_running
from shapes.streamed import Demand, Streamed
from shapes.waits import tell, told_to
from storage.bases import Base
from storage.catalog import Catalog
from storage.catalog_records import Born as BornRecord
from storage.catalog_records import Ended, Life, Ready, Snapshot
from storage.catalog_records import Shape as Recorded
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.errors import SharedDiskFault
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import NEW, TX, column
from storage.store import Store
from storage.store_reader import StoreReader
from tests.follower import settings_for
from tests.postgres import Database
from tests.waiting import eventually

QUICK = Patience(look_again_seconds=0.02, look_outside_seconds=0.05, retake_seconds_min=0.02, retake_seconds_max=0.1)
CHUNK_BYTES = 64 * 1024


class Crash(BaseException):
    """The process ends here: nobody handles it."""


@dataclass
class Home:
    """What outlives a process: its folder, and what it would have in the G log."""

    folder: Path
    known: Known | None = None


@dataclass
class Held:
    """Rows of some whole transactions, and of which."""

    rows: pa.RecordBatch
    xids: Words
    end: LogOffset


class Shape:
    """One shape of a process; the `Ground` of its birth."""

    def __init__(self, process: "Process", table: str, crash_at: str = "", where: str | None = None) -> None:
        self.process = process
        self.table = table
        self.where = where
        self.crash_at = crash_at
        self.careless = False
        """Born from the first snapshot, whatever it lacks: to show that the trap is real."""
        self.selection: Selection | None = None
        self.key: tuple[str, ...] = ()
        self.is_fed = False
        self.held: list[Held] = []
        self.joined_at: Lsn | None = None
        self.expelled = asyncio.Event()
        self.demand: Demand | None = None
        self.handle: str | None = None
        self.log: int | None = None
        self.snapshot: Snapshot | None = None
        self.statuses: list[Status] = []
        self.failure: tuple[str, str] | None = None
        self.joins = 0
        self.faults: list[str] = []
        """Where the disk has no room, once each."""

    # Ground

    async def publish(self, waiting: Waiting) -> Selection:
        connection = await connect_sql(self.process.conninfo, "birth")
        try:
            with told_to(waiting):
                published = await self.process.publisher.publish(connection, [self.table])
            state = published.tables[self.table]
            self.key, columns = await read_columns(connection, state.oid)
        finally:
            await connection.close()
        self.selection = Selection(state.oid, state.schema, state.name, columns, self.where, state.kind == "p")
        return self.selection

    async def join(self) -> None:
        await eventually(lambda: not self.process.is_open, "a transaction's end")
        self.is_fed = True
        self.held = []
        self.joined_at = self.process.durable
        self.expelled.clear()
        self.demand = self.process.streamed.demand()
        self.joins += 1

    async def must_leave(self) -> str:
        await self.expelled.wait()
        return "the stream began anew, or there is too much to hold"

    async def look_again(self, connection: Any) -> None:
        """No test here alters a table that late."""

    def unseen(self, snapshot: Snapshot) -> Words:
        assert self.demand is not None
        return np.zeros(0, np.uint32) if self.careless else self.demand.unseen(snapshot)

    async def born(self, snapshot: Snapshot) -> Born:
        await eventually(lambda: not self.process.is_open, "a transaction's end")
        if self.expelled.is_set():
            raise MustLeave("it was thrown out")
        catalog, store = self.process.catalog, self.process.store
        self.log = catalog.state.next_log
        self.handle = f"{self.table}-{self.log}"
        self.point("before the record")
        catalog.append(BornRecord(self.handle, self.log, None, {"table": self.table}, snapshot))
        self.point("before the log")
        store.create_log(LogFacts(self.log, self.handle, self.key, chunk_bytes=CHUNK_BYTES))
        self.snapshot = snapshot
        self.point("before what is held")
        held, self.held = self.held, []
        for one in held:
            self.append(one)
        self.joined_at = None
        self.process.settle()
        self.point("before the copy")
        return Born(store.new_base(self.log), CHUNK_BYTES)

    async def leave(self, reason: str) -> None:
        assert reason
        self.point("leaving it")
        self.is_fed, self.held, self.joined_at = False, [], None
        if self.handle is not None and self.log is not None:
            self.process.remove(self.process.catalog.state.shapes.get(self.handle), self.log)
        self.handle = self.log = self.snapshot = None
        self.process.settle()

    async def ready(self, base: Base) -> None:
        assert self.handle is not None
        self.point("before ready")
        self.process.catalog.append(Ready(self.handle, base.number))
        self.point("after ready")

    async def failed(self, reason: str, hint: str) -> None:
        await self.leave(reason)
        self.failure = reason, hint

    # The rest

    def point(self, name: str) -> None:
        if self.crash_at == name:
            raise Crash(name)
        if name in self.faults:
            self.faults.remove(name)
            raise SharedDiskFault("no room")

    def watch(self, status: Status) -> None:
        self.statuses.append(status)
        self.point(status.step if status.progress is None else f"{status.step}, some rows")

    async def be_born(self, patience: Patience = QUICK) -> bool:
        birth = Birth(self, self.process.conninfo, "birth", Clocks(), self.watch, patience)
        return await birth.run()

    def take(self, one: Held) -> None:
        if self.log is not None and self.snapshot is not None:
            self.append(one)
        elif self.is_fed:
            self.held.append(one)

    def append(self, one: Held) -> None:
        assert self.snapshot is not None
        kept = is_to_append(self.snapshot, column(one.rows, TX), one.xids)
        rows = one.rows.filter(pa.array(kept))
        if rows.num_rows:
            assert self.log is not None
            self.process.store.append(self.log, rows, after=SNAPSHOT_END, aligned=one.end)

    def fold(self) -> dict[tuple[str, ...], dict[str, str]]:
        """What a reader of the base and then the log has. No row comes twice, and none is changed before it came."""
        assert self.handle is not None
        assert self.log is not None
        recorded = self.process.catalog.state.shapes[self.handle]
        assert recorded.life is Life.READY
        assert recorded.base is not None
        reader = StoreReader(self.process.store)
        found: dict[tuple[str, ...], dict[str, str]] = {}
        number = 0
        while (chunk := reader.read_chunk(self.log, recorded.base, number)) is not None:
            for row in chunk.column(NEW).to_pylist():
                assert self.key_of(row) not in found, f"{row} is twice in the base"
                found[self.key_of(row)] = row
            number += 1
        at, at_end = SNAPSHOT_END, False
        while not at_end:
            result = reader.read(self.log, at)
            for batch in result.rows:
                for row in batch.to_pylist():
                    self.apply(found, row)
            at, at_end = result.next, result.at_end
        return found

    def apply(self, found: dict[tuple[str, ...], dict[str, str]], row: dict[str, Any]) -> None:
        if row["kind"] == Kind.TRUNCATE:
            found.clear()
            return
        key = self.key_of(row["new"])
        assert (key in found) == (row["kind"] != Kind.INSERT), f"{row} does not fit what is there: {found.get(key)}"
        if row["kind"] == Kind.DELETE:
            del found[key]
        else:
            found[key] = row["new"]

    def key_of(self, row: dict[str, str]) -> tuple[str, ...]:
        return tuple(row[name] for name in self.key)


@dataclass
class Process:
    """Reads the stream, and feeds its shapes."""

    database: Database
    home: Home
    conninfo: str
    confirming: bool = True
    shapes: list[Shape] = field(default_factory=list)
    open_rows: list[tuple[int, pa.RecordBatch, Words]] = field(default_factory=list)
    is_open: bool = False
    durable: Lsn = LSN_ZERO
    passed: Lsn = LSN_ZERO

    async def __aenter__(self) -> Self:
        self.disk = LocalDisk(self.home.folder)
        self.store = Store(self.disk, Clocks())
        self.catalog = Catalog(self.disk)
        self.publisher = Publisher("follower", "managed", waiting=tell)
        self.session = Session(settings_for(self.conninfo), known=lambda: self.home.known, publisher=self.publisher)
        for recorded in self.catalog.state.living():
            if recorded.life is Life.BORN:
                self.remove(recorded, recorded.log)
        connected = await self.session.next()
        assert isinstance(connected, Connected)
        self.identity, self.attempt = connected.identity, connected.attempt
        self.durable = self.passed = connected.start
        self.home.known = Known(self.identity, self.durable)
        connection = await connect_sql(self.conninfo, "look")
        self.streamed = Streamed(await look_at_all_running(connection))
        await connection.close()
        for recorded in self.catalog.state.living():
            await self.restore(recorded)  # before the stream goes on
        self.pump = asyncio.ensure_future(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.pump
        await self.session.close()

    def remove(self, recorded: Recorded | None, log: int) -> None:
        if recorded is not None and recorded.life is not Life.ENDED:
            self.catalog.append(Ended(recorded.handle, SNAPSHOT_END, "interrupted"))
        self.store.remove_log(log)

    def shape(self, table: str, crash_at: str = "", where: str | None = None) -> Shape:
        made = Shape(self, table, crash_at, where)
        self.shapes.append(made)
        return made

    async def restore(self, recorded: Recorded) -> None:
        """A shape of an earlier process goes on."""
        made = self.shape(recorded.definition["table"])
        made.handle, made.log, made.snapshot, made.is_fed = recorded.handle, recorded.log, recorded.snapshot, True
        connection = await connect_sql(self.conninfo, "restore")
        (row,) = await (await connection.execute("SELECT %s::regclass::oid::int8 AS oid", [made.table])).fetchall()
        made.key, columns = await read_columns(connection, row["oid"])
        await connection.close()
        made.selection = Selection(row["oid"], "public", made.table, columns)

    async def run(self) -> None:
        while True:
            match await self.session.next():
                case Connected() as connected:
                    self.attempt = connected.attempt
                    self.is_open, self.open_rows = False, []
                    for shape in self.shapes:
                        shape.expelled.set()
                case Arrived(_, Fragment() as fragment):
                    self.take(fragment)
                case Arrived(_, KeepAlive() as keepalive):
                    if not self.is_open:
                        self.passed = max(self.passed, keepalive.wal_end)
                case _:
                    pass
            self.settle()

    def take(self, fragment: Fragment) -> None:
        """Give the shapes the rows of transactions that have ended; the others are kept until they have."""
        transactions, ended = fragment.transactions, fragment.ended_count
        arrived = [
            (changes.relation.oid, changes.rows, transactions.xid[changes.transaction], changes.transaction < ended)
            for changes in fragment.changes
        ]
        self.is_open = fragment.ends_open
        if ended:
            end = fragment.aligned_offset(ended - 1)
            parts = [(oid, rows, xids, np.ones(len(xids), np.bool_)) for oid, rows, xids in self.open_rows]
            self.open_rows = []
            for oid in dict.fromkeys(part[0] for part in parts + arrived):
                own = [
                    (rows.filter(pa.array(is_whole)), xids[is_whole])
                    for one, rows, xids, is_whole in parts + arrived
                    if one == oid
                ]
                rows = pa.concat_batches(unified([rows for rows, _ in own]))
                for shape in self.shapes:
                    if rows.num_rows and shape.selection is not None and oid == shape.selection.oid:
                        shape.take(Held(rows, np.concatenate([xids for _, xids in own]), end))
            self.streamed.add(transactions.xid[:ended])
            self.passed = Lsn(int(transactions.end_lsn[ended - 1]))
        still = [(oid, rows.filter(pa.array(~whole)), xids[~whole]) for oid, rows, xids, whole in arrived]
        self.open_rows += [one for one in still if len(one[2])]

    def settle(self) -> None:
        """Make durable what there is, and confirm as far as nobody holds it."""
        self.store.flush_all()
        bounds = [shape.joined_at for shape in self.shapes if shape.joined_at is not None]
        self.durable = max(self.durable, min([self.passed, *bounds]))
        if self.confirming:
            self.home.known = Known(self.identity, self.durable)
            self.session.confirm(self.attempt, self.durable)

    async def caught_up(self) -> None:
        """The stream has passed all that is committed, or waits for a standby, by now."""
        end = parse_lsn(self.database.value("SELECT pg_current_wal_insert_lsn()::text"))
        self.database.execute("SELECT pg_logical_emit_message(true, 'tests', '')")

        def has_passed() -> bool:
            if self.pump.done():
                self.pump.result()
            return self.passed >= end

        await eventually(has_passed, "the stream to catch up")

    async def check(self, shape: Shape) -> None:
        """Base and log are the table."""
        await self.caught_up()
        assert shape.selection is not None
        names = shape.selection.columns
        columns = ", ".join(f'"{name}"::text' for name in names)
        clause = f" WHERE {shape.where}" if shape.where else ""
        query = f"SELECT {columns} FROM {shape.table}{clause}"  # noqa: S608 - names of our own tests
        with self.database.connect() as connection:
            rows = connection.execute(query.encode()).fetchall()
        table = [dict(zip(names, row, strict=True)) for row in rows]
        assert shape.fold() == {shape.key_of(row): row for row in table}


def unified(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Without the rows as they were: some batches have them, and nobody here wants them."""
    return [batch.drop_columns(["old"]) if "old" in batch.schema.names else batch for batch in batches]


async def read_columns(connection: Any, oid: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key's columns, and all columns."""
    cursor = await connection.execute(
        "SELECT a.attname, coalesce(a.attnum = ANY (i.indkey), false) AS is_key FROM pg_attribute a "
        "LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary "
        "WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [oid],
    )
    rows = await cursor.fetchall()
    names = tuple(row["attname"] for row in rows)
    return tuple(row["attname"] for row in rows if row["is_key"]) or names, names
