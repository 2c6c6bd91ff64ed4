"""From bytes to requests, against a plain model: whatever the cuts, the same requests; what does not end is bounded."""

import gc
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.http.limits import HEAD_BYTES_MAX, HEADERS_MAX
from shapes.http.request_reader import Head, NoRequest, RequestReader

TOKENS = st.text("abcxyz-", min_size=1, max_size=8).filter(lambda text: not text.startswith("-"))
PIECES = st.lists(st.binary(min_size=1, max_size=20), max_size=4)


@dataclass
class Read:
    """What came of one request."""

    head: Head
    body: bytes = b""
    is_whole: bool = False


@dataclass
class Taken:
    """Takes all, and keeps it."""

    requests: list[Read] = field(default_factory=list)
    begun_count: int = 0
    has_ended: bool = False

    def begun(self) -> None:
        self.begun_count += 1

    def head(self, head: Head) -> None:
        self.requests.append(Read(head))

    def body(self, piece: bytes) -> None:
        self.requests[-1].body += piece

    def whole(self) -> None:
        self.requests[-1].is_whole = True

    def no_more(self) -> None:
        self.has_ended = True


@dataclass
class Sent:
    """A request as a client writes it."""

    path: str
    headers: list[tuple[str, str]]
    pieces: list[bytes]
    is_chunked: bool
    trailers: list[tuple[str, str]]

    def wire(self) -> bytes:
        lines = [f"POST /{self.path}?q={self.path} HTTP/1.1", *(f"{name}: {text}" for name, text in self.headers)]
        body = b"".join(self.pieces)
        if self.is_chunked:
            lines.append("Transfer-Encoding: chunked")
            chunks = b"".join(b"%X;why=not\r\n%b\r\n" % (len(piece), piece) for piece in self.pieces)
            ends = "".join(f"{name}: {text}\r\n" for name, text in self.trailers)
            body = chunks + f"0\r\n{ends}\r\n".encode()
        else:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body


SENT = st.builds(
    Sent,
    path=TOKENS,
    headers=st.lists(st.tuples(TOKENS.map(lambda name: f"X-{name}"), TOKENS), max_size=4),
    pieces=PIECES,
    is_chunked=st.booleans(),
    trailers=st.lists(st.tuples(TOKENS.map(lambda name: f"T-{name}"), TOKENS), max_size=2),
)


@given(sent=st.lists(SENT, min_size=1, max_size=4), cuts=st.lists(st.integers(0, 600), max_size=10))
def test_requests_are_read_as_they_were_written_however_they_are_cut(sent: list[Sent], cuts: list[int]) -> None:
    taken = Taken()
    reader = RequestReader(taken)
    stream = b"".join(one.wire() for one in sent)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for start, stop in pairwise(places):
        reader.feed(stream[start:stop])
    assert [read.is_whole for read in taken.requests] == [True] * len(sent)
    assert taken.begun_count == len(sent)
    assert not reader.is_in_head
    for read, one in zip(taken.requests, sent, strict=True):
        head = read.head
        assert (head.method, head.path, head.raw_path) == ("POST", f"/{one.path}", f"/{one.path}".encode())
        assert (head.query, head.keeps, read.body) == (f"q={one.path}".encode(), True, b"".join(one.pieces))
        written = [(name.lower().encode(), text.encode()) for name, text in one.headers]
        assert head.headers[:-1] == written, "and nothing of what stands behind a body"


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: 3\r\ncontent-length: 3",
        b"content-length: 3\r\ncontent-length: 4",
        b"content-length: 3, 3",
        b"content-length: +3",
        b"content-length : 3",
        b"content-length:",
        b"content-length: 99999999999999999999999",
        b"transfer-encoding: chunked\r\ncontent-length: 3",
        b"content-length: 3\r\ntransfer-encoding: chunked",
        b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"transfer-encoding:\r\n chunked",
        b"origin: a\r\n b",
        b"a: b\nhost: x",
        b"a: b\rhost: x",
        b"a: b\0c",
        b"a b: c",
        b"a",
    ],
)
def test_what_two_servers_could_read_in_two_ways_is_no_request(lines: bytes) -> None:
    reader = RequestReader(Taken())
    with pytest.raises(NoRequest) as refusal:
        reader.feed(b"POST / HTTP/1.1\r\n" + lines + b"\r\n\r\n")
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "body", [b"fffffffffffffffff\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"3\nabc\r\n", b"3\r\nabcX", b"3;a\nabc\r\n"]
)
def test_a_body_in_broken_chunks_is_no_request(body: bytes) -> None:
    reader = RequestReader(Taken())
    reader.feed(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
    with pytest.raises(NoRequest):
        reader.feed(body)


BEGIN = b"POST / HTTP/1.1\r\n"
CHUNKED = BEGIN + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "on", "status"),
    [
        (b"GET /", b"y", 431),
        (BEGIN + b"x: ", b"y", 431),
        (BEGIN, b"y", 431),
        (BEGIN, b"x:\r\n", 431),
        (CHUNKED + b"1;", b"y", 400),
        (CHUNKED + b"0\r\nx: ", b"y", 400),
        (CHUNKED + b"0\r\n", b"x: y\r\n", 431),
    ],
)
@pytest.mark.parametrize("piece", [997, 250_000])
def test_what_does_not_end_is_not_collected(begin: bytes, on: bytes, status: int, piece: int) -> None:
    reader = RequestReader(Taken())
    reader.feed(begin)
    taken = 0

    def feed() -> None:
        nonlocal taken
        while taken < 100 * HEAD_BYTES_MAX:
            reader.feed(on * (piece // len(on)))
            taken += piece

    with pytest.raises(NoRequest) as refusal:
        feed()
    assert refusal.value.status == status
    assert taken <= 4 * HEAD_BYTES_MAX + piece, "short headers weigh little"


def test_a_head_of_the_greatest_length_is_read_however_it_is_cut() -> None:
    half = HEAD_BYTES_MAX // 2
    wire = b"GET /" + b"p" * half + b" HTTP/1.1\r\nx: " + b"y" * (half - 10) + b"\r\n\r\n"
    for size in (100, 1_400, 64 * 1024, len(wire)):
        taken = Taken()
        reader = RequestReader(taken)
        for start in range(0, len(wire), size):
            reader.feed(wire[start : start + size])
        assert [read.is_whole for read in taken.requests] == [True], size


def test_a_long_body_is_no_head() -> None:
    taken = Taken()
    reader = RequestReader(taken)
    size = 5 * HEAD_BYTES_MAX
    reader.feed(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size)
    for _ in range(5):
        reader.feed(bytes(HEAD_BYTES_MAX))
    assert (len(taken.requests[0].body), taken.requests[0].is_whole) == (size, True)


def test_as_many_headers_as_there_may_be() -> None:
    for count in (HEADERS_MAX, HEADERS_MAX + 1):
        reader = RequestReader(Taken())
        wire = BEGIN + b"a: b\r\n" * count + b"\r\n"
        if count <= HEADERS_MAX:
            reader.feed(wire)
            continue
        with pytest.raises(NoRequest) as refusal:
            reader.feed(wire)
        assert refusal.value.status == 431


def test_behind_a_request_for_another_protocol_nothing_is_read() -> None:
    for wire in (
        b"GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"POST /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\ncontent-length: 3\r\n\r\nabc",
    ):
        taken = Taken()
        RequestReader(taken).feed(wire + b"GET /b HTTP/1.1\r\n\r\n")
        assert [(read.head.path, read.head.keeps, read.is_whole) for read in taken.requests] == [("/a", False, True)]
        assert taken.has_ended


def test_what_is_dropped_is_gone_at_once() -> None:
    """A server that holds ten thousand requests does not look for garbage often."""

    def alive() -> int:
        return sum(isinstance(one, RequestReader) for one in gc.get_objects())

    gc.collect()
    before = alive()
    gc.disable()
    try:
        for _ in range(5):
            reader = RequestReader(Taken())
            reader.feed(b"GET / HTTP/1.1\r\n\r\n")
            reader.end()
        del reader
        assert alive() == before
    finally:
        gc.enable()


def test_a_target_may_be_a_whole_address() -> None:
    for target, path, query in (
        (b"http://else:99/%61/b?q", "/a/b", b"q"),
        (b"http://else", "/", b""),
        (b"/a#b?c", "/a", b""),
        (b"//v1//shape/%2e%00", "//v1//shape/.\0", b""),
        (b"*", "*", b""),
    ):
        taken = Taken()
        RequestReader(taken).feed(b"OPTIONS %b HTTP/1.1\r\n\r\n" % target)
        assert (taken.requests[0].head.path, taken.requests[0].head.query) == (path, query)
