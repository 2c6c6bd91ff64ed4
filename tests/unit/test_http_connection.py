"""Connections of the HTTP server, byte by byte: framing, order, bounds in size and time, and requests that are held."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.http.clients import Client, ClientGone
from shapes.http.connection import CONNECTION, Connection
from shapes.http.connections import Connections
from shapes.http.limits import (
    BODY_AHEAD_BYTES,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    LINGER_SECONDS_MAX,
    SEND_PIECE_BYTES,
    UPLOAD_SECONDS_MAX,
)
from shapes.http.taking import TakingLimits
from tests.memory_socket import Answer, MemorySocket
from tests.waiting import eventually


class Holder:
    """Somebody who answers later."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.gone = 0

    def left(self) -> None:
        self.gone += 1

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.connections.append(scope[CONNECTION])
        scope[CONNECTION].hold(self)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what was asked, in chunks if the path says so."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    said = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()} ".encode() + body
    headers = [] if scope["path"] == "/chunks" else [(b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said[:3], "more_body": True})
    await send({"type": "http.response.body", "body": said[3:]})


async def ask(request: bytes, app: Any = echo, method: str = "GET") -> tuple[Answer, MemorySocket]:
    socket = MemorySocket(Connections(app))
    socket.send(request)
    return await socket.answer(method), socket


async def ended(socket: MemorySocket) -> None:
    socket.close()
    await socket.closed.wait()


REQUESTS = [
    (b"GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /a?b=c "),
    (b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello", b"POST /? hello"),
    (
        b"POST /chunks HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"POST /chunks? abcde",
    ),
    (b"GET http://else.example/%61/b?q HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /a/b?q "),
    (b"OPTIONS * HTTP/1.1\r\n\r\n", b"OPTIONS *? "),
]


@given(
    asked=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
def test_requests_are_answered_in_order_however_their_bytes_are_cut(
    asked: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    async def run() -> None:
        socket = MemorySocket(Connections(echo))
        stream = b"".join(request for request, _ in asked)
        places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
        for start, stop in pairwise(places):
            socket.send(stream[start:stop])
            await asyncio.sleep(0)
        for _, said in asked:
            answer = await socket.answer()
            assert (answer.status, answer.body, answer.ended) == (200, said, True)
        assert not socket.sent
        assert not socket.is_paused
        await ended(socket)

    asyncio.run(run())


@given(data=st.binary(min_size=1, max_size=200), begin=st.sampled_from([b"", b"GET / HTTP/1.1\r\n", REQUESTS[2][0]]))
def test_whatever_is_sent_ends_in_answers_or_is_waited_for(data: bytes, begin: bytes) -> None:
    async def run() -> None:
        connections = Connections(echo)
        socket = MemorySocket(connections)
        socket.send(begin + data)
        for _ in range(30):
            await asyncio.sleep(0)
        if socket.sent:
            assert socket.sent.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
        socket.connection.look(1e9, TakingLimits())
        async with asyncio.timeout(5):
            await connections.end(1)
        assert len(connections) == 0

    asyncio.run(run())


async def test_a_head_has_no_body_and_its_length() -> None:
    answer, socket = await ask(b"HEAD /a HTTP/1.1\r\n\r\n", method="HEAD")
    assert (answer.headers["content-length"], answer.body) == ("9", b"")
    assert not socket.sent
    await ended(socket)


async def test_the_older_protocol_gets_no_chunks_and_the_connection_ends() -> None:
    answer, socket = await ask(b"GET /chunks HTTP/1.0\r\n\r\n")
    assert answer.headers["connection"] == "close"
    assert "transfer-encoding" not in answer.headers
    assert bytes(socket.sent) == b"" or socket.sent.endswith(b"GET /chunks? ")
    assert socket.is_closing()
    await ended(socket)


async def test_who_wants_another_protocol_is_answered_in_this_one() -> None:
    answer, socket = await ask(b"GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n")
    assert (answer.body, answer.headers["connection"]) == (b"GET /a? ", "close")
    assert socket.is_closing()
    await ended(socket)


async def test_who_asks_whether_to_send_the_body_is_told() -> None:
    socket = MemorySocket(Connections(echo))
    socket.send(b"POST / HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
    await eventually(lambda: bytes(socket.sent) == b"HTTP/1.1 100 Continue\r\n\r\n", "the leave to send")
    socket.sent.clear()
    socket.send(b"ok")
    assert (await socket.answer()).body == b"POST /? ok"
    await ended(socket)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * (HEAD_BYTES_MAX + 1) + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 70_000, 431),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_is_told_so_and_ends_the_connection(request_bytes: bytes, status: int) -> None:
    answer, socket = await ask(request_bytes)
    assert answer.status == status
    assert answer.headers["connection"] == "close"
    assert socket.is_ended, "it is told, and whatever the client still sends is read, so that it hears of it"
    socket.send(bytes(1000))
    socket.connection.look(asyncio.get_running_loop().time() + LINGER_SECONDS_MAX + 2, TakingLimits())
    assert socket.is_closing()
    await ended(socket)


async def test_a_header_without_an_end_is_not_collected_for_ever() -> None:
    socket = MemorySocket(Connections(echo))
    socket.send(b"GET / HTTP/1.1\r\nx: ")
    for _ in range(3 * HEAD_BYTES_MAX // 10_000):
        socket.send(b"y" * 10_000)
    assert (await socket.answer()).status == 431
    await ended(socket)


async def test_a_body_that_nobody_reads_is_not_collected() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await go_on.wait()
        await echo(scope, receive, send)

    socket = MemorySocket(Connections(slow))
    size = 3 * BODY_AHEAD_BYTES
    socket.send(f"POST / HTTP/1.1\r\ncontent-length: {size}\r\n\r\n".encode())
    await begun.wait()
    sent = 0
    while not socket.is_paused:
        socket.send(bytes(10_000))
        sent += 10_000
    assert BODY_AHEAD_BYTES < sent <= BODY_AHEAD_BYTES + 10_000
    go_on.set()
    await eventually(lambda: not socket.is_paused, "reading to go on")
    socket.send(bytes(size - sent))
    assert len((await socket.answer()).body) == size + len(b"POST /? ")
    await ended(socket)


async def test_an_answer_without_reading_the_body_leaves_the_next_request_sound() -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    socket = MemorySocket(Connections(refusing))
    socket.send(b"POST / HTTP/1.1\r\ncontent-length: 300000\r\n\r\n" + bytes(200_000))
    assert (await socket.answer()).status == 413
    assert not socket.is_paused
    socket.send(bytes(100_000) + b"GET / HTTP/1.1\r\n\r\n")
    assert (await socket.answer()).status == 413
    await ended(socket)


async def test_an_application_that_fails_is_a_500_or_the_end_of_the_connection() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
            await send({"type": "http.response.body", "body": b"ab"})
        raise ValueError("a fault")

    answer, socket = await ask(b"GET / HTTP/1.1\r\n\r\n", failing)
    assert (answer.status, answer.body) == (500, b'{"error":"Internal server error"}')
    await ended(socket)
    answer, socket = await ask(b"GET /late HTTP/1.1\r\n\r\n", failing)
    assert not answer.ended
    assert socket.is_aborted
    await ended(socket)


async def test_a_header_cannot_become_two() -> None:
    async def splitting(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b\r\nset-cookie: c")]})

    answer, socket = await ask(b"GET / HTTP/1.1\r\n\r\n", splitting)
    assert b"set-cookie" not in socket.sent
    assert not answer.ended
    await ended(socket)


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    done = asyncio.Event()

    async def sending(scope: Any, receive: Any, send: Any) -> None:
        client = Client(receive, send, scope[CONNECTION])
        with pytest.raises(ClientGone):
            await client.respond(200, [], [bytes(SEND_PIECE_BYTES * 5)])
        done.set()

    socket = MemorySocket(Connections(sending))
    socket.is_stuck = True
    socket.send(b"GET / HTTP/1.1\r\n\r\n")
    await eventually(lambda: socket.unsent, "the first piece to be sent")
    unsent = socket.unsent
    limits = TakingLimits(silent_seconds=30, window_seconds=1_000)
    socket.connection.look(100, limits)
    socket.connection.look(120, limits)
    socket.unsent -= 1  # it takes something
    cut = []
    for now in (140, 171):
        socket.connection.look(now, limits)
        cut.append(socket.is_aborted)
    assert cut == [False, True]
    assert unsent <= 2 * SEND_PIECE_BYTES, "more than a piece waits"
    async with asyncio.timeout(5):
        await done.wait()
        await socket.closed.wait()


async def test_connections_without_a_request_end_in_time() -> None:
    half, idle, upload = (MemorySocket(Connections(echo)) for _ in range(3))
    half.send(b"GET / HT")
    upload.send(b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab")
    now = asyncio.get_running_loop().time()
    for socket, seconds in ((half, HEAD_SECONDS_MAX), (idle, IDLE_SECONDS_MAX), (upload, UPLOAD_SECONDS_MAX)):
        socket.connection.look(now + seconds - 1, TakingLimits())
        assert not socket.is_closing()
        socket.connection.look(now + seconds + 2, TakingLimits())
        assert socket.is_closing()
        await socket.closed.wait()
    await asyncio.sleep(0)


async def test_a_request_that_is_held_is_answered_later_and_the_next_behind_it() -> None:
    holder = Holder()
    socket = MemorySocket(Connections(holder))
    socket.send(b"GET /1 HTTP/1.1\r\n\r\n")
    await eventually(lambda: holder.connections, "the first to be held")
    socket.send(b"GET /2 HTTP/1.1\r\n\r\n")
    paused = [socket.is_paused]  # one request waits already
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(holder.connections) == 1
    holder.connections[0].answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", b"ok")
    assert (await socket.answer()).body == b"ok"
    paused.append(socket.is_paused)
    assert paused == [True, False]
    await eventually(lambda: len(holder.connections) == 2, "the second to be held")
    await ended(socket)
    assert holder.gone == 1


async def test_a_long_answer_to_a_held_request_goes_in_pieces() -> None:
    holder = Holder()
    socket = MemorySocket(Connections(holder))
    socket.send(b"GET /1 HTTP/1.1\r\n\r\n")
    await eventually(lambda: holder.connections, "it to be held")
    socket.is_stuck = True
    body = bytes(range(256)) * 2_000
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n".encode()
    sending = asyncio.create_task(holder.connections[0].answer_in_pieces(head, body))
    await eventually(lambda: socket.unsent, "the first piece to be sent")
    assert socket.unsent <= 2 * SEND_PIECE_BYTES
    socket.is_stuck = False
    socket.unsent = 0
    socket.connection.resume_writing()
    assert (await socket.answer()).body == body
    await sending
    await ended(socket)


async def test_a_stop_closes_who_asks_nothing_and_lets_others_have_their_answer() -> None:
    holder = Holder()
    connections = Connections(holder)
    idle, held, silent = (MemorySocket(connections) for _ in range(3))
    held.send(b"GET / HTTP/1.1\r\n\r\n")
    silent.send(b"GET / HTTP/1.1\r\n\r\n")
    await eventually(lambda: len(holder.connections) == 2, "both to be held")
    end = asyncio.create_task(connections.end(0.2))
    await idle.closed.wait()
    holder.connections[0].answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", b"ok")
    answer = await held.answer()
    assert (answer.body, answer.headers["connection"]) == (b"ok", "close")
    await end
    assert silent.is_aborted
    assert holder.gone == 1
    await silent.closed.wait()
    assert len(connections) == 0
