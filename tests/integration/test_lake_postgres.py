"""From a server to the lake: every type, random transactions, altered tables; each version against SELECT."""

import datetime as dt
import decimal
import random
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, LiteralString

import duckdb
import numpy as np
import polars as pl
import pytest

from storage.lake.errors import LakeWaits
from storage.lake.lake_reader import open_lake
from storage.lake.materialize import Order, Told, materialize
from storage.lake.spark import run_here
from tests.loop import Loop, looping
from tests.postgres import Database
from tests.waiting import eventually

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN short AS text CHECK (length(value) < 9);
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN cents AS numeric(8,2);
CREATE DOMAIN wages AS cents;
CREATE TYPE part AS (of pair, during daterange, moods mood[], pay wages);
CREATE TYPE span AS RANGE (subtype = cents);
CREATE TABLE typed (
    id bigint PRIMARY KEY, i2 smallint, i4 int, f4 real, f8 double precision, n numeric(12,3), n_any numeric,
    b bool, t text, v varchar(9), u uuid, d date, ts timestamp, tz timestamptz, tm time, iv interval, by bytea,
    j jsonb, ai int[], at text[], an numeric(6,2)[], ad timestamptz[], e mood, dom short, r int4range, c pair,
    w wages, aw wages[], ae mood[], sp span, p part, ap pair[], ar int4range[], nr numrange
)"""
ROWS = r"""
INSERT INTO typed VALUES
 (1, 2, 3, 1.5, 2.25, 12.345, 1e40, true, 'x', 'y', '7c5de1cc-8d0b-4b6c-9d4e-3a3f0e6c1b2a', '2024-02-29',
  '2024-02-29 12:13:14.123456', '2024-02-29 12:13:14+02', '24:00', '1 year 2 mons -3 days 04:05:06.7', '\x00ff',
  '{"a": [1, null]}', '{1,NULL,3}', '{a,"b c","d\"e",NULL,"NULL",""}', '{1.50,NULL}', '{2024-01-01 00:00:00+00}',
  'ok', 'dom', '[1,5)', ROW(1, 'a b'),
  1.5, '{1.25,NULL}', '{ok,sad}', '(1.5,2.5]', ROW(ROW(7, 'q"\ ,)'), '[2024-01-01,)', '{ok}', 2),
  ARRAY[ROW(1, 'x'), NULL, ROW(NULL, 'y z')]::pair[], ARRAY['[1,3)', 'empty']::int4range[], '(,1.5]'),
 (2, -32768, -2147483648, 'NaN', '-Infinity', 'NaN', 'NaN', false, '', '', NULL, 'infinity', '-infinity',
  '0044-03-15 00:00:00+00 BC', '00:00', '-00:00:00.000001', '', 'null', '{{1,2},{3,4}}', '{}', '{NaN}', '{infinity}',
  'sad', NULL, 'empty', NULL,
  NULL, '{}', NULL, 'empty', ROW(NULL, '[-infinity,infinity]', NULL, NULL), '{}', NULL, '(,)'),
 (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (9223372036854775807, 0, 0, 0.1, 0.1, 999999999.999, 0.10, true, E'line\nbreak, "quoted" \\', 'é', NULL,
  '9999-12-31', '9999-12-31 23:59:59.999999', '0001-01-01 00:00:00+00', '23:59:59.999999', '178000 years', '\xdeadbeef',
  '"text"', '[0:1]={7,8}', '{x}', '{}', '{}', 'ok', '', '(,)', ROW(NULL, ''),
  'NaN', '{NaN}', '{}', '[1,)', ROW(ROW(NULL, NULL), NULL, '{}', 0), NULL, NULL, '[1,2]')"""
SAME: LiteralString = "id, i2, i4, f8, b, t, v, by, at"
AS_TEXT = "n_any, u, tm, j, e, dom"


def lake_once(data: Path, lake: Path) -> list[Told]:
    told: list[Told] = []
    materialize(Order(data, lake), run_here, told.append)
    return told


async def version_at(loop: Loop, lake: Path) -> Any:
    """A version that has all that is committed now."""
    end = await loop.caught_up()

    def is_there() -> bool:
        with suppress(LakeWaits):  # for a shape that takes another's place
            return any(told.step.version and told.step.version.lsn >= end for told in lake_once(data, lake))
        return False

    data = loop.app.settings.data_dir
    await eventually(is_there, f"a version at {end}")
    return open_lake(lake).latest()


async def test_every_type(newest_database: Database, tmp_path: Path) -> None:
    """As a snapshot and as a change, value by value."""
    database, data, lake = newest_database, tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    for statement in TYPES.split(";"):
        database.execute(statement)
    database.execute(ROWS)
    async with looping(database, data) as loop:
        await loop.add("typed", "typed")
        snapshot = {row["id"]: row for row in (await version_at(loop, lake)).table("typed").arrow().to_pylist()}
        database.execute("DELETE FROM typed", ROWS)
        version = await version_at(loop, lake)
        rows = {row["id"]: row for row in version.table("typed").arrow().to_pylist()}
        same = {row[0]: row for row in database.execute("SELECT " + SAME + " FROM typed")}  # noqa: S608 - names of this test
        texts = {row[0]: row[1:] for row in database.execute("SELECT id, " + as_texts_sql() + " FROM typed")}  # noqa: S608 - names of this test
    assert str(rows) == str(snapshot), "a NaN differs from itself, its text does not"
    for key, row in rows.items():
        for name, expected in zip(SAME.split(", "), same[key], strict=True):
            assert str(row[name]) == str(expected), name
        for name, text in zip(AS_TEXT.split(", "), texts[key], strict=True):
            assert row[name] == text, name
    check_by_hand(rows)
    made = ["id", "r", "c", "w", "aw", "ae", "sp", "p", "ap", "ar", "nr"]
    table = version.table("typed")
    expected = sorted(table.arrow().select(made).to_pylist(), key=itemgetter("id"))
    delta = pl.scan_delta(str(Path(table.files()[0]).parent), version=table.delta().version())
    assert delta.select(made).sort("id").collect().to_arrow().to_pylist() == expected
    files = duckdb.read_parquet(table.files()).project(", ".join(made)).order("id")
    assert files.to_arrow_table().to_pylist() == expected


def as_texts_sql() -> LiteralString:
    return "n_any::text, u::text, tm::text, j::text, e::text, dom::text"


def check_by_hand(rows: dict[int, dict[str, Any]]) -> None:
    one, two, three, last = rows[1], rows[2], rows[3], rows[2**63 - 1]
    assert one["n"] == decimal.Decimal("12.345")
    assert one["d"] == dt.date(2024, 2, 29)
    assert one["ts"] == dt.datetime(2024, 2, 29, 12, 13, 14, 123456)  # noqa: DTZ001 - without zone in Postgres too
    assert one["tz"] == dt.datetime(2024, 2, 29, 10, 13, 14, tzinfo=dt.UTC)
    assert one["iv"] == {"months": 14, "days": -3, "microseconds": 14_706_700_000}
    assert one["ai"] == [1, None, 3]
    assert one["an"] == [decimal.Decimal("1.50"), None]
    assert one["ad"] == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    assert one["_quarantined"] is None
    assert three["_quarantined"] is None
    assert {entry["column"]: (entry["text"], entry["reason"]) for entry in two["_quarantined"]} == {
        "n": ("NaN", "not_a_number"),
        "d": ("infinity", "infinite"),
        "ts": ("-infinity", "infinite"),
        "tz": ("0044-03-15 00:00:00+00 BC", "before_christ"),
        "ai": ("{{1,2},{3,4}}", "dimensions"),
        "an": ("{NaN}", "element"),
        "ad": ("{infinity}", "element"),
        "p": ('(,"[-infinity,infinity]",,)', "element"),
    }
    assert two["iv"]["microseconds"] == -1
    assert last["f4"] == np.float32(0.1)
    assert last["iv"]["months"] == 178_000 * 12
    assert [entry["column"] for entry in last["_quarantined"]] == ["ai", "w", "aw"]
    check_made_types(rows)


def check_made_types(rows: dict[int, dict[str, Any]]) -> None:
    """Domains, ranges, composites, and arrays of them."""
    one, two, last = rows[1], rows[2], rows[2**63 - 1]
    assert one["r"] == {"lower": 1, "upper": 5, "bounds": "[)"}
    assert two["r"] == {"lower": None, "upper": None, "bounds": "empty"}
    assert last["r"] == {"lower": None, "upper": None, "bounds": "()"}
    assert [row["c"] for row in (one, two, last)] == [{"a": 1, "b": "a b"}, None, {"a": None, "b": ""}]
    assert one["w"] == decimal.Decimal("1.50")
    assert one["aw"] == [decimal.Decimal("1.25"), None]
    assert one["ae"] == ["ok", "sad"]
    assert one["sp"] == {"lower": decimal.Decimal("1.50"), "upper": decimal.Decimal("2.50"), "bounds": "(]"}
    assert one["p"] == {
        "of": {"a": 7, "b": 'q"\\ ,)'},
        "during": {"lower": dt.date(2024, 1, 1), "upper": None, "bounds": "[)"},
        "moods": ["ok"],
        "pay": decimal.Decimal("2.00"),
    }
    assert one["ap"] == [{"a": 1, "b": "x"}, None, {"a": None, "b": "y z"}]
    assert one["ar"] == [{"lower": 1, "upper": 3, "bounds": "[)"}, {"lower": None, "upper": None, "bounds": "empty"}]
    assert one["nr"] == {"lower": None, "upper": "1.5", "bounds": "(]"}
    assert last["p"]["of"] == {"a": None, "b": None}


@pytest.mark.parametrize("seed", [1])
async def test_versions_are_the_tables(database: Database, tmp_path: Path, seed: int) -> None:
    """Random transactions over two tables, long values unsent, keys changed, TRUNCATE, a column added."""
    data, lake, chance = tmp_path / "data", tmp_path / "lake", random.Random(seed)
    data.mkdir()
    database.execute(
        "CREATE TABLE checking (id int PRIMARY KEY, cents bigint, note text)",
        "CREATE TABLE savings (id int, branch text, cents bigint, note text, PRIMARY KEY (branch, id))",
        "INSERT INTO checking SELECT g, 1000, repeat(md5(g::text), 300) FROM generate_series(1, 60) g",
        "INSERT INTO savings SELECT g, 'b' || g % 3, 1000, NULL FROM generate_series(1, 60) g",
    )
    async with looping(database, data) as loop:
        await loop.add("checking", "checking")
        await loop.add("savings", "savings")
        for number in range(5):
            for _ in range(10):
                cents, one, other = chance.randrange(100), chance.randrange(1, 61), chance.randrange(1, 61)
                database.execute(
                    f"WITH a AS (UPDATE checking SET cents = cents - {cents} WHERE id = {one} RETURNING 1)"  # noqa: S608 - names of this test
                    f" UPDATE savings SET cents = cents + (SELECT count(*) FROM a) * {cents} WHERE id = {other}"
                )
            database.execute(f"UPDATE checking SET id = id + 1000 WHERE id = {chance.randrange(1, 61)}")  # noqa: S608 - names of this test
            if number == 3:
                database.execute(
                    "ALTER TABLE savings ADD COLUMN opened date", "UPDATE savings SET opened = '2024-01-01'"
                )
                await eventually(lambda: "opened" in columns_of(loop, "savings"), "the successor")
            version = await version_at(loop, lake)
            for name in ("checking", "savings"):
                found = version.table(name).arrow().to_pylist()
                columns = [column for column in found[0] if not column.startswith("_")]
                texts = sorted((tuple(as_text(row[column]) for column in columns) for row in found), key=str)
                assert texts == loop.table(f"SELECT {', '.join(columns)} FROM {name}")  # noqa: S608 - names of this test
        database.execute("TRUNCATE checking")
        version = await version_at(loop, lake)
        assert version.table("checking").arrow().num_rows == 0


async def test_rows_that_only_an_alteration_wrote_come_with_the_next_look_and_all_at_once(
    newest_database: Database, tmp_path: Path
) -> None:
    """The stream does not tell of it. With a change of one row in the same transaction there is nothing in between."""
    database, data, lake = newest_database, tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    database.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in ("silent", "told", "other")),
        *(f"INSERT INTO {name} SELECT g, g FROM generate_series(1, 20) g" for name in ("silent", "told", "other")),  # noqa: S608 - names of this test
    )
    old, new = {number: number for number in range(1, 21)}, {number: 100 * number for number in range(1, 21)}
    async with looping(database, data) as loop:
        for name in ("silent", "told", "other"):
            await loop.add(name, name)
        await version_at(loop, lake)
        database.execute(
            "BEGIN; ALTER TABLE silent ALTER v TYPE bigint USING v * 100;"
            " ALTER TABLE told ALTER v TYPE bigint USING v * 100; UPDATE told SET v = v WHERE id = 1;"
            " UPDATE other SET v = v * 100; COMMIT"
        )
        seen = list[tuple[object, object, object]]()

        async def is_level() -> bool:
            version = await version_at(loop, lake)
            rows = [{row["id"]: row["v"] for row in version.table(name).arrow().to_pylist()} for name in version.tables]
            by_name = dict(zip(version.tables, rows, strict=True))
            seen.append((by_name["silent"], by_name["told"], by_name["other"]))
            return seen[-1] == (new, new, new)

        level: bool = await eventually(is_level, "a look at the catalog", 60)
    assert level
    assert {str(one) for one in seen} <= {str((silent, new, new)) for silent in (old, new)}


async def test_a_lake_that_begins_behind_a_truncate(newest_database: Database, tmp_path: Path) -> None:
    """The base is empty and ends in mid-log; a second table has only changes to tell."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    newest_database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, v text)",
        "INSERT INTO items SELECT g, 'old' FROM generate_series(1, 20) g",
    )
    async with looping(newest_database, data) as loop:
        entry = await loop.add("items", "items")
        await loop.add("items", "told", log="changes_only")
        newest_database.execute("TRUNCATE items", "INSERT INTO items VALUES (1, 'new'), (2, 'new')")
        await eventually(lambda: loop.living("items").handle != entry.handle, "a base behind the TRUNCATE")
        newest_database.execute("UPDATE items SET v = 'newer' WHERE id = 2")
        version = await version_at(loop, lake)
        rows = version.table("items").arrow().to_pylist()
        assert [(row["id"], row["v"]) for row in rows] == [(1, "new"), (2, "newer")]
        kinds = version.table("told").arrow("changes").column("_kind").to_pylist()
        assert kinds in (["truncate", "insert", "insert", "update"], ["insert", "insert", "update"])


def as_text(value: Any) -> str | None:
    return None if value is None else str(value)


def columns_of(loop: Loop, name: str) -> list[str]:
    entry = loop.app.house.registry.named(name)
    if entry is None or entry.shape.base is None:
        return []
    return [column.name for column in entry.definition.columns]
