"""Our own framing of an unencrypted connection: the walsender's bytes go from the kernel into one buffer.

libpq logs in, and is idle when we take over: it has read everything that the server sent, and the server sends
nothing of weight before the next command. So the command goes out on the same socket without libpq knowing, and its
buffers stay empty. At the end libpq closes the connection, with the message that every idle client sends.
"""

import asyncio
import os
import socket
from typing import Self

import numpy as np

from cdc.source.errors import StreamEnded, StreamRefused
from cdc.source.framing import HEAD_BYTES, first_message
from cdc.source.limits import BATCH_BYTES, MESSAGE_BYTES_MAX, SEND_PENDING_BYTES_MAX
from cdc.source.plain_source import PlainSource, read_error
from cdc.source.readiness import until_readable
from cdc.source.stream_reader import StreamReader
from cdc.source.walsender import CopyBatch

_STREAM_STARTED = "W"
_REFUSED = "E"


class PlainStream:
    """`CopyBoth` over the bare socket. A thread reads; all methods belong to the event loop."""

    def __init__(
        self, connected: socket.socket, received: bytes = b"", message_bytes_max: int = MESSAGE_BYTES_MAX
    ) -> None:
        """Follow a stream that has started; `received` are the bytes of it that were read already."""
        connected.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._unsent = bytearray()
        self._broken: StreamEnded | None = None
        self._reader = StreamReader(PlainSource(connected, received, message_bytes_max))

    @classmethod
    async def start(cls, descriptor: int, command: str, message_bytes_max: int = MESSAGE_BYTES_MAX) -> Self:
        """Take over the socket of an idle connection and start the stream."""
        connected = socket.socket(fileno=os.dup(descriptor))
        try:
            received = await _send_command(connected, command)
        except BaseException:
            connected.close()
            raise
        return cls(connected, received, message_bytes_max)

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
        if self._broken is not None:
            raise self._broken
        if len(self._unsent) > SEND_PENDING_BYTES_MAX:
            raise StreamEnded("the server reads nothing that we send", pending_bytes=len(self._unsent))
        self._unsent += _message(b"d", frame)
        self._flush()

    def close(self) -> None:
        """Let go of the socket; libpq's connection stays open."""
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket.fileno())
            self._reader.stop()
            self._socket.close()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._unsent.clear()
            self._broken = StreamEnded(f"the connection broke: {error.strerror or error}", sqlstate=None)
        if self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._socket.fileno())


async def _send_command(connected: socket.socket, command: str) -> bytes:
    """Send the command and read the answer; the bytes that came behind it. Raises `StreamRefused`."""
    connected.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_sendall(connected, _message(b"Q", command.encode() + b"\0"))
        received = b""
        while True:
            message = first_message(np.frombuffer(received, np.uint8), 0, len(received))
            if message is None:
                await until_readable(connected.fileno())
                more = connected.recv(BATCH_BYTES)
                if not more:
                    raise StreamEnded("the server closed the connection", sqlstate=None)
                received += more
                continue
            received = received[HEAD_BYTES + len(message.body) :]
            if message.tag == _REFUSED:
                sentence, sqlstate = read_error(message.body)
                raise StreamRefused(sentence, sqlstate=sqlstate)
            if message.tag == _STREAM_STARTED:
                return received
    except OSError as error:
        raise StreamEnded(f"the connection broke: {error.strerror or error}", sqlstate=None) from None


def _message(tag: bytes, body: bytes) -> bytes:
    return tag + (len(body) + 4).to_bytes(4, "big") + body
