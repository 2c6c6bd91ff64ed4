"""The React hook in a page of a real Chromium, from another origin than the server: rows appear, and go.

The component is that of docs/http.md.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.async_api import expect

from shapes.http.settings import HttpSettings
from tests.browser.chromium import browsing
from tests.examples import written
from tests.npm_package import SOURCES, bundled, npm_package
from tests.postgres import Database
from tests.shape_server import serving_shapes

PAGE = """<!doctype html>
<title>Items</title>
<link rel="icon" href="data:,">
<div id="root"></div>
<script type="module" src="page.js"></script>
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """The files of a folder, over HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def test_a_row_appears(newest_database: Database, tmp_path: Path) -> None:
    npm_package()
    newest_database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'one')")
    async with serving_shapes(newest_database, tmp_path / "data", HttpSettings(long_poll_seconds=2.0)) as server:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "index.html").write_text(PAGE)
        written("docs/http.md", "items.tsx", folder, server.url)
        entry = folder / "page.jsx"
        entry.write_text((SOURCES / "page.jsx").read_text())
        bundled(entry, folder / "page.js", "--format=esm", "--define:process.env.NODE_ENV='production'")
        with site(folder) as address:
            async with browsing() as tab:
                await tab.page.goto(address)
                items = tab.page.locator("li")
                await expect(items).to_have_text(["one"])
                newest_database.execute("INSERT INTO items VALUES (2, 'two')")
                await expect(items).to_have_text(["one", "two"])
                newest_database.execute("UPDATE items SET name = 'new' WHERE id = 1")
                await expect(items).to_have_text(["new", "two"])
                newest_database.execute("TRUNCATE items")
                await expect(items).to_have_count(0)
                newest_database.execute("INSERT INTO items VALUES (3, 'again')")
                await expect(items).to_have_text(["again"])
                refetches = [one for one in tab.complaints if "409" in one]
                assert tab.complaints == refetches  # a browser tells of each 409; of nothing else
