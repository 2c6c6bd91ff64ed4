"""A transaction that shows a table as of one moment, and who that moment was: REPEATABLE READ, READ ONLY.

Invariants:
    the table's lock comes before the snapshot: a TRUNCATE or a rewrite, which no snapshot can look behind, has either
        ended before it, and is seen, or begins when we have ended
    the birth is read after the snapshot was taken: a commit at or above it cannot be in the snapshot (A6)
    what the where clause and the values mean does not depend on the settings of the role
"""

import contextlib
from dataclasses import dataclass
from typing import Any, Final, LiteralString, Self

import psycopg

from cdc.source.connections import Connection, connect_sql, fetch, translate
from cdc.source.errors import SourceError
from cdc.source.holder_queries import writers_of
from cdc.source.holders import Holder
from cdc.source.limits import LOCK_TIMEOUT_SECONDS
from cdc.source.lsn import parse_lsn
from cdc.source.numbers import Words
from cdc.source.publication import quote
from cdc.source.text_settings import TEXT_SETTINGS
from shapes.errors import SnapshotLost, SnapshotRefused, TableLocked
from shapes.snapshot_filter import parse_snapshot
from storage.catalog_records import Snapshot

_SETTINGS: Final = {
    **TEXT_SETTINGS,
    "row_security": "off",  # what a policy would hide is an error: the stream hides nothing
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "client_connection_check_interval": "10s",  # a copy that finds no rows must notice that we are gone
    "lock_timeout": f"{LOCK_TIMEOUT_SECONDS * 1000:.0f}ms",
}
_TRANSACTION_TIMEOUT_SINCE: Final = 170_000

_PASSING: Final = ("08", "40", "53", "55000", "57", "58", "72", "XX", "25P03")
"""SQLSTATEs, or classes of them, of what another attempt may not meet again; of all others it would."""

_HOLDERS: Final[LiteralString] = """
    SELECT a.pid, a.application_name AS application, a.usename, a.state,
           extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS transaction_seconds, NULL AS prepared
    FROM pg_stat_activity a WHERE a.backend_xid::text = ANY (%s::text[])
    UNION ALL
    SELECT NULL, '', p.owner, 'prepared', extract(epoch FROM clock_timestamp() - p.prepared)::float8, p.gid
    FROM pg_prepared_xacts p WHERE p.transaction::text = ANY (%s::text[])
    ORDER BY transaction_seconds DESC NULLS LAST
"""

_TABLE: Final[LiteralString] = """
    SELECT c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""

_ESTIMATE: Final[LiteralString] = """
    SELECT sum(nullif(c.reltuples, -1))::float8 AS rows FROM pg_class c
    WHERE c.relkind = 'r' AND (c.oid = %s OR c.oid IN (SELECT relid FROM pg_partition_tree(%s::oid)))
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows and columns of which table."""

    oid: int
    schema: str
    table: str
    columns: tuple[str, ...]
    where: str | None = None
    """Canonical, part of SQL as it stands."""
    is_partitioned: bool = False
    has_rows: bool = True
    """Whether the base has the table's rows at all; it has none for a shape that tells changes only."""

    @property
    def name(self) -> str:
        """The table as SQL has it. Tables that inherit from an ordinary one are others, here and in the stream."""
        only = "" if self.is_partitioned else "ONLY "
        return f"{only}{quote(self.schema)}.{quote(self.table)}"

    @property
    def statement(self) -> str:
        """What copies the rows."""
        columns = ", ".join(map(quote, self.columns))
        condition = "" if self.where is None else f" WHERE ({self.where})"
        rows = f"SELECT {columns} FROM {self.name}{condition}"  # noqa: S608 - names are quoted, the clause is canonical
        return f"COPY ({rows}) TO STDOUT"

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(slots=True)
class SnapshotTransaction:
    """An open one."""

    connection: Connection
    selection: Selection
    snapshot: Snapshot
    rows_estimate: float | None
    """Of the whole table, as the server last counted them."""

    @classmethod
    async def open(cls, conninfo: str, application: str, selection: Selection) -> Self:
        """Lock, look, and read where the WAL is, in this order.

        Raises `TableLocked` if the lock is not to be had at once, `SnapshotRefused` for what stays, and
        `SnapshotLost` or a `ConnectionFault` for what passes.
        """
        connection = await connect_sql(conninfo, application)
        try:
            return await cls._begin(connection, selection)
        except psycopg.errors.LockNotAvailable:
            holder = await _who_locks(connection, selection)
            await connection.close()
            raise TableLocked(f"the table {selection} is locked by {holder}") from None
        except psycopg.Error as error:
            await connection.close()
            raise copy_fault(selection, error.sqlstate, translate(error).message) from None
        except BaseException:
            await connection.close()
            raise

    @classmethod
    async def _begin(cls, connection: Connection, selection: Selection) -> Self:
        settings = dict(_SETTINGS)
        if connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
            settings["transaction_timeout"] = "0"
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        await connection.execute(f"SELECT {calls}".encode(), [part for pair in settings.items() for part in pair])
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await connection.execute(f"LOCK TABLE {selection.name} IN ACCESS SHARE MODE".encode())
        snapshot = await look(connection)
        found = await _value(connection, _TABLE, selection.schema, selection.table)
        if found != selection.oid:
            raise SnapshotRefused(f"the table {selection} is not the one that was published: it was made anew")
        estimate = await _value(connection, _ESTIMATE, selection.oid, selection.oid)
        return cls(connection, selection, snapshot, estimate)

    async def close(self) -> None:
        """Roll back, whatever state it is in."""
        with contextlib.suppress(psycopg.Error):
            await self.connection.close()


async def _who_locks(connection: Connection, selection: Selection) -> str:
    """Whoever has the table for himself, as far as that can be told."""
    with contextlib.suppress(psycopg.Error, SourceError):
        await connection.execute("ROLLBACK")
        locks = await writers_of(connection, [selection.oid])
        if locks:
            return "; ".join(map(str, locks.values()))
    return "somebody who has just gone"


async def look(connection: Connection) -> Snapshot:
    """What the server shows at this moment, and after that the place of the WAL."""
    seen = await _value(connection, "SELECT pg_current_snapshot()::text")
    place = await _value(connection, "SELECT pg_current_wal_insert_lsn()::text")
    return parse_snapshot(seen, parse_lsn(place))


async def look_at_all_running(connection: Connection) -> Snapshot:
    """As `look`, with every transaction that has begun to write before in its xip, unless it is seen (A6, b).

    A snapshot ends with the newest transaction that has ended: what runs above is not in it by name. So one is begun
    and ended first, which is above all that run. It is on the server's disk when it has ended: a crash takes back the
    ids that left no trace there, and where nobody writes, no snapshot would ever tell that they are over.
    """
    await _commit_something(connection, "shapelog.start")
    return await look(connection)


async def flush_wal(conninfo: str, application: str, upto: int) -> None:
    """See to it that the server's WAL is on its disk up to here.

    A commit that did not wait for the disk (`synchronous_commit = off`) is visible, and may be undone by a crash: the
    snapshot would have rows that never were, and the places of the WAL below the birth would be given out again, to
    commits that the filter would then drop.
    """
    connection = await connect_sql(conninfo, application)
    try:
        if not await _is_flushed(connection, upto):
            # Nobody need come to flush a page that is not full.
            await _commit_something(connection, "shapelog.birth")
            if not await _is_flushed(connection, upto):
                raise SnapshotLost("the server's WAL is not on its disk yet")
    except psycopg.Error as error:
        raise translate(error) from None
    finally:
        await connection.close()


async def _commit_something(connection: Connection, prefix: LiteralString) -> None:
    """Commit a transaction that changes nothing, and see it onto the server's disk. No standby has to know."""
    await connection.execute("SELECT set_config('synchronous_commit', 'local', false)")
    await connection.execute("SELECT pg_logical_emit_message(true, %s, '')", [prefix])


async def _is_flushed(connection: Connection, upto: int) -> bool:
    return parse_lsn(await _value(connection, "SELECT pg_current_wal_flush_lsn()::text")) >= upto


async def holders_of(connection: Connection, xids: Words) -> tuple[Holder, ...]:
    """Whose transactions these are, the oldest first."""
    texts = list(map(str, xids.tolist()))
    return tuple(map(Holder.from_row, await fetch(connection, _HOLDERS, texts, texts)))


def copy_fault(selection: Selection, sqlstate: str | None, message: str) -> Exception:
    """Our error for the server's reason why a snapshot could not be taken or copied."""
    if sqlstate is None or sqlstate.startswith(_PASSING):
        return SnapshotLost(f"the snapshot of {selection} ended: {message}", sqlstate=sqlstate)
    match sqlstate:
        case "42P01" | "3F000":  # undefined_table, invalid_schema_name
            return SnapshotRefused(
                f"the table {selection} is gone: {message}", hint="Make the table, then ask for the shape again."
            )
        case "42501":  # insufficient_privilege, or a policy that would hide rows
            return SnapshotRefused(
                f"we may not read {selection}: {message}",
                hint=f"As its owner, run GRANT SELECT ON {selection.name.removeprefix('ONLY ')} TO the role; where the "
                "table has row security, the role needs BYPASSRLS.",
            )
        case _:
            return SnapshotRefused(f"{selection} cannot be copied: {message}", sqlstate=sqlstate)


async def _value(connection: Connection, query: LiteralString, *values: Any) -> Any:  # noqa: ANN401 - of any type
    """The one value of a query; None without a row. Psycopg's errors are the caller's to name."""
    row = await (await connection.execute(query, values or None)).fetchone()
    return None if row is None else next(iter(row.values()))
