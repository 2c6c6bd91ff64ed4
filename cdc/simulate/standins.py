"""What stands in the place of psycopg and of threads, so that all else of the program runs as it is.

    Session            the stream: identity judged, frames decoded, replies made by the program's own cores
    Publisher          `ALTER PUBLICATION`, and the wait for writers of before
    SnapshotTransaction, look, connect_sql ..    what is asked of the server in SQL
    Flusher, Store     a flush in three steps, with pauses between them; nobody sleeps on a lock

`standing_in` puts them in, by name, where the program's modules look for the real ones.

Invariant: nothing of a process that has ended reaches the server
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self
from unittest import mock

import pyarrow as pa

from cdc.simulate.definitions import facts_of
from cdc.simulate.sender import Sender
from cdc.simulate.server import Relation, Seen
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.virtual_loop import Busy
from cdc.source.attempt import Arrived, Connected, Delivery
from cdc.source.errors import ConnectionFault
from cdc.source.identity import Fresh, Identity, Known, OtherTimeline, Proceed, ServerState, judge, refusal
from cdc.source.lsn import Lsn
from cdc.source.pgoutput import Decoder
from cdc.source.publication import Member, PublicationState
from cdc.source.publisher import Published
from cdc.source.relations import Relations
from cdc.source.replies import Replies
from cdc.source.slot import PLUGIN, SlotState
from cdc.source.walsender import CopyBatch
from shapes.definition import Table
from shapes.errors import SnapshotLost, TableLocked
from shapes.snapshot_copy import Chunks
from shapes.snapshot_transaction import Selection
from shapes.threads import in_thread
from storage.bases import Base, BaseWriter
from storage.catalog_records import Snapshot
from storage.clocks import Clocks
from storage.flush import Flushed
from storage.offset import SNAPSHOT_END
from storage.store import Store


@dataclass(slots=True)
class Attempt:
    """One connection."""

    number: int
    sender: Sender
    decoder: Decoder
    replies: Replies
    is_broken: bool = False


class Session:
    """One slot over many connections, as `cdc.source.session` has it."""

    def __init__(self, around: Surroundings, known: Callable[[], Known | None], *, adopt: bool) -> None:
        self.publisher = Publisher(around)
        self.attempt: Attempt | None = None
        self._around = around
        self._known = known
        self._adopt = adopt
        self._relations = Relations()
        self._ready: deque[Delivery] = deque()
        self._count = 0
        around.break_connection = self._break

    async def next(self) -> Delivery:
        """What comes next, after the pauses that a real one has."""
        while not self._ready:
            if self.attempt is None:
                await self._around.pause(0.05)
                self._connect()
            elif self.attempt.is_broken:
                self.attempt = None
            else:
                await self._receive(self.attempt)
        return self._ready.popleft()

    def confirm(self, attempt: int, lsn: Lsn) -> None:
        """Hand on what the flush tracker says; the server hears of it a moment later, or never."""
        if self._around.is_dead:
            return
        self._around.confirming(lsn)
        if self.attempt is not None and self.attempt.number == attempt:
            self.attempt.replies.flushed_to(lsn)
            loop = asyncio.get_running_loop()
            loop.call_later(self._around.some_seconds(0.01), self._tell, self.attempt)

    async def close(self) -> None:
        """End with a last reply."""
        if self.attempt is not None:
            self._tell(self.attempt)
            self.attempt = None

    def _tell(self, attempt: Attempt) -> None:
        if attempt is self.attempt and not attempt.is_broken and not self._around.is_dead:
            self._around.confirmed(attempt.replies.last(0.0).flushed)

    def _break(self) -> None:
        if self.attempt is not None:
            self.attempt.is_broken = True
            self._around.server_news.set()

    async def _receive(self, attempt: Attempt) -> None:
        around = self._around
        around.server_news.clear()
        if not attempt.sender.has_more and not around.keepalives_due:
            await around.server_news.wait()
            return
        await around.pause(0.001)
        if attempt.is_broken:
            return
        frames = attempt.sender.take(around.random.choice((1, 2, 3, 8, 40)))
        if around.keepalives_due:
            around.keepalives_due -= 1
            frames.append(attempt.sender.keepalive(wants_reply=False))
        events = attempt.decoder.feed(CopyBatch.join(frames))
        attempt.replies.heard(attempt.decoder.received, None, 0.0)
        self._ready += (Arrived(attempt.number, event) for event in events)

    def _connect(self) -> None:
        around = self._around
        known = self._known()
        state = _server_state(around)
        verdict = judge(known, state, adopt=self._adopt)
        if not isinstance(verdict, Proceed):
            raise refusal(verdict)
        start = self._start(verdict, known)
        self._count += 1
        replies = Replies(start, start, 0.0, 0.0)
        decoder = Decoder(self._relations, fragment_changes_max=around.fragment_changes_max)
        self.attempt = Attempt(self._count, Sender(around.server, max(start, around.server.confirmed or 0)), decoder, replies)
        asyncio.get_running_loop().call_later(around.some_seconds(0.01), self._tell, self.attempt)
        self._ready.append(
            Connected(self._count, state.identity, verdict, start, state.wal_end, _server_state(around).slot)
        )

    def _start(self, verdict: Proceed, known: Known | None) -> Lsn:
        server = self._around.server
        if isinstance(verdict, Fresh):
            if server.confirmed is None:
                server.confirmed = server.insert_lsn
            return Lsn(server.confirmed)
        assert not isinstance(verdict, OtherTimeline), "the model has one timeline"
        assert known is not None, "without it the verdict is Fresh"
        return verdict.start


def _server_state(around: Surroundings) -> ServerState:
    server = around.server
    slot = None
    if server.confirmed is not None:
        at = Lsn(server.confirmed)
        slot = SlotState("shapelog", PLUGIN, "shop", False, None, at, at, "reserved", None, None, None, None, None)
    identity = Identity("7", 1, "shop", "shapelog", {}, _publication(around))
    return ServerState(identity, slot, Lsn(server.insert_lsn))


def _publication(around: Surroundings) -> PublicationState:
    members = {
        one.oid: Member(one.oid, one.published_since, f'"public"."{one.name}"')
        for one in around.server.relations.values()
        if one.published_since is not None
    }
    return PublicationState("shapelog", 1, around.server.publication_version, tables=members)


class Publisher:
    """The publication of the model."""

    baseline = None

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._settled: set[int] = set()

    async def publish(self, connection: object, names: Sequence[str]) -> Published:
        """Add tables; wait for those that wrote to them before."""
        server = self._around.server
        for relation in server.relations.values():
            if f'"public"."{relation.name}"' not in names:
                continue
            await self._around.pause(0.01)
            if relation.published_since is None:
                server.publication_version += 1
                relation.published_since = server.publication_version
            if relation.oid not in self._settled:
                writers = [one for one in server.active.values() if any(c.relation is relation for c in one.changes)]
                while any(one.xid in server.active for one in writers):
                    await asyncio.sleep(0.01)
                self._settled.add(relation.oid)
        return Published(_publication(self._around), {}, {}, ())

    async def release(self, *_: object) -> bool:
        """Nothing ever leaves the publication."""
        return False


@dataclass(slots=True)
class SqlConnection:
    """A connection for queries."""

    around: Surroundings

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class SnapshotTransaction:
    """A REPEATABLE READ transaction of the model."""

    connection: SqlConnection
    selection: Selection
    snapshot: Snapshot
    seen: Seen
    relation: Relation
    rows_estimate: float | None = None

    async def close(self) -> None:
        """Roll back; the lock goes."""
        self.relation.readers -= 1


class Sql:
    """The server's answers."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def connect(self, conninfo: str, application: str) -> SqlConnection:  # noqa: ARG002 - as the real one
        """Connect, if the server lets us."""
        await self._around.pause(0.002)
        if self._around.happens(self._around.refusals):
            raise ConnectionFault("the server is too busy")
        return SqlConnection(self._around)

    async def open(self, conninfo: str, application: str, selection: Selection) -> SnapshotTransaction:
        """Lock, look, and read where the WAL is, in this order, with time in between."""
        connection = await self.connect(conninfo, application)
        server = self._around.server
        relation = server.relations[selection.oid]
        if relation.truncated_by is not None:
            raise TableLocked("somebody truncates the table")
        relation.readers += 1
        try:
            found = server.take()
            seen = server.snapshots[found.xmin, found.xmax, found.xip]
            await self._around.pause(0.02)
        except BaseException:
            relation.readers -= 1
            raise
        return SnapshotTransaction(connection, selection, replace(found, birth=server.insert_lsn), seen, relation)

    async def look(self, connection: object) -> Snapshot:  # noqa: ARG002 - as the real one
        """As `pg_current_snapshot()`, and then the place of the WAL."""
        await self._around.pause(0.002)
        return self._around.server.look(self._around.server.insert_lsn)

    async def flush_wal(self, conninfo: str, application: str, upto: int) -> None:  # noqa: ARG002 - as the real one
        """The model's server does not crash, so all its WAL is safe."""
        await self.connect(conninfo, application)

    async def look_at_all_running(self, connection: object) -> Snapshot:
        """With every transaction that writes."""
        self._around.server.burn_xid()
        return await self.look(connection)

    async def holders_of(self, *_: object) -> tuple[()]:
        """Nobody asks who they are."""
        return ()

    async def read_tables(self, connection: object, oids: Iterable[int]) -> dict[int, Table]:  # noqa: ARG002 - as the real one
        """By oid."""
        await self._around.pause(0.002)
        return {oid: facts_of(self._around.server.relations[oid]) for oid in oids}

    async def find_tables(
        self,
        connection: object,  # noqa: ARG002 - as the real one
        names: Iterable[tuple[str, str]],
    ) -> dict[tuple[str, str], Table]:
        """By name."""
        await self._around.pause(0.002)
        wanted = set(names)
        found = map(facts_of, self._around.server.relations.values())
        return {(one.schema, one.name): one for one in found if (one.schema, one.name) in wanted}

    async def copy(
        self,
        transaction: SnapshotTransaction,
        writer: BaseWriter,
        chunk_bytes: int,
        clocks: Clocks,
        progress: Callable[[], None],  # noqa: ARG002 - nobody looks
    ) -> Base:
        """Copy the rows that the snapshot shows."""
        chunks, selection = Chunks(transaction.selection.columns, chunk_bytes), transaction.selection
        relation = self._around.server.relations[selection.oid]
        matches = self._around.predicate(selection.where)
        rows = [named(relation, row) for row in transaction.seen.rows[selection.oid].values()]
        wanted = [{name: row[name] for name in selection.columns} for row in rows if matches(row)]
        for start in range(0, len(wanted), 4):
            await self._around.pause(0.01)
            if self._around.happens(self._around.lost_snapshots):
                raise SnapshotLost("the snapshot's connection broke", sqlstate=None)
            for chunk in chunks.add(pa.array(wanted[start : start + 4], chunks.values)):
                await in_thread(lambda chunk=chunk: writer.chunk(chunk, written_at=clocks.wall()))
        for chunk in chunks.rest():
            await in_thread(lambda chunk=chunk: writer.chunk(chunk, written_at=clocks.wall()))
        ends = {"floor": SNAPSHOT_END, "last": SNAPSHOT_END, "wire_end": 0, "written_at": clocks.wall()}
        return await in_thread(lambda: writer.finish(**ends))


def named(relation: Relation, row: Sequence[str | None]) -> dict[str, str | None]:
    """A row with its columns' names."""
    return {column.name: value for column, value in zip(relation.columns, row, strict=True)}


@dataclass(slots=True)
class Flushing:
    """The lock of those who flush: instead of waiting for it, the thread begins again later."""

    is_taken: bool = False
    depth: int = field(default=0)

    def acquire(self, timeout: float = -1) -> bool:  # noqa: ARG002 - as the real one
        """Take it, or come again."""
        if self.is_taken:
            raise Busy
        return True

    def release(self) -> None:
        """Nothing was kept."""


class WaitlessStore(Store):
    """A store in which nobody sleeps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.flushing: Any = Flushing()

    def wait_for_room(self, size: int, timeout_seconds: float, *, log: int | None = None) -> bool:  # noqa: ARG002 - no time passes on a thread
        """Look once, and wake the flusher."""
        with self.lock:
            state = None if log is None else self.log(log).state
            has_room = self._buffer.has_room(size, state)
            if not has_room:
                self._buffer.make_room()
                self.flush_wanted.set()
            return has_room


class Flusher:
    """A flush in three steps, with others in between."""

    def __init__(
        self,
        around: Surroundings,
        store: WaitlessStore,
        on_flushed: Callable[[Sequence[Flushed]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._around = around
        self._store = store
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._is_stopping = False

    def start(self) -> Self:
        """Run beside all else."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    def stop(self) -> None:
        """What a real one does in the thread that stops it."""
        self._is_stopping = True
        if not self._store.flushing.is_taken:
            self._task.cancel()  # it only waits
        if not self._task.done():
            raise Busy
        flushed = self._store.flush_all()
        if flushed:
            self._on_flushed(flushed)

    async def _run(self) -> None:
        try:
            while not self._is_stopping and not self._around.is_dead:
                await self._around.pause(0.01 * self._around.flush_pace)
                await self._flush()
        except asyncio.CancelledError:
            return
        except BaseException as failure:  # noqa: BLE001 - as the thread: whatever ends it is told
            if not self._around.is_dead:
                self._on_failure(failure)

    async def _flush(self) -> None:
        store = self._store
        job = store.begin_flush()
        if job is None:
            return
        store.flushing.is_taken = True
        try:
            await self._around.pause(0.01)
            job.run(store.disk)
            await self._around.pause(0.002)
        finally:
            store.flushing.is_taken = False
            flushed = store.end_flush(job)
        if flushed:
            self._on_flushed(flushed)


@contextlib.contextmanager
def standing_in(around: Surroundings) -> Iterator[None]:
    """Put all of them in."""
    sql = Sql(around)
    replaced: dict[str, object] = {
        "cdc.app.Session": lambda settings, known: Session(around, known, adopt=settings.adopt),
        "cdc.app.Flusher": lambda *arguments: Flusher(around, *arguments),
        "cdc.app.Store": WaitlessStore,
        "cdc.app._folder": lambda _: contextlib.nullcontext(around.disk),
        "shapes.household.connect_sql": sql.connect,
        "shapes.birth.connect_sql": sql.connect,
        "shapes.birth.SnapshotTransaction": sql,
        "shapes.birth.look": sql.look,
        "shapes.birth.flush_wal": sql.flush_wal,
        "shapes.birth.holders_of": sql.holders_of,
        "shapes.birth.copy_snapshot": sql.copy,
        "shapes.capture.look_at_all_running": sql.look_at_all_running,
        "shapes.housekeeping.look": sql.look,
        "shapes.restore.read_tables": sql.read_tables,
        "shapes.ground.read_tables": sql.read_tables,
        "shapes.reconciliation.read_tables": sql.read_tables,
        "shapes.nursery.find_tables": sql.find_tables,
    }
    with contextlib.ExitStack() as stack:
        for name, stand_in in replaced.items():
            stack.enter_context(mock.patch(name, stand_in))
        yield


