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
from types import TracebackType
from typing import Final, Self

import psycopg
from psycopg import pq

from cdc.source.connections import Connection
from cdc.source.copy_both import Framing, is_encrypted
from cdc.source.errors import ProtocolError, StreamEnded
from cdc.source.framing import HEAD_BYTES, Message
from cdc.source.limits import BATCH_BYTES, LIBPQ_PIECE_BYTES, MESSAGE_BYTES_MAX
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
            return cls(_LibpqCopy(pgconn), 0, connected)
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

    def take(self) -> CopyBatch:
        """The whole rows, if any."""
        found = find_rows(self._buffer, self._filled, self._message_bytes_max)
        for message in found.others:
            self._words = self._words or _last_word(message)
        batch = CopyBatch(self._buffer, found.starts, found.ends)
        self._renew_buffer(found.consumed, found.wanted, is_lent=len(batch) > 0)
        return batch


class _LibpqCopy:
    """Rows that libpq hands out one by one: each is an object, which is what encryption costs here."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._descriptor = pgconn.socket  # libpq forgets it when the connection breaks
        self._rows: list[bytes | memoryview] = []
        self._size = 0
        self._has_started = False
        self._ended: StreamEnded | None = None

    @property
    def descriptor(self) -> int:
        """The socket, to wait for."""
        return self._descriptor

    @property
    def piece(self) -> int:
        """A read of so many bytes may have left some in the socket."""
        return LIBPQ_PIECE_BYTES

    @property
    def size(self) -> int:
        """Bytes received and not taken yet."""
        return self._size

    @property
    def ended(self) -> StreamEnded | None:
        """Why there will be no more, once all rows are taken."""
        return self._ended

    def receive(self) -> int:
        """Let libpq read without waiting, and get the rows that it has whole."""
        before = self._size
        try:
            self._pgconn.consume_input()
            if self._has_started or not self._pgconn.is_busy():
                self._get_rows()
        except psycopg.Error as error:
            self._ended = self._ended or StreamEnded(f"the connection broke: {error}", sqlstate=None)
        return self._size - before

    def take(self) -> CopyBatch:
        """The whole rows, if any."""
        rows, self._rows, self._size = self._rows, [], 0
        return CopyBatch.join(rows)

    def give_back(self, batch: CopyBatch) -> None:
        """Each batch has memory of its own."""

    def _get_rows(self) -> None:
        if not self._has_started:
            self._has_started = True
            result = self._pgconn.get_result()
            if result is None or result.status != pq.ExecStatus.COPY_OUT:
                self._ended = _outcome(result)
        get, add = self._pgconn.get_copy_data, self._rows.append  # the one loop over each row
        while self._size < BATCH_BYTES and self._ended is None:
            size, row = get(1)
            if size > 0:
                add(row)
                self._size += size
            elif size == 0:
                break
            else:
                self._ended = _outcome(self._pgconn.get_result())


def _outcome(result: pq.abc.PGresult | None) -> StreamEnded:
    if result is None:
        return StreamEnded("the server ended the copy", sqlstate=None)
    if result.status == pq.ExecStatus.COMMAND_OK:
        return StreamEnded("the copy is complete", sqlstate=DONE)
    sentence = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"the server ended the copy"
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
    return StreamEnded(sentence.decode(errors="replace"), sqlstate=sqlstate.decode() if sqlstate else None)


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
