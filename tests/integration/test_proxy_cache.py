"""nginx, as we configure it, between readers and a server: one request for many, and nothing too old, nor secret.

What arrives at the server is counted there.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from shapes.client import Shape, ShapeStream
from shapes.http.app import ShapeApp
from shapes.http.settings import HttpSettings
from tests.nginx import nginx_before
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 30) g"
READERS = 10
CACHE = "x-cache"


class Asked(list[str]):
    """Offsets that the server was asked for, oldest first; `?` asks whether an answer still holds."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the server is asked, noted before it answers."""
    found, answer = Asked(), ShapeApp.__call__

    async def noting(app: ShapeApp, scope: Scope, receive: Receive, send: Send) -> None:
        fields = httpx.QueryParams(scope["query_string"].decode())
        is_question = "if-none-match" in Headers(scope=scope)
        found.append(fields.get("offset", "") + ("?" if is_question else ""))
        await answer(app, scope, receive, send)

    monkeypatch.setattr(ShapeApp, "__call__", noting)
    return found


@dataclass
class Proxied:
    """A server, and a client that sees only the proxy."""

    server: ShapeServer
    http: httpx.AsyncClient
    url: str

    async def get(self, **params: str) -> httpx.Response:
        return await self.http.get(SHAPE, params={"table": "items", **params})

    async def all_get(self, **params: str) -> list[httpx.Response]:
        return await asyncio.gather(*(self.get(**params) for _ in range(READERS)))


@asynccontextmanager
async def proxied(
    database: Database, folder: Path, settings: HttpSettings, secret: str | None = None
) -> AsyncIterator[Proxied]:
    async with serving_shapes(database, folder / "data", settings, secret) as server:
        port = urlsplit(server.url).port
        assert port is not None
        with nginx_before(port, folder / "nginx") as url:
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                yield Proxied(server, http, url)


def places(answer: httpx.Response) -> dict[str, str]:
    return {"offset": answer.headers["electric-offset"], "handle": answer.headers["electric-handle"]}


async def test_ten_readers_are_one_request(newest_database: Database, tmp_path: Path, asked: Asked) -> None:
    newest_database.execute(ITEMS, FILL)
    async with proxied(newest_database, tmp_path, HttpSettings(long_poll_seconds=15)) as proxy:
        params = {"offset": "-1"}
        for _ in range(2):  # the rows, and that there are no more
            answers = await proxy.all_get(**params)
            assert {answer.status_code for answer in answers} == {200}
            assert Counter(answer.headers[CACHE] for answer in answers) == {"MISS": 1, "HIT": READERS - 1}
            assert len({answer.content for answer in answers}) == 1
            params = places(answers[0])
        assert asked == ["-1", "0_0"]

        live = asyncio.create_task(proxy.all_get(**params, live="true"))
        await eventually(lambda: proxy.server.app.held == 1, "a request to be held")
        newest_database.execute("INSERT INTO items VALUES (77, 'live')")
        answers = await live
        assert {answer.status_code for answer in answers} == {200}
        [body] = {answer.content for answer in answers}
        assert orjson.loads(body)[0]["value"] == {"id": "77", "v": "live"}
        assert len(asked) == 3


async def test_an_old_answer_is_given_while_a_new_one_is_fetched(
    newest_database: Database, tmp_path: Path, asked: Asked
) -> None:
    newest_database.execute(ITEMS, FILL)
    settings = HttpSettings(cache_max_age_seconds=1, cache_stale_age_seconds=60)
    async with proxied(newest_database, tmp_path, settings) as proxy:
        params = places(await proxy.get(offset="-1"))
        first = await proxy.get(**params)

        async def is_stale() -> bool:
            answer = await proxy.get(**params)
            assert answer.content == first.content
            return bool(answer.headers[CACHE] == "STALE")

        async def is_kept() -> bool:
            return bool((await proxy.get(**params)).headers[CACHE] == "HIT")

        was_stale: bool = await eventually(is_stale, "an old answer")
        was_kept: bool = await eventually(is_kept, "the answer to hold again")
        assert was_stale
        assert was_kept
        assert "0_0?" in asked
        newest_database.execute("INSERT INTO items VALUES (77, 'new')")
        await proxy.server.living.caught_up()

        async def is_news() -> bool:
            return b'"new"' in (await proxy.get(**params)).content

        was_news: bool = await eventually(is_news, "the new row")
        assert was_news


async def test_an_answer_that_is_too_old_is_asked_for_again(
    newest_database: Database, tmp_path: Path, asked: Asked
) -> None:
    """How long an old answer may be given is for the answer to say, and for no other rule."""
    newest_database.execute(ITEMS, FILL)
    settings = HttpSettings(cache_max_age_seconds=1, cache_stale_age_seconds=0)
    async with proxied(newest_database, tmp_path, settings) as proxy:
        params = places(await proxy.get(offset="-1"))
        states = [(await proxy.get(**params)).headers[CACHE]]

        async def is_asked_again() -> bool:
            states.append((await proxy.get(**params)).headers[CACHE])
            return states[-1] not in {"HIT", "MISS"}

        was_asked: bool = await eventually(is_asked_again, "the answer to be too old")
        assert was_asked
        assert states[-1] == "REVALIDATED"
        assert asked[-1] == "0_0?"
        tag = (await proxy.get(**params)).headers["etag"]
        known = await proxy.http.get(SHAPE, params={"table": "items", **params}, headers={"if-none-match": tag})
        assert (known.status_code, known.content) == (304, b"")


async def test_what_one_may_see_is_not_kept_for_others(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with proxied(newest_database, tmp_path, HttpSettings(), "open") as proxy:

        async def state(bearer: str | None, param: str | None = None, path: str = SHAPE) -> tuple[int, str]:
            headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
            params = {"table": "items", "offset": "-1"} | ({} if param is None else {"secret": param})
            answer = await proxy.http.get(path, params=params, headers=headers)
            return answer.status_code, answer.headers.get(CACHE, "")

        for stranger in (None, "wrong"):
            assert await state(stranger) == (401, "MISS")
        assert await state("open") == (200, "MISS")
        assert await state("open") == (200, "HIT")
        for stranger in (None, "wrong"):
            assert await state(stranger) == (401, "MISS")
        assert await state(None, "open") == (200, "MISS")
        assert await state(None, "wrong") == (401, "MISS")
        for path in ("/v1//shape", "/v1/%73hape", "/v1/shape/", "/v1/x/../shape"):
            assert (await state(None, path=path))[0] in {401, 404}, path


async def test_events_pass_through_as_they_come(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with proxied(newest_database, tmp_path, HttpSettings(long_poll_seconds=15, sse_seconds=50)) as proxy:
        params = {"table": "items", **places(await proxy.get(offset="-1"))}
        params["offset"] = places(await proxy.get(**params))["offset"]
        streams = [
            proxy.http.stream("GET", SHAPE, params={**params, "live": "true", "live_sse": "true"}) for _ in range(3)
        ]
        opened = [await stream.__aenter__() for stream in streams]  # each is open before the row is there
        try:
            await eventually(lambda: proxy.server.app.held == len(streams), "all streams to be held")
            newest_database.execute("INSERT INTO items VALUES (77, 'event')")
            async with asyncio.timeout(20):
                for answer in opened:
                    assert b'"event"' in (await anext(answer.aiter_bytes()))
        finally:
            for stream in streams:
                await stream.__aexit__(None, None, None)


async def test_long_headers_and_addresses_pass_through(newest_database: Database, tmp_path: Path) -> None:
    columns = ", ".join(f"a_column_with_a_long_name_{number} text" for number in range(400))
    newest_database.execute(f"CREATE TABLE items (id int PRIMARY KEY, {columns})")
    async with proxied(newest_database, tmp_path, HttpSettings()) as proxy:
        where = " OR ".join(f"id = {number}" for number in range(1_500))
        answer = await proxy.get(offset="-1", where=where)
        assert (answer.status_code, len(orjson.loads(answer.headers["electric-schema"]))) == (200, 401)


async def test_a_client_goes_on_when_all_begins_anew(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with proxied(newest_database, tmp_path, HttpSettings(long_poll_seconds=1)) as proxy:
        shape = Shape(ShapeStream(proxy.url + SHAPE, "items"))
        for statement, left in (
            ("DELETE FROM items WHERE id > 2", {1, 2}),
            ("TRUNCATE items", set[int]()),
            ("INSERT INTO items VALUES (5, 'again')", {5}),
            ("ALTER TABLE items ADD COLUMN more int DEFAULT 3", {5}),
        ):
            await shape.catch_up_async()
            newest_database.execute(statement)
            async with asyncio.timeout(30):
                while {row["id"] for row in shape.rows} != left:
                    await shape.catch_up_async()
        await shape.aclose()
