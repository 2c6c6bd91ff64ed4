"""Frames of a copy that libpq hands out one by one: each is an object, which is what encryption costs.

Invariants:
    libpq's connection is used by one thread at a time: who else uses it takes the same lock
    what libpq had read when the connection broke is taken, and may end with the server's own reason
"""

import threading
from collections.abc import Callable

import psycopg
from psycopg import pq

from cdc.source.errors import StreamEnded
from cdc.source.limits import BATCH_BYTES, LIBPQ_PIECE_BYTES
from cdc.source.walsender import CopyBatch


class LibpqSource:
    """`stream_reader.Source` over libpq."""

    def __init__(
        self,
        pgconn: pq.abc.PGconn,
        lock: threading.Lock,
        outcome: Callable[[pq.abc.PGresult | None], StreamEnded],
        awaited: pq.ExecStatus | None = None,
    ) -> None:
        """`awaited`: the result that comes before the first frame, if it has not come. `outcome`: what another says."""
        self._pgconn = pgconn
        self._outcome = outcome
        self._awaited = awaited
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
                self._end(StreamEnded(lost, sqlstate=None))
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
            if not self._has_begun():
                return
            while size < BATCH_BYTES and self._ended is None:
                frame_size, frame = get(1)
                if frame_size > 0:
                    add(frame)
                    size += frame_size
                elif frame_size == 0:
                    break
                else:
                    self._end(self._outcome(self._pgconn.get_result()))
        except psycopg.Error as error:
            result = self._pgconn.get_result()
            self._end(StreamEnded(str(error), sqlstate=None) if result is None else self._outcome(result))
        self._size = size

    def _has_begun(self) -> bool:
        if self._awaited is None:
            return True
        if self._pgconn.is_busy():
            return False
        result = self._pgconn.get_result()
        if result is None or result.status != self._awaited:
            self._end(self._outcome(result))
        self._awaited = None
        return True

    def _end(self, reason: StreamEnded) -> None:
        self._ended = self._ended or reason


def reason_of(result: pq.abc.PGresult | None) -> tuple[str | None, str | None]:
    """The server's sentence in a result, if there is one, and its SQLSTATE."""
    if result is None:
        return None, None
    sentence = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
    return sentence.decode(errors="replace") if sentence else None, sqlstate.decode() if sqlstate else None
