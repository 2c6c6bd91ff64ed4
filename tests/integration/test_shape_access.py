"""Who may follow a shape over HTTP: the secret on every spelling of the path, tokens, limits, and other origins."""

import asyncio
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import jwt
import pytest

from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from tests.postgres import Database
from tests.shape_server import SHAPE, serving_shapes

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, owner int)"
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 2 FROM generate_series(1, 4) g"
SECRET = "open sesame"  # noqa: S105 - of a server that lives for seconds
SIGNING = "thirty-two-bytes-of-a-signing-key"
PATHS = ["/v1/shape", "/v1/shape/", "/v1//shape", "//v1/shape", "/v1/%73hape", "/v1/shape///", "/v1/%2fshape"]
PATHS += ["/%76%31%2Fshape", "http://x/v1/shape", "http://open:sesame@x//v1/shape"]


def raw_status(url: str, target: str) -> int:
    """The status of a GET whose target is sent as it is."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(connection.makefile("rb").readline().split()[1])


async def test_the_secret_is_asked_for_on_every_spelling_of_the_path(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, secret=SECRET) as server:
        for path in PATHS:
            query = "?table=items&offset=-1"
            assert await asyncio.to_thread(raw_status, server.url, path + query) == 401, path
            with_secret = f"{path}{query}&secret=open%20sesame"
            assert await asyncio.to_thread(raw_status, server.url, with_secret) == 200, path
        for method in ("GET", "HEAD", "POST", "DELETE", "PUT"):
            refused = await server.http.request(method, SHAPE, params={"table": "items", "offset": "-1"})
            assert refused.status_code == 401, method
        refused = await server.http.get(SHAPE, params={"secret": "wrong"})
        assert refused.json() == {"message": "Unauthorized - Invalid API secret"}
        assert SECRET not in refused.text


async def test_a_browser_may_ask_what_it_may_send(newest_database: Database, tmp_path: Path) -> None:
    async with serving_shapes(newest_database, tmp_path, secret=SECRET) as server:
        wanted = "if-none-match, x-else, authorization, content-type"
        asked = {"origin": "https://a.example", "access-control-request-headers": wanted}
        answer = await server.http.options(SHAPE, headers=asked)
        assert answer.status_code == 204
        assert answer.headers["access-control-max-age"] == "86400"
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert answer.headers["access-control-allow-headers"] == "if-none-match,authorization,content-type"
        assert answer.headers["access-control-allow-methods"] == "GET, POST, HEAD, DELETE, OPTIONS"
        assert "cache-control" not in answer.headers
        plain = await server.http.get(SHAPE)
        assert plain.headers["access-control-allow-origin"] == "*"
        assert "electric-offset" in plain.headers["access-control-expose-headers"]
        assert plain.headers["electric-server"].startswith("shapelog/")
        assert plain.headers["x-request-id"] != answer.headers["x-request-id"]


async def test_a_token_opens_its_shape_and_no_other(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    tokens = ShapeTokens(SIGNING)
    claims = {"table": "items", "where": "owner = 1", "columns": "id,owner", "exp": int(time.time()) + 60}
    token = jwt.encode(claims, SIGNING, "HS256")
    async with serving_shapes(newest_database, tmp_path, secret=SECRET, tokens=tokens) as server:
        bearer = {"authorization": f"Bearer {token}"}
        got = await server.http.get(SHAPE, params={"offset": "-1"}, headers=bearer)
        assert got.status_code == 200, got.text
        assert [row["value"] for row in got.json()[:-1]] == [{"id": "1", "owner": "1"}, {"id": "3", "owner": "1"}]
        other = await server.http.get(SHAPE, params={"offset": "-1", "where": "owner = 0"}, headers=bearer)
        assert other.status_code == 403
        searched = {"offset": "-1", "subset__where": "v = 'v1'"}
        assert (await server.http.get(SHAPE, params=searched, headers=bearer)).status_code == 400, "v is not shown"
        assert (await server.http.delete(SHAPE, params={"token": token, "table": "items"})).status_code == 401
        expired = jwt.encode({**claims, "exp": 1}, SIGNING, "HS256")
        assert (await server.http.get(SHAPE, params={"offset": "-1", "token": expired})).status_code == 401


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", f"{SHAPE}?table=items&offset=-1&where={'x' * 62_000}", b"", 414),
        ("GET", f"{SHAPE}?" + "&".join(f"a{n}=1" for n in range(2_000)), b"", 400),
        ("GET", f"{SHAPE}?table=%ff&offset=-1", b"", 400),
        ("GET", f"{SHAPE}?table=items%00&offset=-1", b"", 400),
        ("GET", f"{SHAPE}?table=items&offset=-1&where=id+IN+(SELECT+1)", b"", 400),
        ("POST", f"{SHAPE}?table=items&offset=-1", b"{", 400),
        ("POST", f"{SHAPE}?table=items&offset=-1", b"[1]", 400),
        ("POST", f"{SHAPE}?table=items&offset=-1", b"x" * 300_000, 413),
        ("PUT", SHAPE, b"", 405),
        ("GET", f"{SHAPE}?table=nothing&offset=-1", b"", 400),
        ("GET", f"{SHAPE}?table=items&offset=-1&columns=v", b"", 400),
    ],
)
async def test_bad_input_is_told_so(
    newest_database: Database, tmp_path: Path, method: str, target: str, body: bytes, status: int
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path) as server:
        got = await server.http.request(method, target, content=body)
        assert got.status_code == status, got.text
        assert got.headers["cache-control"] == "no-store"
        assert got.json()


async def test_one_too_many_is_told_to_come_again(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, HttpSettings(initial_requests_max=0)) as server:
        refused = await server.http.get(SHAPE, params={"table": "items", "offset": "-1"})
        assert refused.status_code == 503
        assert refused.json()["code"] == "concurrent_request_limit_exceeded"
        assert 6 <= int(refused.headers["retry-after"]) <= 10
        assert refused.headers["electric-internal-known-error"] == "true"
