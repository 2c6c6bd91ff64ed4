"""Pictures of the console under load, for the eye and for the documents: `python -m tests.browser.pictures FOLDER`."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.async_api import FloatRect

from cdc.http.console.page import CONSOLE_PATH
from storage.lake.materialize import Order, materialize
from storage.lake.spark import run_here
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.browser.chromium import PHONE, WIDE, browsing
from tests.browser.consoled import SHOP, Consoled, Customers, consoled
from tests.postgres import WANTED, Database, make_server, new_database
from tests.shape_server import Reader
from tests.waiting import eventually

VIEWS = ("overview", "shapes", "slot", "lake", "events", "doctor")
TOPS = {WIDE: 895, PHONE: 980}
"""How much of the overview the documents show."""
LAZY = StoreOptions(BufferOptions(flush_age_seconds=8.0))
"""Rows wait for a flush for so long that a picture shows who holds G."""


async def take(database: Database, folder: Path) -> None:
    """All pictures."""
    database.execute(*SHOP)
    with tempfile.TemporaryDirectory() as data:
        logs, lake = Path(data) / "logs", Path(data) / "lake"
        async with consoled(database, logs, store=LAZY, lake=lake) as console:
            await console.loop.add("customers", "customers")
            await console.loop.add("orders", "orders")
            await console.loop.add("order_lines", "order_lines")
            await console.loop.add("order_lines", "doubles", where="quantity = 2", columns="order_id,line,product")
            await console.loop.add("customers", "in_bern", where="city = 'Bern'")
            await console.loop.add("payments")
            async with Customers(database), _followed(console):
                shown: bool = await eventually(lambda: _has_curves(console), "half a minute of curves", 60)
                assert shown
                await asyncio.to_thread(materialize, Order(logs, lake), run_here, lambda _: None)
                for size, scheme in ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")):
                    await _take(console, folder, size, scheme)


async def _has_curves(console: Consoled) -> bool:
    return len((await console.http.get("/v1/admin/samples")).json()["at"]) > 15


@contextlib.asynccontextmanager
async def _followed(console: Consoled) -> AsyncIterator[None]:
    """Somebody reads the orders."""

    async def follow() -> None:
        reader = Reader(console.http, {"table": "orders"})
        await reader.catch_up()
        while True:
            await reader.step(live="true")

    task = asyncio.create_task(follow())
    yield
    task.cancel()
    await asyncio.wait([task])


async def _take(console: Consoled, folder: Path, size: tuple[int, int], scheme: str) -> None:
    handle = console.loop.living("orders").handle
    async with browsing(size, scheme) as tab:
        for view in (*VIEWS, f"shapes/{handle}"):
            await tab.page.goto(f"{console.url}{CONSOLE_PATH}#/{view}")
            await tab.page.locator(".view").wait_for()
            if view == "overview":
                await tab.page.locator(".chart .line").first.wait_for()
            if view == "doctor":
                await tab.page.locator(".event, .why").first.wait_for()
            if view == "lake":
                await tab.page.locator("tbody tr").first.wait_for()
            if "/" in view:
                await tab.page.locator("#tail li").nth(20).wait_for()
            name = f"{view.partition('/')[0] + ('-one' if '/' in view else '')}-{scheme}-{size[0]}.png"
            await tab.page.screenshot(path=folder / name, full_page=True)
            if view == "overview":
                clip = FloatRect(x=0, y=0, width=size[0], height=TOPS[size])
                await tab.page.screenshot(path=folder / f"top-{name}", full_page=True, clip=clip)
        sys.stdout.write("".join(f"complaint: {one}\n" for one in tab.complaints))


def main() -> None:
    """Into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    server = make_server(WANTED[-1], max_slot_wal_keep_size="2GB")
    try:
        asyncio.run(take(new_database(server), folder))
    finally:
        server.remove()


if __name__ == "__main__":
    main()
