"""What the stream does not tell: tables that were dropped, renamed or altered without a write, and their partitions.

A partition that is attached or detached brings or takes rows without a change. So the tables that are followed are read
from the server's catalog from time to time, and compared.

Invariant: a shape that ends here would have ended at its table's next change too, or its root's partitions are others.
"""

from typing import Final

from cdc.source.connections import Connection
from shapes.definition import Table
from shapes.household import Household
from shapes.members import Member
from shapes.relevance import Ends, relevance
from shapes.tables import read_tables

PARTITIONS_CHANGED: Final = "partitions_changed"


async def reconcile(house: Household, connection: Connection) -> None:
    """Compare all tables that are followed with what they were."""
    followed = house.collector.members.tables()
    tables = await read_tables(connection, followed)
    for oid in followed:
        found = await _compare(house, oid, tables.get(oid))
        for member, reason, text in found:
            async with house.turn:
                if house.collector.members.get(member.number) is member:
                    await house.endings.end(member, reason, text)


async def _compare(house: Household, oid: int, table: Table | None) -> list[tuple[Member, str, str]]:
    members = house.collector.members.of_table(oid)
    if table is not None and table.kind == "p":
        known = house.collector.partitions.leaves_of(oid)
        if known is not None and known != set(table.leaves):
            text = f"partitions of {table.schema}.{table.name} were attached or detached"
            return [(member, PARTITIONS_CHANGED, text) for member in members]
    verdicts = [(member, relevance(member.definition, table)) for member in members]
    return [(member, verdict.reason, verdict.text) for member, verdict in verdicts if isinstance(verdict, Ends)]
