"""The HTTP server on real sockets, in the loop that the program runs in: clients that break off or overwhelm."""

import asyncio
import contextlib
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop

from cdc.http.server import connections_max, listen, serving
from cdc.limits import DESCRIPTORS_KEPT
from shapes.http.connection import CONNECTION
from shapes.http.connection_counts import ConnectionCounts, Cut, TurnedAway
from shapes.http.connections import Connections
from shapes.http.limits import CONNECTIONS_MAX, HEAD_BYTES_MAX, SEND_PIECE_BYTES
from shapes.http.taking import TakingLimits
from tests.unit.test_http_connection import Holder, echo
from tests.waiting import eventually

GET = b"GET /a HTTP/1.1\r\n\r\n"
SECONDS = 30


def in_its_loop(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@contextlib.asynccontextmanager
async def listening(app: Any, counts: ConnectionCounts | None = None) -> AsyncIterator[int]:
    """A server in this process; its port."""
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        async with serving(app, listener, counts):
            yield listener.getsockname()[1]
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left"


async def ask(port: int, data: bytes = GET) -> bytes:
    """All that is answered until the server says no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    try:
        return await reader.read()
    finally:
        writer.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("size", [HEAD_BYTES_MAX + 1, 5_000_000])
def test_a_head_that_is_too_long_is_told_so_though_its_client_still_sends(size: int) -> None:
    async def run() -> None:
        async with listening(echo) as port:
            assert (await ask(port, b"GET /" + b"a" * size)).startswith(b"HTTP/1.1 431 ")

    in_its_loop(run())


def test_a_refusal_is_heard_by_who_goes_on_sending_a_body() -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run() -> None:
        head = b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 3000000\r\n\r\n"
        async with listening(refusing) as port:
            assert (await ask(port, head + bytes(3_000_000))).startswith(b"HTTP/1.1 401 ")

    in_its_loop(run())


def test_resets_end_what_they_interrupt_and_nothing_else() -> None:
    begun = ended = 0

    async def telling(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun, ended
        if scope["path"] == "/a":
            await echo(scope, receive, send)
            return
        begun += 1
        connection = scope[CONNECTION]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not connection.is_lost:
                await send({"type": "http.response.body", "body": bytes(SEND_PIECE_BYTES), "more_body": True})
        finally:
            ended += 1

    def has_begun(count: int) -> bool:
        return begun == count

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with listening(telling) as port:
            for number, received in enumerate((0, 1, 1_000_000), 1):
                client = socket.create_connection(("127.0.0.1", port))
                client.setblocking(False)
                await loop.sock_sendall(client, b"GET /endless HTTP/1.1\r\n\r\n" + GET)
                await eventually(partial(has_begun, number), "the answer to begin")
                taken = 0
                while taken < received:
                    taken += len(await loop.sock_recv(client, received))
                reset(client)
            await eventually(lambda: ended == 3, "all answers to end")
            assert (await ask(port, b"GET /a HTTP/1.1\r\nconnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    in_its_loop(run())


@pytest.mark.parametrize("leave", [reset, socket.socket.close, lambda client: client.shutdown(socket.SHUT_WR)])
def test_who_is_held_and_goes_is_noticed(leave: Any) -> None:
    async def run() -> None:
        holder = Holder()
        async with listening(holder) as port:
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(GET)
            await eventually(lambda: holder.connections, "it to be held")
            leave(client)
            await eventually(lambda: holder.gone, "its leave to be noticed")
            client.close()

    in_its_loop(run())


def test_many_requests_in_one_segment_are_answered_in_order() -> None:
    async def run() -> None:
        async with listening(echo) as port:
            last = b"GET /last HTTP/1.1\r\nconnection: close\r\n\r\n"
            answered = await ask(port, b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(20)) + last)
            bodies = [part.rpartition(b"\r\n\r\n")[2] for part in answered.split(b"HTTP/1.1 200 OK")[1:]]
            assert bodies == [*(b"GET /%d? " % number for number in range(20)), b"GET /last? "]

    in_its_loop(run())


def test_a_crowd_of_connections_leaves_files_to_the_rest_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is one too many is told, and who leaves makes room."""
    monkeypatch.setattr("cdc.http.server.CONNECTIONS_MAX", 50)

    async def run() -> None:
        counts = ConnectionCounts()
        async with listening(echo, counts) as port:
            crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
            assert (await ask(port, b"")).startswith(b"HTTP/1.1 503 ")
            assert (counts.accepted, counts.turned_away[TurnedAway.FULL]) == (50, 1)
            crowd[0][1].write(GET)
            assert (await crowd[0][0].readline()) == b"HTTP/1.1 200 OK\r\n"
            for _, writer in crowd:
                writer.close()

            asking = partial(ask, port, b"GET /a HTTP/1.1\r\nconnection: close\r\n\r\n")
            while b" 200 " not in await asking():  # bounded, as all of this is
                pass

    in_its_loop(run())


@contextlib.contextmanager
def may_open(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_connections_as_the_system_has_descriptors_for() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    able = CONNECTIONS_MAX + DESCRIPTORS_KEPT if hard == resource.RLIM_INFINITY else hard
    with may_open(1_024):
        assert connections_max() == min(CONNECTIONS_MAX, able - DESCRIPTORS_KEPT)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(able, CONNECTIONS_MAX + DESCRIPTORS_KEPT)


def test_a_server_without_a_descriptor_left_goes_on_when_there_is_one() -> None:
    async def run() -> None:
        async with listening(echo) as port:
            clients = [socket.socket() for _ in range(20)]
            with may_open(clients[-1].fileno() + 6):
                for client in clients:
                    client.connect(("127.0.0.1", port))
                spare = []
                with contextlib.suppress(OSError):
                    while True:
                        spare.append(os.open("/dev/null", os.O_RDONLY))
                for _ in range(20):
                    await asyncio.sleep(0)
                for descriptor in spare:
                    os.close(descriptor)
            for client in clients:
                client.close()
            assert (await ask(port, b"GET /a HTTP/1.1\r\nconnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    in_its_loop(run())


@contextlib.asynccontextmanager
async def looked_at(app: Any, taking: TakingLimits) -> AsyncIterator[tuple[int, ConnectionCounts]]:
    """A server that looks at its connections often."""
    loop = asyncio.get_running_loop()
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        connections = Connections(app, taking=taking)
        server = await loop.create_server(connections.connect, sock=listener)
        try:
            yield listener.getsockname()[1], connections.counts
        finally:
            server.close()
            await connections.end(1)


async def connected(port: int, receive_bytes: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return client


def test_who_takes_a_little_now_and_then_is_cut_off_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapes.http.connections.CONNECTIONS_LOOK_SECONDS", 0.02)
    sent = 0

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not scope[CONNECTION].is_lost:
            sent += SEND_PIECE_BYTES if scope["path"] == "/slow" else 0
            await send({"type": "http.response.body", "body": bytes(SEND_PIECE_BYTES), "more_body": True})

    async def run() -> None:
        loop = asyncio.get_running_loop()
        limits = TakingLimits(silent_seconds=SECONDS, window_seconds=0.5, bytes_a_second=2**20)
        async with looked_at(endless, limits) as (port, counts):
            slow, fast = await connected(port, 8_192), await connected(port, 2**20)
            await loop.sock_sendall(slow, b"GET /slow HTTP/1.1\r\n\r\n")
            await loop.sock_sendall(fast, b"GET /fast HTTP/1.1\r\n\r\n")
            taken, next_byte = 0, 0.0
            while not counts.cut.total():
                assert await loop.sock_recv(fast, 2**20), "who takes what there is gets more"
                if loop.time() > next_byte:
                    with contextlib.suppress(BlockingIOError):
                        taken += len(slow.recv(1))
                    next_byte = loop.time() + 0.01
                await asyncio.sleep(0)  # what is there already is taken without a turn for others
            assert counts.cut == {**dict.fromkeys(Cut, 0), Cut.TAKES_LITTLE: 1}
            assert sent - taken < 2**20, "the system holds no megabytes for a slow reader"
            assert counts.accepted == 2
            await eventually(lambda: counts.open == 1, "its connection to end")
            slow.close()
            fast.close()
            await eventually(lambda: counts.open == 0, "the other to end")

    in_its_loop(run())


def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapes.http.connections.CONNECTIONS_LOOK_SECONDS", 0.02)
    monkeypatch.setattr("shapes.http.connection.HEAD_SECONDS_MAX", 0.3)

    async def run() -> None:
        async with looked_at(echo, TakingLimits()) as (port, counts):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n")
            closed = asyncio.ensure_future(reader.read())
            while not closed.done():
                writer.write(b"x")
                await asyncio.wait([closed], timeout=0.01)
            with contextlib.suppress(ConnectionResetError):  # a byte came after the end
                assert await closed == b""
            assert counts.cut == {**dict.fromkeys(Cut, 0), Cut.SLOW_HEAD: 1}
            writer.close()

    in_its_loop(run())


def test_what_becomes_of_connections_is_counted() -> None:
    """By the reason, where it was not the client's wish."""

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("of a test")

    async def run() -> None:
        async with looked_at(failing, TakingLimits()) as (port, counts):
            await ask(port, b"no request\r\n\r\n")
            await ask(port, GET)
            assert counts.accepted == 2
            assert {reason: count for reason, count in counts.cut.items() if count} == {
                Cut.NO_REQUEST: 1,
                Cut.FAILED: 1,
            }
            await eventually(lambda: counts.open == 0, "all to end")

    in_its_loop(run())
