"""One run of the demo: everything is started, the server is killed now and then, and at the end all is compared.

Invariant: however it ends, every process that it started has ended.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Final, LiteralString

from cdc.demo.board import Board, State
from cdc.demo.fold import Fold
from cdc.demo.lake import Lake
from cdc.demo.outcome import Proven
from cdc.demo.proof import confirmed, prove, truth
from cdc.demo.reader import follow
from cdc.demo.shapes import OPEN_ORDERS, SHAPES, TABLE_SHAPES
from cdc.demo.shop import Shop
from cdc.demo.tally import Tally
from cdc.demo.writer import Writer
from cdc.embedded.postgres import postgres
from cdc.embedded.server import Server
from cdc.source.lsn import format_lsn

DATABASE: Final[LiteralString] = "shop"

SHOW_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.5
"""Between two looks at the server's status."""

LIFE_SHARES: Final = (0.15, 0.3)
"""Of the demo's time, how long the server lives between two kills, at least and at most: three or four in a run."""

LIFE_SECONDS_MIN: Final = 0.5
LIFE_SECONDS_MAX: Final = 15.0
"""Of the same: a long demo has more of them."""


class Demo:
    """The parts of one run."""

    def __init__(self, folder: Path, board: Board, show: Callable[[Board], None], *, with_lake: bool) -> None:
        self._folder = folder
        self._board = board
        self._show = show
        self._with_lake = with_lake
        self._chance = Random()  # noqa: S311 - what happens in the shop is nobody's secret
        self._folds = {shape.name: Fold(shape.name) for shape in SHAPES}
        self._slowest = 0.0
        self._background: list[asyncio.Task[None]] = []

    async def run(self) -> Proven:
        """Go through all of it."""
        self._tell("starting a Postgres for the shop")
        shown = ("--lake", str(self._folder / "lake")) if self._with_lake else ()
        async with postgres(DATABASE) as url, _closing(Server(url, self._folder / "data", shown)) as server:
            writer = Writer(url, Shop(self._chance))
            await writer.open_shop()
            async with asyncio.TaskGroup() as tasks, self._alongside(tasks):
                self._also(self._watch(writer.tally, server))
                self._also(self._look(server))
                await self._open(server)
                async with self._lake(server) as lake:
                    await self._work(writer, server)
                    proven = await self._prove(url, writer, server, lake)
        self._board.state = State.PROVEN
        self._tell("nothing is lost, and nothing came twice")
        return proven

    async def _open(self, server: Server) -> None:
        """The server with a shape for each table, and a reader of each."""
        self._tell("starting the server")
        await server.start()
        await server.active()
        self._board.state, self._board.console_url = State.SERVING, server.console_url
        await asyncio.gather(*(server.add(**shape.asked) for shape in TABLE_SHAPES))
        self._tell(f"a shape for each of {len(TABLE_SHAPES)} tables; the console is at {server.console_url}")
        for shape in TABLE_SHAPES:
            self._also(follow(server.url, shape, self._folds[shape.name]))

    async def _work(self, writer: Writer, server: Server) -> None:
        """The shop works, and the server is killed now and then."""
        work = self._also(writer.work())
        now = time.monotonic()
        self._board.ready_at, ends_at = now, now + self._board.seconds
        await server.add(**OPEN_ORDERS.asked)
        self._tell(f"one more shape while the shop works: {OPEN_ORDERS.table} where {OPEN_ORDERS.where}")
        self._also(follow(server.url, OPEN_ORDERS, self._folds[OPEN_ORDERS.name]))
        while (life := self._life()) < ends_at - time.monotonic():
            await asyncio.sleep(life)
            await self._kill(server)
        await asyncio.sleep(max(0.0, ends_at - time.monotonic()))
        writer.close()
        await work

    async def _kill(self, server: Server) -> None:
        self._board.state = State.KILLED
        killed_at = time.monotonic()
        pid = await server.kill()
        self._board.kills = server.kills
        self._tell(f"kill {server.kills}: SIGKILL for the server, process {pid}")
        self._board.state = State.STARTING
        await server.start()
        await server.active()
        seconds = time.monotonic() - killed_at
        self._slowest = max(self._slowest, seconds)
        self._board.state = State.SERVING
        self._tell(f"it is back after {seconds:.1f} s, and goes on where it was")

    async def _prove(self, url: str, writer: Writer, server: Server, lake: Lake | None) -> Proven:
        self._board.state = State.CATCHING_UP
        wanted = await truth(url, SHAPES)
        self._tell(f"the shop has closed, at {wanted.lsn}")
        await confirmed(server, wanted.lsn)
        self._tell("everything is confirmed; comparing all rows")
        found = await prove(SHAPES, wanted, server, self._folds, writer.tally, lake)
        version = None if lake is None else lake.version
        return Proven(wanted.lsn, found, writer.tally, server.kills, self._slowest, version)

    @contextlib.asynccontextmanager
    async def _alongside(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Tasks that go on until the body ends; one that fails ends the body."""
        self._tasks = tasks
        yield
        for task in self._background:
            task.cancel()

    def _also(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(work)
        self._background.append(task)
        return task

    async def _watch(self, tally: Tally, server: Server) -> None:
        """Keep the board, and show it."""
        board = self._board
        while True:
            board.now = time.monotonic()
            board.transactions, board.rolled_back = tally.transactions, tally.rolled_back
            for shape in SHAPES:
                facts, fold = board.shapes[shape.name], self._folds[shape.name]
                facts.read, facts.changes = len(fold.rows), fold.changes
                facts.written = None if shape.where is not None else tally.rows[shape.table]
            self._show(board)
            if board.state in {State.SERVING, State.CATCHING_UP}:
                server.child.must_run()
            await asyncio.sleep(SHOW_SECONDS)

    async def _look(self, server: Server) -> None:
        while True:
            status = await server.status() if self._board.ready_at is not None else None
            if status is not None:
                self._board.told(status)
            await asyncio.sleep(LOOK_SECONDS)

    @contextlib.asynccontextmanager
    async def _lake(self, server: Server) -> AsyncIterator[Lake | None]:
        """A lake that follows, if there is to be one."""
        if not self._with_lake:
            yield None
            return
        lake = Lake(server.folder, self._folder / "lake", self._folder / "scratch")
        watching = self._also(self._watch_lake(lake))
        is_proven = False
        try:
            yield lake
            is_proven = True
        finally:
            watching.cancel()  # first: that it ends is no news any more
            await lake.close(at_once=not is_proven)

    async def _watch_lake(self, lake: Lake) -> None:
        self._board.lake = "Spark starts"
        await lake.start()
        told = False
        while True:
            if lake.version is not None:
                self._board.lake = f"version {lake.version}, at {format_lsn(lake.lsn)}"
                if not told:
                    self._tell(f"the lake has its first version, at {format_lsn(lake.lsn)}")
                told = True
            lake.must_run()
            await asyncio.sleep(LOOK_SECONDS)

    def _life(self) -> float:
        share = self._chance.uniform(*LIFE_SHARES)
        return min(max(share * self._board.seconds, LIFE_SECONDS_MIN), LIFE_SECONDS_MAX)

    def _tell(self, text: str) -> None:
        self._board.now = time.monotonic()
        self._board.tell(text)
        self._show(self._board)


@contextlib.asynccontextmanager
async def _closing(server: Server) -> AsyncIterator[Server]:
    try:
        yield server
    finally:
        await server.close()
