"""Which columns a subset's clauses may read, beside a real Postgres: a proxy's list, a token's, or the shape's own."""

import time
from pathlib import Path

import jwt
import pytest

from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes

ITEMS = 'CREATE TABLE items (id int PRIMARY KEY, v text, owner int, "v,owner" text)'
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 2, 'both' FROM generate_series(1, 4) g"
QUICK = HttpSettings(long_poll_seconds=1.0)
SECRET = "open.sesame.please"  # noqa: S105 - of a server that lives for seconds; it looks like a token
SIGNING = "thirty-two-bytes-of-a-signing-key"
ASKED = {"table": "items", "offset": "now", "subset__order_by": "id"}


async def subset(server: ShapeServer, **params: str) -> tuple[int, object]:
    """The rows that a subset has; or what is wrong with it."""
    got = await server.http.get(SHAPE, params={**ASKED, **params})
    body = got.json()
    return got.status_code, [row["value"] for row in body["data"]] if got.status_code == 200 else body.get("errors")


async def test_clauses_read_what_is_queryable_whatever_is_shown(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        shown = {"columns": "id,owner"}
        hidden = {"subset": {"where": ["At location 0: unknown reference v"]}}
        status, errors = await subset(server, **shown, subset__where="v = 'v3'")
        assert (status, str(errors).replace("location 15", "location 0")) == (400, str(hidden))
        allowed = {**shown, "queryable_columns": "id,owner,v"}
        found = await subset(server, **allowed, subset__where="v = 'v3'")
        assert found == (200, [{"id": "3", "owner": "1"}]), "it is looked at, and not shown"
        newest_first = await subset(server, **allowed, subset__order_by="v DESC", subset__limit="1")
        assert newest_first == (200, [{"id": "4", "owner": "0"}])
        status, _ = await subset(server, queryable_columns="id,v", subset__where="owner = 1")
        assert status == 400, "what is shown is not queryable for that"
        assert (await subset(server, queryable_columns="id,v", subset__order_by="owner"))[0] == 400


@pytest.mark.parametrize(
    ("asked", "field", "text"),
    [
        ({"queryable_columns": "v"}, "queryable_columns", "must include all primary key columns, missing: id"),
        ({"queryable_columns": "id,x"}, "queryable_columns", "columns are not found on the table: x"),
        ({"queryable_columns": "id,v", "columns": "id,owner"}, "columns", "columns are not queryable: owner"),
    ],
)
async def test_a_list_that_does_not_fit_is_refused(
    newest_database: Database, tmp_path: Path, asked: dict[str, str], field: str, text: str
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        status, errors = await subset(server, **asked)
        assert status == 400
        assert isinstance(errors, dict)
        assert list(errors) == [field]
        assert text in errors[field][0]


async def test_a_tokens_list_has_the_names_that_it_has(newest_database: Database, tmp_path: Path) -> None:
    """One name with a comma in it opens one column, and not the two that it is made of."""
    newest_database.execute(ITEMS, FILL)
    claims = {"table": "items", "columns": ["id", "v,owner"], "queryable_columns": ["id", "v", "v,owner"]}
    token = jwt.encode({**claims, "exp": int(time.time()) + 60}, SIGNING, "HS256")
    tokens = ShapeTokens(SIGNING)
    async with serving_shapes(newest_database, tmp_path, QUICK, secret=SECRET, tokens=tokens) as server:
        found = await subset(server, token=token, subset__where="v = 'v2'")
        assert found == (200, [{"id": "2", "v,owner": "both"}])
        assert (await subset(server, token=token, subset__where="owner = 1"))[0] == 400


async def test_a_secret_that_looks_like_a_token_opens(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, secret=SECRET, tokens=ShapeTokens(SIGNING)) as server:
        params = {"table": "items", "offset": "-1"}
        for method in ("GET", "POST"):
            bearer = {"authorization": f"Bearer {SECRET}"}
            got = await server.http.request(method, SHAPE, params=params, headers=bearer)
            assert got.status_code == 200, (method, got.text)
            assert got.headers["cache-control"].startswith("public, " if method == "GET" else "no-cache")
        wrong = {"authorization": f"Bearer {SECRET}r"}
        refused = await server.http.get(SHAPE, params=params, headers=wrong)
        assert refused.status_code == 401
        assert "Invalid shape token: " in refused.json()["message"]
        assert SECRET not in refused.text
