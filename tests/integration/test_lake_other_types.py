"""Types that the lake has no type of its own for, and corners of those that it has: value by value beside the server.

As rows of a snapshot and as changes. What is text is the text that Postgres writes, character by character; the
elements of a list are those that it unnests; numbers and moments are what its driver makes of them.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from storage.lake.lake_reader import open_lake
from tests.integration.test_lake_postgres import version_at
from tests.loop import looping
from tests.postgres import Database

TEXTS: dict[str, list[str]] = {
    "bit(5)": ["10101"],
    "varbit": ["", "1"],
    "money": ["-1234.56", "92233720368547758.07"],
    "xml": ['<a b="c">x</a>', ""],
    "tsvector": ["a:1 b:2"],
    "tsquery": ["a & !b"],
    "hstore": ['a=>1, "b c"=>NULL'],
    "point": ["(1,2.5)"],
    "box": ["(1,1),(0,0)"],
    "box[]": ["{(1,1),(0,0);(2,2),(0,0)}"],
    "polygon": ["((0,0),(1,1))"],
    "inet": ["10.0.0.1/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "jsonpath": ["$.a[*]"],
    "pg_lsn": ["16/B374D848"],
    "xid8": ["18446744073709551615"],
    "oidvector": ["1 2 3"],
    "int2vector": ["4 5"],
    "regclass": ["pg_class"],
    '"char"': ["x"],
    "int4multirange": ["{[1,3),[5,9)}", "{}"],
    "tstzmultirange": ["{[2024-01-01,2024-01-02)}"],
    "int4multirange[]": ['{"{[1,3)}","{}"}'],
    "point[]": ['{"(1,2)","(3,4)"}'],
    "money[]": ['{1.00,"12,345.00"}'],
    "bit(3)[]": ["{101,010}"],
    "numeric(39,0)": ["9" * 39],
    "time": ["24:00:00", "23:59:59.999999"],
    "timetz": ["12:00:00+05:30", "24:00:00+00"],
}
"""Texts in the lake. An extension or a library that a server lacks costs its types only."""

LISTS: dict[str, list[str]] = {
    "hstore[]": ['{"a=>1, b=>2","c=>\\"x,y\\""}'],
    "inet[]": ["{10.0.0.1,::1}"],
    "jsonb[]": ['{"{\\"a\\": \\"b,c\\"}",[1],NULL,"null"}'],
    "time[]": ["{24:00,00:00}"],
    "name[]": ["{abc}"],
    "moods[]": ['{"a b","c,d","NULL"}'],
    "uuid[]": ["{7c5de1cc-8d0b-4b6c-9d4e-3a3f0e6c1b2a}"],
}
"""Lists of texts in the lake."""

VALUES: dict[str, list[str]] = {
    "real": ["1e-45", "3.4028235e+38", "-0", "Infinity"],
    "double precision": ["5e-324", "1.7976931348623157e+308", "-0", "-Infinity"],
    "numeric(38,10)": ["1234567890123456789012345678.0123456789", "-0.0000000001"],
    "numeric(4,4)": ["0.1234"],
    "date": ["0001-01-01", "1582-10-10", "9999-12-31"],
    "timestamp": ["0001-01-01 00:00:00", "1900-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"],
    "timestamptz": ["0001-01-02 00:00:00+00", "1500-01-01 00:00:00+14", "9999-12-31 23:59:59.999999+00"],
    "bytea": ["", "\\x00ff"],
    "bytea[]": ['{"\\\\x00ff","\\\\x",NULL}'],
    "boolean[]": ["{t,f,NULL}"],
    "double precision[]": ["{1e-310,-0}"],
    "date[]": ["{0001-01-01,NULL}"],
    "grid": ['{"{1,2}","{3}",NULL}'],
    "oid": ["4294967295"],
    "framed": ['(1,"{(2,2),(0,0);(1,1),(0,0)}")'],
}
"""What the driver reads as Python's values, as the lake does."""

QUARANTINED: dict[str, list[tuple[str, str, str]]] = {
    "int[]": [("{{1,2},{3,4}}", "{{1,2},{3,4}}", "dimensions"), ("[0:0]={7}", "[0:0]={7}", "dimensions")],
    "daterange": [("[2024-01-01,infinity]", "[2024-01-01,infinity]", "element")],
    "tstzrange": [('["0044-01-01 BC",)', '["0044-01-01 00:00:00+00 BC",)', "element")],
    "date": [("10000-01-01", "10000-01-01", "year_above_9999"), ("4713-01-01 BC", "4713-01-01 BC", "before_christ")],
    "timestamp": [("294276-12-31 23:59:59.999999", "294276-12-31 23:59:59.999999", "year_above_9999")],
    "timestamptz": [("-infinity", "-infinity", "infinite")],
}
"""What is written, how Postgres writes it, and why the lake cannot hold it."""


SHOWN = {
    "grid": "to_jsonb(v)",
    "real": "v::double precision",
    "framed": "jsonb_build_object('a', (v).a, 'b', (v).b::text)",
}
"""What the driver does not read as it is: an array of arrays, a number of 32 bits, and a composite, in which an array
whose elements have commas is a text."""


def cases(database: Database) -> list[tuple[str, str, Any]]:
    """Type, text and what is expected, for types that this server has."""
    database.execute(
        "CREATE TYPE moods AS ENUM ('a b', 'c,d', 'NULL')",
        "CREATE DOMAIN ints AS int[]",
        "CREATE TYPE framed AS (a int, b box[])",
    )
    found: list[tuple[str, str, Any]] = []
    with database.connect() as connection:
        connection.execute("SET timezone = 'UTC'")

        def ask(kind: str, text: str, shown: str) -> Any:
            statement = f"SELECT {shown} FROM (SELECT CAST(%s AS {kind}) v) one"  # noqa: S608 - names of this test
            row = connection.execute(statement.encode(), [text]).fetchone()
            assert row is not None
            return row[0]

        # Not `::text`, which is a cast of its own for some types.
        listed = "ARRAY(SELECT CASE WHEN e IS NOT NULL THEN format('%%s', e) END FROM unnest(v) e)"
        for texts, shown in ((TEXTS, "format('%%s', v)"), (LISTS, listed), (VALUES, "v")):
            for kind, values in texts.items():
                name = "ints[]" if kind == "grid" else kind
                try:
                    found += [(name, text, ask(name, text, SHOWN.get(kind, shown))) for text in values]
                except (psycopg.errors.UndefinedObject, psycopg.errors.FeatureNotSupported):
                    assert kind.startswith(("hstore", "xml")), f"{kind} is in every server"
    return found


@pytest.fixture
def with_extensions(database: Database) -> Database:
    with suppress(psycopg.errors.FeatureNotSupported):
        database.execute("CREATE EXTENSION hstore")
    return database


async def test_each_value_is_what_postgres_says_or_is_quarantined(with_extensions: Database, tmp_path: Path) -> None:
    database, data, lake = with_extensions, tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    known = cases(database)
    known += [(kind, text, None) for kind, entries in QUARANTINED.items() for text, _, _ in entries]
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(known))
    with database.connect() as connection:

        def fill() -> None:
            marks = ", ".join(["%s"] * len(known))
            insert = f"INSERT INTO other VALUES (1, {marks})"  # noqa: S608 - marks
            connection.execute(insert.encode(), [text for _, text, _ in known])
            connection.execute("INSERT INTO other (id) VALUES (2)")

        connection.execute(f"CREATE TABLE other (id int PRIMARY KEY, {columns})".encode())
        fill()
        async with looping(database, data) as loop:
            await loop.add("other", "other")
            version = await version_at(loop, lake)
            snapshot = version.table("other").arrow()
            connection.execute("DELETE FROM other")
            fill()
            version = await version_at(loop, lake)
            changed = version.table("other").arrow()
    assert open_lake(lake).latest().number >= 2
    wanted = {f"c{number}": (text, reason) for number, text, reason in expected_in_quarantine(known)}
    for rows in (snapshot, changed):
        one, empty = sorted(rows.to_pylist(), key=lambda row: int(row["id"]))
        for number, (kind, text, expected) in enumerate(known):
            assert repr(plain(one[f"c{number}"])) == repr(plain(expected)), f"{kind}: {text}"
        assert {entry["column"]: (entry["text"], entry["reason"]) for entry in one["_quarantined"]} == wanted
        assert {empty[name] for name in empty if name != "id"} == {None}
    assert version.table("other").facts.quarantined == 2 * len(wanted), "each is counted when it comes in"


def expected_in_quarantine(known: list[tuple[str, str, Any]]) -> list[tuple[int, str, str]]:
    entries = [(written, reason) for values in QUARANTINED.values() for _, written, reason in values]
    first = len(known) - len(entries)
    return [(first + number, *entry) for number, entry in enumerate(entries)]


def plain(value: Any) -> Any:
    """Without the name that somebody gave to UTC."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.timestamp() if getattr(value, "tzinfo", None) is not None else value
