"""The npm clients, as they are published, beside a real server: all that the protocol has, and all that happens."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shapes.http.settings import HttpSettings
from tests.nginx import free_port
from tests.npm_package import NpmClient, npm_client
from tests.postgres import Database
from tests.served import serving
from tests.shape_server import SHAPE, ShapeServer, serving_shapes
from tests.waiting import eventually

QUICK = HttpSettings(allow_delete=True, long_poll_seconds=2.0)
ITEMS = 'CREATE TABLE "My Items" (id int PRIMARY KEY, v varchar(9), part int8 NOT NULL, "a B" bool)'
FILL = """INSERT INTO "My Items" SELECT g, 'v' || g, g % 10, g % 2 = 0 FROM generate_series(1, 2000) g"""
TABLE = '"My Items"'
SIMPLE = "CREATE TABLE items (id int PRIMARY KEY, v text)"
IMPATIENT = {"initialDelay": 100, "maxDelay": 1000, "multiplier": 2}
MODES = pytest.mark.parametrize("mode", ["poll", "sse"])


def following(server: ShapeServer, mode: str = "poll", table: str = TABLE, **more: Any) -> Any:
    params = {"table": table, **more.pop("params", {})}
    return npm_client("follow.mjs", url=server.url + SHAPE, params=params, liveSse=mode == "sse", **more)


def rows_of(database: Database) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in database.execute("SELECT id, v FROM items"))


@MODES
async def test_a_table_is_followed_through_all_that_happens_to_it(
    newest_database: Database, tmp_path: Path, mode: str
) -> None:
    database = newest_database
    database.execute(ITEMS, FILL)

    def expected() -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in database.execute('SELECT id, v, "a B" FROM "My Items"'))

    async with (
        serving_shapes(database, tmp_path, QUICK, chunk_bytes=20_000) as server,
        following(server, mode) as client,
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


@MODES
async def test_a_part_of_a_table_with_whole_rows(newest_database: Database, tmp_path: Path, mode: str) -> None:
    newest_database.execute(ITEMS, FILL)
    params = {"where": "part = $1", "params": {"1": "3"}, "columns": ["id", "part", "v"], "replica": "full"}
    async with (
        serving_shapes(newest_database, tmp_path, QUICK) as server,
        following(server, mode, params=params) as client,
    ):
        await eventually(lambda: len(client.rows or ()) == 200, "the part")
        newest_database.execute(
            'UPDATE "My Items" SET part = 3 WHERE id IN (1, 5)', "UPDATE \"My Items\" SET v = 'new' WHERE id = 13"
        )
        await eventually(lambda: (13, "new") in client.table("id", "v"), "an update")
        assert len(client.rows or ()) == 202
        assert set((client.rows or [{}])[0]) == {"id", "part", "v"}
        [update] = [one for one in client.messages if one["headers"].get("operation") == "update"]
        assert (update["value"], update["old_value"]) == ({"id": 13, "part": "3", "v": "new"}, {"v": "v13"})


async def test_values_have_their_types(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'so so')",
        """CREATE TABLE items (id int8 PRIMARY KEY, b bool, f float8, n numeric(9, 2), j jsonb, a int4[], t text[][],
           m mood, at timestamptz, u uuid, x bytea, nothing int)""",
    )
    values = """true, 1.5, 2.50, '{"a": [1, null]}', '{1,NULL}', '{{a,"b c"},{NULL,"\\"}"}}', 'so so',
                '2025-01-02 03:04:05Z', '00000000-0000-0000-0000-000000000001', '\\x00ff', NULL"""
    expected = {"b": True, "f": 1.5, "n": "2.50", "j": {"a": [1, None]}, "a": [1, None], "m": "so so", "nothing": None}
    expected |= {"t": [["a", "b c"], [None, '"}']], "at": "2025-01-02 03:04:05+00", "x": "\\x00ff"}
    expected |= {"u": "00000000-0000-0000-0000-000000000001"}
    newest_database.execute(f"INSERT INTO items VALUES (9007199254740993, {values})")  # noqa: S608 - ours
    async with (
        serving_shapes(newest_database, tmp_path, QUICK) as server,
        following(server, table="items") as client,
    ):
        await eventually(lambda: client.rows, "the base")
        newest_database.execute(f"INSERT INTO items VALUES (2, {values})")  # noqa: S608 - ours
        await eventually(lambda: len(client.rows or ()) == 2, "the same row out of the stream")
        assert client.rows == [{"id": "9007199254740993", **expected}, {"id": "2", **expected}]


@MODES
async def test_from_now_on(newest_database: Database, tmp_path: Path, mode: str) -> None:
    newest_database.execute(SIMPLE, "INSERT INTO items VALUES (1, 'before')")
    async with (
        serving_shapes(newest_database, tmp_path, QUICK) as server,
        following(server, mode, "items", offset="now") as client,
    ):
        await eventually(lambda: any("control" in one["headers"] for one in client.messages), "the client to be there")
        newest_database.execute("INSERT INTO items VALUES (2, 'after')")
        await eventually(lambda: client.table("id", "v") == [(2, "after")], "the row that is new, and no other")


@MODES
async def test_some_rows_are_asked_for_and_then_followed(newest_database: Database, tmp_path: Path, mode: str) -> None:
    newest_database.execute(SIMPLE, "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 30) g")
    async with (
        serving_shapes(newest_database, tmp_path, QUICK) as server,
        following(server, mode, "items", log="changes_only") as client,
    ):
        await eventually(lambda: any("control" in one["headers"] for one in client.messages), "the client to be there")
        client.tell(snapshot={"where": "id < $1", "params": {"1": "9"}, "orderBy": "id DESC", "limit": 2})
        await eventually(lambda: client.table("id") == [(7,), (8,)], "two rows")
        newest_database.execute("UPDATE items SET v = 'new' WHERE id IN (7, 20)", "INSERT INTO items VALUES (40, 'x')")
        await eventually(lambda: client.table("id", "v") == [(7, "new"), (8, "v8"), (40, "x")], "what is followed")
        client.tell(snapshot={"where": "id = 20", "method": "POST"})
        await eventually(lambda: (20, "new") in client.table("id", "v"), "one row more")
        newest_database.execute("DELETE FROM items WHERE id IN (8, 20)")
        await eventually(lambda: client.table("id") == [(7,), (40,)], "rows to go")


@MODES
async def test_who_leaves_is_held_no_longer(newest_database: Database, tmp_path: Path, mode: str) -> None:
    newest_database.execute(SIMPLE)
    patient = HttpSettings(long_poll_seconds=60.0, sse_seconds=60.0)
    async with (
        serving_shapes(newest_database, tmp_path, patient) as server,
        following(server, mode, "items") as client,
    ):
        await eventually(lambda: server.app.held == 1, "the client to be held")
        client.tell(abort=True)
        await eventually(lambda: client.told == [{"has_left": True}], "the client to leave")
        await eventually(lambda: server.app.held == 0, "the server to let it go")


class Writer(threading.Thread):
    """Small transactions, until it is stopped."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.written = 0
        self._is_over = threading.Event()
        self._database = database

    def run(self) -> None:
        with psycopg.connect(self._database.conninfo(), autocommit=True) as connection:
            while not self._is_over.wait(0.005):
                self.written += 1
                with connection.transaction():
                    connection.execute("INSERT INTO items VALUES (%s, 'new')", [self.written])
                    connection.execute("UPDATE items SET v = v || '+' WHERE id > %s", [self.written - 3])
                    connection.execute("DELETE FROM items WHERE id = %s", [self.written - 50])

    def stop(self) -> None:
        self._is_over.set()
        self.join()


async def test_a_server_is_killed_in_mid_stream(newest_database: Database, tmp_path: Path) -> None:
    database, port = newest_database, free_port()
    database.execute(SIMPLE)
    url, writer = f"http://127.0.0.1:{port}{SHAPE}", Writer(database)
    # Its own pauses grow to half a minute: they would be all that is measured here.
    options = {"url": url, "params": {"table": "items"}, "backoffOptions": IMPATIENT}

    async def has_come(clients: list[NpmClient], count: int) -> None:
        await eventually(lambda: all(len(one.places()) > count for one in clients), f"{count} changes", 40)

    with serving(database, tmp_path / "data", "--port", str(port)) as first:
        await asyncio.to_thread(first.active)
        writer.start()
        try:
            async with (
                npm_client("follow.mjs", **options) as poll,
                npm_client("follow.mjs", **options, liveSse=True) as sse,
            ):
                clients = [poll, sse]
                await has_come(clients, 100)
                first.process.kill()
                first.process.wait()
                with serving(database, tmp_path / "data", "--port", str(port)) as second:
                    await has_come(clients, max(len(one.places()) for one in clients) + 100)
                    writer.stop()
                    for client in clients:
                        await eventually(lambda: client.table("id", "v") == rows_of(database), "the rows", 40)  # noqa: B023
                        assert len(set(client.places())) == len(client.places()), "a change came twice"
                        assert not any("must-refetch" in one["headers"].values() for one in client.messages)
                    assert second.stop() == 0
        finally:
            writer.stop()


async def test_a_collection_shows_a_write_at_once_and_keeps_it_when_it_comes_back(
    newest_database: Database, tmp_path: Path
) -> None:
    newest_database.execute(SIMPLE, "INSERT INTO items VALUES (1, 'there')")
    async with (
        serving_shapes(newest_database, tmp_path, QUICK) as server,
        npm_client("collection.mjs", url=server.url + SHAPE, params={"table": "items"}) as client,
    ):
        await eventually(lambda: client.table("id", "v") == [(1, "there")], "the base")
        client.tell(id=2, v="mine")
        await eventually(lambda: client.told == [{"write": {"id": 2, "v": "mine"}}], "it to be asked to be written")
        await eventually(lambda: (2, "mine") in client.table("id", "v"), "it to be shown")
        with newest_database.connect() as connection, connection.transaction():
            connection.execute("INSERT INTO items VALUES (2, 'kept')")
            row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
        assert row is not None
        client.tell(txid=int(row[0]) % 2**32)
        await eventually(lambda: {"kept": 2} in client.told, "the transaction to come back")
        await eventually(lambda: client.table("id", "v") == [(1, "there"), (2, "kept")], "the row as it was written")
