"""A connection: requests come in over a socket, and are answered in their order.

A request that is held is no task and no application: the connection keeps who is told when its client leaves, and
`answer` gives it a whole answer at once. That is what ten thousand readers cost who wait for news.

Invariants:
    one request at a time is answered; what comes behind it waits, and is bounded
    whoever takes nothing of what is sent, or next to nothing, or does not send what was begun, is cut off
    whatever ends a connection tells it to whoever answers
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from shapes.http.connection_counts import Cut, TurnedAway
from shapes.http.exchange import STATUS_LINES, Exchange
from shapes.http.limits import (
    HEAD_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    LINGER_SECONDS_MAX,
    OVERLOAD_RETRY_SECONDS_MAX,
    PIPELINED_MAX,
    SEND_PIECE_BYTES,
    UPLOAD_SECONDS_MAX,
)
from shapes.http.request_reader import Head, NoRequest, RequestReader
from shapes.http.taking import Taking, TakingLimits

if TYPE_CHECKING:
    from shapes.http.connections import Connections

CONNECTION: Final = "shapelog.connection"
"""In a request's scope: its connection."""

_CLOSE: Final = b"connection: close\r\n"
_FULL: Final = b"Too many connections, please retry"
_LATER: Final = b"retry-after: %d\r\n" % OVERLOAD_RETRY_SECONDS_MAX


class Leaver(Protocol):
    """Who waits to answer a request that is held."""

    def left(self) -> None:
        """Its client is gone."""


class Connection(asyncio.Protocol):
    """One of them."""

    __slots__ = (
        "_connections",
        "_exchange",
        "_has_room",
        "_held",
        "_is_closing",
        "_keeps",
        "_reader",
        "_reading",
        "_since",
        "_taking",
        "_transport",
        "_waiting",
        "_written_bytes",
        "is_lost",
        "knows_chunks",
    )

    _transport: asyncio.Transport

    def __init__(self, connections: "Connections") -> None:
        self.knows_chunks = True
        """Whether its client knows answers in chunks."""
        self.is_lost = False
        self._connections = connections
        self._reader: RequestReader | None = None
        """While a request is arriving; between two, only if it is worth keeping."""
        self._exchange: Exchange | None = None
        self._held: Leaver | None = None
        self._waiting: list[tuple[Exchange, bool, bool]] | None = None
        self._reading: Exchange | None = None
        """Whose body is arriving."""
        self._keeps = True
        self._is_closing = False
        """Nothing more is read."""
        self._has_room: asyncio.Future[None] | None = None
        self._since = 0.0
        """When the present wait began: for a request, its head, or its body."""
        self._written_bytes = 0
        self._taking: Taking | None = None
        """While something waits for its client."""

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        self._transport = transport  # type: ignore[assignment]  # a server's transports can be written to
        refusal = self._connections.enter(self)
        self._since = self._connections.now
        if refusal is TurnedAway.FULL:
            self._tell_and_finish(503, _FULL, is_heard=True)
        elif refusal is TurnedAway.STOPPING:
            self.stop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why makes no difference
        """It ended."""
        self.is_lost = self._is_closing = True
        self._drop_reader()
        self._waiting = self._reading = None
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
        self._begin_next()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self._is_closing:
            return
        if self._reader is None:
            self._reader = RequestReader(self)
        try:
            self._reader.feed(data)
        except NoRequest as refusal:
            self._connections.counts.cut[Cut.NO_REQUEST] += 1
            self._refuse(refusal.status, refusal.text)

    # What is read

    def begun(self) -> None:
        """A request begins."""
        self._since = self._connections.now

    def head(self, head: Head) -> None:
        """It can be answered."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": self._connections.address,
            "client": None,
            "scheme": "http",
            "root_path": "",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "headers": head.headers,
            CONNECTION: self,
        }
        if self._waiting is not None and len(self._waiting) >= PIPELINED_MAX:
            raise NoRequest
        exchange = self._reading = Exchange(self, scope, expects_leave=head.expects_leave)
        if self._is_free and not self._waiting:
            self._begin(exchange, head.keeps, head.knows_chunks)
            return
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((exchange, head.keeps, head.knows_chunks))
        self._transport.pause_reading()

    def body(self, piece: bytes) -> None:
        """Of its body."""
        if self._reading is not None and not self._reading.feed(piece):
            self._transport.pause_reading()

    def whole(self) -> None:
        """It came to its end."""
        if self._reading is not None:
            self._reading.end()
            self._reading = None
            self._since = self._connections.now

    def no_more(self) -> None:
        """What came is answered, and nothing behind it."""
        self._is_closing = True

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

    def write(self, *parts: bytes | memoryview) -> None:
        """Send; what has no room is waited for with `drained`."""
        if not self._transport.is_closing():
            self._written_bytes += sum(map(len, parts))
            self._transport.writelines(parts)

    async def drained(self) -> None:
        """Until there is room for more, or nobody there any more."""
        if self._has_room is not None:
            await self._has_room
        elif self._transport.is_closing():
            await asyncio.sleep(0)  # nothing fills up any more: without a turn for others nobody would hear of the end

    def read_on(self) -> None:
        """There is room for more of a body."""
        if not (self._waiting or self._transport.is_closing()):
            self._transport.resume_reading()

    def answered(self) -> None:
        """The answer under way is whole: what is behind it has its turn."""
        self._exchange = self._held = None
        self._since = self._connections.now
        if not self._keeps or self._connections.is_stopping or (self._is_closing and not self._waiting):
            self._finish()
        else:
            self._begin_next()
        self.read_on()

    def cut(self, reason: Cut) -> None:
        """End it now: what was sent is not whole."""
        self._connections.counts.cut[reason] += 1
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
        if self._reading is None and not (self._reader is None or self._reader.is_in_head):
            self._drop_reader()  # between two requests it knows nothing, and another one is quickly made

    def answer(self, head: bytes, body: bytes) -> None:
        """The whole answer to the request that is held: status and headers, then a short body."""
        self.write(head, self.own_lines(), b"\r\n", body)
        self.answered()

    async def answer_in_pieces(self, head: bytes, body: bytes) -> None:
        """As `answer`, for a body that is not short."""
        self.write(head, self.own_lines(), b"\r\n")
        view = memoryview(body)  # which all who get it share
        for start in range(0, len(body), SEND_PIECE_BYTES):
            self.write(view[start : start + SEND_PIECE_BYTES])
            await self.drained()
            if self.is_lost:
                return
        self.answered()

    # Time

    def look(self, now: float, limits: TakingLimits) -> None:
        """End it, if a wait has lasted too long."""
        unsent = self._transport.get_write_buffer_size()
        if fault := self._fault(now, unsent, limits):
            self.cut(fault)
        elif self._transport.is_closing():
            pass  # as soon as the rest is taken
        elif self._reading is not None:
            if now - self._since > UPLOAD_SECONDS_MAX:
                self.cut(Cut.SLOW_BODY)
        elif self._is_free and not self._waiting:
            is_in_head = not self._is_closing and self._reader is not None and self._reader.is_in_head
            seconds = HEAD_SECONDS_MAX if is_in_head else IDLE_SECONDS_MAX
            if now - self._since > (LINGER_SECONDS_MAX if self._is_closing else seconds):
                self._connections.counts.cut[Cut.SLOW_HEAD] += is_in_head
                self._transport.close()

    def stop(self) -> None:
        """Answer what is being answered, and nothing else."""
        self._waiting = None
        if self._exchange is not None:
            self._exchange.stop()
        elif self._held is None:
            self._transport.close()

    def _fault(self, now: float, unsent: int, limits: TakingLimits) -> Cut | None:
        if not unsent:
            self._taking = None
            return None
        taken = self._written_bytes - unsent
        if self._taking is None:
            self._taking = Taking(limits, now, taken, unsent)
        return self._taking.fault(now, taken, unsent)

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.end()
            self._reader = None

    @property
    def _is_free(self) -> bool:
        """Whether nothing is being answered, and there is room for an answer."""
        return self._exchange is None and self._held is None and self._has_room is None

    def _begin(self, exchange: Exchange, keeps: bool, knows_chunks: bool) -> None:  # noqa: FBT001 - as it waited
        self._exchange, self._keeps, self.knows_chunks = exchange, keeps, knows_chunks
        self._connections.start(exchange)

    def _begin_next(self) -> None:
        """What waits has its turn, once what was sent before it is taken: answers do not pile up."""
        if self._waiting and self._is_free:
            self._begin(*self._waiting.pop(0))
            self.read_on()

    def _refuse(self, status: int, text: bytes) -> None:
        """What came is no request. Those before it that are whole are answered; then it is told."""
        self._is_closing = True
        broken, self._reading = self._reading, None
        waiting = self._waiting
        if waiting and waiting[-1][0] is broken:
            waiting.pop()
        elif broken is not None:
            self._break_off(broken, status, text)
            return
        if waiting:
            exchange, _, knows_chunks = waiting[-1]
            waiting[-1] = (exchange, False, knows_chunks)
        elif self._exchange is not None or self._held is not None:
            self._keeps = False
        else:
            self._tell_and_finish(status, text)

    def _break_off(self, broken: Exchange, status: int, text: bytes) -> None:
        """The body of the request that is being answered will never be whole; its application gets no half of it."""
        if broken is self._exchange and not broken.is_begun:
            broken.left()
            self._exchange = None
            self._tell_and_finish(status, text)
        else:
            self._transport.close()

    def _tell_and_finish(self, status: int, text: bytes, *, is_heard: bool = False) -> None:
        kind = b"content-type: text/plain\r\ncache-control: no-store\r\ncontent-length: %d\r\n" % len(text)
        when = _LATER if text is _FULL else b""
        self.write(STATUS_LINES[status], kind, when, self.own_lines(is_last=True), b"\r\n", text)
        self._finish(is_heard=is_heard)

    def _finish(self, *, is_heard: bool = True) -> None:
        """Send nothing more. `is_heard`: as far as we know, all that the client has to say came."""
        self._is_closing = True
        self._since = self._connections.now
        if self._transport.is_closing():
            return
        if (is_heard and self._reading is None) or self._connections.is_stopping:
            self._transport.close()
        else:  # a socket that is closed with bytes unread takes back what was sent: they are read, and thrown away
            self._reading = None
            self._transport.write_eof()
            self._transport.resume_reading()
