"""A thread that reads a connection and frames it, so that the socket empties while the batch before is decoded.

Without it the walsender stands still for as long as we decode: its socket holds half a millisecond of small messages.
The pauses that let the socket fill also belong here, where they hold up nobody. The thread holds the interpreter for
some microseconds at a time; the kernel's copying, the better part of its work, runs beside the decoder's.

Invariants:
    only the thread reads the socket; whoever else may send
    a buffer is the thread's, or in one batch: never both
    at most READY_BATCHES_MAX batches wait to be taken; then nobody reads, and TCP tells the server
    the end comes behind every batch; the server's own words win over what the socket says about it
"""

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from cdc.source.errors import ProtocolError, StreamEnded
from cdc.source.framing import Message, find_messages
from cdc.source.limits import BACKLOG_NAP_SECONDS, BATCH_BYTES, READY_BATCHES_MAX
from cdc.source.numbers import Bytes
from cdc.source.pace import Pace
from cdc.source.walsender import CopyBatch

_IGNORED = frozenset("NSA")
"""Notices, changed parameters and notifications may come at any time, and mean nothing to a stream."""


class SocketReader:
    """Batches of frames from a socket on which a stream has started; `begin` first, `stop` last."""

    def __init__(
        self, connected: socket.socket, received: bytes, message_bytes_max: int, notify: Callable[[], None]
    ) -> None:
        self._socket = connected
        self._message_bytes_max = message_bytes_max
        self._notify = notify
        self._buffer = np.empty(max(BATCH_BYTES, len(received)), np.uint8)
        self._buffer[: len(received)] = np.frombuffer(received, np.uint8)
        self._filled = len(received)
        self._pace = Pace()
        self._words: StreamEnded | None = None
        self._lost: StreamEnded | None = None
        # What both threads touch, under the lock of the condition:
        self._changed = threading.Condition()
        self._ready: deque[CopyBatch] = deque()
        self._lent: CopyBatch | None = None
        self._free: list[Bytes] = []
        self._ended: Exception | None = None
        self._is_stopped = False
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, name="shapelog-reader", daemon=True)

    def begin(self) -> None:
        """Start to read."""
        self._thread.start()

    def take(self) -> CopyBatch | None:
        """The next batch, valid until the next call, or None; raises the reason once the stream has ended."""
        with self._changed:
            if self._lent is not None and len(self._lent.buffer) == BATCH_BYTES:
                self._free.append(self._lent.buffer)
            self._lent = self._ready.popleft() if self._ready else None
            self._changed.notify()
            if self._lent is None and self._ended is not None:
                raise self._ended
            return self._lent

    def check(self) -> None:
        """Raise the reason if the stream has ended, be there batches to take or not."""
        if self._ended is not None:
            raise self._ended

    def stop(self) -> None:
        """End the thread, wherever it is; at once, since it waits for nothing else."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)

    def _run(self) -> None:
        try:
            while self._read_batch():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the batches are taken
            with self._changed:
                self._ended = error
            self._notify()

    def _read_batch(self) -> bool:
        """Read until there is a batch, and hand it over; False if the reader was stopped meanwhile."""
        self._pace.begin(time.monotonic())
        while True:
            self._gather()
            found = find_messages(self._buffer, 0, self._filled, self._message_bytes_max)
            for message in found.others:
                self._words = self._words or _last_words(message)
            batch = CopyBatch(self._buffer, found.starts, found.ends)
            self._renew_buffer(found.consumed, found.wanted, is_lent=len(batch) > 0)
            if len(batch):
                return self._hand_over(batch)
            ended = self._words or self._lost
            if ended is not None:
                raise ended
            since = time.monotonic()
            if not self._wait():
                return False
            self._pace.waited(since, time.monotonic())

    def _gather(self) -> None:
        """Read, by pauses while the pace asks for it."""
        while self._pace.goes_on(time.monotonic(), self._receive(), self._filled):
            time.sleep(BACKLOG_NAP_SECONDS)

    def _receive(self) -> int:
        """Read what there is, up to the end of the buffer."""
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
        return size

    def _renew_buffer(self, consumed: int, wanted: int, *, is_lent: bool) -> None:
        """What is not framed yet goes to the front of a buffer that is ours and can hold its message."""
        pending = self._buffer[consumed : self._filled]
        capacity = max(BATCH_BYTES, wanted)
        if is_lent or len(self._buffer) != capacity:
            with self._changed:
                recycled = self._free.pop() if self._free and capacity == BATCH_BYTES else None
            self._buffer = np.empty(capacity, np.uint8) if recycled is None else recycled
            self._buffer[: len(pending)] = pending
        elif consumed:
            self._buffer[: len(pending)] = pending.copy()
        self._filled = len(pending)

    def _wait(self) -> bool:
        """Wait for bytes; False if the reader was stopped."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        poll.poll()
        return not self._is_stopped

    def _hand_over(self, batch: CopyBatch) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or len(self._ready) < READY_BATCHES_MAX)
            self._ready.append(batch)
        self._notify()
        return not self._is_stopped


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


def read_error(body: bytes) -> tuple[str, str | None]:
    """The server's sentence and its SQLSTATE."""
    parts = body.decode(errors="replace").split("\0")
    fields = {part[0]: part[1:] for part in parts if part}
    return fields.get("M", "no reason given"), fields.get("C")
