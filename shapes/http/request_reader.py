"""From the bytes of a connection to requests: heads, pieces of bodies, and ends. Pure.

Invariants:
    what is no request raises `NoRequest`, and nothing behind it is read
    what is kept of a request that is not whole is bounded, whatever it is that does not end
"""

from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import httptools

from shapes.http.limits import HEAD_BYTES_MAX, HEADERS_MAX

_BAD: Final = b"Bad request: this is not HTTP/1.1"
_TOO_LONG: Final = b"The head of the request is too long"


class NoRequest(Exception):
    """What came is no request that we take: the status and the text that say so."""

    def __init__(self, status: int = 400, text: bytes = _BAD) -> None:
        super().__init__(status)
        self.status = status
        self.text = text


class Head(NamedTuple):
    """A request's first line and headers."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    version: str
    keeps: bool
    """Another request may come behind this one."""

    @property
    def knows_chunks(self) -> bool:
        """Whether its client does."""
        return self.version != "1.0"

    @property
    def expects_leave(self) -> bool:
        """Whether its client waits to be told that it may send the body."""
        for name, value in self.headers:
            if name == b"expect":
                return self.knows_chunks and value.lower() == b"100-continue"
        return False


class Taker(Protocol):
    """Who takes what is read."""

    def begun(self) -> None:
        """The first byte of a request."""

    def head(self, head: Head) -> None:
        """A head is whole; may raise `NoRequest`."""

    def body(self, piece: bytes) -> None:
        """Of the body of the request whose head came last."""

    def whole(self) -> None:
        """That request is."""

    def no_more(self) -> None:
        """What comes next is another protocol, which we do not speak."""


class RequestReader:
    """Reads one connection; between two requests it knows nothing."""

    __slots__ = ("_came_on", "_head_bytes", "_headers", "_is_in_body", "_parser", "_stuck_bytes", "_taker", "_target")

    def __init__(self, taker: Taker) -> None:
        self._parser: Any = httptools.HttpRequestParser(self)
        self._taker = taker
        self._headers: list[tuple[bytes, bytes]] | None = None
        """Of the head that is arriving."""
        self._is_in_body = False
        self._target = b""
        self._head_bytes = 0
        self._stuck_bytes = 0
        """Taken in since something was last read to its end, be it a header or a piece of a body."""
        self._came_on = False

    @property
    def is_in_head(self) -> bool:
        """Whether some of a head came, and not all."""
        return self._headers is not None

    def feed(self, data: bytes) -> None:
        """More bytes."""
        self._came_on = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._is_in_body:
                self.on_message_complete()
            self._taker.no_more()
        except httptools.HttpParserError as error:
            known = error.__context__
            raise (known if isinstance(known, NoRequest) else NoRequest()) from None
        self._stuck_bytes = 0 if self._came_on else self._stuck_bytes + len(data)
        if self._stuck_bytes > HEAD_BYTES_MAX:  # the parser would keep a header that never ends
            raise NoRequest(431, _TOO_LONG) if self.is_in_head else NoRequest()

    def end(self) -> None:
        """Nothing more is read. Parser and reader know each other: without this, both would wait to be collected."""
        self._parser = None

    # What the parser calls

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        self._headers, self._target, self._head_bytes = [], b"", 0
        self._came_on = True
        self._taker.begun()

    def on_url(self, piece: bytes) -> None:
        """Of its first line."""
        self._came_on = True
        self._target += piece
        self._count(len(piece))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers; behind a body in chunks, one that nobody asks for."""
        self._came_on = True
        self._count(len(name) + len(value))
        if self._headers is None:
            return
        if len(self._headers) >= HEADERS_MAX:
            raise NoRequest(431, _TOO_LONG)
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        headers, self._headers = self._headers, None
        assert headers is not None, "a head was begun"
        self._is_in_body = True
        parser = self._parser
        version: str = parser.get_http_version()
        path, query = _split(self._target)
        head = Head(
            method=parser.get_method().decode("ascii"),
            path=unquote(path.decode("ascii")),
            raw_path=path,
            query=query,
            headers=headers,
            version=version,
            keeps=parser.should_keep_alive() and not (version == "1.0" or parser.should_upgrade()),
        )
        self._taker.head(head)

    def on_body(self, piece: bytes) -> None:
        """Of its body."""
        self._came_on = True
        self._taker.body(piece)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._is_in_body = False
        self._taker.whole()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            raise NoRequest(431, _TOO_LONG)


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target, which may be a whole address."""
    if not target.startswith(b"/") and target != b"*":
        parsed = httptools.parse_url(target)
        return parsed.path or b"/", parsed.query or b""
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return path, query
