"""The console in a real browser, beside the whole program and a real server: what an operator sees as data moves."""

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from playwright.async_api import Page, expect

from cdc.insurance.ladder import Terms
from storage.errors import SharedDiskFault
from storage.lake.materialize import Order, Told, materialize
from storage.lake.spark import run_here
from storage.limits import MIB
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.browser.chromium import PHONE, browsing
from tests.browser.consoled import SHOP, WAL_OF_70_MB, Customers, consoled
from tests.postgres import Database, Server, new_database
from tests.shape_server import Reader
from tests.waiting import eventually

SECRET = "s3crët"  # noqa: S105 - of these tests only
VIEWS = ("overview", "shapes", "slot", "lake", "events", "doctor")
LAZY = StoreOptions(BufferOptions(flush_age_seconds=3600.0, flushes_when_quiet=False, flush_log_rows=10))
"""Nothing is flushed for its age: whoever has a few rows holds G, and is freed by more of them."""


async def overflow(page: Page) -> int:
    """By how much the page is wider than the window."""
    found: int = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return found


async def test_the_overview_shows_who_holds_g_and_that_nobody_does(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with consoled(newest_database, tmp_path, store=LAZY) as console, browsing() as tab:
        page = tab.page
        await console.loop.add("customers", "customers")
        await console.loop.add("orders", "orders")
        await page.goto(console.console)
        await expect(page.locator(".why")).to_contain_text("nothing holds G")
        await expect(page.locator(".axis .holder")).to_have_count(0)
        await expect(page.locator(".axis .name")).to_have_text(["the slot", "customers", "orders"])

        newest_database.execute("INSERT INTO orders VALUES (1, 1, 'new', 3)")
        await expect(page.locator(".why")).to_contain_text("shape orders has rows of the transaction")
        await expect(page.locator(".axis .holder")).to_have_count(1)
        await expect(page.locator(".axis text.name.holds")).to_have_text("orders")
        await expect(page.locator(".axis .name")).to_have_text(["the slot", "orders", "customers"])
        g, durable, visible = await page.evaluate(
            "[['.flag.g line', 'x1'], ['line.pending', 'x1'], ['line.pending', 'x2']]"
            ".map(([what, at]) => Number(document.querySelector('.axis ' + what).getAttribute(at)))"
        )
        assert g == durable < visible, "the bar is what is above G and not on disk"

        newest_database.execute("INSERT INTO orders SELECT g, 1, 'new', 3 FROM generate_series(2, 20) g")
        await expect(page.locator(".why")).to_contain_text("nothing holds G")
        await expect(page.locator(".axis .holder")).to_have_count(0)
        await expect(page.locator(".chart .line").first).to_be_attached()
        assert tab.complaints == []


async def test_a_birth_that_waits_is_shown_until_it_is_done(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with consoled(newest_database, tmp_path) as console, browsing() as tab:
        with psycopg.connect(newest_database.conninfo()) as writer:
            writer.execute("UPDATE customers SET city = 'Linz' WHERE id = 1")
            adding = asyncio.create_task(console.loop.add("customers", "late"))
            await tab.page.goto(console.console)
            births = tab.page.locator(".births li")
            await expect(births).to_contain_text("late")
            await expect(births).to_contain_text("publishing")
        await adding
        await expect(births).to_have_count(0)
        await expect(tab.page.locator(".axis .name")).to_have_text(["the slot", "late"])
        assert tab.complaints == []


async def test_a_shape_says_who_reads_it_and_how_fast_it_changes(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with consoled(newest_database, tmp_path) as console, browsing() as tab, asyncio.TaskGroup() as readers:
        page = tab.page
        await console.loop.add("orders", "orders")
        await console.loop.add("customers", "customers")
        await console.loop.caught_up()
        reader = Reader(console.http, {"table": "orders"})
        await reader.catch_up()
        held = readers.create_task(reader.step(live="true"))
        await page.goto(f"{console.console}#/shapes")
        row, calm = (page.locator("tr", has=page.get_by_role("link", name=name)) for name in ("orders", "customers"))
        await expect(row.locator("td").nth(3)).to_have_text("1")
        await expect(calm.locator("td").nth(3)).to_have_text("0")

        async with Customers(newest_database):
            await expect(row.locator("td").nth(4)).to_have_text(re.compile(r"^[\d,]*[1-9][\d,.]*/s$"))
        await expect(calm.locator("td").nth(4)).to_have_text("0/s")
        await held
        await expect(row.locator("td").nth(3)).to_have_text("0")
        await page.get_by_role("combobox").select_option("changes")
        await expect(page.locator("tbody tr").first).to_contain_text("orders")
        await page.locator("tbody a").first.click()
        await expect(page.locator(".facts")).to_contain_text("over the last half minute")
        assert tab.complaints == []


async def test_a_step_of_slot_insurance_is_told_on_every_view(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    terms = Terms(budget_bytes=128 * MIB, alert_at=0.5, pause_at=0.75, end_at=0.9)
    async with consoled(newest_database, tmp_path, store=LAZY, terms=terms) as console, browsing() as tab:
        page = tab.page
        await console.loop.add("orders", "orders")
        await page.goto(f"{console.console}#/slot")
        await expect(page.locator(".view")).to_contain_text("calm")
        await expect(page.locator("#trouble")).to_be_empty()

        newest_database.execute("INSERT INTO orders VALUES (1, 1, 'new', 3)", *WAL_OF_70_MB)
        await expect(page.locator("#trouble")).to_contain_text(re.compile(r"\d % of .* is used: nothing is done yet"))
        await expect(page.locator(".pill.warning", has_text="alert")).to_have_count(1)
        await expect(page.locator(".panel").first.locator(".why.warning")).to_have_count(1)
        await expect(page.locator(".facts").first).to_contain_text("the shape orders")
        await expect(page.locator(".facts").first).to_contain_text("shapelog shapes remove orders")
        await page.keyboard.press("1")
        await expect(page.locator("#trouble p.warning")).to_contain_text("--wal-budget")
        assert tab.complaints == []


async def test_the_lake_has_its_tables_as_they_grow(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    lake = tmp_path / "lake"
    async with consoled(newest_database, tmp_path / "data", lake=lake) as console, browsing(PHONE) as tab:
        await console.loop.add("customers", "customers")
        await tab.page.goto(f"{console.console}#/lake")
        await expect(tab.page.locator(".empty")).to_contain_text(f"There is no version in {lake} yet")
        await console.loop.caught_up()
        told: list[Told] = []

        async def is_made() -> bool:
            await asyncio.to_thread(materialize, Order(tmp_path / "data", lake), run_here, told.append)
            return told[-1].step.version is not None

        made: bool = await eventually(is_made, "the shape to be on record, and so in a version")
        assert made
        row = tab.page.locator("tbody tr").first
        await expect(row).to_contain_text("customers")
        await expect(row.locator("td").nth(1)).to_have_text("300")
        await expect(tab.page.locator("#main")).not_to_contain_text("1970")

        newest_database.execute("DELETE FROM customers WHERE id > 100")
        await console.loop.caught_up()
        made = await eventually(is_made, "a version without them")
        await expect(row.locator("td").nth(1)).to_have_text("100")
        await expect(tab.page.locator("h2").nth(1)).to_have_text("Versions")
        assert await overflow(tab.page) <= 0
        assert tab.complaints == []


async def test_without_a_lake_its_view_says_how_to_have_one(newest_database: Database, tmp_path: Path) -> None:
    async with consoled(newest_database, tmp_path) as console, browsing() as tab:
        await tab.page.goto(f"{console.console}#/lake")
        await expect(tab.page.locator(".empty")).to_contain_text("shapelog serve --lake DIR")


async def test_by_keyboard_from_the_search_to_a_live_tail(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP, "INSERT INTO orders SELECT g, 1, 'old', 1 FROM generate_series(1, 50) g")
    async with consoled(newest_database, tmp_path) as console, browsing() as tab:
        page, keys = tab.page, tab.page.keyboard
        await console.loop.add("customers", "in_bern", where="city = 'Bern'")
        await console.loop.add("orders", "orders")
        await page.goto(console.console)
        await page.locator(".tiles").wait_for()
        await keys.press("/")
        await keys.type("city bern")
        rows = page.locator("table.shapes tbody tr")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("city = 'Bern'")
        await expect(page.locator("#search")).to_be_focused()
        await page.locator("#search").fill("orders")
        await expect(rows).to_contain_text("public.orders")
        await keys.press("Tab")  # the order
        await keys.press("Tab")
        await keys.press("Enter")
        await expect(page.locator("h2").first).to_contain_text("orders")
        await expect(page.locator(".sql")).to_have_text("SELECT * FROM public.orders")
        await expect(page.locator(".facts")).to_contain_text("50")

        items = page.locator("#tail li")
        await expect(page.locator("#tail-said")).to_have_text("waiting for changes …")

        # Until the first answer nobody knows from where on; so something is inserted until it shows.
        async def is_shown() -> bool:
            newest_database.execute("INSERT INTO orders SELECT max(id) + 1, 7, '<img src=x>', NULL FROM orders")
            return await items.count() > 0

        shown: bool = await eventually(is_shown, "the first row in the tail")
        assert shown
        await expect(items.first).to_contain_text("state=<img src=x> total=NULL")
        await expect(page.locator("#tail img")).to_have_count(0)
        newest_database.execute("DELETE FROM orders WHERE id = 17", "UPDATE orders SET state = 'sent' WHERE id = 18")
        await expect(items.first).to_contain_text("state=sent")
        await expect(items.nth(1)).to_contain_text("delete")
        await keys.press("p")
        await expect(page.locator("#tail-said")).to_have_text("paused")
        newest_database.execute("UPDATE orders SET state = 'while paused' WHERE id = 19")
        await console.loop.caught_up()
        assert "paused" not in await items.first.inner_text()
        await keys.press("p")
        await expect(items.first).to_contain_text("state=while paused")
        assert tab.complaints == []


async def test_without_the_secret_the_page_is_empty(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with consoled(newest_database, tmp_path, secret=SECRET) as console, browsing() as tab:
        page = tab.page
        await page.goto(console.console)
        await expect(page.locator("#secret")).to_be_visible()
        assert "customers" not in await page.content()
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#secret-wrong")).to_be_visible()
        await page.locator("#secret-text").fill(SECRET)
        await page.keyboard.press("Enter")
        await expect(page.locator("#secret")).to_be_hidden()
        await expect(page.locator("#state")).to_have_text("active")
        await page.reload()
        await expect(page.locator("#state")).to_have_text("active")  # the tab knows it
        assert "s3cr" not in page.url
        assert all("401" in complaint for complaint in tab.complaints), tab.complaints


async def test_an_empty_system_and_a_dead_server_look_sane(newest_database: Database, tmp_path: Path) -> None:
    async with browsing() as tab:
        page = tab.page
        async with contextlib.AsyncExitStack() as stack:
            console = await stack.enter_async_context(consoled(newest_database, tmp_path))
            await page.goto(console.console)
            await expect(page.locator("#state")).to_have_text("active")
            for view in VIEWS:
                await page.goto(f"{console.console}#/{view}")
                await expect(page.locator(f'nav a[href="#/{view}"]')).to_have_attribute("aria-current", "page")
                await page.locator(".view .panel").first.wait_for()
                shown = await page.locator("main").inner_text()
                assert not re.search(r"undefined|NaN|null|\[object", shown), (view, shown)
            for view in ("overview", "shapes"):
                await page.goto(f"{console.console}#/{view}")
                await expect(page.locator("main")).to_contain_text("shapelog shapes add TABLE")
            await page.goto(f"{console.console}#/shapes/gone")
            await expect(page.locator("main")).to_contain_text("No living shape has this name or handle.")
            assert tab.complaints == []
        await expect(page.locator("#state")).to_have_text("no answer")
        await expect(page.locator("#trouble")).to_contain_text("What you see is of")


async def test_a_postgres_that_is_away_is_no_calm(own_server: Callable[[], Server], tmp_path: Path) -> None:
    server = own_server()
    database = new_database(server)
    database.execute(*SHOP)
    async with consoled(database, tmp_path) as console, browsing() as tab:
        page = tab.page
        await console.loop.add("customers", "customers")
        await page.goto(f"{console.console}#/slot")
        await expect(page.locator("#state")).to_have_text("active")
        await expect(page.locator(".view")).to_contain_text("keeps")
        await asyncio.to_thread(server.stop, "immediate")
        await expect(page.locator("#state")).to_have_text("not connected")
        await expect(page.locator("#trouble")).to_contain_text("Not connected to Postgres")

        async def is_unknown() -> bool:
            return (await console.http.get("/v1/admin/samples")).json()["lag_bytes"][-1] is None

        unknown: bool = await eventually(is_unknown, "a curve that does not go on with an old look")
        assert unknown
        await page.keyboard.press("1")
        await expect(page.locator(".tile").first).to_contain_text("\N{EN DASH}")
        assert await page.locator(".why.ok").count() == 0
        await asyncio.to_thread(server.start)
        await expect(page.locator("#state")).to_have_text("active")
        await expect(page.locator("#trouble")).to_be_empty()
        assert tab.complaints == []


async def test_events_and_the_doctor_say_what_to_do(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with consoled(newest_database, tmp_path) as console, browsing() as tab:
        page = tab.page
        await console.loop.add("customers", "customers")
        for _ in range(3):
            logging.getLogger("shapes.capture").error("waiting for the disk: %s", SharedDiskFault("no space left"))
        await page.goto(f"{console.console}#/events")
        await expect(page.locator(".event").filter(has_text="connected to")).to_have_count(1)
        await page.get_by_role("button", name=re.compile("^errors")).click()
        await expect(page.locator(".event")).to_have_count(1)
        await expect(page.locator(".event")).to_contain_text("waiting for the disk: no space left")
        await expect(page.locator(".event code")).to_have_text(SharedDiskFault.code)
        await expect(page.locator(".event .hint")).to_have_text(SharedDiskFault.hint)
        await expect(page.locator(".event-head")).to_contain_text("3 times since")
        await expect(page.locator("nav .badge")).to_have_text("1")
        newest_database.execute("ALTER TABLE customers REPLICA IDENTITY NOTHING")
        await page.keyboard.press("6")
        await expect(page.locator(".why")).to_contain_text("not fit")
        await expect(page.locator(".event.fault .copyable pre").first).to_contain_text("ALTER TABLE")
        assert tab.complaints == []


async def test_it_fits_a_phone_in_both_colours_under_load(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with (
        consoled(newest_database, tmp_path) as console,
        Customers(newest_database),
        browsing(PHONE, "dark") as tab,
    ):
        page = tab.page
        await console.loop.add("orders", "orders")
        await console.loop.add("order_lines", "a_name_that_is_as_long_as_names_of_shapes_may_be_in_the_end")
        handle = console.loop.living("orders").handle
        for view in (*VIEWS, f"shapes/{handle}"):
            await page.goto(f"{console.console}#/{view}")
            await page.locator(".view .panel").first.wait_for()
            assert await overflow(page) <= 0, view
        await expect(page.locator("#tail li").first).to_contain_text("insert")
        back = "getComputedStyle(document.documentElement).backgroundColor"
        dark = await page.evaluate(back)
        assert await page.locator("html").get_attribute("data-theme") == "auto"
        await page.keyboard.press("t")
        assert await page.evaluate(back) != dark, "light, whatever the system wants"
        await page.reload()
        assert await page.locator("html").get_attribute("data-theme") == "light"
        assert tab.complaints == []


async def test_the_picture_of_any_status_is_whole(newest_database: Database, tmp_path: Path) -> None:
    """Whatever places there are: nobody knows some, some are far apart, some shapes have only a snapshot."""
    chance = random.Random(7)
    statuses = [_any_status(chance) for _ in range(300)]
    async with consoled(newest_database, tmp_path) as console, browsing() as tab:
        await tab.page.goto(console.console)
        found = await tab.page.evaluate(PICTURES, statuses)
        assert tab.complaints == []
    for status, (names, html, numbers) in zip(statuses, found, strict=True):
        assert not re.search(r"NaN|undefined|Infinity|null", html), html
        assert all(-1 <= number <= 901 for number in numbers), (status, numbers)
        holder = status["held_by"]
        if holder is not None:
            assert names[0] == holder["name"], "who holds G comes first"
        pending = {one["name"] for one in status["shapes"] if one["visible"] != one["durable"]}
        pending |= {holder["name"]} if holder else set()
        assert set(names[: len(pending)]) == pending, "then who has something pending"
        assert sorted(names) == sorted({one["name"] for one in status["shapes"]} | pending)


PICTURES = """async (statuses) => {
    const { axis, rowsOf } = await import("/console/axis.js");
    return statuses.map((status) => {
        const picture = axis(status, 900);
        const numbers = [...picture.querySelectorAll("*")].flatMap((one) =>
            ["x", "x1", "x2", "cx", "width"].map((name) => one.getAttribute(name)).filter((text) => text !== null));
        return [rowsOf(status).map((row) => row.name), picture.outerHTML, numbers.map(Number)];
    });
}"""


def _any_status(chance: random.Random) -> dict[str, Any]:
    top = chance.choice([10**5, 10**9, 2**40, 2**63 - 1])
    marks = sorted(chance.randrange(top) for _ in range(5))
    restart, confirmed, g, seen, end = (f"{mark >> 32:X}/{mark & 0xFFFFFFFF:X}" for mark in marks)

    def offset() -> str:
        return chance.choice(["-1", "0_inf", f"{marks[2]}_3", f"{marks[3]}_1", f"{chance.randrange(1, top)}_8"])

    shapes = []
    for number in range(chance.randrange(6)):
        one, other = offset(), offset()
        visible, durable = chance.choice([(one, other), (one, one), (None, None)])
        shapes.append(
            {"name": f"s{number}", "handle": f"h{number}", "state": "ready", "visible": visible, "durable": durable}
        )
    held = chance.choice([*shapes, {"name": "joining", "handle": None}])
    holder = {"name": held["name"], "handle": held["handle"], "seconds": chance.random() * 1e6}
    is_known = chance.random() < 0.8
    return {
        "slot": {"restart_lsn": restart if is_known else None, "wal_end": end if is_known else None},
        "confirmed_flush_lsn": confirmed if is_known else None,
        "global_flushed_lsn": g,
        "seen_lsn": seen,
        "held_by": holder if chance.random() < 0.6 else None,
        "explanation": "because",
        "shapes": shapes,
    }


async def test_no_script_but_its_own_runs(newest_database: Database, tmp_path: Path) -> None:
    async with consoled(newest_database, tmp_path) as console, browsing() as tab:
        await tab.page.goto(console.console)
        await tab.page.evaluate(
            "const one = document.createElement('script'); one.textContent = 'window.ran = 1';"
            "document.body.append(one);"
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 2\">')"
        )
        await eventually(lambda: len(tab.complaints) >= 2, "the browser to refuse both")
        assert await tab.page.evaluate("window.ran") is None
        assert all("Content Security Policy" in one or "404" in one for one in tab.complaints), tab.complaints
