"""The facts for `checks.py`, read from a server in a few queries."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final, LiteralString

from cdc.source.catalog import find_tables, read_leaves, read_publication, read_published, read_tables
from cdc.source.connections import Connection, fetch
from cdc.source.facts import Facts, Role
from cdc.source.holder_queries import open_transactions, prepared_transactions
from cdc.source.holders import Holder
from cdc.source.limits import WAL_AVERAGE_SECONDS_MIN, WAL_SAMPLE_SECONDS
from cdc.source.lsn import parse_lsn
from cdc.source.publication import Mode, TableState
from cdc.source.slot_commands import read_slot

_SETTINGS: Final[LiteralString] = """
    SELECT name, setting FROM pg_settings
    WHERE name IN ('wal_level', 'max_replication_slots', 'max_wal_senders', 'max_slot_wal_keep_size',
                   'wal_sender_timeout', 'server_encoding')
"""

_ROLE: Final[LiteralString] = """
    SELECT rolname AS name, rolsuper AS superuser, rolreplication AS replication, rolbypassrls AS bypasses_row_security,
           has_database_privilege(current_database(), 'CREATE') AS creates_in_database
    FROM pg_roles WHERE rolname = current_user
"""

_SERVER: Final[LiteralString] = """
    SELECT current_database() AS database, pg_is_in_recovery() AS in_recovery,
           (SELECT count(*) FROM pg_replication_slots) AS slots_used,
           (SELECT count(*) FROM pg_stat_replication) AS walsenders_used
"""

_RIGHTS: Final[LiteralString] = """
    SELECT c.oid::bigint AS oid, has_table_privilege(c.oid, 'SELECT') AS readable,
           pg_has_role(c.relowner, 'USAGE') AS owned
    FROM pg_class c WHERE c.oid = ANY (%s::oid[])
"""


async def read_facts(
    connection: Connection,
    slot: str,
    publication: str,
    tables: Iterable[str],
    mode: Mode,
    sample_seconds: float = WAL_SAMPLE_SECONDS,
) -> Facts:
    """A snapshot of what is checked. Takes `sample_seconds`, in which the WAL rate is measured."""
    server = (await fetch(connection, _SERVER))[0]
    settings = {row["name"]: row["setting"] for row in await fetch(connection, _SETTINGS)}
    state = await read_publication(connection, publication)
    found = await find_tables(connection, tables)
    wanted = tuple(table for table in found.values() if table is not None)
    if not found:
        wanted = await _published_roots(connection, publication)
    leaves = {table.oid: await read_leaves(connection, table.oid) for table in wanted if table.kind == "p"}
    oids = [part.oid for table in wanted for part in (table, *leaves.get(table.oid, ()))]
    rights = await fetch(connection, _RIGHTS, oids)
    present = await read_slot(connection, slot)
    return Facts(
        version=connection.info.server_version,
        database=server["database"],
        in_recovery=server["in_recovery"],
        settings=settings,
        role=Role(**(await fetch(connection, _ROLE))[0]),
        slots_used=server["slots_used"],
        walsenders_used=server["walsenders_used"],
        wal_bytes_per_second=0.0 if server["in_recovery"] else await _wal_rate(connection, sample_seconds),
        clock_skew_seconds=await _clock_skew(connection),
        mode=mode,
        slot_name=slot,
        slot=present,
        retained_bytes=None if server["in_recovery"] else await _retained_bytes(connection, slot),
        publication=state,
        wanted=wanted,
        unknown=tuple(name for name, table in found.items() if table is None),
        leaves=leaves,
        owned=frozenset(row["oid"] for row in rights if row["owned"]),
        readable=frozenset(row["oid"] for row in rights if row["readable"]),
        transactions=await _transactions(connection),
    )


async def _published_roots(connection: Connection, publication: str) -> tuple[TableState, ...]:
    leaves = await read_published(connection, publication)
    return tuple((await read_tables(connection, sorted({table.root for table in leaves.values()}))).values())


async def _wal_rate(connection: Connection, seconds: float) -> float:
    """Bytes a second: the greater of the average since the statistics were reset, and a look at the present."""
    query = "SELECT wal_bytes::float8 / greatest(extract(epoch FROM now() - stats_reset)::float8, %s) AS rate "
    average = await fetch(connection, query + "FROM pg_stat_wal", WAL_AVERAGE_SECONDS_MIN)
    if not seconds:
        return float(average[0]["rate"] or 0)
    before = parse_lsn((await fetch(connection, "SELECT pg_current_wal_lsn() AS lsn"))[0]["lsn"])
    started = time.monotonic()
    await asyncio.sleep(seconds)
    after = parse_lsn((await fetch(connection, "SELECT pg_current_wal_lsn() AS lsn"))[0]["lsn"])
    return max(float(average[0]["rate"] or 0), (after - before) / (time.monotonic() - started))


async def _clock_skew(connection: Connection) -> float:
    """The server's clock less ours, taken in the middle of the way there and back."""
    before = time.time()
    rows = await fetch(connection, "SELECT extract(epoch FROM clock_timestamp())::float8 AS now")
    return float(rows[0]["now"]) - (before + time.time()) / 2


async def _retained_bytes(connection: Connection, slot: str) -> int | None:
    query = (
        "SELECT (pg_current_wal_lsn() - restart_lsn)::bigint AS bytes FROM pg_replication_slots WHERE slot_name = %s"
    )
    rows = await fetch(connection, query, slot)
    return rows[0]["bytes"] if rows else None


async def _transactions(connection: Connection) -> tuple[Holder, ...]:
    return (*await open_transactions(connection), *await prepared_transactions(connection))
