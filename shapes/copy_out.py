"""`COPY .. TO STDOUT` as batches of rows: ours off the bare socket, libpq's where the connection is encrypted.

A thread reads a batch ahead (`stream_reader`); when nobody takes batches, TCP holds the server back. What waits is a
few batches of `BATCH_BYTES`, or a single row that is larger.

Invariants:
    the copy is complete exactly if the server said so: `ended` then has the SQLSTATE of success
    libpq knows nothing of a copy that we framed; its connection is only closed afterwards
"""

import asyncio
import os
import socket
import threading
from types import TracebackType
from typing import Final, Self

import psycopg
from psycopg import pq

from cdc.source.connections import Connection
from cdc.source.copy_both import Framing, is_encrypted
from cdc.source.errors import ProtocolError, StreamEnded
from cdc.source.framing import HEAD_BYTES, Found, Message
from cdc.source.libpq_source import LibpqSource, reason_of
from cdc.source.limits import MESSAGE_BYTES_MAX
from cdc.source.numbers import Bytes
from cdc.source.plain_source import PlainSource, read_error
from cdc.source.stream_reader import Source, StreamReader
from cdc.source.walsender import CopyBatch
from shapes.copy_text import find_rows

DONE: Final = "00000"
"""The SQLSTATE of success."""

_MEANINGLESS: Final = frozenset("HcCNSA")
"""The start of the copy, its end (which `Z` confirms), notices, parameters, notifications."""


class CopyOut:
    """One COPY on an idle connection, which is good for nothing else afterwards."""

    def __init__(self, source: Source, head_bytes: int, connected: socket.socket) -> None:
        self.head_bytes = head_bytes
        """Bytes of no meaning in front of each row of a batch."""
        self._reader = StreamReader(source)
        self._socket = connected

    @classmethod
    async def start(cls, connection: Connection, statement: str, framing: Framing = Framing.AUTO) -> Self:
        """Send the statement; what the server makes of it comes with the first batch."""
        pgconn = connection.pgconn
        try:
            is_plain = framing is Framing.PLAIN or (framing is Framing.AUTO and not await is_encrypted(connection))
            connected = socket.socket(fileno=os.dup(pgconn.socket))
        except (OSError, psycopg.Error) as error:
            raise StreamEnded(f"the connection broke: {error}", sqlstate=None) from None
        try:
            if is_plain:
                return await cls._start_plain(connected, statement)
            pgconn.nonblocking = 0  # to send: a statement is far less than the buffer of an idle socket
            pgconn.send_query(statement.encode())
            return cls(LibpqSource(pgconn, threading.Lock(), _outcome, pq.ExecStatus.COPY_OUT), 0, connected)
        except (OSError, psycopg.Error) as error:
            connected.close()
            raise StreamEnded(f"the connection broke: {error}", sqlstate=None) from None
        except BaseException:
            connected.close()
            raise

    @classmethod
    async def _start_plain(cls, connected: socket.socket, statement: str) -> Self:
        """As libpq is idle and has read everything, so its socket is ours until the copy has ended."""
        connected.setblocking(False)
        body = statement.encode() + b"\0"
        message = b"Q" + (len(body) + 4).to_bytes(4, "big") + body
        await asyncio.get_running_loop().sock_sendall(connected, message)
        return cls(_PlainCopy(connected, b"", MESSAGE_BYTES_MAX), HEAD_BYTES, connected)

    async def batch(self) -> CopyBatch | None:
        """The next rows, valid until the next call; None when there are no more. Raises `StreamEnded`."""
        try:
            return await self._reader.batch()
        except StreamEnded as ended:
            if ended.sqlstate == DONE:
                return None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.stop()
        self._socket.close()


class _PlainCopy(PlainSource):
    """Messages that the kernel wrote into our buffer."""

    def _find(self, window: Bytes, message_bytes_max: int) -> Found:
        return find_rows(window, len(window), message_bytes_max)

    def _last_words(self, message: Message) -> StreamEnded | None:
        return _last_word(message)


def _outcome(result: pq.abc.PGresult | None) -> StreamEnded:
    if result is not None and result.status == pq.ExecStatus.COMMAND_OK:
        return StreamEnded("the copy is complete", sqlstate=DONE)
    sentence, sqlstate = reason_of(result)
    return StreamEnded(sentence or "the server ended the copy", sqlstate=sqlstate)


def _last_word(message: Message) -> StreamEnded | None:
    """How the copy ended, if that is what the message says."""
    match message.tag:
        case "E":
            sentence, sqlstate = read_error(message.body)
            return StreamEnded(sentence, sqlstate=sqlstate)
        case "Z":
            return StreamEnded("the copy is complete", sqlstate=DONE)
        case tag if tag in _MEANINGLESS:
            return None
        case tag:
            raise ProtocolError("COPY has a message of an unknown kind", tag=tag)
