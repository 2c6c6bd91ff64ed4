"""The whole program in the test's own process, with its console: the loop beside a real server, and HTTP."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from cdc.http.application import application
from cdc.http.console.api import ConsoleApi
from cdc.http.console.page import CONSOLE_PATH
from cdc.http.console.recording import recording
from cdc.http.console.sampler import Sampler
from cdc.http.server import listen, serving, url_of
from cdc.insurance.insurer import Insurer
from cdc.insurance.ladder import Terms
from cdc.status.slot_watch import SlotWatch
from shapes.http.app import ShapeApp
from shapes.service import ShapeService
from tests.loop import Loop, looping
from tests.postgres import Database

WITHOUT_BUDGET = Terms()

SHOP = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text, city text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, state text, total numeric(10, 2))",
    "CREATE TABLE order_lines (order_id int, line int, product text, quantity int, PRIMARY KEY (order_id, line))",
    "CREATE TABLE payments (id int PRIMARY KEY, order_id int, amount numeric(10, 2))",
    """INSERT INTO customers SELECT g, 'Customer ' || g, (ARRAY['Bern', 'Graz', 'Ulm'])[1 + g % 3]
       FROM generate_series(1, 300) g""",
)
WAL_OF_70_MB = (
    "CREATE TABLE aside AS SELECT g, repeat('x', 1000) AS filler FROM generate_series(1, 68000) g",
    "INSERT INTO orders VALUES (2, 1, 'new', 3)",  # the stream has come so far
)
ORDER = """
    WITH o AS (INSERT INTO orders SELECT g, g %% 300 + 1, 'new', g %% 97 FROM generate_series(%s::int, %s) g
          RETURNING id)
    INSERT INTO order_lines SELECT id, line, repeat('product ', 4) || line, line FROM o, generate_series(1, 3) line
"""


@dataclass
class Consoled:
    """A running program."""

    loop: Loop
    url: str
    http: httpx.AsyncClient

    @property
    def console(self) -> str:
        return self.url + CONSOLE_PATH


@asynccontextmanager
async def consoled(
    database: Database,
    folder: Path,
    secret: str | None = None,
    lake: Path | None = None,
    terms: Terms = WITHOUT_BUDGET,
    **settings: Any,
) -> AsyncIterator[Consoled]:
    """As `cdc.serve` puts it together."""
    listener = listen("127.0.0.1", 0)
    with informed(), recording() as recorder, contextlib.closing(listener):
        async with looping(database, folder, **settings) as loop:
            app = loop.app
            watch = SlotWatch(app.settings.database_url, app.settings.slot, "test")
            sampler = Sampler(app, watch)
            shapes = ShapeApp(ShapeService(app.house, app.nursery))
            insurer = Insurer(app, watch, terms)
            console = ConsoleApi(app.settings, recorder, sampler, lake)
            answering = application(app, watch, secret, console, shapes, insurer)
            url = url_of(listener)
            async with (
                watch.running(),
                insurer.running(),
                sampler.running(),
                serving(answering, listener),
                httpx.AsyncClient(base_url=url, timeout=60) as http,
            ):
                try:
                    yield Consoled(loop, url, http)
                finally:
                    shapes.stop()


@contextlib.contextmanager
def informed() -> Iterator[None]:
    """Events of every level are told, as the program wants it."""
    wanted = {"": logging.INFO, "httpx": logging.WARNING}
    before = {name: logging.getLogger(name).level for name in wanted}
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


class Customers:
    """They order, in small transactions, until the context is left."""

    def __init__(self, database: Database) -> None:
        self.orders_count = 0
        self._database = database
        self._left = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._order())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left.set()
        await self._task

    async def _order(self) -> None:
        while not self._left.is_set():
            size = 1 + self.orders_count * 7 % 23
            await asyncio.to_thread(self._place, size)
            self.orders_count += size
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._left.wait()

    def _place(self, size: int) -> None:
        with self._database.connect() as connection:
            connection.execute(ORDER, [self.orders_count, self.orders_count + size - 1])
