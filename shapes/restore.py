"""What a start makes of the catalog: shapes that go on, births that a crash interrupted, tables that were altered.

Logs are not opened here: each is when its first row comes, or its first reader.

Invariants:
    a shape that is born and not ready is ended before the stream begins, and its log goes (A12)
    a shape whose table is not what it was is ended before the stream begins
    a partitioned table goes on with the leaves that were recorded with the publication; where those of now are others,
        the verdict about it, or a later look, ends its shapes
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdc.source.connections import Connection
from cdc.source.publication import PublicationState, leaves_of
from shapes.definition import Table
from shapes.errors import InvalidWhere
from shapes.ground import as_relation
from shapes.household import Household
from shapes.registry import Entry
from shapes.relevance import Ends, relevance
from shapes.tables import read_tables
from shapes.threads import until_done
from shapes.where.clause import Clause
from shapes.where.tree import Expr
from storage.catalog_records import Ended, Life

logger = logging.getLogger(__name__)

INTERRUPTED: Final = "interrupted"
"""Why a shape ended whose birth was cut short; one with a name is born again."""


async def restore(house: Household, connection: Connection) -> None:
    """Bring back what was there. In the collector's turn."""
    living = house.registry.living()
    tables = await read_tables(connection, {entry.definition.oid for entry in living})
    known = house.lineage.known()
    recorded = PublicationState("") if known is None else known.identity.publication
    ends: list[_End] = []
    for number, entry in enumerate(living, 1):
        if end := _restore_one(house, entry, tables.get(entry.definition.oid), recorded):
            ends.append(end)
        if number % _BREATH == 0:
            await asyncio.sleep(0)  # replies to the server go on
    await _end(house, ends)
    for entry in house.registry.awaiting():
        house.endings.succeed(entry)
    if living:
        logger.info("%d shapes go on", len(house.collector.members))


_BREATH: Final = 100
"""Shapes between two chances for other tasks."""


@dataclass(frozen=True, slots=True)
class _End:
    """A shape that does not go on."""

    entry: Entry
    reason: str
    text: str


def _restore_one(house: Household, entry: Entry, table: Table | None, recorded: PublicationState) -> _End | None:
    """Let it go on; or why it cannot."""
    if entry.shape.life is Life.BORN:
        return _End(entry, INTERRUPTED, "its snapshot was not complete when the process ended")
    verdict = relevance(entry.definition, table)
    if isinstance(verdict, Ends) or table is None:
        assert isinstance(verdict, Ends), "a table that is gone ends its shapes"
        return _End(entry, verdict.reason, verdict.text)
    try:
        tree = clause_of(entry, table)
    except InvalidWhere as error:
        return _End(entry, error.code, f"its where clause means nothing any more: {error.message}")
    if table.kind == "p":
        # Not those of now: what was written before a leaf was taken off is still to come, and is not to be torn.
        followed = leaves_of(recorded, table.oid)
        house.collector.partitions.follow(as_relation(table), table.leaves if followed is None else followed)
    house.collector.restore(entry.definition, tree, entry.shape)
    return None


def clause_of(entry: Entry, table: Table) -> Expr | None:
    """The tree of a shape's clause, from its stored text."""
    if entry.definition.where is None:
        return None
    columns = {column.name: column.for_where for column in table.columns}
    return Clause.stored(entry.definition.where, columns).tree


async def _end(house: Household, ends: Sequence[_End]) -> None:
    place = house.endings.place
    records = [Ended(one.entry.handle, place, one.reason) for one in ends]
    await until_done(lambda: house.registry.all_ended(records))
    for one in ends:
        definition = one.entry.definition
        logger.warning("shape %s (%s) ended: %s: %s", one.entry.handle, definition, one.reason, one.text)
    unused = [one.entry for one in ends if one.entry.shape.name is None or one.entry.shape.life is Life.BORN]
    await house.endings.remove_logs([entry.log for entry in unused])
