"""How fast shapes are served over HTTP: a first sync, many who wait, and many who follow one shape.

The server is a process of its own, over a store in memory, so that neither Postgres nor a disk is measured; the client
reads bytes off sockets and looks at headers only. Ratios have no limit to compare with: targets are absolute.
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.bench.measuring import options_parser, progress, scaled
from tests.bench.rows import Row, bounded

ROWS = 1_000_000
HELD = 9_000
"""Connections need two descriptors, one on either side, and 10,000 are the server's own bound."""
FOLLOWERS = 1_000
COMMITS = 20
HOLD_SECONDS_MAX = 60
SYNC_COLD_MIN, SYNC_KEPT_MIN = 250_000, 400_000
HELD_KB_MAX, WAKE_SECONDS_MAX = 16, 0.5
LAST_READER_MS_MAX = 50


def run(arguments: list[str]) -> list[Row]:
    """Measure each of them, on one server."""
    options = options_parser("serve", __doc__).parse_args(arguments)
    return asyncio.run(_measure(options.scale))


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
    async with serving(1_000) as server:
        rows += await _hold(server, scaled(HELD, scale))
        rows += await _follow(server, scaled(FOLLOWERS, scale))
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


async def _hold(server: Server, count: int) -> list[Row]:
    progress(f"serve: {count:,} held requests")
    before = float(await server.tell("rss"))
    connections = [await Connection.to(server.port) for _ in range(count)]
    for connection in connections:
        connection.ask(server.query("0_inf", live=True))
    await _until_held(server, count)
    each = (float(await server.tell("rss")) - before) / count / 1024
    reading = [asyncio.create_task(connection.answer()) for connection in connections]
    await asyncio.sleep(0)
    cpu = float(await server.tell("cpu"))
    start = time.perf_counter()
    await server.tell("commit")
    await asyncio.gather(*reading)
    seconds = time.perf_counter() - start
    cpu = float(await server.tell("cpu")) - cpu
    for connection in connections:
        connection.writer.close()
    return [
        bounded("a held request", "kB", [each], value_max=HELD_KB_MAX),
        bounded(f"all {count:,} are woken and answered", "s", [seconds], value_max=WAKE_SECONDS_MAX),
        Row("the same, of the server's processor", cpu, "s"),
    ]


async def _follow(server: Server, count: int) -> list[Row]:
    progress(f"serve: {count:,} readers of one shape")
    connections = [await Connection.to(server.port) for _ in range(count)]
    offset = await server.tell("offset")
    last: list[float] = []
    for _ in range(COMMITS):
        for connection in connections:
            connection.ask(server.query(offset, live=True))
        await _until_held(server, count)
        reading = [asyncio.create_task(connection.answer()) for connection in connections]
        await asyncio.sleep(0)
        start = time.perf_counter()
        offset = await server.tell("commit")
        await asyncio.gather(*reading)
        last.append((time.perf_counter() - start) * 1_000)
    return [
        Row(f"commit to the last of {count:,} readers, median", statistics.median(last), "ms"),
        bounded("the same, the slowest commit", "ms", [max(last)], value_max=LAST_READER_MS_MAX),
    ]


async def _until_held(server: Server, count: int) -> None:
    held = 0
    end = time.perf_counter() + HOLD_SECONDS_MAX
    while held < count:  # each look is an answer of the server, which paces them
        assert time.perf_counter() < end, f"{held} of {count} requests are held"
        held = int(await server.tell("held"))
