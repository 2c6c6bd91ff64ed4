"""Pictures of the console under load, for the eye and for the documents: `python -m tests.browser.pictures FOLDER`."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.async_api import FloatRect

from cdc.http.console.page import CONSOLE_PATH
from cdc.insurance.ladder import Terms
from storage.lake.materialize import Order, materialize
from storage.lake.spark import run_here
from storage.limits import MIB
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.browser.chromium import PHONE, WIDE, browsing
from tests.browser.consoled import SHOP, WAL_OF_70_MB, Consoled, Customers, consoled
from tests.postgres import WANTED, Database, make_server, new_database
from tests.shape_server import Reader
from tests.waiting import eventually

VIEWS = ("overview", "shapes", "slot", "lake", "events", "doctor")
TOPS = {WIDE: 895, PHONE: 980}
"""How much of the overview the documents show."""
LAZY = StoreOptions(BufferOptions(flush_age_seconds=8.0, flushes_when_quiet=False))
"""Rows wait for a flush for so long that a picture shows who holds G."""

LOOKS = ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark"))
BUDGET = Terms(budget_bytes=128 * MIB)


async def take_insured(database: Database, folder: Path) -> None:
    """A slot that has used up more than half of what it may keep."""
    database.execute(*SHOP)
    never = StoreOptions(BufferOptions(flush_age_seconds=3600.0, flushes_when_quiet=False))
    with tempfile.TemporaryDirectory() as data:
        async with consoled(database, Path(data) / "logs", store=never, terms=BUDGET) as console:
            await console.loop.add("orders", "orders")
            database.execute("INSERT INTO orders VALUES (1, 1, 'new', 3)", *WAL_OF_70_MB)
            for size, scheme in LOOKS:
                async with browsing(size, scheme) as tab:
                    await tab.page.goto(f"{console.console}#/slot")
                    await tab.page.locator("#trouble p.warning").wait_for()
                    name = f"insured-{scheme}-{size[0]}.png"
                    await tab.page.screenshot(path=folder / name, full_page=True)
                    insurance = await tab.page.locator(".panel").nth(1).bounding_box()
                    assert insurance is not None
                    clip = FloatRect(x=0, y=0, width=size[0], height=insurance["y"] + insurance["height"] + 16)
                    await tab.page.screenshot(path=folder / f"top-{name}", full_page=True, clip=clip)


async def take_empty(database: Database, folder: Path) -> None:
    """A system without a shape, and then without a server."""
    with tempfile.TemporaryDirectory() as data:
        async with AsyncExitStack() as tabs:
            async with consoled(database, Path(data) / "logs") as console:
                pages = {}
                for size, scheme in LOOKS:
                    tab = await tabs.enter_async_context(browsing(size, scheme))
                    pages[f"{scheme}-{size[0]}.png"] = page = tab.page
                    await page.goto(console.console)
                    await page.locator(".chart .line").first.wait_for(state="attached")  # a flat line is no sight
                    await page.screenshot(path=folder / f"empty-{scheme}-{size[0]}.png", full_page=True)
            for name, page in pages.items():
                await page.locator("#trouble p.fault").wait_for()
                await page.screenshot(path=folder / f"dead-{name}", full_page=True)


async def take(database: Database, folder: Path) -> None:
    """All views, under load."""
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
                for size, scheme in LOOKS:
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
        for pictures in (take, take_insured, take_empty):
            database = new_database(server)
            asyncio.run(pictures(database, folder))
            database.remove()  # its slot too, whose name the next one wants
    finally:
        server.remove()


if __name__ == "__main__":
    main()
