"""The whole loop beside a real server, in the test's own process: its app, its shapes, and what their logs say.

A log is read as any reader reads it, base first, and folded by key with dicts: slow, plain, and nobody's code but ours.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc.app import App, AppSettings, running
from cdc.source.lsn import parse_lsn
from shapes.registry import Entry
from shapes.requests import Request, define
from shapes.tables import find_table
from storage.handle_reading import read_handle
from storage.offset import BEFORE_ALL, LogOffset
from storage.rows import Kind
from storage.store_reader import StoreReader
from tests.postgres import Database
from tests.waiting import eventually

Row = dict[str, str | None]


@dataclass
class Folded:
    """A shape's log from its start, applied change by change."""

    key: tuple[str, ...]
    rows: dict[tuple[str | None, ...], Row] = field(default_factory=dict)
    offsets: list[LogOffset] = field(default_factory=list)
    """Of the log, not of the base."""
    kinds: list[Kind] = field(default_factory=list)

    def apply(self, change: dict[str, Any]) -> None:
        offset, kind = LogOffset(change["tx"], change["op"]), Kind(change["kind"])
        if not offset.is_snapshot:
            assert not self.offsets or offset > self.offsets[-1], f"{offset} after {self.offsets[-1]}"
            self.offsets.append(offset)
            self.kinds.append(kind)
        if kind is Kind.TRUNCATE:
            self.rows.clear()
            return
        bitmap = change.get("absent") or b""
        sent = {
            name: value
            for index, (name, value) in enumerate(change["new"].items())
            if not (index // 8 < len(bitmap) and bitmap[index // 8] >> index % 8 & 1)
        }
        key = tuple(sent[name] for name in self.key)
        match kind:
            case Kind.INSERT:
                assert key not in self.rows, f"{key} is inserted twice"
                self.rows[key] = sent
            case Kind.UPDATE:
                self.rows[key] |= sent
            case Kind.DELETE:
                del self.rows[key]


def fold(app: App, entry: Entry) -> Folded:
    """What a reader of the handle has when it is up to date."""
    reader = StoreReader(app.house.store)
    folded = Folded(entry.definition.view.key)
    position, base = BEFORE_ALL, entry.shape.base or 0
    while True:
        result = read_handle(reader, entry.log, base, position)
        for batch in result.rows:
            for change in batch.to_pylist():
                folded.apply(change)
        if not result.rows and result.at_end:
            return folded
        position = result.next


@dataclass
class Loop:
    """A running app and its database."""

    app: App
    database: Database

    async def add(self, table: str, name: str | None = None, **request: Any) -> Entry:
        """A shape that is ready."""
        async with self.app.house.control() as connection:
            facts = await find_table(connection, table)
        order = self.app.nursery.order(define(Request(**request), facts), name)
        entry = await order.born
        assert await order.done, order.status
        found = self.app.house.registry.find(entry.handle)
        assert found is not None
        return found

    def confirmed(self) -> int:
        """What the server may forget; 0 while it has no slot of ours yet."""
        slot = self.database.slots().get("shapelog")
        return 0 if slot is None else int(parse_lsn(slot["confirmed_flush_lsn"]))

    async def caught_up(self, seconds: float = 20.0) -> int:
        """Wait until all that is committed now is durable and confirmed; where that was."""
        end = int(parse_lsn(self.database.value("SELECT pg_current_wal_lsn()::text")))
        explain = self.app.house.collector.tracker.explain
        await eventually(
            lambda: self.confirmed() >= end,
            f"the slot to be confirmed up to {end}: {explain(self.app.house.clocks.monotonic())}",
            seconds,
        )
        return end

    def table(self, query: Any) -> list[tuple[str | None, ...]]:
        """The server's rows, as text, sorted."""
        return sorted((tuple(map(as_text, row)) for row in self.database.execute(query)), key=str)

    def rows(self, entry: Entry) -> list[tuple[str | None, ...]]:
        """The shape's rows, sorted likewise."""
        return sorted((tuple(row.values()) for row in fold(self.app, entry).rows.values()), key=str)

    def living(self, name: str) -> Entry:
        entry = self.app.house.registry.named(name)
        assert entry is not None, f"no shape is called {name}"
        return entry


def as_text(value: Any) -> str | None:
    return None if value is None else str(value)


@asynccontextmanager
async def looping(database: Database, folder: Path, **settings: Any) -> AsyncIterator[Loop]:
    """The app, running on a folder."""
    async with running(AppSettings(database.conninfo(), folder, **settings)) as app:
        yield Loop(app, database)


async def stand_still(loop: Loop, look: Callable[[], Iterable[Any]], what: str) -> None:
    """Wait until a few looks in a row see the same: nothing is on its way any more."""
    seen: list[Any] = []

    def is_same() -> bool:
        seen.append(list(look()))
        return len(seen) > 10 and all(one == seen[-1] for one in seen[-10:])

    await eventually(is_same, what)
