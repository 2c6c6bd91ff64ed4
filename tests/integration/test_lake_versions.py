"""Every version that comes out while a server is written to: all tables at once are what SELECT said at that moment.

One client moves money between tables, and counts its transactions in a table of its own. So a version says itself up to
which transaction it goes; after each of them the client asked the server what all tables have.
"""

import asyncio
import functools
import hashlib
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any, LiteralString

import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa

from cdc.source.lsn import parse_lsn
from storage.lake.lake_reader import LakeTable, open_lake
from storage.lake.materialize import Order, Told, materialize
from storage.lake.spark import run_here
from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually

ACCOUNTS = 30
TRANSACTIONS_MAX = 20_000
VERSIONS = 12
COLUMNS = {"checking": ["id", "cents", "note"], "savings": ["branch", "id", "cents"], "clock": ["id", "ticks"]}
QUERIES: dict[str, LiteralString] = {
    "checking": "SELECT id, cents, md5(note) FROM checking",
    "savings": "SELECT branch, id, cents FROM savings",
    "clock": "SELECT id, ticks FROM clock",
}
Tables = dict[str, list[tuple[Any, ...]]]
MADE: list[LiteralString] = [
    "CREATE TABLE checking (id int PRIMARY KEY, cents bigint, note text)",
    "CREATE TABLE savings (branch text, id int, cents bigint, PRIMARY KEY (branch, id))",
    "CREATE TABLE clock (id int PRIMARY KEY, ticks int)",
    "INSERT INTO checking SELECT g, 1000, repeat(md5(g::text), 200) FROM generate_series(1, 30) g",
    "INSERT INTO savings SELECT 'b' || g % 3, g, 1000 FROM generate_series(1, 30) g",
    "INSERT INTO clock VALUES (1, 0)",
]


def transact(database: Database, seed: int, is_enough: Callable[[], bool]) -> tuple[list[Tables], list[int]]:
    """What all tables have after each transaction, and a place in the WAL behind it."""
    chance, seen, ends = random.Random(seed), [], []
    with database.connect() as connection:

        def look() -> None:
            seen.append({name: sorted(connection.execute(query).fetchall()) for name, query in QUERIES.items()})
            place = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert place is not None
            ends.append(int(parse_lsn(place[0])))

        look()
        while not is_enough() and len(seen) < TRANSACTIONS_MAX:
            with connection.transaction():
                for _ in range(chance.randrange(1, 4)):
                    transfer(connection, chance, len(seen))
                connection.execute("UPDATE clock SET ticks = %s", [len(seen)])
            look()
    return seen, ends


def transfer(connection: Any, chance: random.Random, number: int) -> None:
    """From checking to savings or back; a row moves by its key, goes and comes again, a note is written or not sent."""
    cents, one, other = chance.randrange(-50, 50), chance.randrange(1, ACCOUNTS + 1), chance.randrange(1, ACCOUNTS + 1)
    connection.execute("UPDATE checking SET cents = cents - %s WHERE id = %s", [cents, one])
    connection.execute("UPDATE savings SET cents = cents + %s WHERE id = %s", [cents, other])
    match chance.randrange(8):
        case 0:
            connection.execute("UPDATE savings SET branch = %s WHERE id = %s", [f"b{number}", other])
        case 1:
            row = connection.execute("DELETE FROM checking WHERE id = %s RETURNING *", [one]).fetchone()
            connection.execute("INSERT INTO checking VALUES (%s, %s, %s)", row)
        case 2:
            connection.execute("UPDATE checking SET note = %s WHERE id = %s", [f"{number}" * 900, one])


async def test_each_version_is_what_select_said(newest_database: Database, tmp_path: Path) -> None:
    data, lake, stop = tmp_path / "data", tmp_path / "lake", Event()
    data.mkdir()
    for statement in MADE:
        newest_database.execute(statement)
    async with looping(newest_database, data) as loop:
        for name in COLUMNS:
            await loop.add(name, name)
        await loop.caught_up()
        order = Order(data, lake, every_seconds=0.02, stop=stop)
        told: list[Told] = []
        following = asyncio.create_task(asyncio.to_thread(materialize, order, run_here, told.append))
        await eventually(lambda: any(has_all(one) for one in told), "a version with all tables", 60)
        seen, ends = await asyncio.to_thread(transact, newest_database, 3, lambda: sum(map(has_all, told)) >= VERSIONS)
        end = await loop.caught_up()
        await eventually(lambda: order.metrics.level is not None and order.metrics.level >= end, "the lake", 60)
        stop.set()
        await following
    versions = [version for version in open_lake(lake).versions() if len(version.tables) == len(COLUMNS)]
    assert len(versions) >= VERSIONS
    last, reached = len(seen) - 1, []
    for version in versions:
        found = {name: doors(version.table(name), columns) for name, columns in COLUMNS.items()}
        ((_, ticks),) = found["clock"][0]
        for name, rows in seen[ticks].items():
            for door, read in enumerate(found[name]):
                assert read == rows, f"{name} at version {version.number}, door {door}"
        money = [row[1] for row in found["checking"][0]] + [row[2] for row in found["savings"][0]]
        assert sum(money) == 2 * ACCOUNTS * 1000
        assert ticks == last or version.lsn <= ends[ticks + 1], "it has what was committed below its LSN"
        assert ticks == 0 or version.lsn > ends[ticks - 1], "and nothing else"
        reached.append(ticks)
    assert reached[0] == last
    assert len(set(reached)) > VERSIONS / 2, "they came while the client wrote"
    assert all(later >= earlier for later, earlier in pairwise(reached)), "a later version never has less"


def has_all(told: Told) -> bool:
    """A shape joins with the first G that lists it."""
    return told.step.version is not None and len(told.step.version.tables) == len(COLUMNS)


def doors(table: LakeTable, columns: list[str]) -> list[list[tuple[Any, ...]]]:
    """The rows as each engine reads them: DuckDB and Polars, files and the Delta log, and the lake itself."""
    folder, version = str(Path(table.files()[0]).parent), table.delta().version()
    found: list[pa.Table] = [
        duckdb.read_parquet(table.files()).to_arrow_table(),
        with_delta().execute("FROM delta_scan(?, version := ?)", [folder, version]).to_arrow_table(),
        pl.scan_parquet(table.files()).collect().to_arrow(),
        pl.scan_delta(folder, version=version).collect().to_arrow(),
        table.arrow(),
    ]
    return [sorted(tuple(map(shortened, row.values())) for row in read.select(columns).to_pylist()) for read in found]


@functools.cache
def with_delta() -> duckdb.DuckDBPyConnection:
    """A DuckDB that reads Delta logs: by an extension that comes as a package, where others download it."""
    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def shortened(value: Any) -> Any:
    """As the queries shorten notes."""
    return hashlib.md5(value.encode()).hexdigest() if isinstance(value, str) and len(value) > 100 else value  # noqa: S324 - as md5() does
