"""What a start makes of the catalog: shapes that go on, births that a crash interrupted, tables that were altered.

Logs are not opened here: each is when its first row comes, or its first reader.

Invariants:
    a shape that is born and not ready is ended, with its log, before the stream begins (A12)
    a shape whose table is not what it was is ended before the stream begins
"""

import asyncio
import logging
from typing import Final

from cdc.source.connections import Connection
from shapes.definition import Table
from shapes.endings import until_done
from shapes.errors import InvalidWhere
from shapes.ground import as_relation
from shapes.household import Household
from shapes.registry import Entry
from shapes.relevance import Ends, relevance
from shapes.tables import read_tables
from shapes.where.clause import Clause
from shapes.where.tree import Expr
from storage.catalog_records import Life
from storage.offset import SNAPSHOT_END

logger = logging.getLogger(__name__)

INTERRUPTED: Final = "interrupted"
"""Why a shape ended whose birth was cut short; one with a name is born again."""


async def restore(house: Household, connection: Connection) -> None:
    """Bring back what was there. In the collector's turn."""
    living = house.registry.living()
    tables = await read_tables(connection, {entry.definition.oid for entry in living})
    for number, entry in enumerate(living, 1):
        await _restore_one(house, entry, tables.get(entry.definition.oid))
        if number % _BREATH == 0:
            await asyncio.sleep(0)  # replies to the server go on
    for entry in house.registry.awaiting():
        house.endings.succeed(entry)
    if living:
        logger.info("%d shapes go on", len(house.collector.members))


_BREATH: Final = 100
"""Shapes between two chances for other tasks."""


async def _restore_one(house: Household, entry: Entry, table: Table | None) -> None:
    if entry.shape.life is Life.BORN:
        await _end(house, entry, INTERRUPTED, "its snapshot was not complete when the process ended")
        return
    verdict = relevance(entry.definition, table)
    if isinstance(verdict, Ends) or table is None:
        assert isinstance(verdict, Ends), "a table that is gone ends its shapes"
        await _end(house, entry, verdict.reason, verdict.text)
        return
    try:
        tree = clause_of(entry, table)
    except InvalidWhere as error:
        await _end(house, entry, error.code, f"its where clause means nothing any more: {error.message}")
        return
    if table.kind == "p":
        house.collector.partitions.follow(as_relation(table), table.leaves)
    house.collector.restore(entry.definition, tree, entry.shape)


def clause_of(entry: Entry, table: Table) -> Expr | None:
    """The tree of a shape's clause, from its stored text."""
    if entry.definition.where is None:
        return None
    columns = {column.name: column.for_where for column in table.columns}
    return Clause.stored(entry.definition.where, columns).tree


async def _end(house: Household, entry: Entry, reason: str, text: str) -> None:
    await until_done(lambda: house.registry.ended(entry.handle, SNAPSHOT_END, reason))
    if entry.shape.name is None or entry.shape.life is Life.BORN:
        await until_done(lambda: house.store.remove_log(entry.log))
    logger.warning("shape %s (%s) ended: %s: %s", entry.handle, entry.definition, reason, text)
