"""Connections to the server through psycopg, and the names that we give to its errors.

Two kinds: one for SQL, and one that speaks the replication protocol (and SQL too, but simple queries only, so its
statements carry their values as text). TLS and authentication are libpq's.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any, Final, LiteralString

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from cdc.source.errors import (
    AccessRefused,
    ConnectionFault,
    Refusal,
    ServerStopping,
    ServerUnfit,
    SlotBusy,
    SlotExists,
    SlotLost,
    SourceError,
    Unreachable,
)
from cdc.source.limits import CONNECT_SECONDS_MAX
from cdc.source.text_settings import text_options

Connection = AsyncConnection[DictRow]

SHOWN: Final = ("user", "host", "hostaddr", "port", "dbname", "service", "sslmode")
"""What may be printed of a connection string; all else may be secret, or lead to a secret."""

_KEEPALIVES: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}

# What an administrator sets for a role or a database is meant for applications. A slot's creation waits for as long as
# its own limit says, and the second connection has pauses.
_SETTINGS: Final = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # Our own commits, a heartbeat or a publication's change, do not wait for a standby that may be away for hours.
    "synchronous_commit": "local",
    # To the planner a catalog asked with recursion looks large enough to compile the question: that takes some tenths
    # of a second, and its answer a hundredth of one.
    "jit": "off",
}

TRANSACTION_TIMEOUT_SINCE: Final = 170_000
"""The first server version that has this limit; an older one refuses a connection that names it."""

_BY_STATE: Final[dict[str, type[SourceError]]] = {
    "55006": SlotBusy,  # object_in_use
    "57P01": ServerStopping,  # admin_shutdown; pg_terminate_backend says the same
    "57P02": ServerStopping,  # crash_shutdown
    "57P03": ServerStopping,  # cannot_connect_now
    "57014": ConnectionFault,  # query_canceled: none of ours is limited, so an administrator did it, and we ask again
    "53400": ServerUnfit,  # configuration_limit_exceeded: no slot left
    "42501": AccessRefused,  # insufficient_privilege
    "3D000": AccessRefused,  # invalid_catalog_name
    "42710": SlotExists,  # duplicate_object
    "42704": SlotLost,  # undefined_object: of all that we name, only the slot can go
    "55000": ServerUnfit,  # object_not_in_prerequisite_state: wal_level, or a slot that cannot be read
}
# Of those that pass: 40 is a deadlock, 53 a lack of connections, memory or disk.
_BY_CLASS: Final[dict[str, type[SourceError]]] = {
    "08": ConnectionFault,
    "28": AccessRefused,
    "40": ConnectionFault,
    "53": ConnectionFault,
}


async def connect_sql(conninfo: str, application: str) -> Connection:
    """For queries: each statement is a transaction of its own."""
    return await _connect(conninfo, application, "", {})


async def connect_once(conninfo: str, application: str) -> Connection:
    """As `connect_sql`, for a command that asks once: nobody tries again, and the hint does not promise it."""
    try:
        return await connect_sql(conninfo, application)
    except ConnectionFault as fault:
        if type(fault) is ConnectionFault:
            raise Unreachable(fault.message, **fault.facts) from None
        raise


async def connect_replication(conninfo: str, application: str) -> Connection:
    """For the stream, and for the few statements that must run on the stream's own connection."""
    return await _connect(conninfo, application, text_options(), {"replication": "database"})


async def _connect(conninfo: str, application: str, options: str, more: dict[str, Any]) -> Connection:
    given = parsed(conninfo)
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    keywords = {
        "connect_timeout": CONNECT_SECONDS_MAX,
        **_KEEPALIVES,
        **given,
        "application_name": application,
        "client_encoding": "UTF8",
        "options": f"{given.get('options') or ''} {settings} {options}".strip(),
        **more,
    }
    try:
        connection = await AsyncConnection.connect(
            make_conninfo("", **keywords),
            autocommit=True,
            row_factory=dict_row,
            cursor_factory=AsyncClientCursor,
        )
    except psycopg.Error as error:
        raise translate(error, server=printable(conninfo)) from None
    if connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        try:
            with cut_after(connection, CONNECT_SECONDS_MAX):
                await fetch(connection, "SET transaction_timeout = 0")
        except BaseException:
            await connection.close()
            raise
    return connection


@contextlib.contextmanager
def cut_after(connection: Connection, seconds: float) -> Iterator[None]:
    """Give what is asked within so much time: then its query fails as if the server had gone.

    Cancelling would wait for the server, too.
    """
    cutting = asyncio.get_running_loop().call_later(seconds, _cut, connection)
    try:
        yield
    finally:
        cutting.cancel()


def _cut(connection: Connection) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


def parsed(conninfo: str) -> dict[str, Any]:
    """Its keywords; raises `Refusal` for what says nothing."""
    try:
        return conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:  # its message shows the place that makes no sense, which may be the password
        raise Refusal(
            "what says where Postgres is makes no sense",
            hint="Write postgresql://user@host/database, or key=value pairs; in a URL, %25 is a percent sign.",
        ) from None


async def fetch(connection: Connection, query: LiteralString, *values: Any) -> list[DictRow]:
    """All rows, with the server's errors named as ours."""
    try:
        cursor = await connection.execute(query, values or None)
        return await cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise translate(error) from None


def translate(error: psycopg.Error, **facts: Any) -> SourceError:
    """Our error for one of psycopg's; what has no SQLSTATE is the network's, or comes before a session exists."""
    state = error.sqlstate
    text = (error.diag.message_primary or str(error) or type(error).__name__).strip()
    if state is None:
        if isinstance(error, psycopg.OperationalError):
            return ConnectionFault(text, **facts)
        return Refusal(text, **facts)
    kind = _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or Refusal
    return kind(text, sqlstate=state, **facts)


def printable(conninfo: str) -> str:
    """The connection string without anything secret."""
    try:
        known = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return "(not a connection string)"
    return make_conninfo("", **{name: known[name] for name in SHOWN if known.get(name)})
