"""The shape protocol beside a real Postgres: what the protocol promises, request by request.

Where Postgres itself answers or refuses, and where rows come whole, each version is asked; the rest is our own words.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from cdc.source.errors import NotPublished
from shapes.http.settings import HttpSettings
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v varchar(8), part int NOT NULL)"
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 10 FROM generate_series(1, 20) g"
QUICK = HttpSettings(allow_delete=True, long_poll_seconds=1.0, sse_seconds=3.0)


async def test_a_shape_from_its_first_chunk_to_live_changes(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    async with serving_shapes(database, tmp_path, QUICK) as server:
        first = await server.http.get(SHAPE, params={"table": "items", "offset": "-1"})
        assert first.status_code == 200
        assert first.headers["electric-offset"] == "0_0"
        assert "electric-up-to-date" not in first.headers
        assert first.headers["electric-has-data"] == "true"
        assert first.headers["cache-control"].startswith("public, max-age=604800")
        assert orjson.loads(first.headers["electric-schema"]) == {
            "id": {"type": "int4", "pk_index": 0, "not_null": True},
            "v": {"type": "varchar", "max_length": 8},
            "part": {"type": "int4", "not_null": True},
        }
        handle = first.headers["electric-handle"]
        assert first.headers["etag"] == f'"{handle}:-1:0_0"'
        body = first.json()
        assert body[0] == {
            "key": '"public"."items"/"1"',
            "value": {"id": "1", "v": "v1", "part": "1"},
            "headers": {"operation": "insert", "relation": ["public", "items"]},
        }
        assert body[-1]["headers"]["control"] == "snapshot-end"
        assert len(body) == 21
        same = {"table": "items", "handle": handle}
        second = await server.http.get(SHAPE, params={**same, "offset": "0_0"})
        assert second.headers["electric-offset"] == "0_inf"
        assert second.headers["electric-up-to-date"] == ""
        assert [one["headers"]["control"] for one in second.json()] == ["up-to-date"]
        assert second.headers["cache-control"] == "public, max-age=60, stale-while-revalidate=300"

        live = asyncio.create_task(server.http.get(SHAPE, params={**same, "offset": "0_inf", "live": ""}))
        await asyncio.sleep(0)
        database.execute("UPDATE items SET part = 77 WHERE id = 3")
        third = await live
        assert third.headers["electric-up-to-date"] == ""
        assert "electric-schema" not in third.headers
        assert int(third.headers["electric-cursor"]) >= 0
        assert third.headers["cache-control"] == "public, max-age=5, stale-while-revalidate=5"
        change, end = third.json()
        assert change["value"] == {"id": "3", "part": "77"}
        assert change["headers"]["last"] is True
        tx = int(change["headers"]["lsn"])
        assert third.headers["electric-offset"] == f"{tx}_{change['headers']['op_position']}"
        assert end == {"headers": {"control": "up-to-date", "global_last_seen_lsn": str(tx)}}
        offset = third.headers["electric-offset"]
        silent = await server.http.get(SHAPE, params={**same, "offset": offset, "live": "true"})
        assert silent.headers["electric-has-data"] == "false"
        assert silent.headers["electric-offset"] == offset
        assert silent.headers["etag"].count(":") == 3


async def test_now_has_no_rows_and_goes_on(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        now = await server.http.get(SHAPE, params={"table": "items", "offset": "now"})
        assert now.headers["electric-offset"] == "0_inf"
        assert now.headers["electric-has-data"] == "false"
        assert now.headers["electric-up-to-date"] == ""
        assert [one["headers"]["control"] for one in now.json()] == ["up-to-date"]
        reader = server.reader("items")
        reader.offset, reader.handle = now.headers["electric-offset"], now.headers["electric-handle"]
        newest_database.execute("INSERT INTO items VALUES (100, 'x', 1)")
        await reader.step(live="true")
        assert list(reader.rows) == ['"public"."items"/"100"']


async def test_a_handle_that_is_not_the_shapes_gets_the_right_one(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        other = await server.http.get(SHAPE, params={"table": "items", "offset": "0_0", "handle": "123-4"})
        assert other.status_code == 409
        assert other.json() == [{"headers": {"control": "must-refetch"}}]
        assert other.headers["cache-control"] == "public, max-age=60, must-revalidate"
        first = await server.http.get(SHAPE, params={"table": "items", "offset": "-1", "handle": "123-4"})
        assert first.headers["electric-handle"] == other.headers["electric-handle"]


async def test_a_tag_that_is_known_is_confirmed(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        params = {"table": "items", "offset": "-1"}
        first = await server.http.get(SHAPE, params=params)
        again = await server.http.get(SHAPE, params=params, headers={"if-none-match": f'"x", {first.headers["etag"]}'})
        assert again.status_code == 304
        assert again.content == b""
        assert again.headers["electric-handle"] == first.headers["electric-handle"]
        head = await server.http.head(SHAPE, params=params)
        assert head.status_code == 200
        assert head.content == b""
        assert head.headers["content-length"] == first.headers["content-length"]


async def test_changes_come_over_restarts_chunks_and_keys(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    reader = None
    for _ in range(3):
        async with serving_shapes(database, tmp_path, QUICK, chunk_bytes=500) as server:
            reader = reader or server.reader("items")
            reader.http = server.http
            await reader.catch_up()
            database.execute(
                "UPDATE items SET part = part + 1 WHERE id <= 7",
                "UPDATE items SET id = id + 1000 WHERE id % 3 = 0 AND id < 1000",
                "DELETE FROM items WHERE id = (SELECT min(id) FROM items)",
                "INSERT INTO items SELECT max(id) + 2000, NULL, 0 FROM items",
            )
            await server.living.caught_up()
            await reader.catch_up()
            assert await table_of(database) == values(reader.rows)
    assert reader is not None
    pairs = [one["headers"] for one in reader.messages if "key_change_to" in one["headers"]]
    assert len(pairs) == len([one for one in reader.messages if "key_change_from" in one["headers"]]) > 0


async def test_changes_name_their_transaction(newest_database: Database, tmp_path: Path) -> None:
    """A client that wrote something waits for its own xid: it must be there, also after a crash of ours."""
    newest_database.execute(ITEMS, FILL)
    reader, own = None, []
    for replica in ("default", "full", "full"):
        async with serving_shapes(newest_database, tmp_path, QUICK) as server:
            reader = server.reader("items", replica=replica, columns="id,v")
            await reader.catch_up()
            with newest_database.connect() as writer, writer.transaction():
                own += [writer.execute("SELECT pg_current_xact_id()::text").fetchone()]
                writer.execute("UPDATE items SET v = v || '.' WHERE id < 4")
                writer.execute("INSERT INTO items SELECT max(id) + 1, 'new', 0 FROM items")
                writer.execute("UPDATE items SET id = id + 1000 WHERE id = (SELECT max(id) FROM items)")
                writer.execute("DELETE FROM items WHERE id = (SELECT max(id) FROM items)")
            await server.living.caught_up()
            await reader.catch_up()
    assert reader is not None
    told = [one["headers"]["txids"] for one in reader.messages if "lsn" in one["headers"]]
    wanted = [[int(row[0]) % 2**32] for row in own[1:] if row is not None]
    assert told == [xid for xid in wanted for _ in range(7)]


async def test_a_table_that_we_may_not_publish_is_a_400_with_the_statements(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL, "CREATE TABLE other (id int PRIMARY KEY)")
    async with serving_shapes(database, tmp_path, QUICK) as server:
        await server.reader("other").catch_up()
    async with serving_shapes(database, tmp_path, QUICK, mode="manual") as server:
        await server.reader("other").catch_up()
        refused = await server.http.get(SHAPE, params={"table": "items", "offset": "-1"})
        assert refused.status_code == 400
        (text, hint) = refused.json()["errors"]["table"]
        assert hint == NotPublished.hint
        database.execute(*(line for line in text.split("\n") if line.endswith(";")))
        await server.reader("items").catch_up()


class Restricted(Database):
    """A database as a role of its own sees it, which has few rights."""

    @property
    def role(self) -> str:
        return f"reader_{self.name}"

    def conninfo(self, **more: Any) -> str:
        return super().conninfo(**{"user": self.role, **more})


async def test_a_table_that_we_may_not_read_is_a_400(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL, "CREATE TABLE other (id int PRIMARY KEY)")
    async with serving_shapes(database, tmp_path, QUICK) as server:
        await server.reader("other").catch_up()
    restricted = Restricted(database.server, database.name)
    role = restricted.role
    with database.connect() as admin:
        admin.execute("ALTER PUBLICATION shapelog ADD TABLE items")
        admin.execute("ALTER TABLE items REPLICA IDENTITY FULL")
        admin.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        admin.execute(f"GRANT SELECT ON other, items TO {role}".encode())
        try:
            async with serving_shapes(restricted, tmp_path, QUICK, mode="manual") as server:
                await server.reader("other").catch_up()
                admin.execute(f"REVOKE SELECT ON items FROM {role}".encode())  # noqa: S608 - no query, and our own role
                refused = await server.http.get(SHAPE, params={"table": "items", "offset": "-1"})
                assert refused.status_code == 400, refused.text
                assert "GRANT SELECT ON" in refused.text
                admin.execute(f"GRANT SELECT ON items TO {role}".encode())
                await server.reader("items").catch_up()
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


async def test_a_truncate_is_a_409_to_an_empty_shape(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        reader = server.reader("items")
        await reader.catch_up()
        held = asyncio.create_task(reader.step(live="true"))
        newest_database.execute("TRUNCATE items", "INSERT INTO items VALUES (7, 'after', 3)")
        await held
        await reader.catch_up()
        await server.living.caught_up()
        await reader.catch_up()
        assert reader.refetches == 1
        assert await table_of(newest_database) == values(reader.rows)


async def test_an_altered_table_is_a_409(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        reader = server.reader("items")
        await reader.catch_up()
        newest_database.execute("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items VALUES (1001, 'x', 3, 4)")
        await server.living.caught_up()
        await reader.catch_up()
        assert reader.refetches == 1
        assert reader.rows['"public"."items"/"1001"']["more"] == "4"


async def test_deleting_wakes_who_is_held(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    settings = HttpSettings(allow_delete=True, long_poll_seconds=20)
    async with serving_shapes(newest_database, tmp_path, settings) as server:
        reader = server.reader("items")
        await reader.catch_up()
        held = asyncio.create_task(reader.ask(live="true"))
        await eventually(lambda: server.app.held, "a request to be held")
        gone = await server.http.delete(SHAPE, params={"table": "items", "handle": reader.handle or ""})
        assert (gone.status_code, gone.content) == (202, b"")
        async with asyncio.timeout(5):
            assert (await held).status_code == 409
        nothing = await server.http.delete(SHAPE, params={"handle": reader.handle or ""})
        assert (nothing.status_code, nothing.json()) == (404, {"message": "No existing shape found"})


async def test_deleting_is_for_those_who_may(newest_database: Database, tmp_path: Path) -> None:
    async with serving_shapes(newest_database, tmp_path, HttpSettings()) as server:
        refused = await server.http.delete(SHAPE, params={"handle": "1-2"})
        assert (refused.status_code, refused.json()) == (405, {"message": "DELETE not allowed"})


async def test_full_rows_come_with_what_changed(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    async with serving_shapes(database, tmp_path, QUICK) as server:
        reader = server.reader("items", replica="full", where="part < $1", **{"params[1]": "5"})
        await reader.catch_up()
        database.execute("UPDATE items SET v = NULL WHERE id = 1", "DELETE FROM items WHERE id = 2")
        await server.living.caught_up()
        await reader.catch_up()
        update, delete = [one for one in reader.messages if "lsn" in one["headers"]]
        assert update["value"] == {"id": "1", "v": None, "part": "1"}
        assert update["old_value"] == {"v": "v1"}
        assert delete["value"] == {"id": "2", "v": "v2", "part": "2"}


async def test_changes_only_begins_with_nothing(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        reader = server.reader("items", log="changes_only")
        await reader.catch_up()
        assert [one["headers"]["control"] for one in reader.messages] == ["snapshot-end", "up-to-date"]


async def test_an_empty_table_has_one_chunk(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        reader = server.reader("items")
        assert not await reader.step()
        assert reader.offset == "0_0"
        assert await reader.step()
        assert reader.offset == "0_inf"


async def events_of(server: ShapeServer, count: int, **params: str) -> tuple[httpx.Headers, list[dict[str, Any]]]:
    """The first messages of an event stream."""
    found: list[dict[str, Any]] = []
    query = {"table": "items", "live": "true", "live_sse": "true", **params}
    async with server.http.stream("GET", SHAPE, params=query) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                found.append(orjson.loads(line.removeprefix("data: ")))
                if len(found) >= count:
                    break
        return response.headers, found


async def test_a_stream_of_events_resumes_behind_the_transaction(newest_database: Database, tmp_path: Path) -> None:
    """B10: the offset that a client derives from `up-to-date` is behind the transaction, and is no mistake."""
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        reader = server.reader("items")
        await reader.catch_up()
        stream = asyncio.create_task(events_of(server, 4, offset=reader.offset, handle=str(reader.handle)))
        await eventually(lambda: server.app.held, "a request to be held")
        with newest_database.connect() as writer, writer.transaction():
            writer.execute("UPDATE items SET part = 1 WHERE id IN (1, 2, 3)")
        headers, messages = await stream
        assert headers["content-type"] == "text/event-stream"
        assert headers["electric-offset"] == reader.offset
        tx = int(messages[0]["headers"]["lsn"])
        assert messages[-1]["headers"] == {"control": "up-to-date", "global_last_seen_lsn": str(tx + 1)}
        resumed = await server.http.get(
            SHAPE, params={"table": "items", "handle": str(reader.handle), "offset": f"{tx + 1}_0"}
        )
        assert [one["headers"]["control"] for one in resumed.json()] == ["up-to-date"]
        newest_database.execute("UPDATE items SET part = 2 WHERE id = 1")
        _, after = await events_of(server, 2, offset=f"{tx + 1}_0", handle=str(reader.handle))
        assert [one.get("value") for one in after] == [{"id": "1", "part": "2"}, None]


async def test_offsets_that_nobody_has_are_out_of_bounds(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        reader = server.reader("items")
        await reader.catch_up()
        await server.living.caught_up()
        reader.offset = "9000000000000_0"
        refused = await reader.ask()
        assert refused.status_code == 400
        assert refused.json()["errors"] == {"offset": ["out of bounds for this shape"]}
        assert refused.headers["cache-control"] == "no-store"


SUBSETS: list[tuple[dict[str, str], list[str]]] = [
    ({"subset__where": "part = 3"}, ["3", "13"]),
    ({"subset__where": "part = $1", "subset__params": '{"1":"4"}'}, ["4", "14"]),
    ({"subset__limit": "2", "subset__order_by": "id DESC"}, ["20", "19"]),
    ({"subset__limit": "2", "subset__offset": "3", "subset__order_by": "part, id NULLS LAST"}, ["11", "2"]),
]


@pytest.mark.parametrize(("asked", "ids"), SUBSETS)
async def test_a_subset_is_asked_of_postgres(
    database: Database, tmp_path: Path, asked: dict[str, str], ids: list[str]
) -> None:
    database.execute(ITEMS, FILL)
    async with serving_shapes(database, tmp_path, QUICK) as server:
        params = {"table": "items", "offset": "now", "log": "changes_only"}
        got = await server.http.get(SHAPE, params={**params, **asked})
        assert got.status_code == 200, got.text
        body = got.json()
        assert [row["value"]["id"] for row in body["data"]] == ids
        assert set(body["metadata"]) == {"xmin", "xmax", "xip_list", "snapshot_mark", "database_lsn"}
        assert body["data"][0]["headers"]["snapshot_mark"] == body["metadata"]["snapshot_mark"]
        assert got.headers["electric-snapshot"] == "true"
        assert got.headers["cache-control"] == "no-cache"
        given = {name.removeprefix("subset__"): value for name, value in asked.items()}
        if "params" in given:
            given["params"] = orjson.loads(given["params"])
        posted = await server.http.post(SHAPE, params=params, json={"subset": given})
        assert posted.json()["data"][0]["value"] == body["data"][0]["value"]


BAD_SUBSETS = [
    ({"subset__where": "nothing = 3"}, "where", "At location 15: unknown reference nothing"),
    ({"subset__limit": "2"}, "order_by", "order_by is required when limit or offset is used"),
    ({"subset__limit": "0", "subset__order_by": "id"}, "limit", "must be greater than 0"),
    (
        {"subset__limit": "2", "subset__order_by": "id + 1"},
        "order_by",
        "expressions are not allowed in ORDER BY clauses",
    ),
    ({"subset__order_by": "id; DROP TABLE items"}, "order_by", "only a list of columns is allowed"),
]


@pytest.mark.parametrize(("asked", "field", "text"), BAD_SUBSETS)
async def test_a_subset_that_is_none_is_refused(
    newest_database: Database, tmp_path: Path, asked: dict[str, str], field: str, text: str
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        got = await server.http.get(SHAPE, params={"table": "items", "offset": "-1", **asked})
        assert got.status_code == 400
        assert got.json()["errors"] == {"subset": {field: [text]}}


async def table_of(database: Database) -> list[tuple[str | None, ...]]:
    rows = database.execute("SELECT id::text, v, part::text FROM items")
    return sorted((tuple(row) for row in rows), key=str)


def values(rows: dict[str, dict[str, Any]]) -> list[tuple[str | None, ...]]:
    return sorted(((row["id"], row["v"], row["part"]) for row in rows.values()), key=str)
