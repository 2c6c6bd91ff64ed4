"""Frames straight from a socket: the kernel writes into our buffer, and the frames are found there.

They are found as it fills, a piece at a time: to look at a whole batch takes three times as long as a walsender needs
to fill its socket, and then it stands still.

Invariants:
    a buffer is here, or in one batch: never both
    a message larger than the buffer gets a larger one, for as long as it takes
    the server's own words win over what the socket says about the end: they may come in the same moment
"""

import socket
import threading

import numpy as np

from cdc.source.errors import ProtocolError, StreamEnded
from cdc.source.framing import Found, Message, find_messages
from cdc.source.limits import BATCH_BYTES, FRAMED_BYTES_MIN
from cdc.source.numbers import Bytes, Integers
from cdc.source.walsender import CopyBatch

_NONE: Integers = np.zeros(0, np.int64)
_IGNORED = frozenset("NSA")
"""Notices, changed parameters and notifications may come at any time, and mean nothing to a stream."""


class PlainSource:
    """`stream_reader.Source` over a bare socket on which a stream has started."""

    def __init__(self, connected: socket.socket, received: bytes, message_bytes_max: int) -> None:
        self._socket = connected
        self._message_bytes_max = message_bytes_max
        self._buffer = np.empty(max(BATCH_BYTES, len(received)), np.uint8)
        self._buffer[: len(received)] = np.frombuffer(received, np.uint8)
        self._filled = len(received)
        self._framed = 0
        """Where the first message starts that is not whole .."""
        self._wanted = 0
        """.. and the bytes that it has in all, as far as that is known."""
        self._frames: list[tuple[Integers, Integers]] = []
        """Starts and ends of those before it."""
        self._words: StreamEnded | None = None
        self._lost: StreamEnded | None = None
        self._free_lock = threading.Lock()
        self._free: list[Bytes] = []

    @property
    def descriptor(self) -> int:
        """The socket, to wait for."""
        return self._socket.fileno()

    @property
    def piece(self) -> int:
        """A read of so many bytes may have left some in the socket."""
        return BATCH_BYTES

    @property
    def size(self) -> int:
        """Bytes received and not taken yet."""
        return self._filled

    @property
    def ended(self) -> StreamEnded | None:
        """Why there will be no more, once all whole frames are taken."""
        return self._words or self._lost

    def receive(self) -> int:
        """Read what there is, up to the end of the buffer; how many bytes there were."""
        if self._filled == len(self._buffer):
            return 0
        try:
            size = self._socket.recv_into(self._buffer.data[self._filled :])
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lost = self._lost or StreamEnded(f"the connection broke: {error.strerror or error}", sqlstate=None)
            return 0
        if size == 0:
            self._lost = self._lost or StreamEnded("the server closed the connection", sqlstate=None)
        self._filled += size
        self._frame(FRAMED_BYTES_MIN)
        return size

    def take(self) -> CopyBatch:
        """The whole frames, if any."""
        self._frame(1)
        starts, ends = map(np.concatenate, zip(*self._frames, strict=True)) if self._frames else (_NONE, _NONE)
        batch = CopyBatch(self._buffer, starts, ends)
        self._renew_buffer(is_lent=len(batch) > 0)
        return batch

    def _frame(self, bytes_min: int) -> None:
        """Find the messages of what has come since the last time, if it is so much.

        Looking at all of a large message each time that a piece of it has come would take longer than the server waits
        for us, at every attempt.
        """
        if self._filled - self._framed < max(bytes_min, self._wanted):
            return
        found = self._find(self._buffer[self._framed : self._filled], self._message_bytes_max)
        for message in found.others:
            self._words = self._words or self._last_words(message)
        if len(found.starts):
            self._frames.append((found.starts + self._framed, found.ends + self._framed))
        self._framed += found.consumed
        self._wanted = found.wanted

    def _find(self, window: Bytes, message_bytes_max: int) -> Found:
        """The messages of a window, which begins with one."""
        return find_messages(window, 0, len(window), message_bytes_max)

    def _last_words(self, message: Message) -> StreamEnded | None:
        return _last_words(message)

    def give_back(self, batch: CopyBatch) -> None:
        """Nobody uses the batch any more: its buffer serves again, unless it is one of the large ones."""
        if len(batch.buffer) == BATCH_BYTES:
            with self._free_lock:
                self._free.append(batch.buffer)

    def _renew_buffer(self, *, is_lent: bool) -> None:
        """What is not framed yet goes to the front of a buffer that is ours and can hold its message."""
        pending = self._buffer[self._framed : self._filled]
        capacity = max(BATCH_BYTES, self._wanted)
        if is_lent or len(self._buffer) != capacity:
            with self._free_lock:
                recycled = self._free.pop() if self._free and capacity == BATCH_BYTES else None
            self._buffer = np.empty(capacity, np.uint8) if recycled is None else recycled
            self._buffer[: len(pending)] = pending
        elif self._framed:
            self._buffer[: len(pending)] = pending.copy()
        self._filled, self._framed, self._frames = len(pending), 0, []


def read_error(body: bytes) -> tuple[str, str | None]:
    """The server's sentence and its SQLSTATE."""
    parts = body.decode(errors="replace").split("\0")
    fields = {part[0]: part[1:] for part in parts if part}
    return fields.get("M", "no reason given"), fields.get("C")


def _last_words(message: Message) -> StreamEnded | None:
    """Why the server ends the stream, if that is what the message says."""
    match message.tag:
        case "E":
            sentence, sqlstate = read_error(message.body)
            return StreamEnded(sentence, sqlstate=sqlstate)
        case "c" | "C" | "Z":
            return StreamEnded("the server ended the stream", sqlstate=None)
        case tag if tag in _IGNORED:
            return None
        case tag:
            raise ProtocolError("the stream has a message of an unknown kind", tag=tag)
