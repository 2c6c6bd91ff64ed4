"""The Python client beside a real server: changes, restarts, and what it makes of refusals; with and without a loop."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shapes.client import Position, Shape, ShapeStream
from shapes.http.errors import RequestRefused
from shapes.http.settings import HttpSettings
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, price numeric, tags text[], at timestamptz, is_new bool)"
FILL = """INSERT INTO items SELECT g, g + 0.5, ARRAY['a', NULL, 'b "c"'], '2025-01-01 00:00Z', g % 2 = 0
          FROM generate_series(1, 30) g"""
QUICK = HttpSettings(allow_delete=True, long_poll_seconds=1.0)


async def ids(shape: Shape) -> list[int]:
    await shape.catch_up_async()
    return sorted(row["id"] for row in shape.rows)


def stream_of(server: ShapeServer, **more: Any) -> ShapeStream:
    return ShapeStream(server.url + SHAPE, more.pop("table", "items"), **more)


async def test_rows_are_kept_up_to_date_and_have_types(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, chunk_bytes=900) as server:
        shape = Shape(stream_of(server, where="id > $1", params={1: "10"}))
        heard: list[int] = []
        leave = shape.subscribe(lambda one: heard.append(len(one.rows)))
        assert await ids(shape) == list(range(11, 31))
        row = shape.get('"public"."items"/"12"')
        assert row is not None
        assert (str(row["price"]), row["tags"], row["is_new"]) == ("12.5", ["a", None, 'b "c"'], True)
        table = shape.to_arrow()
        assert table.schema.field("id").type == pa.int32()
        assert table.num_rows == 20
        newest_database.execute("DELETE FROM items WHERE id = 12", "UPDATE items SET price = 1 WHERE id = 13")
        while await ids(shape) == list(range(11, 31)) or str(shape.rows[1]["price"]) != "1":
            pass
        leave()
        newest_database.execute("TRUNCATE items")
        while await ids(shape):
            pass
        assert heard[0] == 20
        await shape.aclose()


async def test_it_goes_on_from_a_saved_position_in_another_process(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    saved: dict[str, Any] = {}
    for life in range(3):
        async with serving_shapes(newest_database, tmp_path, QUICK) as server:
            stream = stream_of(server, position=Position.from_json(saved) if saved else None)
            seen = []
            async with contextlib.aclosing(aiter(stream)) as batches:  # type: ignore[type-var]  # a generator, as it is
                async for batch in batches:
                    assert not batch.must_refetch
                    seen += [change.value["id"] for change in batch.changes]
                    if batch.is_up_to_date:
                        break
            assert seen == (list(range(1, 31)) if not life else [100 + life - 1])
            saved = stream.position.to_json()
            newest_database.execute("INSERT INTO items (id) SELECT greatest(max(id) + 1, 100) FROM items")
            await server.living.caught_up()


async def test_the_same_without_a_loop(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        shape = Shape(stream_of(server))
        await asyncio.to_thread(shape.catch_up)
        newest_database.execute("INSERT INTO items (id) VALUES (77)")
        await asyncio.to_thread(shape.catch_up)
        assert shape.get('"public"."items"/"77"') is not None


async def test_what_is_refused_is_raised(newest_database: Database, tmp_path: Path) -> None:
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        with pytest.raises(RequestRefused, match="does not exist"):
            await Shape(stream_of(server, table="nothing")).catch_up_async()
