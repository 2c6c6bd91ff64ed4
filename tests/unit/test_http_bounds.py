"""Connections of the HTTP server whose clients send too much at once, break off, or take little: what each may cost."""

import asyncio
from typing import Any

import pytest

from shapes.http.connection import CONNECTION
from shapes.http.connections import Connections
from shapes.http.limits import PIPELINED_MAX, SEND_PIECE_BYTES, SEND_SECONDS_MAX
from shapes.http.taking import TakingLimits
from tests.memory_socket import Answer, MemorySocket
from tests.unit.test_http_connection import Holder, echo, ended
from tests.waiting import eventually

GET = b"GET /%d HTTP/1.1\r\n\r\n"
CHUNKED = b"POST /body HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"


async def answers(socket: MemorySocket) -> list[Answer]:
    """All of them, until the server says no more."""
    await eventually(lambda: socket.is_ended or socket.is_closing(), "the end")
    found = []
    while socket.sent:
        found.append(await socket.answer())
        assert found[-1].ended
    return found


async def test_a_body_that_breaks_is_no_body() -> None:
    """An application that waits for the rest is told that none comes, and its client that this was no request."""
    seen: list[str] = []

    async def reading(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            seen.append(message["type"])
            if message["type"] == "http.disconnect":
                raise ValueError("half a body is none")

    connections = Connections(reading)
    socket = MemorySocket(connections)
    socket.send(CHUNKED + b"3\r\nabc\r\n")
    await eventually(lambda: seen, "the first piece to be read")
    socket.send(b"no size\r\n")
    (answer,) = await answers(socket)
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    await eventually(lambda: seen[-1] == "http.disconnect", "the application to be told")
    await ended(socket)
    await connections.end(1)


async def test_a_body_that_breaks_under_an_answer_ends_the_connection() -> None:
    async def early(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    connections = Connections(early)
    for holder in (early, Holder()):
        connections = Connections(holder)
        socket = MemorySocket(connections)
        socket.send(CHUNKED + b"3\r\nabc\r\n")
        for _ in range(5):
            await asyncio.sleep(0)
        socket.send(b"no size\r\n")
        await socket.closed.wait()
        assert not (await socket.answer()).ended
        await connections.end(1)


async def test_what_is_whole_is_answered_though_nonsense_comes_behind_it() -> None:
    for nonsense in (b"\0\1\2", CHUNKED + b"no size\r\n"):
        socket = MemorySocket(Connections(echo))
        socket.send(GET % 1 + GET % 2 + nonsense)
        first, second = await answers(socket)
        assert [one.body for one in (first, second)] == [b"GET /1? ", b"GET /2? "]
        assert "connection" not in first.headers
        assert second.headers["connection"] == "close"
        await ended(socket)


async def test_requests_in_one_go_are_answered_up_to_a_number() -> None:
    socket = MemorySocket(Connections(echo))
    socket.send(b"".join(GET % number for number in range(3 * PIPELINED_MAX)))
    found = await answers(socket)
    assert [one.body for one in found] == [b"GET /%d? " % number for number in range(PIPELINED_MAX + 1)]
    assert [one.headers.get("connection") for one in found] == [None] * PIPELINED_MAX + ["close"]
    await ended(socket)


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_body_that_nobody_let_come_ends_the_connection(is_sent: bool) -> None:
    """Else its client could send another request, which would be read as that body."""

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    socket = MemorySocket(Connections(refusing))
    body = b"GET / HTTP/1.1\r\n\r\n"
    head = f"POST / HTTP/1.1\r\ncontent-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n".encode()
    socket.send(head + body if is_sent else head)
    answer = await socket.answer()
    assert (answer.status, answer.headers.get("connection")) == (401, None if is_sent else "close")
    socket.send(body)
    for _ in range(10):
        await asyncio.sleep(0)
    assert socket.sent.count(b"401") == (1 if is_sent else 0)
    await ended(socket)


async def test_one_connection_too_many_is_told_so() -> None:
    connections = Connections(echo, connections_max=2)
    first, second = MemorySocket(connections), MemorySocket(connections)
    third = MemorySocket(connections)
    answer = await third.answer()
    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["cache-control"] == "no-store"
    await third.closed.wait()
    first.send(GET % 1)
    assert (await first.answer()).status == 200
    await ended(first)
    fourth = MemorySocket(connections)
    fourth.send(GET % 4)
    assert (await fourth.answer()).status == 200
    await ended(second)
    await ended(fourth)
    assert len(connections) == 0


async def test_a_reader_who_takes_as_much_as_is_written_is_not_cut_off() -> None:
    """What waits for him may look the same each time."""
    connections = Connections(Holder())
    socket = MemorySocket(connections)
    socket.is_stuck = True
    socket.send(GET % 1)
    for _ in range(3):
        await asyncio.sleep(0)
    connection = socket.connection
    connection.write(bytes(1000))
    for now in range(int(3 * SEND_SECONDS_MAX)):
        connection.look(connections.now + now, TakingLimits())
        connection.write(bytes(100))
        socket.unsent -= 100
    cut = [socket.is_aborted]
    for seconds in (100, 101 + SEND_SECONDS_MAX):
        connection.look(connections.now + seconds, TakingLimits())
        cut.append(socket.is_aborted)
    assert cut == [False, False, True]
    await socket.closed.wait()


async def test_answers_do_not_pile_up_for_who_takes_none() -> None:
    holder = Holder()
    socket = MemorySocket(Connections(holder))
    socket.send(GET % 1)
    await eventually(lambda: holder.connections, "the first to be held")
    socket.is_stuck = True
    socket.send(GET % 2)
    holder.connections[0].answer(OK, b"ok")
    socket.send(GET % 3)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(holder.connections) == 1, "the next is not begun while the answer before it waits"
    paused = [socket.is_paused]
    socket.is_stuck, socket.unsent = False, 0
    socket.connection.resume_writing()
    await eventually(lambda: len(holder.connections) == 2, "the second to be held")
    holder.connections[1].answer(OK, b"ok")
    await eventually(lambda: len(holder.connections) == 3, "the third to be held")
    paused.append(socket.is_paused)
    assert paused == [True, False]
    await ended(socket)
    assert holder.gone == 1


async def test_room_for_an_answer_is_no_room_for_a_body() -> None:
    """Who sends a body that is not read gets no further by reading what is sent to him."""

    async def telling(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(20):
            await send({"type": "http.response.body", "body": bytes(SEND_PIECE_BYTES), "more_body": True})

    connections = Connections(telling)
    socket = MemorySocket(connections)
    socket.is_stuck = True
    socket.send(b"POST / HTTP/1.1\r\ncontent-length: 100000000\r\n\r\n" + bytes(100_000))
    assert socket.is_paused
    await eventually(lambda: socket.unsent, "something to be sent")
    socket.unsent = 0
    socket.connection.resume_writing()
    assert socket.is_paused
    await ended(socket)
    await connections.end(1)


async def test_all_get_the_same_bytes_of_a_long_answer() -> None:
    """Each slow reader holds a piece of the one answer, and no copy of it."""
    holder = Holder()
    body = bytes(3 * SEND_PIECE_BYTES)
    handed: list[object] = []

    class Watched(MemorySocket):
        def writelines(self, list_of_data: Any) -> None:
            handed.extend(list_of_data)
            super().writelines(list_of_data)

    socket = Watched(Connections(holder))
    socket.send(GET % 1)
    await eventually(lambda: holder.connections, "it to be held")
    await holder.connections[0].answer_in_pieces(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(body), body)
    pieces = [one for one in handed if len(one) == SEND_PIECE_BYTES]  # type: ignore[arg-type]  # bytes of some kind
    assert [getattr(piece, "obj", None) is body for piece in pieces] == [True] * 3
    assert (await socket.answer()).body == body
    await ended(socket)


async def test_a_connection_that_is_lost_in_mid_answer_ends_it() -> None:
    gone = asyncio.Event()

    async def telling(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        socket.abort()
        while not scope[CONNECTION].is_lost:
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
        gone.set()

    connections = Connections(telling)
    socket = MemorySocket(connections)
    socket.send(GET % 1)
    async with asyncio.timeout(5):
        await gone.wait()
    await connections.end(1)
    assert len(connections) == 0
