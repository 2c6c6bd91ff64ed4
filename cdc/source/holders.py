"""Who holds what we wait for: the server's sessions and prepared transactions, named so that a person can act.

Their queries are never shown: a statement's text may hold what nobody else should read.
"""

from dataclasses import dataclass
from typing import Final, LiteralString, Self

from psycopg.rows import DictRow

from cdc.source.connections import Connection, fetch


@dataclass(frozen=True, slots=True)
class Holder:
    """A session, or a prepared transaction, which has no process."""

    pid: int | None
    application: str
    user: str
    state: str
    transaction_seconds: float | None
    prepared: str | None = None

    @classmethod
    def from_row(cls, row: DictRow) -> Self:
        return cls(
            row["pid"],
            row["application"] or "",
            row["usename"] or "",
            row["state"] or "",
            row["transaction_seconds"],
            row.get("prepared"),
        )

    def __str__(self) -> str:
        age = "" if self.transaction_seconds is None else f", transaction open for {self.transaction_seconds:.0f} s"
        if self.prepared is not None:
            return f"prepared transaction {self.prepared!r} of {self.user}{age}"
        name = f" ({self.application})" if self.application else ""
        return f"process {self.pid}{name} of {self.user}, {self.state or 'state unknown'}{age}"

    @property
    def mend(self) -> str:
        """The statement that ends it, for a person to run."""
        if self.prepared is not None:
            quoted = self.prepared.replace("'", "''")
            return f"ROLLBACK PREPARED '{quoted}';"
        return f"SELECT pg_terminate_backend({self.pid});"


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

# RowExclusiveLock and what is stronger: whoever holds one of these may have written. A lock of a prepared transaction
# has no process; the lock on its own number, under the same virtual number, tells which it is.
_WRITERS: Final[LiteralString] = """
    SELECT DISTINCT l.virtualtransaction AS vxid, l.pid, coalesce(a.application_name, '') AS application,
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
      AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock',
                     'ExclusiveLock', 'AccessExclusiveLock')
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
    rows = await fetch(connection, _WRITERS, tables)
    return {row["vxid"]: Holder.from_row(row) for row in rows}


async def prepared_transactions(connection: Connection) -> tuple[Holder, ...]:
    """All of this server: each keeps a slot's creation waiting."""
    return tuple(map(Holder.from_row, await fetch(connection, _PREPARED + "ORDER BY prepared")))
