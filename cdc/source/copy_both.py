"""The replication connection while it streams: frames in, status out, over libpq or over the bare socket.

`start_stream` takes an idle connection that psycopg has opened (its TLS, its authentication) and sends the command.
psycopg is not asked to wait for anything after that: when a task that waits inside psycopg is cancelled, psycopg
cancels the server's query, and the stream is gone. Here a cancelled `batch()` loses nothing.

Invariants:
    every frame is in exactly one batch, in order, whatever was cancelled
    the server's socket is read while the consumer is busy, up to a bound (limits.READY_BATCHES_MAX), then no more
    a batch of a live stream is handed over at once, one of a backlog grows (pace.py)
"""

from enum import Enum, auto
from typing import Any, Protocol

import psycopg
from psycopg.rows import tuple_row

from cdc.source.connections import translate
from cdc.source.libpq_stream import LibpqStream
from cdc.source.limits import MESSAGE_BYTES_MAX
from cdc.source.plain_socket import PlainStream
from cdc.source.walsender import CopyBatch


class CopyBoth(Protocol):
    """A stream that has started."""

    async def batch(self) -> CopyBatch:
        """The next frames, at least one; valid until the next call. Raises `StreamEnded`."""
        ...

    @property
    def is_receiving(self) -> bool:
        """Whether something has come that was not handed out yet."""
        ...

    @property
    def heard_at(self) -> float:
        """When bytes came last, whole messages or not; on the monotonic clock."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame, at once or when the socket has room. Raises `StreamEnded`."""
        ...

    def close(self) -> None:
        """Let go of the socket. Closing the connection is for the one who opened it."""
        ...


class Framing(Enum):
    """Who takes the frames off the socket."""

    AUTO = auto()
    """Ours where there is no encryption, else libpq's."""
    LIBPQ = auto()
    PLAIN = auto()


async def start_stream(
    connection: psycopg.AsyncConnection[Any],
    command: str,
    framing: Framing = Framing.AUTO,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> CopyBoth:
    """Send START_REPLICATION on an idle connection; raises `StreamRefused` with the server's reason.

    `message_bytes_max` keeps our own framing from receiving a larger message; libpq receives it whatever we say, and
    the decoder refuses it then.

    The connection must stay alive, and untouched, for as long as the stream is used.
    """
    pgconn = connection.pgconn
    if framing is Framing.PLAIN or (framing is Framing.AUTO and not await is_encrypted(connection)):
        return await PlainStream.start(pgconn.socket, command, message_bytes_max)
    return await LibpqStream.start(pgconn, command)


async def is_encrypted(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Whether the bytes on the socket are not the protocol's. libpq tells of TLS; of GSSAPI only the server does."""
    pgconn = connection.pgconn
    options = {option.keyword: option.val for option in pgconn.info}
    if pgconn.ssl_in_use:
        return True
    if pgconn.host.startswith(b"/") or options.get(b"gssencmode") in (None, b"disable"):
        return False
    try:
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute("SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()")
        row = await cursor.fetchone()
    except psycopg.Error as error:
        raise translate(error) from None
    return row is None or bool(row[0])
