"""The replication stream through libpq: for connections with TLS or GSSAPI, and a second opinion on our own framing.

Invariants:
    psycopg's own waits are never used: they cancel the server's query when their task is cancelled
    the reader's thread receives, the loop's sends, under one lock
"""

import asyncio
import threading
from typing import Self

import psycopg
from psycopg import pq

from cdc.source.errors import StreamEnded, StreamRefused
from cdc.source.libpq_source import LibpqSource, reason_of
from cdc.source.readiness import until_readable
from cdc.source.stream_reader import StreamReader
from cdc.source.walsender import CopyBatch


class LibpqStream:
    """`CopyBoth` over libpq, which has the encryption."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        """Follow a stream that has started."""
        self._pgconn = pgconn
        self._descriptor = pgconn.socket
        self._lock = threading.Lock()
        self._reader = StreamReader(LibpqSource(pgconn, self._lock, _ended))

    @classmethod
    async def start(cls, pgconn: pq.abc.PGconn, command: str) -> Self:
        """Start the stream."""
        try:
            pgconn.send_query(command.encode())
            while pgconn.flush() == 1 or pgconn.is_busy():
                await until_readable(pgconn.socket)
                pgconn.consume_input()
        except psycopg.Error as error:
            raise StreamEnded(f"the connection broke: {error}", sqlstate=None) from None
        result = pgconn.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            reason = _ended(result)
            raise StreamRefused(reason.message, sqlstate=reason.sqlstate)
        return cls(pgconn)

    async def batch(self) -> CopyBatch:
        """The next frames, at least one; valid until the next call. Raises `StreamEnded`."""
        return await self._reader.batch()

    @property
    def is_receiving(self) -> bool:
        """Whether something has come that was not handed out yet."""
        return self._reader.is_receiving

    @property
    def heard_at(self) -> float:
        """When bytes came last."""
        return self._reader.heard_at

    def send(self, frame: bytes) -> None:
        """Send a frame, at once or when the socket has room. Raises `StreamEnded`."""
        self._reader.check()
        with self._lock:
            try:
                self._pgconn.put_copy_data(frame)
            except psycopg.Error as error:
                raise StreamEnded(f"the connection broke: {error}", sqlstate=None) from None
        self._flush()

    def close(self) -> None:
        """Let go of the socket; libpq's connection stays open."""
        self._reader.stop()
        asyncio.get_running_loop().remove_writer(self._descriptor)

    def _flush(self) -> None:
        with self._lock:
            try:
                unsent = self._pgconn.flush() == 1
            except psycopg.Error:
                unsent = False  # the reader finds the same, and says so
        if unsent:
            asyncio.get_running_loop().add_writer(self._descriptor, self._flush)
        else:
            asyncio.get_running_loop().remove_writer(self._descriptor)


def _ended(result: pq.abc.PGresult | None) -> StreamEnded:
    """What the server said when it ended or refused the stream."""
    message, sqlstate = reason_of(result)
    return StreamEnded(message or "the server ended the stream", sqlstate=sqlstate)
