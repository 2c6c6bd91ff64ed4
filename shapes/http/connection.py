"""A connection: requests come in over a socket, and are answered in their order.

A request that is held is no task and no application: the connection keeps who is told when its client leaves, and
`answer` gives it a whole answer at once. That is what ten thousand readers cost who wait for news.

Invariants:
    one request at a time is answered; what comes behind it waits, and is bounded
    whoever takes nothing of what is sent, or does not send what was begun, is cut off
    whatever ends a connection tells it to whoever answers
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

import httptools

from shapes.http.exchange import STATUS_LINES, Exchange
from shapes.http.limits import (
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    SEND_PIECE_BYTES,
    UPLOAD_SECONDS_MAX,
)

if TYPE_CHECKING:
    from shapes.http.connections import Connections

CONNECTION: Final = "shapelog.connection"
"""In a request's scope: its connection."""

_CLOSE: Final = b"connection: close\r\n"
_BAD: Final = b"Bad request: this is not HTTP/1.1"
_TOO_LONG: Final = b"The head of the request is too long"


class Leaver(Protocol):
    """Who waits to answer a request that is held."""

    def left(self) -> None:
        """Its client is gone."""


class _HeadTooLong(Exception):
    """A request's first line and headers are above their bound."""


class Connection(asyncio.Protocol):
    """One of them."""

    __slots__ = (
        "_connections",
        "_exchange",
        "_has_room",
        "_head_bytes",
        "_headers",
        "_held",
        "_is_closing",
        "_keeps",
        "_parser",
        "_reading",
        "_since",
        "_taken_at",
        "_target",
        "_transport",
        "_unsent_bytes",
        "_waiting",
        "is_lost",
        "knows_chunks",
    )

    _transport: asyncio.Transport

    def __init__(self, connections: "Connections") -> None:
        self.knows_chunks = True
        """Whether its client knows answers in chunks."""
        self.is_lost = False
        self._connections = connections
        self._parser: Any = None
        self._exchange: Exchange | None = None
        self._held: Leaver | None = None
        self._waiting: list[tuple[Exchange, bool, bool]] | None = None
        self._reading: Exchange | None = None
        """Whose body is arriving."""
        self._headers: list[tuple[bytes, bytes]] | None = None
        """Of the head that is arriving."""
        self._target = b""
        self._head_bytes = 0
        self._keeps = True
        self._is_closing = False
        """Nothing more is read."""
        self._has_room: asyncio.Future[None] | None = None
        self._since = 0.0
        """When the present wait began: for a request, its head, or its body."""
        self._unsent_bytes = 0
        self._taken_at = 0.0

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        self._transport = transport  # type: ignore[assignment]  # a server's transports can be written to
        self._connections.enter(self)
        self._since = self._connections.now

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why makes no difference
        """It ended."""
        self.is_lost = self._is_closing = True
        self._parser = self._waiting = self._reading = self._headers = None
        self.resume_writing()
        if self._exchange is not None:
            self._exchange.left()
        if self._held is not None:
            self._held.left()
            self._held = None
        self._connections.leave(self)

    def pause_writing(self) -> None:
        """Its client does not keep up."""
        self._has_room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It does."""
        if self._has_room is not None and not self._has_room.done():
            self._has_room.set_result(None)
        self._has_room = None

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self._is_closing:
            return
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_closing = True  # we speak nothing else; this request is answered, and none behind it
            self.on_message_complete()
        except httptools.HttpParserError as error:
            if self._transport.is_closing():
                return
            is_long = isinstance(error.__context__, _HeadTooLong)
            self._refuse(431 if is_long else 400, _TOO_LONG if is_long else _BAD)
        else:
            if self._headers is not None:
                self._head_bytes += len(data)
                if self._head_bytes > 2 * HEAD_BYTES_MAX:  # one endless header is told only at its end
                    self._refuse(431, _TOO_LONG)

    # What the parser reads

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        self._headers, self._target, self._head_bytes = [], b"", 0
        self._since = self._connections.now

    def on_url(self, piece: bytes) -> None:
        """Of its first line."""
        self._target += piece
        if len(self._target) > HEAD_BYTES_MAX:
            raise _HeadTooLong

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        assert self._headers is not None, "a header is in a head"
        self._headers.append((name.lower(), value))
        self._head_bytes += len(name) + len(value)
        if self._head_bytes + len(self._target) > HEAD_BYTES_MAX:
            raise _HeadTooLong

    def on_headers_complete(self) -> None:
        """Its head is whole, and it can be answered."""
        parser, headers = self._parser, self._headers
        assert headers is not None, "a head was begun"
        self._headers = None
        version = parser.get_http_version()
        is_old = version == "1.0"
        path, query = _split(self._target)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._connections.address,
            "client": None,
            "scheme": "http",
            "root_path": "",
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            CONNECTION: self,
        }
        expects_leave = any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
        exchange = self._reading = Exchange(self, scope, expects_leave=expects_leave)
        keeps = parser.should_keep_alive() and not (is_old or parser.should_upgrade())
        if self._exchange is None and self._held is None:
            self._begin(exchange, keeps, not is_old)
            return
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((exchange, keeps, not is_old))
        self._transport.pause_reading()

    def on_body(self, piece: bytes) -> None:
        """Of its body."""
        if self._reading is not None and not self._reading.feed(piece):
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """It is whole."""
        if self._reading is not None:
            self._reading.end()
            self._reading = None
            self._since = self._connections.now

    # What whoever answers asks

    @property
    def is_stopping(self) -> bool:
        """Whether the server is."""
        return self._connections.is_stopping

    @property
    def keeps(self) -> bool:
        """Whether there may be another request behind the one that is answered."""
        return self._keeps and not self._connections.is_stopping

    def own_lines(self, *, is_last: bool = False) -> bytes:
        """Headers that are the connection's to say. `is_last`: nothing may come behind this answer."""
        self._keeps = self._keeps and not (is_last or self._connections.is_stopping)
        return self._connections.date_line if self._keeps else self._connections.date_line + _CLOSE

    def write(self, *parts: bytes) -> None:
        """Send; what has no room is waited for with `drained`."""
        if not self._transport.is_closing():
            self._transport.writelines(parts)

    async def drained(self) -> None:
        """Until there is room for more, or nobody there any more."""
        if self._has_room is not None:
            await self._has_room

    def read_on(self) -> None:
        """There is room for more of a body."""
        if not (self._waiting or self._transport.is_closing()):
            self._transport.resume_reading()

    def answered(self) -> None:
        """The answer under way is whole: what is behind it has its turn."""
        self._exchange = self._held = None
        self._since = self._connections.now
        if not self._keeps or self._connections.is_stopping or (self._is_closing and not self._waiting):
            self._is_closing = True
            self._transport.close()
        elif self._waiting:
            self._begin(*self._waiting.pop(0))
        self.read_on()

    def abort(self) -> None:
        """End it now: what was sent is not whole."""
        self._transport.abort()

    # Requests that are held

    def hold(self, held: Leaver) -> None:
        """The present request is answered later, by `answer`. Its application may end."""
        assert self._exchange is not None, "a request is held while it is answered"
        self._exchange.is_over = True
        self._exchange, self._held = None, held
        if self.is_lost:  # just now, and nobody would say so again
            self._held = None
            held.left()
            return
        if self._headers is None and self._reading is None:
            self._parser = None  # between two requests it knows nothing, and another one is quickly made

    def answer(self, head: bytes, body: bytes) -> None:
        """The whole answer to the request that is held: status and headers, then a short body."""
        self.write(head, self.own_lines(), b"\r\n", body)
        self.answered()

    async def answer_in_pieces(self, head: bytes, body: bytes) -> None:
        """As `answer`, for a body that is not short."""
        self.write(head, self.own_lines(), b"\r\n")
        for start in range(0, len(body), SEND_PIECE_BYTES):
            self.write(body[start : start + SEND_PIECE_BYTES])
            await self.drained()
            if self.is_lost:
                return
        self.answered()

    # Time

    def look(self, now: float, send_seconds: float) -> None:
        """End it, if a wait has lasted too long."""
        unsent = self._transport.get_write_buffer_size()
        if not unsent or not self._unsent_bytes or unsent < self._unsent_bytes:
            self._taken_at = now
        self._unsent_bytes = unsent
        if unsent and now - self._taken_at > send_seconds:
            self._transport.abort()
        elif self._reading is not None:
            self._end_after(UPLOAD_SECONDS_MAX, now, self._transport.abort)
        elif self._exchange is None and self._held is None:
            seconds = IDLE_SECONDS_MAX if self._headers is None else HEAD_SECONDS_MAX
            self._end_after(seconds, now, self._transport.close)

    def stop(self) -> None:
        """Answer what is being answered, and nothing else."""
        self._waiting = None
        if self._exchange is not None:
            self._exchange.stop()
        elif self._held is None:
            self._transport.close()

    def _end_after(self, seconds: float, now: float, end: Callable[[], None]) -> None:
        if now - self._since > seconds:
            end()

    def _begin(self, exchange: Exchange, keeps: bool, knows_chunks: bool) -> None:  # noqa: FBT001 - as it waited
        self._exchange, self._keeps, self.knows_chunks = exchange, keeps, knows_chunks
        self._connections.start(exchange)

    def _refuse(self, status: int, text: bytes) -> None:
        """What came is no request; where another is being answered, only the end of the connection says so."""
        self._is_closing = True
        self._headers = self._reading = None
        if self._exchange is None and self._held is None:
            kind = b"content-type: text/plain\r\ncontent-length: %d\r\n" % len(text)
            self.write(STATUS_LINES[status], kind, self.own_lines(is_last=True), b"\r\n", text)
            self._transport.close()
        else:
            self._keeps = False


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target, which may be a whole address."""
    if not target.startswith(b"/") and target != b"*":
        parsed = httptools.parse_url(target)
        return parsed.path or b"/", parsed.query or b""
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return path, query
