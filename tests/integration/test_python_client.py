"""The Python client beside a real server: changes, restarts, refusals; in both worlds, and both ways to get news."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shapes.client import Position, Shape, ShapeStream
from shapes.http.errors import RequestRefused
from shapes.http.settings import HttpSettings
from tests.nginx import free_port
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, price numeric, tags text[], at timestamptz, is_new bool)"
FILL = """INSERT INTO items SELECT g, g + 0.5, ARRAY['a', NULL, 'b "c"'], '2025-01-01 00:00Z', g % 2 = 0
          FROM generate_series(1, 30) g"""
QUICK = HttpSettings(allow_delete=True, long_poll_seconds=1.0, sse_seconds=2.0)
BOTH_WAYS = pytest.mark.parametrize("live_sse", [False, True], ids=["poll", "sse"])
EVERYTHING = list(range(1, 31))


async def ids(shape: Shape) -> list[int]:
    await shape.catch_up_async()
    return sorted(row["id"] for row in shape.rows)


def stream_of(server: ShapeServer, **more: Any) -> ShapeStream:
    return ShapeStream(server.url + SHAPE, more.pop("table", "items"), **more)


@BOTH_WAYS
async def test_rows_are_kept_up_to_date_and_have_types(
    newest_database: Database, tmp_path: Path, *, live_sse: bool
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, chunk_bytes=900) as server:
        shape = Shape(stream_of(server, where="id > $1", params={1: "10"}, live_sse=live_sse))
        heard: list[int] = []
        leave = shape.subscribe(lambda one: heard.append(len(one.rows)))
        assert await ids(shape) == list(range(11, 31))
        row = shape.get('"public"."items"/"12"')
        assert row is not None
        assert (str(row["price"]), row["tags"], row["is_new"]) == ("12.5", ["a", None, 'b "c"'], True)
        table = shape.to_arrow()
        assert [table.schema.field(name).type for name in ("id", "tags")] == [pa.int32(), pa.list_(pa.string())]
        assert table.num_rows == 20
        newest_database.execute("DELETE FROM items WHERE id = 12", "UPDATE items SET price = 1 WHERE id = 13")
        while await ids(shape) == list(range(11, 31)) or str(shape.rows[1]["price"]) != "1":
            pass
        leave()
        newest_database.execute("TRUNCATE items")
        while await ids(shape):
            pass
        newest_database.execute("ALTER TABLE items ADD COLUMN more int", "INSERT INTO items (id, more) VALUES (99, 1)")
        while await ids(shape) != [99]:
            pass
        assert shape.to_arrow().column("more").to_pylist() == [1]
        assert heard[0] == 20
        await shape.aclose()


@BOTH_WAYS
async def test_it_goes_on_from_a_saved_position_in_another_process(
    newest_database: Database, tmp_path: Path, *, live_sse: bool
) -> None:
    newest_database.execute(ITEMS, FILL)
    saved: dict[str, Any] = {}
    for life in range(3):
        async with serving_shapes(newest_database, tmp_path, QUICK) as server:
            position = Position.from_json(saved) if saved else None
            stream = stream_of(server, position=position, live_sse=live_sse)
            seen, added = list[int](), 1000 + life
            async with contextlib.aclosing(aiter(stream)) as batches:  # type: ignore[type-var]  # a generator, as it is
                async for batch in batches:
                    assert not batch.must_refetch
                    seen += [change.value["id"] for change in batch.changes]
                    if batch.is_up_to_date and added in seen:  # it was there, live, when its transaction came
                        break
                    if batch.is_up_to_date:
                        newest_database.execute(f"INSERT INTO items (id) VALUES ({added}) ON CONFLICT DO NOTHING")  # noqa: S608 - a number
            assert seen == [*([] if life else EVERYTHING), *([100 + life - 1] if life else []), added]
            saved = stream.position.to_json()
            newest_database.execute(
                "INSERT INTO items (id) SELECT 100 + count(*) FROM items WHERE id BETWEEN 100 AND 200"
            )
            await server.living.caught_up()


@BOTH_WAYS
async def test_the_same_without_a_loop(newest_database: Database, tmp_path: Path, *, live_sse: bool) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        shape = Shape(stream_of(server, live_sse=live_sse))
        await asyncio.to_thread(shape.catch_up)
        newest_database.execute("INSERT INTO items (id) VALUES (77)")
        async with asyncio.timeout(20):
            while shape.get('"public"."items"/"77"') is None:
                await asyncio.to_thread(shape.catch_up)
        shape.close()


@BOTH_WAYS
async def test_a_server_comes_and_goes(newest_database: Database, tmp_path: Path, *, live_sse: bool) -> None:
    """Every change comes once, in order; a transaction of many rows is never torn where the client is up to date."""
    newest_database.execute(ITEMS)
    port = free_port()
    stream = ShapeStream(f"http://127.0.0.1:{port}{SHAPE}", "items", live_sse=live_sse)
    seen = list[int]()

    async def follow() -> None:
        async for batch in stream:
            assert not batch.must_refetch
            seen.extend(change.value["id"] for change in batch.changes)
            assert not batch.is_up_to_date or len(seen) % 100 == 0

    following = asyncio.create_task(follow())
    try:
        for life in range(3):  # the client is there before the server
            async with serving_shapes(newest_database, tmp_path, QUICK, port=port) as server:
                await eventually(lambda: server.app.held or following.done(), "the client to follow", 30)
                for part in range(5):
                    start = 1000 * life + 100 * part
                    newest_database.execute(f"INSERT INTO items (id) SELECT generate_series({start}, {start + 99})")
                if life == 2:
                    await eventually(lambda: len(seen) >= 1500 or following.done(), "all rows", 30)
        assert not following.done(), following.exception()
        assert seen == [1000 * life + row for life in range(3) for row in range(500)]
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_where_events_do_not_get_through_answers_are_asked_for(newest_database: Database, tmp_path: Path) -> None:
    """A server, or something before it, that ends each stream at once."""
    newest_database.execute(ITEMS, FILL)
    settings = HttpSettings(long_poll_seconds=1.0, sse_seconds=0.0)
    async with serving_shapes(newest_database, tmp_path, settings) as server, asyncio.timeout(30):
        shape = Shape(stream_of(server, live_sse=True))
        assert await ids(shape) == EVERYTHING
        assert await ids(shape) == EVERYTHING  # an answer without news: no stream would bring one
        newest_database.execute("INSERT INTO items (id) VALUES (77)")
        while await ids(shape) != [*EVERYTHING, 77]:
            pass
        await shape.aclose()


@BOTH_WAYS
async def test_from_now_on(newest_database: Database, tmp_path: Path, *, live_sse: bool) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server, asyncio.timeout(30):
        shape = Shape(stream_of(server, position=Position("now"), live_sse=live_sse))
        assert await ids(shape) == []
        newest_database.execute("INSERT INTO items (id) VALUES (77)")
        while await ids(shape) != [77]:
            pass
        await shape.aclose()


def test_a_shape_does_not_begin_in_the_middle() -> None:
    with pytest.raises(ValueError, match="has to see all rows"):
        Shape(ShapeStream("http://127.0.0.1", "items", position=Position("7_0", "handle")))


async def test_what_is_refused_is_raised(newest_database: Database, tmp_path: Path) -> None:
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        with pytest.raises(RequestRefused, match="does not exist"):
            await Shape(stream_of(server, table="nothing")).catch_up_async()
        with pytest.raises(RequestRefused, match="a header has a name that none can have"):
            await Shape(stream_of(server, headers={"two words": "x"})).catch_up_async()
    with pytest.raises(RequestRefused, match="begins with neither"):
        ShapeStream("127.0.0.1:3000/v1/shape", "items")


async def test_an_address_may_have_parameters_and_logs_do_not(
    newest_database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, secret="sesame") as server:  # noqa: S106 - of a test
        address = f"{server.url}{SHAPE}?secret=sesame&columns=id"
        assert await ids(Shape(ShapeStream(address, "items"))) == EVERYTHING
        with pytest.raises(RequestRefused, match="401"):
            await Shape(ShapeStream(server.url + SHAPE, "items")).catch_up_async()
    nobody = address.replace(server.url, f"http://user:sesame@127.0.0.1:{free_port()}")
    caplog.set_level("WARNING", "shapes.client_stream")  # the demo, in the same process, wants less of it
    asking = asyncio.create_task(Shape(ShapeStream(nobody, "items")).catch_up_async())
    await eventually(lambda: "no answer from http://127.0.0.1:" in caplog.text, "a word of the silence")
    asking.cancel()
    await asyncio.wait([asking])
    assert "sesame" not in caplog.text
