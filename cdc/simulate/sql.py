"""What the program asks the server in SQL, answered by the model: what runs, tables, snapshots and their rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa

from cdc.simulate.definitions import facts_of, predicate_of
from cdc.simulate.server import Seen, Server
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.tables import Relation
from cdc.source.errors import ConnectionFault
from shapes.definition import Table
from shapes.errors import SnapshotLost, SnapshotRefused, TableLocked
from shapes.snapshot_copy import Chunks
from shapes.snapshot_transaction import Selection
from shapes.threads import in_thread
from storage.bases import Base, BaseWriter
from storage.catalog_records import Snapshot
from storage.clocks import Clocks
from storage.offset import SNAPSHOT_END


@dataclass(slots=True)
class SqlConnection:
    """A connection for queries."""

    around: Surroundings
    life: tuple[int, int]

    @property
    def is_lost(self) -> bool:
        """Its server has crashed, or is not the primary any more."""
        return self.life != life_of(self.around.server)

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


def life_of(server: Server) -> tuple[int, int]:
    """A connection ends with it."""
    return server.timeline, server.crashes


class Sql:
    """The server's answers."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def connect(self, conninfo: str, application: str) -> SqlConnection:  # noqa: ARG002 - as the real one
        """Connect, if the server lets us."""
        await self._around.pause(0.002)
        if self._around.happens(self._around.refusals):
            raise ConnectionFault("the server is too busy")
        return SqlConnection(self._around, life_of(self._around.server))

    async def open(self, conninfo: str, application: str, selection: Selection) -> SnapshotTransaction:
        """Lock, look, and read where the WAL is, in this order, with time in between."""
        connection = await self.connect(conninfo, application)
        server = self._around.server
        relation = server.relations.get(selection.oid)
        if relation is None or relation.name != selection.table:
            raise SnapshotRefused("there is no table of this name")
        if any(one.locked_by is not None for one in (relation, *relation.parts)):
            raise TableLocked("somebody truncates or alters the table")
        relation.readers += 1
        try:
            found, seen = server.take()
            await self._pause(connection, 0.02)
        except BaseException:
            relation.readers -= 1
            raise
        snapshot = replace(found, birth=server.insert_lsn)
        server.snapshots[snapshot] = seen
        return SnapshotTransaction(connection, selection, snapshot, seen, relation)

    async def look(self, connection: SqlConnection) -> Snapshot:
        """As `pg_current_snapshot()`, and then the place of the WAL."""
        await self._around.pause(0.002)
        if connection.is_lost or self._around.happens(self._around.refusals):
            raise psycopg.OperationalError("the connection is lost")  # the real one leaves it to others to name it
        return self._around.server.look(self._around.server.insert_lsn)

    async def flush_wal(self, conninfo: str, application: str, upto: int) -> None:  # noqa: ARG002 - as the real one
        """All that a snapshot has seen is on the server's disk."""
        connection = await self.connect(conninfo, application)
        await self._pause(connection)
        self._around.server.flush()
        self._around.server_news.set()

    async def look_at_all_running(self, connection: SqlConnection) -> Snapshot:
        """With every transaction that writes."""
        self._around.server.use_a_number()
        self._around.server_news.set()
        return await self.look(connection)

    async def drop_slot(self, connection: SqlConnection, slot: str) -> bool:  # noqa: ARG002 - there is one
        """Drop it."""
        await self._pause(connection)
        self._around.server.lose_slot(is_dropped=True)
        return True

    async def holders_of(self, *_: object) -> tuple[()]:
        """Nobody asks who they are."""
        return ()

    async def read_tables(self, connection: SqlConnection, oids: Iterable[int]) -> dict[int, Table]:
        """By oid."""
        await self._pause(connection)
        return {oid: self._facts(oid) for oid in oids if oid in self._around.server.relations}

    async def find_tables(
        self,
        connection: SqlConnection,
        names: Iterable[tuple[str, str]],
    ) -> dict[tuple[str, str], Table]:
        """By name."""
        await self._pause(connection)
        wanted = set(names)
        found = map(self._facts, self._around.server.relations)
        return {(one.schema, one.name): one for one in found if (one.schema, one.name) in wanted}

    async def _pause(self, connection: SqlConnection, scale: float = 0.002) -> None:
        await self._around.pause(scale)
        if connection.is_lost:
            raise ConnectionFault("the server is gone")

    def _facts(self, oid: int) -> Table:
        relation = self._around.server.relations[oid]
        facts = facts_of(oid, relation.version)
        if not relation.leaves:
            return facts
        return replace(facts, kind="p", leaves=tuple(leaf.oid for leaf in relation.parts))

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
        version = transaction.seen.versions[selection.oid]
        if not {*selection.columns} <= {column.name for column in version.columns}:
            raise SnapshotRefused("there is no column of this name")
        matches = predicate_of(selection.where)
        await self._asked(transaction)  # also where there is no row to send
        rows = [version.named(row) for row in transaction.seen.rows[selection.oid].values()]
        wanted = [{name: row[name] for name in selection.columns} for row in rows if matches(row)]
        for start in range(0, len(wanted), 4):
            if self._around.happens(self._around.lost_snapshots):
                raise SnapshotLost("the snapshot's connection broke", sqlstate=None)
            await self._asked(transaction)
            for chunk in chunks.add(pa.array(wanted[start : start + 4], chunks.values)):
                await in_thread(lambda chunk=chunk: writer.chunk(chunk, written_at=clocks.wall()))
        for chunk in chunks.rest():
            await in_thread(lambda chunk=chunk: writer.chunk(chunk, written_at=clocks.wall()))
        return await in_thread(
            lambda: writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=clocks.wall())
        )

    async def _asked(self, transaction: SnapshotTransaction) -> None:
        """The server's answer takes a while, and does not come if the connection is lost."""
        await self._around.pause(0.01)
        if transaction.connection.is_lost:
            raise SnapshotLost("the snapshot's connection broke", sqlstate=None)
