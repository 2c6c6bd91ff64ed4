"""What a birth stands on: the stream's turn, the catalog, the store and the publication, for one shape.

Invariants:
    what touches the collector happens in its turn, and between two transactions
    once there is a handle, whoever leaves ends it in the catalog before its log goes (A11, A12)
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import numpy as np

from cdc.source.connections import Connection
from cdc.source.numbers import Words
from cdc.source.publication import OldRow, PublicationState, changes_between, quote
from cdc.source.publisher import Published, Waiting
from cdc.source.relations import Column, Relation
from shapes.birth import Born
from shapes.definition import Definition, LogMode, Table
from shapes.errors import MustLeave, TableChanged
from shapes.household import Household
from shapes.limits import HELD_BYTES_MAX, ROOM_SECONDS
from shapes.members import Member
from shapes.reconciliation import settle_publication
from shapes.registry import REMOVED, Entry
from shapes.relevance import Ends, relevance
from shapes.snapshot_transaction import Selection
from shapes.streamed import Demand, Streamed
from shapes.tables import read_tables
from shapes.threads import in_thread
from shapes.waits import told_to
from shapes.where.clause import Clause
from storage.bases import Base
from storage.catalog_records import Life, Snapshot
from storage.errors import BufferFull
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END

T = TypeVar("T")

_BY_US: Final = "birth: "
"""How the reason begins of a shape that its own birth ended."""


class ShapeGround:
    """The ground of one birth."""

    def __init__(
        self,
        house: Household,
        definition: Definition,
        name: str | None,
        succeeds: str | None,
        told: Callable[[Entry], None],
    ) -> None:
        """`told` hears of the handle once its record is synced and its log is there."""
        self.entry: Entry | None = None
        self.fault = ""
        self.hint = ""
        self._house = house
        self._definition = definition
        self._name = name
        self._succeeds = succeeds
        self._is_first = succeeds is None
        self._told = told
        self._member: Member | None = None
        self._demand: Demand | None = None
        self._streamed: Streamed | None = None
        """Whose demand that is."""
        self._table: Table | None = None
        self._clause: Clause | None = None
        self._published: PublicationState | None = None
        """As it was when the table's writers had ended."""

    async def publish(self, waiting: Waiting) -> Selection:
        """Publish the table, whole; and look whether it is still the one that was defined."""
        house, wanted = self._house, self._definition
        async with house.turn:  # before there is a stream, nobody knows which publication belongs to it
            await house.turn.wait_for(lambda: house.is_streaming)
        async with house.control(None) as connection:  # its waits have bounds of their own
            published = await self._publish(connection, waiting)
            await settle_publication(house)
            self._published = published.state
            table = self._judged(await self._look_up(connection))
        self._table = table
        columns = {column.name: column.for_where for column in table.columns}
        self._clause = None if wanted.where is None else Clause.stored(wanted.where, columns)
        return Selection(
            wanted.oid,
            wanted.schema,
            wanted.table,
            tuple(column.name for column in wanted.columns),
            wanted.where,
            is_partitioned=table.kind == "p",
            has_rows=wanted.log is LogMode.FULL,
        )

    async def _publish(self, connection: Connection, waiting: Waiting) -> Published:
        """Until it is known which partitions there are: what nobody is known to want may leave the publication."""
        house, wanted = self._house, self._definition
        old_row = OldRow.WHOLE if wanted.needs_full_identity else OldRow.LONG_VALUES
        table = await self._look_up(connection)
        house.wanted[self] = frozenset((wanted.oid, *(() if table is None else table.leaves)))
        while True:
            with told_to(waiting):
                published = await house.session.publisher.publish(
                    connection, [f"{quote(wanted.schema)}.{quote(wanted.table)}"], old_row
                )
            parts = {leaf.oid for leaves in published.leaves.values() for leaf in leaves}
            if parts <= house.wanted[self]:
                return published
            house.wanted[self] |= parts

    async def join(self) -> None:
        """Feed the shape from the end of a transaction on."""
        house = self._house
        assert self._table is not None, "publishing comes first"
        async with house.turn:
            await house.turn.wait_for(lambda: house.is_streaming and house.collector.is_between)
            if not self._is_still_published():
                raise MustLeave("the publication was altered before the shape could join")
            assert house.collector.streamed is not None, "it is there from the first connection on"
            if self._table.kind == "p":
                house.collector.partitions.follow(as_relation(self._table), self._table.leaves)
            tree = None if self._clause is None else self._clause.tree
            self._member = house.collector.join(self._definition, tree, house.clocks.monotonic())
            self._streamed = house.collector.streamed
            self._demand = self._streamed.demand()

    async def must_leave(self) -> str:
        """When it is not fed any more, or holds too much."""
        house, member = self._house, self._member
        async with house.turn:
            await house.turn.wait_for(lambda: not self._is_fed() or self._held_bytes() > HELD_BYTES_MAX)
        is_fed = house.collector.members.get(member.number) is member if member is not None else False
        return f"more than {HELD_BYTES_MAX:,} bytes of changes came while it waited" if is_fed else "the stream broke"

    async def look_again(self, connection: Connection) -> None:
        """Compare the table with the definition once more, now that it is locked."""
        assert self._table is not None, "publishing comes first"
        table = self._judged(await self._look_up(connection))
        if table.leaves != self._table.leaves:
            raise MustLeave("partitions came or went before the snapshot")

    def unseen(self, snapshot: Snapshot) -> Words:
        """What the snapshot should have seen."""
        if self._demand is None or self._streamed is not self._house.collector.streamed:
            # It has not joined, or joined a stream that was replaced: it joins the present one.
            return np.zeros(0, np.uint32)
        return self._demand.unseen(snapshot)

    async def born(self, snapshot: Snapshot) -> Born:
        """Record the birth, make the log, and let go what was held."""
        house = self._house
        async with house.turn:
            await house.turn.wait_for(lambda: not self._is_fed() or house.collector.is_between)
            if not self._is_fed() or self._member is None:
                raise MustLeave("the stream broke before the birth was recorded")
            now = house.clocks.monotonic()
            self.entry = entry = await in_thread(
                partial(house.registry.born, self._definition, snapshot, now, name=self._name, succeeds=self._succeeds)
            )
            facts = LogFacts(entry.log, entry.handle, self._definition.view.key, chunk_bytes=house.chunk_bytes)
            await in_thread(house.store.create_log, facts)
            await self._release(self._member, entry)
            writer = await in_thread(house.store.new_base, entry.log)
        self._told(entry)
        return Born(writer, facts.chunk_bytes)

    async def leave(self, reason: str) -> None:
        """Let go of the stream, and of what was begun on disk."""
        if await self._let_go(reason) == REMOVED:
            raise TableChanged("somebody removed the shape while it was copied", hint="Ask for it again.")

    async def _let_go(self, reason: str) -> str | None:
        """As `leave`; why others had ended the shape before, if they had."""
        house = self._house
        async with house.turn:
            entry, why = self.entry, self._ended_by_others()
            if entry is not None and self._ended() is None:
                await in_thread(house.registry.ended, entry.handle, SNAPSHOT_END, f"{_BY_US}{reason}")
            if entry is not None:
                self._succeeds = entry.handle if self._name is not None else None
                self._is_first = self._is_first and why in {None, REMOVED}  # else a successor is on its way
            if self._member is not None:
                house.collector.end(self._member.number)
                self._member = None
            if entry is not None:
                await in_thread(house.store.remove_log, entry.log)
                self.entry = None
        return why

    async def ready(self, base: Base) -> None:
        """Record that the base is complete."""
        assert self.entry is not None, "it was born"
        if (why := self._ended_by_others()) is not None:
            raise TableChanged(f"the shape ended while it was copied: {why}")
        self.entry = await in_thread(self._house.registry.ready, self.entry.handle, base.number)

    async def failed(self, reason: str, hint: str) -> None:
        """For good."""
        self.fault, self.hint = reason, hint
        await self._let_go(reason)
        if self._is_first and self._name is not None:
            # Whoever asked was told. Its name is free again, and no start tries what nobody expects any more.
            await in_thread(self._house.registry.withdrawn, self._name)

    def _is_still_published(self) -> bool:
        """Whether nobody has touched what the table needs of the publication since its writers had ended."""
        then, now = self._published, self._house.session.publisher.baseline
        if then is None or now is None:
            return True  # nobody has looked since
        concerned = self._house.wanted[self]
        return not any(change.table is None or change.tables & concerned for change in changes_between(then, now))

    def _ended_by_others(self) -> str | None:
        """Why the shape that was born has ended meanwhile, if it has: its table was altered, or somebody removed it."""
        reason = self._ended()
        return None if reason is None or reason.startswith(_BY_US) else reason

    def _ended(self) -> str | None:
        """Why the shape has ended that was born, if it has; by us, if the disk failed after we had recorded it."""
        entry = None if self.entry is None else self._house.registry.find(self.entry.handle)
        return entry.shape.reason if entry is not None and entry.shape.life is Life.ENDED else None

    async def _look_up(self, connection: Connection) -> Table | None:
        return (await read_tables(connection, [self._definition.oid])).get(self._definition.oid)

    def _judged(self, table: Table | None) -> Table:
        """The table, if it is still the one that was defined."""
        verdict = relevance(self._definition, table)
        if table is None or isinstance(verdict, Ends):
            text = verdict.text if isinstance(verdict, Ends) else "it is gone"
            raise TableChanged(f"the table is not what the shape was defined for: {text}")
        return table

    async def _release(self, member: Member, entry: Entry) -> None:
        house = self._house
        while True:
            try:
                house.collector.born(member, entry.shape, house.clocks.monotonic())
            except BufferFull as full:
                size, log = full.facts["size"], full.facts.get("log")
                await in_thread(partial(house.store.wait_for_room, size, ROOM_SECONDS, log=log))
            else:
                return

    def _is_fed(self) -> bool:
        return self._member is not None and self._house.collector.members.get(self._member.number) is self._member

    def _held_bytes(self) -> int:
        return self._member.held.size if self._member is not None and self._member.held is not None else 0


def as_relation(table: Table) -> Relation:
    """A root, of which the stream never speaks, as it would describe it."""
    columns = tuple(
        Column(one.name, one.type_oid, one.typmod, table.replica_identity == "f" or one.pk_index is not None)
        for one in table.columns
    )
    return Relation(table.oid, table.schema, table.name, table.replica_identity, columns)
