"""A real Chromium without a screen, driven by playwright, and what it complained about.

The machine's own: `apt install chromium` on Debian. Where there is none the tests are skipped; with `CI=true` they
fail.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Page, async_playwright, expect

expect.set_options(timeout=15_000)  # milliseconds: on a busy machine a page waits for its turn
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "there is no Chromium here: apt install chromium"

WIDE = (1280, 900)
PHONE = (390, 844)


def find_chromium() -> str | None:
    """Where its program is."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


@dataclass
class Tab:
    """A page, and every complaint of the browser since it was opened."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@asynccontextmanager
async def browsing(size: tuple[int, int] = WIDE, scheme: str = "light") -> AsyncIterator[Tab]:
    """A tab of a browser that nobody used before."""
    program = find_chromium()
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox"] if os.geteuid() == 0 else [],  # its sandbox refuses root
        )
        try:
            context = await browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            context.set_default_timeout(15_000)
            tab = Tab(await context.new_page())
            tab.page.on("console", lambda said: tab.complaints.append(said.text) if said.type == "error" else None)
            tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
            yield tab
        finally:
            await browser.close()
