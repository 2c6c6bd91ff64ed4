"""How fast shapes are served over HTTP: a first sync, many who wait, and many who follow one shape.

The server is a process of its own, over a store in memory, so that neither Postgres nor a disk is measured; the client
reads bytes off sockets and looks at headers only. Beside that, once with a real Postgres and all of the program: what
lies between a hundred writers and a reader. Ratios have no limit to compare with: targets are absolute.
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cdc.http.server import connections_max
from tests.bench._crowd import Crowd, Reader, room
from tests.bench._npm_sync import npm_sync
from tests.bench._writers import writers
from tests.bench.measuring import options_parser, progress, scaled
from tests.bench.rows import Row, bounded

ROWS = 1_000_000
HELD = 10_000
"""As many as a server may hold; fewer where the system lets a process open fewer files, and the rows say how many."""
FOLLOWERS = 1_000
COMMITS = 40
COMMIT_SECONDS = 0.1
HOLD_SECONDS_MAX = 60
SYNC_COLD_MIN, SYNC_KEPT_MIN = 250_000, 400_000
HELD_KB_MAX, WAKE_SECONDS_MAX, STOP_SECONDS_MAX = 16, 0.5, 2
LAST_READER_MS_MAX = 50


def run(arguments: list[str]) -> list[Row]:
    """Measure each of them, on one server."""
    options = options_parser("serve", __doc__).parse_args(arguments)
    return asyncio.run(_measure(options.scale)) + writers(options.scale)


@dataclass
class Server:
    """The process, and how it is told what to do: a line in, a line out."""

    process: "asyncio.subprocess.Process"
    port: int
    handle: str

    async def tell(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        return (await self.process.stdout.readline()).decode().strip()

    def query(self, offset: str, *, live: bool = False) -> str:
        return f"/v1/shape?table=items&offset={offset}&handle={self.handle}{'&live=true' if live else ''}"


@contextlib.asynccontextmanager
async def serving(rows: int) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench._serve_shapes", str(rows), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port, handle = (await process.stdout.readline()).decode().split()
        yield Server(process, int(port), handle)
    finally:
        process.kill()
        await process.wait()


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**22))

    def ask(self, target: str) -> None:
        self.writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())

    async def answer(self) -> tuple[dict[str, str], int]:
        """Headers, and the size of the body, which is thrown away."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        assert " 200 " in head[0], head
        headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        size = int(headers["content-length"])
        await self._reader.readexactly(size)
        return headers, size


async def _measure(scale: float) -> list[Row]:
    rows: list[Row] = []
    count = scaled(ROWS, scale, 1_000)
    async with serving(count) as server:
        for name, least in (("cold", SYNC_COLD_MIN), ("kept", SYNC_KEPT_MIN)):
            progress(f"serve: {count:,} rows, {name}")
            seconds, size, cpu = await _sync(server)
            rate = count / seconds
            rows.append(Row(f"sync {name}", rate, "rows/s", target=f">= {least:,}", met=rate >= least))
            rows.append(Row(f"sync {name}, bytes", size / seconds / 1e6, "MB/s"))
            rows.append(Row(f"sync {name}, a second of the server's processor", count / cpu, "rows/s"))
        progress(f"serve: {count:,} rows, the npm client")
        rows += await asyncio.to_thread(npm_sync, f"http://127.0.0.1:{server.port}/v1/shape", count)
    held = min(scaled(HELD, scale), room(), connections_max())
    async with serving(1_000) as server:
        rows += await _hold(server, held)
        rows += await _follow(server, scaled(FOLLOWERS, scale))
        rows += await _stop(server, held)
    return rows


async def _sync(server: Server) -> tuple[float, int, float]:
    connection = await Connection.to(server.port)
    cpu, offset, total = float(await server.tell("cpu")), "-1", 0
    start = time.perf_counter()
    while True:
        connection.ask(server.query(offset))
        headers, size = await connection.answer()
        total, offset = total + size, headers["electric-offset"]
        if "electric-up-to-date" in headers:
            seconds = time.perf_counter() - start
            connection.writer.close()
            return seconds, total, float(await server.tell("cpu")) - cpu


def _request(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


async def _hold(server: Server, count: int) -> list[Row]:
    progress(f"serve: {count:,} held requests")
    before = float(await server.tell("rss"))
    crowd = await asyncio.to_thread(Crowd, server.port, count)
    idle = (float(await server.tell("rss")) - before) / count / 1024
    first = await Connection.to(server.port)
    first.ask(server.query("0_inf"))  # readers catch up before they wait
    await first.answer()
    first.writer.close()
    cpu = float(await server.tell("cpu"))
    await asyncio.to_thread(crowd.ask, _request(server.query("0_inf", live=True)))
    await _until_held(server, count)
    held_cpu = float(await server.tell("cpu")) - cpu
    each = (float(await server.tell("rss")) - before) / count / 1024
    cpu = float(await server.tell("cpu"))
    taking = asyncio.create_task(asyncio.to_thread(crowd.take, lambda _, __: True))
    start = time.perf_counter()
    await server.tell("commit")
    await taking
    seconds = time.perf_counter() - start
    cpu = float(await server.tell("cpu")) - cpu
    crowd.close()
    return [
        Row("a connection without a request", idle, "kB"),
        bounded("a held request, its connection included", "kB", [each], value_max=HELD_KB_MAX),
        bounded(f"all {count:,} are woken and answered", "s", [seconds], value_max=WAKE_SECONDS_MAX),
        Row("the same, of the server's processor, each", cpu / count * 1e6, "us"),
        Row("to take and hold a request, of the server's processor", held_cpu / count * 1e6, "us"),
    ]


async def _stop(server: Server, count: int) -> list[Row]:
    """The end of the server, beside as many as it holds."""
    progress(f"serve: a stop beside {count:,} held requests")
    crowd = await asyncio.to_thread(Crowd, server.port, count)
    offset = await server.tell("offset")
    await asyncio.to_thread(crowd.ask, _request(server.query(offset, live=True)))
    await _until_held(server, count)
    taking = asyncio.create_task(asyncio.to_thread(crowd.take, lambda _, __: True, may_close=True))
    start = time.perf_counter()
    assert await server.tell("stop") == "stopped"
    seconds = time.perf_counter() - start
    unanswered = await taking
    crowd.close()
    return [
        bounded(f"a stop beside {count:,} held requests", "s", [seconds], value_max=STOP_SECONDS_MAX),
        Row("of them, closed without an answer", unanswered, "requests"),
    ]


class Followers:
    """Readers of one shape, each of whom asks for the next as soon as it has news."""

    def __init__(self, server: Server, first: int) -> None:
        self.committed: dict[int, float] = {}
        """When each transaction was."""
        self.latencies_ms: list[float] = []
        self._server = server
        self._first = first
        self._seen: dict[Reader, int] = {}

    def follow(self, reader: Reader, head: bytes) -> bool:
        """Note how long it took; whether that was the last."""
        now = time.perf_counter()
        start = head.index(b"electric-offset: ") + 17
        offset = head[start : head.index(b"\r", start)].decode()
        tx, seen = int(offset.partition("_")[0]), self._seen.get(reader, self._first)
        self.latencies_ms += [(now - self.committed[one]) * 1_000 for one in range(seen + 1, tx + 1)]
        self._seen[reader] = tx
        if tx == self._first + COMMITS:
            return True
        reader.ask(_request(self._server.query(offset, live=True)))
        return False


async def _follow(server: Server, count: int) -> list[Row]:
    progress(f"serve: {count:,} readers of one shape")
    crowd = await asyncio.to_thread(Crowd, server.port, count)
    offset = await server.tell("offset")
    first = int(offset.partition("_")[0])
    followers = Followers(server, first)
    await asyncio.to_thread(crowd.ask, _request(server.query(offset, live=True)))
    await _until_held(server, count)
    cpu = float(await server.tell("cpu"))
    taking = asyncio.create_task(asyncio.to_thread(crowd.take, followers.follow))
    for number in range(1, COMMITS + 1):
        followers.committed[first + number] = time.perf_counter()
        await server.tell("commit")
        await asyncio.wait([taking], timeout=COMMIT_SECONDS)
    await taking
    cpu = float(await server.tell("cpu")) - cpu
    crowd.close()
    median, most = statistics.quantiles(followers.latencies_ms, n=100)[49::49]
    return [
        Row(f"commit to each of {count:,} readers, {1 / COMMIT_SECONDS:g} commits/s, median", median, "ms"),
        bounded("the same, 99 of 100", "ms", [most], value_max=LAST_READER_MS_MAX),
        Row("answer and next request, of the server's processor", cpu / count / COMMITS * 1e6, "us"),
    ]


async def _until_held(server: Server, count: int) -> None:
    held = 0
    end = time.perf_counter() + HOLD_SECONDS_MAX
    while held < count:  # each look is an answer of the server, which paces them
        assert time.perf_counter() < end, f"{held} of {count} requests are held"
        held = int(await server.tell("held"))
