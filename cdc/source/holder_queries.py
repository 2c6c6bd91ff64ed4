"""The server's sessions and prepared transactions that hold what we wait for."""

from typing import Final, LiteralString

from cdc.source.connections import Connection, fetch
from cdc.source.holders import Holder

_ACTIVITY: Final[LiteralString] = """
    SELECT a.pid, a.application_name AS application, a.usename, a.state,
           extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS transaction_seconds
    FROM pg_stat_activity a
"""

_PREPARED: Final[LiteralString] = """
    SELECT NULL::int AS pid, '' AS application, p.owner AS usename, 'prepared' AS state, p.gid AS prepared,
           extract(epoch FROM clock_timestamp() - p.prepared)::float8 AS transaction_seconds
    FROM pg_prepared_xacts p
"""

# A lock of a prepared transaction has no process; the lock on its own number, under the same virtual number, tells
# which it is.
_LOCKED: Final[LiteralString] = """
    SELECT DISTINCT l.virtualtransaction AS vxid, l.pid,
           coalesce(nullif(a.application_name, ''), nullif(a.backend_type, 'client backend'), '') AS application,
           coalesce(a.usename, p.owner) AS usename, coalesce(a.state, 'prepared') AS state, p.gid AS prepared,
           extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8 AS transaction_seconds
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_locks own ON own.pid IS NULL AND l.pid IS NULL AND own.locktype = 'transactionid'
                          AND own.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_prepared_xacts p ON p.transaction = own.transactionid
    WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.relation = ANY (%s::oid[])
"""

# Every change of a row takes the first of these, and TRUNCATE the last. Weaker ones and those between are of VACUUM,
# CREATE INDEX and the like, which may take hours and write nothing that a slot sends.
_WRITING: Final[LiteralString] = """
      AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""


async def blockers_of(connection: Connection, pid: int) -> tuple[Holder, ...]:
    """Whom a session waits for; a prepared transaction that holds a lock of another has no process to name."""
    rows = await fetch(connection, _ACTIVITY + "WHERE a.pid = ANY (pg_blocking_pids(%s)) ORDER BY xact_start", pid)
    prepared = await fetch(
        connection,
        _PREPARED + "WHERE 0 = ANY (pg_blocking_pids(%s)) ORDER BY prepared",
        pid,
    )
    return tuple(map(Holder.from_row, [*rows, *prepared]))


async def session_of(connection: Connection, pid: int) -> Holder | None:
    """One session, if it is still there."""
    rows = await fetch(connection, _ACTIVITY + "WHERE a.pid = %s", pid)
    return Holder.from_row(rows[0]) if rows else None


async def writers_of(connection: Connection, tables: list[int]) -> dict[str, Holder]:
    """Transactions that may have written to one of the tables, by their virtual number.

    A virtual number is never given twice while the server runs, so it says whether a transaction seen before is
    still the same one.
    """
    rows = await fetch(connection, _LOCKED + _WRITING, tables)
    return {row["vxid"]: Holder.from_row(row) for row in rows}


async def users_of(connection: Connection, table: int) -> tuple[Holder, ...]:
    """Transactions that hold any lock of a table, and so may keep us from having it alone."""
    return tuple(map(Holder.from_row, await fetch(connection, _LOCKED, [table])))


async def prepared_transactions(connection: Connection) -> tuple[Holder, ...]:
    """All of this server: each keeps a slot's creation waiting."""
    return tuple(map(Holder.from_row, await fetch(connection, _PREPARED + "ORDER BY prepared")))


async def open_transactions(connection: Connection) -> tuple[Holder, ...]:
    """All of this server that have written, the oldest first: each keeps a slot's creation waiting."""
    rows = await fetch(connection, _ACTIVITY + "WHERE a.backend_xid IS NOT NULL ORDER BY a.xact_start")
    return tuple(map(Holder.from_row, rows))
