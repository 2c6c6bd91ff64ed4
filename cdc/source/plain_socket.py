"""Our own framing of an unencrypted connection: the walsender's bytes go from the kernel into one buffer.

libpq logs in, and is idle when we take over: it has read everything that the server sent, and the server sends
nothing before the next command. So the command goes out on the same socket without libpq knowing, and its buffers
stay empty. At the end libpq closes the connection, with the message that every idle client sends.

Invariants:
    `_buffer[:_start]` was handed out, `_buffer[_start:_filled]` is received and not framed yet
    a message larger than the buffer gets a larger one, for as long as it takes
"""

import asyncio
import os
import socket
import time
from typing import Self

import numpy as np

from cdc.source.errors import ProtocolError, StreamEnded, StreamRefused
from cdc.source.framing import HEAD_BYTES, Found, Message, find_messages, first_message
from cdc.source.limits import (
    BACKLOG_NAP_SECONDS,
    BATCH_BYTES,
    GATHER_SECONDS,
    MESSAGE_BYTES_MAX,
    SEND_PENDING_BYTES_MAX,
)
from cdc.source.pace import Pace
from cdc.source.readiness import until_readable
from cdc.source.walsender import CopyBatch

_STREAM_STARTED = "W"
_IGNORED = frozenset("NSA")
"""Notices, changed parameters and notifications may come at any time, and mean nothing to a stream."""


class PlainStream:
    """`CopyBoth` over the bare socket."""

    def __init__(self, connected: socket.socket, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._socket = connected
        self._message_bytes_max = message_bytes_max
        self._buffer = np.empty(BATCH_BYTES, np.uint8)
        self._start = 0
        self._filled = 0
        self._wanted = HEAD_BYTES
        self._pace = Pace()
        self._unsent = bytearray()
        self._ended: StreamEnded | None = None
        """The server's own words, once they are framed."""
        self._lost: StreamEnded | None = None
        """What the socket said: it may be ahead of what is framed, so the server's words come first."""

    @classmethod
    async def start(cls, descriptor: int, command: str) -> Self:
        """Take over the socket of an idle connection and start the stream."""
        connected = socket.socket(fileno=os.dup(descriptor))
        connected.setblocking(False)
        stream = cls(connected)
        try:
            await stream._command(command)
        except BaseException:
            stream.close()
            raise
        return stream

    async def batch(self) -> CopyBatch:
        """The next frames, at least one; valid until the next call. Raises `StreamEnded`."""
        await asyncio.sleep(0)  # whoever drains a backlog never waits; the others shall run too
        self._pace.begin(time.monotonic())
        while True:
            while self._gather():  # noqa: ASYNC110 - it reads what no event would tell
                await asyncio.sleep(0)
            found = self._frame()
            if len(found.starts):
                return CopyBatch(self._buffer, found.starts, found.ends)
            since = time.monotonic()
            await self._until_readable()
            self._pace.waited(since, time.monotonic())

    def send(self, frame: bytes) -> None:
        """Send a frame, at once or when the socket has room. Raises `StreamEnded`."""
        self._send(b"d", frame)

    def close(self) -> None:
        """Let go of the socket; libpq's connection stays open."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())
            self._socket.close()

    async def _command(self, command: str) -> None:
        self._send(b"Q", command.encode() + b"\0")
        while True:
            message = first_message(self._buffer, self._start, self._filled)
            if message is None:
                await self._until_readable()
                self._receive()
                continue
            self._start += HEAD_BYTES + len(message.body)
            if message.tag == _STREAM_STARTED:
                return
            self._hear(message)
            if self._ended is not None:
                raise StreamRefused(self._ended.message, **self._ended.facts)

    async def _until_readable(self) -> None:
        """Wait for more, or raise when there is nothing more to come."""
        self._check_open()
        await until_readable(self._socket.fileno())

    def _gather(self) -> bool:
        """Read, by pauses while the pace asks for it; whether the others' turn came before the end of it."""
        now = time.monotonic()
        turn = now + GATHER_SECONDS
        while self._pace.goes_on(now, self._receive(), self._filled - self._start):
            if now > turn:
                return True
            time.sleep(BACKLOG_NAP_SECONDS)
            now = time.monotonic()
        return False

    def _receive(self) -> int:
        """Read what there is, up to the end of the buffer."""
        self._make_room()
        if self._filled == len(self._buffer):
            return 0
        try:
            size = self._socket.recv_into(self._buffer.data[self._filled :])
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lose(f"the connection broke: {error.strerror or error}")
            return 0
        if size == 0:
            self._lose("the server closed the connection")
        self._filled += size
        return size

    def _make_room(self) -> None:
        """Move what is not framed yet to the front, into a buffer that can hold its message."""
        if not self._start and self._filled < len(self._buffer):
            return
        pending = self._buffer[self._start : self._filled].copy()
        capacity = max(BATCH_BYTES, self._wanted)
        if len(self._buffer) != capacity:
            self._buffer = np.empty(capacity, np.uint8)
        self._buffer[: len(pending)] = pending
        self._start, self._filled = 0, len(pending)

    def _frame(self) -> Found:
        found = find_messages(self._buffer, self._start, self._filled, self._message_bytes_max)
        self._start, self._wanted = found.consumed, found.wanted
        for message in found.others:
            self._hear(message)
        return found

    def _hear(self, message: Message) -> None:
        match message.tag:
            case "E":
                fields = {
                    chr(field[0]): field[1:].decode(errors="replace") for field in message.body.split(b"\0") if field
                }
                self._end(fields.get("M", "no reason given"), sqlstate=fields.get("C"))
            case "c" | "C" | "Z":
                self._end("the server ended the stream")
            case tag if tag not in _IGNORED:
                raise ProtocolError("the stream has a message of an unknown kind", tag=tag)

    def _end(self, message: str, **facts: str | None) -> None:
        # The first reason is the cause, the later ones only follow from it.
        self._ended = self._ended or StreamEnded(message, **facts)

    def _lose(self, message: str) -> None:
        self._lost = self._lost or StreamEnded(message, sqlstate=None)

    def _check_open(self) -> None:
        ended = self._ended or self._lost
        if ended is not None:
            raise ended

    def _send(self, tag: bytes, body: bytes) -> None:
        self._check_open()
        if len(self._unsent) > SEND_PENDING_BYTES_MAX:
            raise StreamEnded("the server reads nothing that we send", pending_bytes=len(self._unsent))
        self._unsent += tag + (len(body) + 4).to_bytes(4, "big") + body
        self._flush()

    def _flush(self) -> None:
        loop, descriptor = asyncio.get_running_loop(), self._socket.fileno()
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._unsent.clear()
            self._lose(f"the connection broke: {error.strerror or error}")
        if self._unsent:
            loop.add_writer(descriptor, self._flush)
        else:
            loop.remove_writer(descriptor)
