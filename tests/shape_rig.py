"""Shapes over HTTP without Postgres: a real store on a disk in memory, whose logs a test writes by hand.

Requests come over connections in memory, so a thousand of them are no sockets; a client leaves when a test says so.
"""

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

import pyarrow as pa

from shapes.definition import Definition, Table, TableColumn
from shapes.errors import BirthFailed, DefinitionError
from shapes.http.app import ShapeApp
from shapes.http.connections import Connections
from shapes.http.envelope import Envelope
from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from shapes.registry import REMOVED, Entry, Registry
from shapes.requests import Request, define
from shapes.service import Served, ShapeService
from storage.catalog import Catalog
from storage.catalog_records import Snapshot
from storage.clocks import Clocks
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import Kind, row_schema
from storage.store import Store
from tests.memory_socket import Answer, MemorySocket

COLUMNS = ("id", "v")


def table_of(columns: Sequence[str]) -> Table:
    """A table of texts, the first of which is the key."""
    return Table(
        oid=1,
        schema="public",
        name="items",
        kind="r",
        persistence="p",
        replica_identity="f",
        columns=tuple(
            TableColumn(name, number, 25, "text", not_null=number == 1, pk_index=0 if number == 1 else None)
            for number, name in enumerate(columns, 1)
        ),
    )


SNAPSHOT = Snapshot(7, 9, (8,), 100)


class RigService(ShapeService):
    """The service, but for Postgres: the table is a fact, and births are the test's."""

    facts = table_of(COLUMNS)

    async def table(self, name: str) -> Table:
        if name != "items":
            raise DefinitionError(fields={"table": ["is not there"]})
        return self.facts

    async def shape_for(self, definition: Definition) -> Served:
        entry = self.house.registry.defined(definition)
        if entry is None:
            raise BirthFailed("tests make their shapes first")
        served = self.served(entry.handle)
        assert served is not None
        return served

    async def remove(self, handle: str) -> None:
        self.house.registry.ended(handle, SNAPSHOT_END, REMOVED)


class Rig:
    """A store with one shape, `items`, and the application."""

    def __init__(
        self,
        settings: HttpSettings | None = None,
        *,
        chunk_bytes: int = 1 << 20,
        rows: int = 3,
        tokens: ShapeTokens | None = None,
    ) -> None:
        self.store = Store(MemoryDisk(), Clocks())
        self.registry = Registry(Catalog(self.store.disk), Clocks().wall, 0.0)
        tracker = SimpleNamespace(open_tx=None, seen=SimpleNamespace(lsn=10**6))
        self.collector = SimpleNamespace(tracker=tracker, upto=SNAPSHOT_END)
        self.house = SimpleNamespace(
            store=self.store,
            registry=self.registry,
            collector=self.collector,
            clocks=Clocks(),
            is_streaming=True,
            wal_end_at_connect=0,
            conninfo="",
            application="",
        )
        self.service = RigService(cast("Any", self.house), cast("Any", None))
        self.entry = self.born(COLUMNS, chunk_bytes, (batch([(0, n, Kind.INSERT, f"b{n}")]) for n in range(rows)))
        self.app = ShapeApp(self.service, settings or HttpSettings(), tokens)
        self._connections = Connections(Envelope(self.app))

    def born(self, columns: Sequence[str], chunk_bytes: int, chunks: Iterable[pa.RecordBatch]) -> Entry:
        """A shape of a table of these columns, with a base of these chunks."""
        self.service.facts = table_of(columns)
        entry = self.registry.born(define(Request(), self.service.facts), SNAPSHOT, 0.0)
        self.store.create_log(LogFacts(entry.log, entry.handle, ("id",), chunk_bytes=chunk_bytes))
        writer = self.store.new_base(entry.log)
        for chunk in chunks:
            writer.chunk(chunk, written_at=1)
        base = writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=1)
        return self.registry.ready(entry.handle, base.number)

    def commit(self, tx: int, count: int = 1, kind: Kind = Kind.INSERT) -> None:
        """A transaction of so many rows."""
        rows = [(tx, 2 * op, kind, f"{tx}.{op}") for op in range(count)]
        after = self.store.log(self.entry.log).state.upper
        self.store.append(self.entry.log, batch(rows), after=after, aligned=LogOffset.aligned(tx, count))
        self.collector.upto = LogOffset.aligned(tx, count)

    async def ask(self, method: str = "GET", gone: asyncio.Event | None = None, **params: str) -> Answer:
        """One request."""
        socket = MemorySocket(self._connections)
        target = f"/v1/shape?{urlencode({'table': 'items', **params})}"
        socket.send(f"{method} {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        leaving = asyncio.ensure_future(_leave(socket, gone)) if gone is not None else None
        answer = await socket.answer(method)
        if leaving is not None:
            leaving.cancel()
        socket.close()
        await socket.closed.wait()
        return answer

    async def follow(self, offset: str, **params: str) -> Answer:
        """A request that goes on."""
        return await self.ask("GET", None, offset=offset, handle=self.entry.handle, **params)


async def _leave(socket: MemorySocket, gone: asyncio.Event) -> None:
    await gone.wait()
    socket.close()


def batch(rows: list[tuple[int, int, Kind, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"tx": tx, "op": op, "kind": int(kind), "new": {"id": name, "v": "x" * 20}} for tx, op, kind, name in rows],
        schema=row_schema(COLUMNS, absent=False),
    )
