"""The other end of a request: whether it is still there, and what it takes of an answer, in pieces and in time.

Invariants:
    a body is handed over piece by piece, each when the connection has room for it: no reader makes us hold more
    who does not take a piece in time is cut off, by the connection
    what answers under way may hold all together is bounded
"""

import asyncio
from collections.abc import Sequence

from starlette.types import Receive, Send

from shapes.http.connection import Connection
from shapes.http.limits import BODY_BYTES_MAX, BODY_SECONDS_MAX, SEND_PIECE_BYTES
from shapes.http.problems import body_too_large, not_json, overloaded
from shapes.http.responses import Headers


class ClientGone(Exception):
    """Nobody is there any more who would take an answer."""


class Outflow:
    """Bytes of bodies under way, of all connections."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max

    def enter(self, size: int, retry_seconds: int) -> None:
        """Begin to send so much; refused with 503 if too much is under way."""
        if self.bytes and self.bytes + size > self._bytes_max:
            raise overloaded("outgoing", retry_seconds)
        self.add(size)

    def add(self, size: int) -> None:
        """As `enter`, for what is not refused."""
        self.bytes += size

    def leave(self, size: int) -> None:
        """It is sent, or given up."""
        self.bytes -= size


class Client:
    """One request's connection."""

    def __init__(self, receive: Receive, send: Send, connection: Connection) -> None:
        self.connection = connection
        self._receive = receive
        self._send = send
        self._gone: asyncio.Future[None] | None = None
        self.has_started = False
        """The answer's status is on its way: nothing else can be told."""
        self.has_token = False
        """The request brings one: what it is answered is for nobody else."""

    @property
    def is_gone(self) -> bool:
        """As far as is known; it is after `gone` was asked for."""
        return self._gone is not None and self._gone.done()

    @property
    def gone(self) -> "asyncio.Future[None]":
        """Done when the client leaves."""
        if self._gone is None:
            self._gone = asyncio.ensure_future(self._listen())
        return self._gone

    async def body(self) -> bytes:
        """What came with the request."""
        pieces, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > BODY_BYTES_MAX:
                        raise body_too_large()
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            raise not_json("the body did not come to its end in time") from None

    async def start(self, status: int, headers: Headers) -> None:
        """Status and headers."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.has_started = True
        await self._hand_over({"type": "http.response.start", "status": status, "headers": raw})

    async def send_body(self, parts: Sequence[bytes], *, more: bool = False) -> None:
        """A body, or some of it."""
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), SEND_PIECE_BYTES):
                piece = view[start : start + SEND_PIECE_BYTES]  # no copy: many connections hold the same page
                await self._hand_over({"type": "http.response.body", "body": piece, "more_body": True})
        if not more:
            await self._hand_over({"type": "http.response.body", "body": b"", "more_body": False})

    async def respond(self, status: int, headers: Headers, parts: Sequence[bytes], *, is_head: bool = False) -> None:
        """A whole answer."""
        size = sum(map(len, parts))
        if size <= SEND_PIECE_BYTES:
            parts = [b"".join(parts)]
        await self.start(status, [*headers, ("content-length", str(size))] if status not in {204, 304} else headers)
        if is_head or status in {204, 304} or not size:
            await self.send_body([])
        elif size <= SEND_PIECE_BYTES:
            await self._hand_over({"type": "http.response.body", "body": parts[0], "more_body": False})
        else:
            await self.send_body(parts)

    def close(self) -> None:
        """Look no more whether it is there."""
        if self._gone is not None:
            self._gone.cancel()

    async def _hand_over(self, message: dict[str, object]) -> None:
        await self._send(message)
        if self.connection.is_lost:
            raise ClientGone

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
