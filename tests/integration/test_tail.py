"""Whoever tails a shape behind what a fold took away begins anew, is told so, and has the table's rows in the end."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from starlette.applications import Starlette

from cdc.admin_client import AdminClient
from cdc.http.admin import Admin
from cdc.http.server import listen, serving, url_of
from cdc.inspect.folder import opened
from cdc.status.change_rates import ChangeRates
from cdc.status.report import StatusDesk
from cdc.status.slot_watch import SlotWatch
from cdc.tail import Moved, Rows, Step, folder_steps, print_steps
from cdc.tail_server import server_steps
from shapes.http.app import ShapeApp
from shapes.http.envelope import Envelope
from shapes.registry import Entry
from shapes.service import ShapeService
from storage.flush_control import FlushOptions
from storage.log_counts import log_bytes, segment_count
from storage.offset import LogOffset
from storage.store import StoreOptions
from storage.store_reader import StoreReader
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.served import serving as serving_process
from tests.served import shapelog, tailing
from tests.waiting import until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 100) g"
BOUND = 40_000
SETTINGS: dict[str, Any] = {
    "store": StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=1)),
    "log_bytes_kept": BOUND,
    "chunk_bytes": 4_000,
}


class Follower:
    """Takes a tail's steps one by one, and applies what they tell."""

    def __init__(self, steps: Iterator[Step]) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.moves: list[str] = []
        self._steps = steps

    async def step(self) -> Step:
        """The next one; it says nothing twice."""
        step = await asyncio.wait_for(asyncio.to_thread(next, self._steps), 40)
        if isinstance(step, Moved):
            self.moves.append(step.handle)
            self.rows = {}
            return step
        for row in map(orjson.loads, step.lines):
            match row["kind"]:
                case "insert":
                    assert row["new"]["id"] not in self.rows, f"{row} is twice"
                    self.rows[row["new"]["id"]] = row["new"]
                case "update":
                    self.rows[row["new"]["id"]] |= row["new"]
                case "delete":
                    del self.rows[row["new"]["id"]]
        return step

    async def until_it_has(self, rows: list[tuple[str | None, ...]]) -> None:
        while sorted((tuple(row.values()) for row in self.rows.values()), key=str) != rows:
            await self.step()


@asynccontextmanager
async def tailed(database: Database, folder: Path, source: str) -> AsyncIterator[tuple[Loop, Entry, Any]]:
    """A loop with one shape, and what makes a tail of it from a position."""
    database.execute(ITEMS, FILL)
    async with looping(database, folder, **SETTINGS) as loop:
        entry = await loop.add("items", "items")
        app = loop.app
        service = ShapeService(app.house, app.nursery)
        desk = StatusDesk(app, service, SlotWatch(database.conninfo(), "shapelog", "tests"), ChangeRates())
        with contextlib.closing(listen("127.0.0.1", 0)) as listener, opened(folder) as disk:
            shapes, url = ShapeApp(service), url_of(listener)
            async with serving(Envelope(shapes.in_front_of(Starlette(routes=Admin(service, desk).routes()))), listener):
                with AdminClient(url, None) as client:
                    yield (
                        loop,
                        entry,
                        lambda after: (
                            server_steps(client, url, None, "items", after)
                            if source == "server"
                            else folder_steps(disk, "items", after)
                        ),
                    )


async def fold(loop: Loop, entry: Entry) -> str:
    """Let the log grow above its bound, and be folded; the new handle."""
    store = loop.app.house.store
    while log_bytes(store, entry.log) <= BOUND or segment_count(store, entry.log) < 4:
        loop.database.execute("UPDATE items SET v = v || '.'")
        await loop.caught_up()
    await loop.app.folding.go_round()
    assert loop.living("items").handle != entry.handle
    return loop.living("items").handle


@pytest.mark.parametrize("source", ["server", "folder"])
@pytest.mark.parametrize("where", ["in the base", "behind it"])
async def test_who_is_behind_a_fold_begins_anew_and_is_told(
    newest_database: Database, tmp_path: Path, source: str, where: str
) -> None:
    async with tailed(newest_database, tmp_path, source) as (loop, entry, tail):
        base = StoreReader(loop.app.house.store).bases(entry.log)[0]
        assert len(base.chunks) > 2
        follower = Follower(tail("-1"))
        first = await follower.step()
        assert isinstance(first, Rows)
        if where == "behind it":
            await follower.until_it_has(loop.table("TABLE items"))
        newest = await fold(loop, entry)
        newest_database.execute("DELETE FROM items WHERE id < 10", "INSERT INTO items VALUES (1000, 'after')")
        await loop.caught_up()
        await follower.until_it_has(loop.table("TABLE items"))
        assert follower.moves == [newest]


@pytest.mark.parametrize("source", ["server", "folder"])
async def test_who_begins_behind_a_fold_is_told_that_rows_come_from_the_start(
    newest_database: Database, tmp_path: Path, source: str
) -> None:
    async with tailed(newest_database, tmp_path, source) as (loop, entry, tail):
        newest_database.execute("UPDATE items SET v = 'first' WHERE id = 1")
        await loop.caught_up()
        early = StoreReader(loop.app.house.store).read(entry.log, LogOffset.parse("0_inf")).next
        newest = await fold(loop, entry)
        follower = Follower(tail(str(early)))
        assert await follower.step() == Moved(newest)
        await follower.until_it_has(loop.table("TABLE items"))
        assert follower.moves == [newest]


def test_what_begins_anew_is_said_beside_the_rows() -> None:
    out, notes = io.StringIO(), io.StringIO()
    row = '{"offset":"0_0","kind":"insert","new":{"id":"1"}}'
    print_steps(iter([Moved("items-2"), Rows([row])]), out, notes, as_json=True)
    assert (out.getvalue(), "begins anew as items-2" in notes.getvalue()) == (f"{row}\n", True)


ODD = (
    """CREATE TABLE "odd.Name" (id int PRIMARY KEY, "a, b" text, big int[])""",
    """INSERT INTO "odd.Name" SELECT g, 'v' || g, ARRAY[g] FROM generate_series(1, 3) g""",
    """ALTER TABLE "odd.Name" REPLICA IDENTITY FULL""",
)
SECRET = "süß"  # noqa: S105 - of a server that lives for seconds


def test_a_tail_of_a_server_tells_what_its_folder_has_over_a_restart_until_the_shape_is_removed(
    newest_database: Database, tmp_path: Path
) -> None:
    """By a secret that is not ASCII, of a table and columns that have to be quoted, with a condition, in full."""
    newest_database.execute(*ODD)
    options = ("--secret", SECRET)
    with serving_process(newest_database, tmp_path, *options) as served:
        served.active()
        asked = {"SHAPELOG_URL": served.url, "SHAPELOG_SECRET": SECRET}
        definition = ("--where", "id > 1", "--columns", 'id,"a, b",big', "--replica", "full")
        added = shapelog("shapes", "add", '"odd.Name"', "--name", "odd", *definition, **asked)
        assert added.returncode == 0, added.stderr
        port = str(urlsplit(served.url).port)
        follow = ("odd", "--after", "-1", "--json")
        with (
            tailing(*follow, "--url", served.url, *options) as (lines, notes),
            tailing(*follow, "--data-dir", str(tmp_path)) as (stored, _),
        ):
            until(lambda: len(lines) == 2, f"the base: {lines} {notes}")
            newest_database.execute("""UPDATE "odd.Name" SET "a, b" = NULL WHERE id = 2""")
            until(lambda: len(lines) == 3, f"the update: {lines} {notes}")
            assert served.stop() == 0
            with serving_process(newest_database, tmp_path, *options, "--port", port) as again:
                newest_database.execute("""UPDATE "odd.Name" SET id = 7 WHERE id = 3""")
                until(lambda: len(lines) == 5, f"what came after the restart: {lines} {notes}")
                until(lambda: len(stored) == 5, f"the same in the folder: {stored}")
                assert [told(line) for line in lines] == [told(line) for line in stored]
                again.active()
                assert shapelog("shapes", "remove", "odd", **asked).returncode == 0
                until(lambda: any("no shape has this name" in note for note in notes), f"the end to be told: {notes}")
                shapes = again.get("/v1/admin/shapes", params={"secret": SECRET}).json()["shapes"]
                assert shapes == [], "nothing was made anew by being asked for"


def told(line: str) -> dict[str, Any]:
    """Of a row, what the protocol tells too: of what was before, only what differs from what is."""
    row: dict[str, Any] = orjson.loads(line)
    new, old = row["new"], row.pop("old", None)
    if old is not None and row["kind"] == "update":
        row["old"] = {name: value for name, value in old.items() if new.get(name) != value}
    return row


def test_a_wrong_secret_and_a_name_that_nobody_has_are_told(newest_database: Database, tmp_path: Path) -> None:
    with serving_process(newest_database, tmp_path, "--secret", SECRET) as served:
        refused = shapelog("tail", "items", "--url", served.url, "--secret", "wrong")
        assert (refused.returncode, "wants its secret" in refused.stderr) == (2, True), refused.stderr
        unknown = shapelog("tail", "items", "--url", served.url, "--secret", SECRET)
        assert (unknown.returncode, "no shape has this name" in unknown.stderr) == (2, True), unknown.stderr
