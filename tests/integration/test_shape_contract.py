"""The corners of the shape protocol beside a real Postgres: odd names, odd offsets, who may keep or learn what."""

import asyncio
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
import orjson
import pytest

from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from shapes.where.sql import quoted_name
from tests.postgres import Database
from tests.shape_server import SHAPE, ShapeServer, serving_shapes

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, owner int)"
FILL = "INSERT INTO items SELECT g, 'secret ' || g, g % 2 FROM generate_series(1, 60) g"
QUICK = HttpSettings(allow_delete=True, long_poll_seconds=1.0, sse_seconds=1.0)
SIGNING = "thirty-two-bytes-of-a-signing-key"
ODD_TABLE = 'T\r\n"x/y.z ☃'
ODD_COLUMNS = [
    "id\n/",
    "a\r\nx-evil: 1",
    "naïve ☃",
    "__proto__",
    'a"b',
    "a'b",
    "a\\b",
    "\x7f\x85\t",
    "%s{0}",
    " ",
    "😀,",
]


def token(**claims: Any) -> str:
    return jwt.encode({"exp": int(time.time()) + 60, **claims}, SIGNING, "HS256")


def head_of(url: str, query: dict[str, str]) -> bytes:
    """The bytes of an answer's head."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        request = f"GET {SHAPE}?{urlencode(query)} HTTP/1.1\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        return connection.makefile("rb").read().partition(b"\r\n\r\n")[0]


async def test_names_of_any_letters_stay_within_headers_and_bodies(newest_database: Database, tmp_path: Path) -> None:
    table, (key, *others) = quoted_name(ODD_TABLE), map(quoted_name, ODD_COLUMNS)
    columns = ", ".join(f"{name} text" for name in others)
    newest_database.execute(f"CREATE TABLE {table} ({key} text PRIMARY KEY, {columns})")
    newest_database.execute(f"INSERT INTO {table} VALUES (E'k\\r\\n/\"' {', NULL' * len(others)})")  # noqa: S608 - ours
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        head = await asyncio.to_thread(head_of, server.url, {"table": table, "offset": "-1"})
        assert head.isascii()
        lines = head.split(b"\r\n")
        assert not any(line.startswith(b"x-evil") for line in lines)
        assert all(b" " <= bytes([letter]) < b"\x7f" for line in lines for letter in line)
        reader = server.reader(table)
        await reader.catch_up()
        schema = orjson.loads((await reader.ask()).headers["electric-schema"])
        assert list(schema) == ODD_COLUMNS
        changed = ", ".join(name + " = E'a\\r\\n☃'" for name in others)
        newest_database.execute(f"UPDATE {table} SET {changed}")  # noqa: S608 - ours
        await server.living.caught_up()
        await reader.catch_up()
        [(name, row)] = reader.rows.items()
        assert name == '"public"."T\r\n"x//y..z ☃"/"k\r\n//""'
        assert row == {"id\n/": 'k\r\n/"', **dict.fromkeys(ODD_COLUMNS[1:], "a\r\n☃")}
        for one, quoted in zip(ODD_COLUMNS[1:], others, strict=True):
            asked = {"table": table, "offset": "now", "columns": f"{quoted},{key},{quoted}"}
            asked |= {"subset__where": f"{quoted} IS NOT NULL", "subset__order_by": f"{quoted} DESC"}
            found = await server.http.get(SHAPE, params=asked)
            assert found.status_code == 200, found.text
            assert [set(item["value"]) for item in found.json()["data"]] == [{ODD_COLUMNS[0], one}]


async def places(server: ShapeServer) -> tuple[str, str]:
    """The handle of a reader that is up to date, and his offset."""
    reader = server.reader("items")
    await reader.catch_up()
    return str(reader.handle), reader.offset


async def told(server: ShapeServer, handle: str, offset: str) -> list[dict[str, Any]]:
    """What a stream of events tells until it ends."""
    params = {"table": "items", "handle": handle, "offset": offset, "live": "true", "live_sse": "true"}
    answer = await server.http.get(SHAPE, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["electric-offset"] == offset
    return [orjson.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]


async def test_a_stream_of_events_from_anywhere_ends_with_up_to_date(newest_database: Database, tmp_path: Path) -> None:
    """A client takes nothing without it, and would ask from the same place for ever."""
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, chunk_bytes=1_000) as server:
        handle, last = await places(server)
        assert await told(server, handle, last) == [], "there is nothing, and so nothing is told"
        for changes in (0, 2):
            for offset in ("0_0", "0_1"):
                *rows, end = await told(server, handle, offset)
                assert [one for one in rows if "value" in one][changes:], "some of the base, at least"
                assert end["headers"]["control"] == "up-to-date", (changes, offset)
                assert await told(server, handle, f"{end['headers']['global_last_seen_lsn']}_0") == []
            newest_database.execute("UPDATE items SET owner = 7 WHERE id IN (1, 2)")
            await server.living.caught_up()


async def test_offsets_between_rows_lead_on_and_those_behind_all_do_not(
    newest_database: Database, tmp_path: Path
) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, chunk_bytes=1_000) as server:
        await places(server)
        newest_database.execute("UPDATE items SET owner = 7 WHERE id IN (1, 2)")
        await server.living.caught_up()
        handle, last = await places(server)
        tx = int(last.partition("_")[0])

        async def ids(offset: str, query: str = "") -> list[str]:
            address = f"{SHAPE}?table=items&handle={handle}&{query}offset={offset}"
            answer = await server.http.get(address)
            assert answer.status_code == 200, (offset, answer.text)
            if "electric-up-to-date" not in answer.headers:
                assert answer.headers["electric-offset"] != offset, "a client would ask again and again"
            return [one["value"]["id"] for one in answer.json() if "value" in one]

        for below in ("0_inf", "0_99", "1_0", "1_inf", "00_inf", f"{tx - 1}_inf"):
            assert await ids(below) == ["1", "2"], below
        assert await ids(f"{tx}_0") == ["2"]
        for behind in (last, f"{tx}_inf", f"{tx + 1}_0"):
            assert await ids(behind) == [], behind
        assert await ids("0_inf", "offset=-1&") == ["1", "2"], "of those that come twice, the last counts"
        for wrong in (f"{tx + 1}_inf", f"{2**63 - 1}_0", f"{2**63}_0", "0_18446744073709551615", "%D9%A3_0", "1_0%0A"):
            answer = await server.http.get(f"{SHAPE}?table=items&handle={handle}&offset={wrong}")
            assert (answer.status_code, list(answer.json()["errors"])) == (400, ["offset"]), wrong
            assert answer.headers["cache-control"] == "no-store"
        ranged = await server.http.get(
            SHAPE, params={"table": "items", "offset": "-1"}, headers={"range": "bytes=0-3", "if-none-match": "*"}
        )
        assert ranged.status_code == 200, "an answer is whole, or it is none"
        assert ranged.json()


HIDING = ["concat('a', concat('b', concat('c', owner::text))) = 'abc1'", "owner + 1 + 1 + 1 + 1 = 5 AND id > 0"]
ASKED = [
    ("v::int > 5", ["1"]),
    ("v = '3'", ["3"]),
    ("1 / (owner - 2) = -1", ["1", "3"]),
    ("id = 2 OR 4 / owner = 4", ["1", "3"]),
    ("v IN ('3', 'hidden') AND NOT id < 0", ["3"]),
]


@pytest.mark.parametrize("where", HIDING)
async def test_no_error_of_a_subset_tells_of_rows_outside_its_shape(
    newest_database: Database, tmp_path: Path, where: str
) -> None:
    """Postgres tries cheap conditions first, so that a cast would fail for a row that the shape's condition hides."""
    newest_database.execute(ITEMS, "INSERT INTO items VALUES (1, '17', 1), (2, 'hidden', 0), (3, '3', 1)")
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        params = {"table": "items", "offset": "now", "where": where, "subset__order_by": "id"}
        for asked, ids in ASKED:
            found = await server.http.get(SHAPE, params={**params, "subset__where": asked})
            assert found.status_code == 200, (asked, found.text)
            assert [row["value"]["id"] for row in found.json()["data"]] == ids
        own = await server.http.get(SHAPE, params={**params, "subset__where": "1 / (id - 1) = 0"})
        assert own.status_code == 400, "its own rows may be told of"


async def test_what_a_token_opens_is_kept_for_nobody_else(newest_database: Database, tmp_path: Path) -> None:
    """Two readers may ask under the same address: what they bring is in a header."""
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK, secret="s", tokens=ShapeTokens(SIGNING)) as server:  # noqa: S106
        mine = {"authorization": f"Bearer {token(table='items', where='owner = 1')}"}
        for params, headers in (({}, mine), ({"token": token(table="items")}, {})):
            got = await server.http.get(SHAPE, params={"offset": "-1", **params}, headers=headers)
            assert got.headers["cache-control"].startswith("private, max-age=")
            assert "s-maxage" not in got.headers["cache-control"]
            assert got.headers["vary"] == "authorization"
            tag = {**headers, "if-none-match": got.headers["etag"]}
            again = await server.http.get(SHAPE, params={"offset": "-1", **params}, headers=tag)
            assert (again.status_code, again.headers["cache-control"]) == (304, got.headers["cache-control"])
        by_secret = await server.http.get(SHAPE, params={"table": "items", "offset": "-1", "secret": "s"})
        assert by_secret.headers["cache-control"].startswith("public, ")
        assert by_secret.headers["vary"] == "authorization"


async def test_a_shape_is_deleted_by_its_definition_or_its_handle(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    async with serving_shapes(newest_database, tmp_path, QUICK) as server:
        handle, _ = await places(server)
        other = await server.http.delete(SHAPE, params={"table": "items", "where": "id = 1", "handle": handle})
        assert other.status_code == 400
        assert other.json()["errors"]["handle"][0].startswith("The specified shape definition and handle do not match.")
        nothing = await server.http.delete(SHAPE)
        assert nothing.json()["errors"] == {"table": ["can't be blank when shape handle is missing"]}
        assert (await server.http.delete(SHAPE, params={"table": "items"})).status_code == 202
        again, _ = await places(server)
        assert again != handle
        assert (await server.http.delete(SHAPE, params={"handle": again})).status_code == 202
        late = await server.http.get(SHAPE, params={"table": "items", "offset": "0_inf", "handle": handle})
        assert late.status_code == 409
        assert late.headers["electric-handle"] not in {handle, again}, "a handle is never used again"
