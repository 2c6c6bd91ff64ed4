"""One request on a connection, and its answer, as an application of ASGI sees them.

Invariants:
    an answer is framed by us alone: by its length, in chunks, or by the connection's end where HTTP/1.0 knows no chunks
    an answer that is not whole ends the connection: nobody takes a part for all of it
    a body that the application does not read is read no further than BODY_AHEAD_BYTES, until the answer is given
"""

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Message, Scope

from shapes.http.connection_counts import Cut
from shapes.http.limits import BODY_AHEAD_BYTES

if TYPE_CHECKING:
    from shapes.http.connection import Connection

logger = logging.getLogger(__name__)

STATUS_LINES: Final = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_WITHOUT_BODY: Final = frozenset({204, 304})
_FAILED: Final = b'{"error":"Internal server error"}'
_FAILED_HEADERS: Final = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


class Exchange:
    """A request, from its head to the end of its answer or to its being held."""

    __slots__ = (
        "_body",
        "_connection",
        "_expects_leave",
        "_has_end",
        "_is_chunked",
        "_is_read",
        "_is_stopping",
        "_left_to_send",
        "_waiter",
        "is_begun",
        "is_gone",
        "is_over",
        "scope",
    )

    def __init__(self, connection: "Connection", scope: Scope, *, expects_leave: bool) -> None:
        """`expects_leave`: the client waits to be told that it may send the body."""
        self.scope = scope
        self.is_begun = False
        """The answer is."""
        self.is_over = False
        """It is answered, or somebody else will answer."""
        self.is_gone = False
        """The client is."""
        self._connection = connection
        self._expects_leave = expects_leave
        self._body = bytearray()
        self._has_end = False
        self._is_read = False
        self._is_stopping = connection.is_stopping
        self._is_chunked = False
        self._left_to_send: int | None = None
        self._waiter: asyncio.Future[None] | None = None

    # What the connection tells

    def feed(self, piece: bytes) -> bool:
        """Some of the body; whether there is room for more."""
        if self.is_over:
            return True
        self._body += piece
        self._wake()
        return len(self._body) <= BODY_AHEAD_BYTES

    def end(self) -> None:
        """The body is whole."""
        self._has_end = True
        self._wake()

    def stop(self) -> None:
        """The server stops: whoever only waits for the client to leave need not."""
        self._is_stopping = True
        self._wake()

    def left(self) -> None:
        """The client is gone."""
        self.is_gone = True
        self._wake()

    # What the application asks

    async def run(self, app: ASGIApp) -> None:
        """Have it answered."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            if not (self.is_over or self.is_gone):  # an application that answered has told of it
                logger.exception("the answer to a request failed")
        if self.is_gone:
            return
        if not (self.is_over or self.is_begun):
            length = (b"content-length", str(len(_FAILED)).encode())
            await self.send({"type": "http.response.start", "status": 500, "headers": [*_FAILED_HEADERS, length]})
            await self.send({"type": "http.response.body", "body": _FAILED})
        if not self.is_over:
            self._connection.cut(Cut.FAILED)

    async def receive(self) -> Message:
        """The next of the body; behind its end, that the client has left, or that the server stops."""
        if self._expects_leave:
            self._expects_leave = False
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._connection.read_on()
        while not self._has_news():
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.is_gone or self.is_over or self._is_read:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._is_read = self._has_end
        return {"type": "http.request", "body": body, "more_body": not self._has_end}

    async def send(self, message: Message) -> None:
        """The head of the answer, then its body, and wait while the connection has no room."""
        if self.is_gone:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._go_on(message.get("body", b""), is_end=not message.get("more_body", False))
        if not self.is_over:
            await self._connection.drained()

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.is_begun or self.is_over:
            raise RuntimeError("an answer begins once")
        self.is_begun = True
        lines = [STATUS_LINES[status]]
        for name, value in headers:
            if b"\n" in value or b"\r" in value:
                raise ValueError("a header of several lines")
            lowered = name.lower()
            if lowered == b"content-length":
                self._left_to_send = int(value)
            elif lowered == b"connection" and not self._connection.keeps:
                continue  # it says itself that it closes
            lines.append(b"%b: %b\r\n" % (lowered, value))
        if self.scope["method"] == "HEAD" or status in _WITHOUT_BODY:
            self._left_to_send = 0
        elif self._left_to_send is None:
            self._is_chunked = self._connection.knows_chunks
            lines.append(b"transfer-encoding: chunked\r\n" if self._is_chunked else b"")
        is_endless = self._left_to_send is None and not self._is_chunked
        # Whoever was not told to send the body may send it all the same, or another request: only an end is certain.
        lines.append(self._connection.own_lines(is_last=is_endless or (self._expects_leave and not self._has_end)))
        self._expects_leave = False
        lines.append(b"\r\n")
        self._connection.write(b"".join(lines))

    def _go_on(self, body: bytes, *, is_end: bool) -> None:
        if not self.is_begun or self.is_over:
            raise RuntimeError("a body comes after the head, and before its end")
        if self._is_chunked:
            parts = [b"%x\r\n" % len(body), body, b"\r\n"] if body else []
            self._connection.write(*parts, *([b"0\r\n\r\n"] if is_end else []))
        elif self._left_to_send is None:
            self._connection.write(body)
        elif self._left_to_send or not body:
            self._left_to_send -= len(body)
            if self._left_to_send < 0 or (is_end and self._left_to_send):
                raise RuntimeError("a body of another length than its head says")
            self._connection.write(body)
        if is_end:
            self.is_over = True
            self._wake()
            self._connection.answered()

    def _has_news(self) -> bool:
        if self.is_gone or self.is_over:
            return True
        return self._is_stopping if self._is_read else bool(self._body) or self._has_end

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
