"""What those who serve readers and operators ask for: tables, shapes, and how far everything is.

Invariants:
    a shape that is asked for twice at the same time is born once
    an answer about a handle is as of one moment; whoever waits asks again
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shapes.definition import Definition, Table
from shapes.errors import ShapeNameTaken, UnknownShape
from shapes.household import Household
from shapes.nursery import Nursery, Order
from shapes.registry import REMOVED, Entry
from shapes.requests import Request, define
from shapes.shape_names import default_name
from shapes.tables import find_table, read_tables
from storage.bases import Base
from storage.catalog_records import Life
from storage.errors import UnknownLog
from storage.marks import Marks
from storage.offset import SNAPSHOT_END
from storage.store_reader import StoreReader


class State(StrEnum):
    """How far a server is."""

    WAITING = "waiting"
    """It has no stream yet: the slot is somebody else's, or the server is away."""
    STARTING = "starting"
    """What was committed before the connection is still being read."""
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Served:
    """A handle, as a reader needs it."""

    entry: Entry
    base: int
    """The number of its base, which may still be being written."""

    @property
    def handle(self) -> str:
        return self.entry.handle

    @property
    def log(self) -> int:
        return self.entry.log

    @property
    def definition(self) -> Definition:
        return self.entry.definition


class ShapeService:
    """The shapes of one server."""

    def __init__(self, house: Household, nursery: Nursery) -> None:
        self.house = house
        self.nursery = nursery
        self.reader = StoreReader(house.store)

    @property
    def state(self) -> State:
        """Whether readers can be served."""
        if not self.house.is_streaming:
            return State.WAITING
        return State.ACTIVE if self.has_caught_up else State.STARTING

    @property
    def has_caught_up(self) -> bool:
        """Whether the stream has passed where the server's WAL was when we connected."""
        return self.house.is_streaming and self.house.collector.tracker.seen.lsn >= self.house.wal_end_at_connect

    @property
    def last_seen(self) -> int:
        """The greatest place that the stream is past with all transactions: what is open is above it."""
        seen, open_tx = max(self.house.collector.upto.tx, 0), self.house.collector.tracker.open_tx
        return seen if open_tx is None else min(seen, open_tx - 1)

    def has_passed_birth(self, entry: Entry) -> bool:
        """Whether the stream is past the place that the snapshot of a shape was taken at (A7)."""
        return self.house.collector.tracker.seen.lsn >= entry.shape.snapshot.birth

    async def table(self, name: str) -> Table:
        """The table that a request names; `DefinitionError` if there is none."""
        async with self.house.control() as connection:
            return await find_table(connection, name)

    async def table_of(self, definition: Definition) -> Table | None:
        """The table of a shape as it is now; None if it is gone."""
        async with self.house.control() as connection:
            return (await read_tables(connection, [definition.oid])).get(definition.oid)

    async def add(self, table: str, request: Request, name: str | None = None) -> Order | Entry:
        """A shape as it is asked for: the one that there is, or its birth."""
        found = define(request, await self.table(table))
        if name is not None:
            self.house.registry.check_free(name)
            return self.nursery.order(found, name)
        return self.house.registry.defined(found) or self.nursery.order(found)

    async def add_named(self, table: str, request: Request, name: str | None) -> Order | Entry:
        """A shape that is kept, by default under its table's name. Asked for again, it is the same one."""
        facts = await self.table(table)
        found = define(request, facts)
        name = default_name(facts.schema, facts.name) if name is None else name
        entry = self.house.registry.named(name)
        if entry is not None and entry.shape.life is not Life.ENDED and entry.definition == found:
            return entry
        awaited = next((one for one in self.house.registry.awaiting() if one.shape.name == name), None)
        succeeds = None
        if awaited is not None and _table_of(awaited) == (facts.schema, facts.name):
            succeeds = awaited.handle  # what ended could not begin anew by itself: its table was gone, perhaps
        self.house.registry.check_free(name, succeeds)
        if any(order.name == name and order.definition != found for order in self.nursery.orders):
            raise ShapeNameTaken(f"the name {name!r} belongs to a shape that is being born")
        return self.nursery.order(found, name, succeeds)

    def known(self, shape: str) -> Entry:
        """The shape of a name or handle, in whatever state; raises `UnknownShape`."""
        registry = self.house.registry
        entry = registry.named(shape) or registry.find(shape)
        entry = entry or next((one for one in registry.awaiting() if one.shape.name == shape), None)
        if entry is None:
            raise UnknownShape("no shape has this name or handle", shape=shape)
        return entry

    def living(self, shape: str) -> Entry:
        """The shape of a name or handle, or who stands in its place; raises `UnknownShape` if nobody does."""
        return self._found(shape, self.house.registry.replacement)

    def _found(self, shape: str, find: Callable[[str], Entry | None]) -> Entry:
        entry = self.known(shape)
        found = find(entry.handle)
        if found is None:
            raise UnknownShape(f"the shape ended: {entry.shape.reason}", shape=shape)
        return found

    def served_now(self, shape: str) -> Served | None:
        """As `living`, for a reader; None if one is on its way."""
        entry = self.known(shape)
        replacement = self.house.registry.replacement(entry.handle)
        if replacement is None and any(one.shape.name == entry.shape.name for one in self.house.registry.awaiting()):
            return None
        return self.served(self.living(shape).handle)

    async def shape_for(self, definition: Definition) -> Served:
        """The shape of a definition, born if need be; its base may still be being copied."""
        entry = self.house.registry.defined(definition)
        if entry is None:
            entry = await asyncio.shield(self.nursery.order(definition).born)
        served = self.served(entry.handle)
        if served is None:
            raise UnknownShape("the shape ended while it was asked for", handle=entry.handle)
        return served

    def served(self, handle: str) -> Served | None:
        """A handle that readers may follow; None for one that is gone (see `Registry.replacement`) or unknown."""
        entry = self.house.registry.find(handle)
        if entry is None or entry.shape.life is Life.ENDED:
            return None
        base = entry.shape.base
        if base is None:
            try:
                bases = self.reader.bases(entry.log)
            except UnknownLog:
                return None  # its record comes before its log (A11), which is about to be made
            if not bases:
                return None
            base = bases[0].number
        return Served(entry, base)

    def base_of(self, served: Served) -> Base | None:
        """What is known of its base."""
        return next((one for one in self.reader.bases(served.log) if one.number == served.base), None)

    def watch(self, served: Served) -> Marks:
        """V and D of its log, for an event loop to wait on."""
        return self.house.store.watch(served.log)

    async def remove_named(self, shape: str) -> str:
        """End a shape by name or handle: also one that is being born, or whose successor is awaited."""
        registry = self.house.registry
        is_coming = any(order.name == shape for order in self.nursery.orders)
        name = shape if is_coming else self.known(shape).shape.name
        entry = None if name is None else registry.named(name)
        if name is not None and (entry is None or entry.shape.life is Life.BORN):
            was_coming = await self.nursery.withdraw(name)
            if await asyncio.to_thread(registry.withdrawn, name) or was_coming:
                return name
        heir = self._found(shape, registry.heir)  # no equal shape: who removes one twice must not remove another's
        await self.remove(heir.handle)
        return heir.handle

    async def remove(self, handle: str) -> None:
        """End a shape because somebody wants it; one with a name gets no successor, and its name is free."""
        async with self.house.turn:
            entry = self.house.registry.find(handle)
            member = None if entry is None else self.house.collector.members.of_log(entry.log)
            if entry is not None and any(entry.handle == one.handle for one in self.house.registry.awaiting()):
                at = entry.shape.ended_at or SNAPSHOT_END
                await asyncio.to_thread(self.house.registry.ended, handle, at, REMOVED)
                return
            if entry is None or entry.shape.life is Life.ENDED or member is None:
                raise UnknownShape("no living shape has this handle", handle=handle)
            await self.house.endings.end(member, REMOVED, "somebody removed it")


def _table_of(entry: Entry) -> tuple[str, str]:
    return entry.definition.schema, entry.definition.table
