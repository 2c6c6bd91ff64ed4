"""The examples of docs/http.md, each as a person would run it, beside a real server."""

import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pglast
import pytest

from shapes.client import Shape, ShapeStream
from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from tests.examples import examples, written
from tests.npm_package import bundled, npm_package
from tests.postgres import Database
from tests.shape_server import SHAPE, serving_shapes
from tests.tree import ROOT
from tests.waiting import eventually

DOCUMENT = "docs/http.md"
QUICK = HttpSettings(long_poll_seconds=1.0)
ELSEWHERE = {"items.tsx"}  # in a browser: tests/browser/test_react.py


def by_shell(path: Path) -> list[str]:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here: apt install curl")
    return ["sh", "-eu", str(path)]


def by_node(path: Path) -> list[str]:
    npm_package()
    return ["node", str(bundled(path, path.with_suffix(".mjs"), "--platform=node", "--format=esm"))]


def by_python(path: Path) -> list[str]:
    return [sys.executable, "-u", str(path)]


RUNNERS: dict[str, Callable[[Path], list[str]]] = {".sh": by_shell, ".ts": by_node, ".py": by_python}


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[list[str]]:
    """The lines that an example prints, which grow, in a folder of its own."""
    lines: list[str] = []
    process = await asyncio.create_subprocess_exec(
        *RUNNERS[path.suffix](path),
        cwd=path.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )

    async def read() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            lines.append(line.decode().rstrip())

    reading = asyncio.create_task(read())
    try:
        yield lines
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 9)  # a shell's curl too
        await process.wait()
        await reading


def made(database: Database) -> None:
    """The table of the document."""
    text = (ROOT / DOCUMENT).read_text("utf-8")
    statements = pglast.split(text.partition("```sql\n")[2].partition("```")[0])
    database.execute(*statements)


def has_saved(folder: Path) -> bool:
    """A place in the log, and not the end of the rows that were there."""
    offset: str = orjson.loads((folder / "position.json").read_bytes())["offset"]
    return not offset.startswith("0_")


@pytest.mark.parametrize("name", ["follow.sh", "follow.ts", "follow.py", "go_on.py"])
async def test_a_row_appears(newest_database: Database, tmp_path: Path, name: str) -> None:
    made(newest_database)
    async with serving_shapes(newest_database, tmp_path / "data", QUICK) as server:
        path = written(DOCUMENT, name, tmp_path, server.url)
        async with running(path) as lines:
            await eventually(lambda: any("one" in line for line in lines), f"the row that is there: {lines}")
            newest_database.execute("INSERT INTO items VALUES (2, 'two')")
            await eventually(lambda: any("two" in line for line in lines), f"the row that is new: {lines}")
            await eventually(lambda: name != "go_on.py" or has_saved(tmp_path), "it to save where it is")
        if name == "go_on.py":
            newest_database.execute("UPDATE items SET name = 'three' WHERE id = 1")
            async with running(path) as lines:
                await eventually(lambda: lines, "what came meanwhile")
                assert lines == ["update {'id': 1, 'name': 'three'}"]


async def test_a_table_for_data_frames(newest_database: Database, tmp_path: Path) -> None:
    made(newest_database)
    async with (
        serving_shapes(newest_database, tmp_path / "data", QUICK) as server,
        running(written(DOCUMENT, "frame.py", tmp_path, server.url)) as lines,
    ):
        await eventually(lambda: lines, "its line")
    assert lines == ["['id', 'name'] 1"]


async def test_events_by_hand(newest_database: Database, tmp_path: Path) -> None:
    made(newest_database)
    async with serving_shapes(newest_database, tmp_path / "data", QUICK) as server:
        reader = server.reader("items")
        await reader.catch_up()
        path = written(DOCUMENT, "events.sh", tmp_path, server.url)
        text = path.read_text()
        assert text.count("OFFSET") == text.count("HANDLE") == 1
        path.write_text(text.replace("OFFSET", reader.offset).replace("HANDLE", reader.handle or ""))
        async with running(path) as lines:
            await eventually(lambda: server.app.held == 1, "the stream to be open")
            newest_database.execute("INSERT INTO items VALUES (2, 'two')")
            await eventually(lambda: any("two" in line for line in lines), "an event")
            assert lines[0].startswith("data: {")


async def test_a_token_opens_its_shape(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(
        "CREATE TABLE todos (id int PRIMARY KEY, owner int)", "INSERT INTO todos VALUES (1, 17), (2, 18)"
    )
    secret = secrets.token_hex(32)
    found: dict[str, Any] = {"signing_secret": secret}
    exec(compile(examples(DOCUMENT)["token.py"], "token.py", "exec"), found)  # noqa: S102 - it is ours
    tokens = ShapeTokens(secret)
    async with serving_shapes(newest_database, tmp_path / "data", QUICK, "for others", tokens) as server:
        shape = Shape(ShapeStream(server.url + SHAPE, token=found["token"]))
        await shape.catch_up_async()
        await shape.aclose()
    assert shape.rows == [{"id": 1, "owner": 17}]


def test_no_example_is_left_out() -> None:
    run = {"follow.sh", "events.sh", "follow.ts", "follow.py", "go_on.py", "frame.py", "token.py"}
    assert run | ELSEWHERE == set(examples(DOCUMENT))
