"""What the stream does not tell: tables that were dropped, renamed or altered without a write, and their partitions.

A partition that is attached or detached brings or takes rows without a change. So the tables that are followed are read
from the server's catalog from time to time, and compared.

Invariant: a shape that ends here would have ended at its table's next change too, or its rows are others, or will be,
    without a change: its root has other partitions, its table is not logged any more, a label has another name.
"""

import logging
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Final

import psycopg

from cdc.source.connections import Connection
from cdc.source.errors import SourceError
from cdc.source.publication import PublicationChange, PublicationState
from shapes.definition import Table
from shapes.household import Household
from shapes.members import Member
from shapes.relevance import Ends, Irrelevant, relevance, what_matters
from shapes.tables import read_tables
from shapes.threads import in_thread, until_done

logger = logging.getLogger(__name__)

PARTITIONS_CHANGED: Final = "partitions_changed"

_End = tuple[Member, str, str]
"""A shape that does not go on, the reason, and the reason in words."""


async def reconcile(house: Household, connection: Connection) -> None:
    """Compare all tables that are followed with what they were."""
    for member, reason, text in await _ends(house, connection, house.collector.members.tables()):
        async with house.turn:
            if house.collector.members.get(member.number) is member:
                await house.endings.end(member, reason, text)


async def settle_publication(house: Household) -> None:
    """End whom alterations concern, all of them, and only then record how the publication is (A11).

    A record that came first would hide them from the next process. Who has the turn uses `note_publication`.
    """
    alterations = house.session.publisher.alterations
    async with house.turn:
        while not alterations.is_settled:
            if changes := alterations.take():
                await _handle(house, changes)
            else:  # somebody else has them
                await house.turn.wait_for(lambda: alterations.found or alterations.is_settled)
        if (state := _recordable(house)) is not None:
            await in_thread(house.lineage.published, state)  # of a full disk whoever asked is told


async def note_publication(house: Household, changes: tuple[PublicationChange, ...]) -> None:
    """End whom these alterations concern; record the publication if that was all. In the collector's turn."""
    await _handle(house, changes)
    if (state := _recordable(house)) is not None:
        await until_done(partial(house.lineage.published, state))


def _recordable(house: Household) -> PublicationState | None:
    """The publication as it is, if every difference was dealt with."""
    publisher = house.session.publisher
    return publisher.baseline if publisher.alterations.is_settled else None


async def _handle(house: Household, changes: tuple[PublicationChange, ...]) -> None:
    alterations = house.session.publisher.alterations
    try:
        await by_publication(house, changes)
    except BaseException:
        alterations.give_back(changes)
        raise
    alterations.handled(changes)
    house.turn.notify_all()


async def by_publication(house: Household, changes: Sequence[PublicationChange]) -> None:
    """Somebody altered the publication. In the collector's turn.

    A table that is dropped leaves it too, and so does a partition: then that is the reason.
    """
    for member, reason, text in await _ends_behind(house, changes):
        await house.endings.end(member, reason, text)
    await house.endings.by_publication(changes)


async def _ends_behind(house: Household, changes: Sequence[PublicationChange]) -> list[_End]:
    """What the catalog says of the tables; nothing where it cannot be asked: they end anyway."""
    followed, roots_of = house.collector.members.tables(), house.collector.partitions.roots_of
    concerned = {oid for change in changes for table in change.tables for oid in (table, *roots_of(table))}
    is_whole = any(change.table is None for change in changes)
    try:
        async with house.control() as connection:
            return await _ends(house, connection, [oid for oid in followed if is_whole or oid in concerned])
    except (SourceError, psycopg.Error) as fault:
        logger.info("what became of the tables is not known: %s", fault)
        return []


async def _ends(house: Household, connection: Connection, oids: Iterable[int]) -> list[_End]:
    wanted = list(oids)
    tables = await read_tables(connection, wanted) if wanted else {}
    return [end for oid in wanted for end in _compare(house, oid, tables.get(oid))]


def _compare(house: Household, oid: int, table: Table | None) -> list[_End]:
    members = house.collector.members.of_table(oid)
    if table is not None and table.kind == "p":
        known = house.collector.partitions.leaves_of(oid)
        if known is not None and known != set(table.leaves):
            text = f"partitions of {table.schema}.{table.name} were attached or detached"
            return [(member, PARTITIONS_CHANGED, text) for member in members]
    ends: list[_End] = []
    verdicts: dict[Hashable, Irrelevant | Ends] = {}
    for member in members:
        facts = what_matters(member.definition)
        verdict = verdicts.get(facts) or verdicts.setdefault(facts, relevance(member.definition, table))
        if isinstance(verdict, Ends):
            ends.append((member, verdict.reason, verdict.text))
    return ends
