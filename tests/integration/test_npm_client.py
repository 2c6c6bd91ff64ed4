"""The npm client `@electric-sql/client`, as it is published, beside a real server.

It is installed once, into `build/npm`; where there is no Node or no registry, the tests are skipped, in continuous
integration they fail.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from shapes.http.settings import HttpSettings
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes
from tests.tree import ROOT
from tests.waiting import eventually

SOURCES = ROOT / "tests" / "npm"
INSTALLED = ROOT / "build" / "npm"
MISSING = "there is no Node, or no registry of packages"
LINE_BYTES_MAX = 2**24
QUICK = HttpSettings(allow_delete=True, long_poll_seconds=2.0)
ITEMS = 'CREATE TABLE "My Items" (id int PRIMARY KEY, v varchar(9), part int8 NOT NULL, "a B" bool)'
FILL = """INSERT INTO "My Items" SELECT g, 'v' || g, g % 10, g % 2 = 0 FROM generate_series(1, 2000) g"""
TABLE = '"My Items"'


@pytest.fixture(scope="module")
def package() -> Path:
    """The folder with the client."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        INSTALLED.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "follow.mjs"):
            shutil.copy(SOURCES / name, INSTALLED)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run(command, cwd=INSTALLED, capture_output=True, timeout=90, check=False).returncode == 0:
                return INSTALLED
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@dataclass
class NpmClient:
    """A process that follows a table."""

    rows: list[dict[str, Any]] | None = None
    errors: list[str] = field(default_factory=list)

    async def listen(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            told = orjson.loads(line)
            self.rows = told.get("rows", self.rows)
            self.errors += [told["error"]] if "error" in told else []

    def table(self, *names: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.get(name) for name in names) for row in self.rows or ())


@asynccontextmanager
async def following(package: Path, server: ShapeServer, mode: str, **params: Any) -> AsyncIterator[NpmClient]:
    asked = orjson.dumps({"table": TABLE, **params}).decode()
    process = await asyncio.create_subprocess_exec(
        "node",
        "follow.mjs",
        server.url + SHAPE,
        asked,
        mode,
        cwd=package,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    client = NpmClient()
    assert process.stdout is not None
    listening = asyncio.create_task(client.listen(process.stdout))
    try:
        yield client
        assert client.errors == []
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


@pytest.mark.parametrize("mode", ["poll", "sse"])
async def test_a_table_is_followed_through_all_that_happens_to_it(
    package: Path, newest_database: Database, tmp_path: Path, mode: str
) -> None:
    database = newest_database
    database.execute(ITEMS, FILL)

    def expected() -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in database.execute('SELECT id, v, "a B" FROM "My Items"'))

    async with (
        serving_shapes(database, tmp_path, QUICK, chunk_bytes=20_000) as server,
        following(package, server, mode) as client,
    ):
        for changes in (
            ["SELECT"],
            ["INSERT INTO \"My Items\" VALUES (3000, 'x', 9007199254740993, NULL)"],
            ['DELETE FROM "My Items" WHERE id <= 1000', 'UPDATE "My Items" SET id = id + 10000 WHERE id < 1100'],
            ['TRUNCATE "My Items"', "INSERT INTO \"My Items\" VALUES (7, 'after', 3, true)"],
            ['ALTER TABLE "My Items" ADD COLUMN more int', "INSERT INTO \"My Items\" VALUES (8, 'ddl', 3, false, 4)"],
        ):
            database.execute(*changes)
            await eventually(lambda: client.table("id", "v", "a B") == expected(), f"{changes} to arrive")
        handle = server.living.app.house.registry.living()[0].handle
        assert (await server.http.delete(SHAPE, params={"handle": handle})).status_code == 202
        database.execute("INSERT INTO \"My Items\" VALUES (9, 'again', 3, false, 4)")
        await eventually(lambda: client.table("id", "v", "a B") == expected(), "the rows after a deletion")


async def test_a_part_of_a_table_with_whole_rows(package: Path, newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with (
        serving_shapes(newest_database, tmp_path, QUICK) as server,
        following(
            package, server, "poll", where="part = $1", params={"1": "3"}, columns=["id", "part"], replica="full"
        ) as client,
    ):
        await eventually(lambda: len(client.rows or ()) == 200, "the part")
        newest_database.execute('UPDATE "My Items" SET part = 3 WHERE id IN (1, 3)')
        await eventually(lambda: len(client.rows or ()) == 201, "a row that comes in")
        assert set((client.rows or [{}])[0]) == {"id", "part"}
