"""The replication stream through libpq: for connections with TLS or GSSAPI, and a second opinion on our own framing.

Invariants:
    psycopg's own waits are never used: they cancel the server's query when their task is cancelled
    frames taken off libpq and not handed out yet are in `_frames`, whatever was cancelled meanwhile
"""

import asyncio
import time
from typing import Self

import psycopg
from psycopg import pq

from cdc.source.errors import StreamEnded, StreamRefused
from cdc.source.limits import (
    BACKLOG_NAP_BYTES,
    BACKLOG_NAP_SECONDS,
    BATCH_BYTES,
    GATHER_SECONDS,
)
from cdc.source.pace import Pace
from cdc.source.readiness import until_readable
from cdc.source.walsender import CopyBatch


class LibpqStream:
    """`CopyBoth` over libpq, which has the encryption."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._frames: list[bytes | memoryview] = []
        self._bytes = 0
        self._pace = Pace()
        self._ended: StreamEnded | None = None

    @classmethod
    async def start(cls, pgconn: pq.abc.PGconn, command: str) -> Self:
        """Start the stream."""
        stream = cls(pgconn)
        pgconn.send_query(command.encode())
        stream._flush()
        while pgconn.is_busy():
            await until_readable(pgconn.socket)
            stream._consume()
            if stream._ended is not None:
                raise StreamRefused(stream._ended.message)
        result = pgconn.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            message, sqlstate = _reason(result)
            raise StreamRefused(message, sqlstate=sqlstate)
        return stream

    async def batch(self) -> CopyBatch:
        """The next frames, at least one; valid until the next call. Raises `StreamEnded`."""
        await asyncio.sleep(0)  # whoever drains a backlog never waits; the others shall run too
        self._pace.begin(time.monotonic())
        while True:
            while self._gather():  # noqa: ASYNC110 - it reads what no event would tell
                await asyncio.sleep(0)
            if self._frames:
                frames, self._frames, self._bytes = self._frames, [], 0
                return CopyBatch.join(frames)
            if self._ended is not None:
                raise self._ended
            since = time.monotonic()
            await until_readable(self._pgconn.socket)
            self._pace.waited(since, time.monotonic())

    def send(self, frame: bytes) -> None:
        """Send a frame, at once or when the socket has room. Raises `StreamEnded`."""
        if self._ended is not None:
            raise self._ended
        try:
            self._pgconn.put_copy_data(frame)
        except psycopg.Error as error:
            self._end(f"the connection broke: {error}")
            raise StreamEnded(f"the connection broke: {error}") from None
        self._flush()

    def close(self) -> None:
        """Let go of the socket; libpq's connection stays open."""
        if self._pgconn.status == pq.ConnStatus.OK:
            asyncio.get_running_loop().remove_writer(self._pgconn.socket)

    def _gather(self) -> bool:
        """Read, by pauses while the pace asks for it; whether the others' turn came before the end of it."""
        now = time.monotonic()
        turn = now + GATHER_SECONDS
        while True:
            before = self._bytes
            self._consume()
            self._take()
            size = self._bytes - before
            if not self._pace.goes_on(now, size, self._bytes) or self._ended is not None:
                return False
            if now > turn:
                return True
            if size < BACKLOG_NAP_BYTES:
                time.sleep(BACKLOG_NAP_SECONDS)
            now = time.monotonic()

    def _take(self) -> None:
        """Take the frames that libpq has whole."""
        while self._bytes < BATCH_BYTES and self._ended is None:
            try:
                size, frame = self._pgconn.get_copy_data(1)
            except psycopg.Error as error:
                self._end(*_reason(self._pgconn.get_result(), str(error)))
                break
            if size > 0:
                self._frames.append(frame)
                self._bytes += size
            elif size == 0:
                break
            else:
                self._end(*_reason(self._pgconn.get_result()))

    def _consume(self) -> None:
        """Let libpq read from the socket, without waiting."""
        try:
            self._pgconn.consume_input()
        except psycopg.Error as error:
            self._take()  # what libpq had read before, which may end with the server's reason
            self._end(f"the connection broke: {error}")

    def _end(self, message: str, sqlstate: str | None = None) -> None:
        self._ended = self._ended or StreamEnded(message, sqlstate=sqlstate)

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            unsent = self._pgconn.flush() == 1
        except psycopg.Error as error:
            self._end(f"the connection broke: {error}")
            unsent = False
        if unsent:
            loop.add_writer(self._pgconn.socket, self._flush)
        elif self._pgconn.status == pq.ConnStatus.OK:
            loop.remove_writer(self._pgconn.socket)


def _reason(result: pq.abc.PGresult | None, message: str = "the server ended the stream") -> tuple[str, str | None]:
    """What the server said when it ended or refused the stream, and its SQLSTATE."""
    if result is None:
        return message, None
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
    return primary.decode(errors="replace") if primary else message, sqlstate.decode() if sqlstate else None
