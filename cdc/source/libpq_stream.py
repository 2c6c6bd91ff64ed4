"""The replication stream through libpq: for connections with TLS or GSSAPI, and a second opinion on our own framing.

Invariants:
    psycopg's own waits are never used: they cancel the server's query when their task is cancelled
    libpq's connection is used by one thread at a time: the reader's to receive, the loop's to send, under one lock
"""

import asyncio
import threading
from typing import Self

import psycopg
from psycopg import pq

from cdc.source.errors import StreamEnded, StreamRefused
from cdc.source.limits import BATCH_BYTES, LIBPQ_PIECE_BYTES
from cdc.source.readiness import until_readable
from cdc.source.stream_reader import StreamReader
from cdc.source.walsender import CopyBatch


class LibpqSource:
    """`stream_reader.Source` over libpq."""

    def __init__(self, pgconn: pq.abc.PGconn, lock: threading.Lock) -> None:
        self._pgconn = pgconn
        self._lock = lock
        self._frames: list[bytes | memoryview] = []
        self._size = 0
        self._ended: StreamEnded | None = None
        self._descriptor = pgconn.socket  # libpq forgets it when the connection breaks

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
        """Why there will be no more, once all whole frames are taken."""
        return self._ended

    def receive(self) -> int:
        """Let libpq read without waiting, and get the frames that it has whole."""
        before = self._size
        with self._lock:
            lost = None
            try:
                self._pgconn.consume_input()
            except psycopg.Error as error:
                lost = f"the connection broke: {error}"
            self._get_frames()  # what libpq had read before may end with the server's reason
            if lost is not None:
                self._end(lost)
        return self._size - before

    def take(self) -> CopyBatch:
        """The whole frames, if any."""
        frames, self._frames, self._size = self._frames, [], 0
        return CopyBatch.join(frames)

    def give_back(self, batch: CopyBatch) -> None:
        """Each batch has memory of its own."""

    def _get_frames(self) -> None:
        get, add, size = self._pgconn.get_copy_data, self._frames.append, self._size  # the one loop over each message
        try:
            while size < BATCH_BYTES and self._ended is None:
                frame_size, frame = get(1)
                if frame_size > 0:
                    add(frame)
                    size += frame_size
                elif frame_size == 0:
                    break
                else:
                    self._end(*_reason(self._pgconn.get_result()))
        except psycopg.Error as error:
            self._end(*_reason(self._pgconn.get_result(), str(error)))
        self._size = size

    def _end(self, message: str, sqlstate: str | None = None) -> None:
        self._ended = self._ended or StreamEnded(message, sqlstate=sqlstate)


class LibpqStream:
    """`CopyBoth` over libpq, which has the encryption."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        """Follow a stream that has started."""
        self._pgconn = pgconn
        self._descriptor = pgconn.socket
        self._lock = threading.Lock()
        self._reader = StreamReader(LibpqSource(pgconn, self._lock))

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
            message, sqlstate = _reason(result)
            raise StreamRefused(message, sqlstate=sqlstate)
        return cls(pgconn)

    async def batch(self) -> CopyBatch:
        """The next frames, at least one; valid until the next call. Raises `StreamEnded`."""
        return await self._reader.batch()

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


def _reason(result: pq.abc.PGresult | None, message: str = "the server ended the stream") -> tuple[str, str | None]:
    """What the server said when it ended or refused the stream, and its SQLSTATE."""
    if result is None:
        return message, None
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
    return primary.decode(errors="replace") if primary else message, sqlstate.decode() if sqlstate else None
