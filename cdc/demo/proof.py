"""The end of the demo: what Postgres has, at one LSN, is held against what readers got, and what the lake has.

Proven of each shape: the rows that were followed over all kills, the rows of a second reader that began anew, and the
rows in Parquet are those of Postgres, value by value; and whoever followed saw as many changes as were committed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import IsolationLevel, sql

from cdc.demo.fold import Fold, Mismatch, Rows, compare
from cdc.demo.lake import Lake
from cdc.demo.outcome import Compared
from cdc.demo.reader import read_once
from cdc.demo.shapes import DemoShape
from cdc.demo.tally import Tally
from cdc.embedded.server import Server
from cdc.source.lsn import parse_lsn

CATCH_UP_SECONDS_MAX: Final = 60.0
"""For everything that was committed to be confirmed, and then to be read; a second on an idle machine."""

LOOK_SECONDS: Final = 0.2


class TooSlow(Exception):
    """Something did not come within its time."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What Postgres has."""

    lsn: str
    columns: Mapping[str, list[str]]
    rows: Mapping[str, Rows]


async def truth(url: str, shapes: Sequence[DemoShape]) -> Truth:
    """All rows of all shapes at one moment, after which nobody wrote any more."""
    columns, rows = {}, {}
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        answer = await (await connection.execute("SELECT pg_current_wal_flush_lsn()::text")).fetchone()
        assert answer is not None, "this query has a row"
        for shape in shapes:
            where = sql.SQL("" if shape.where is None else " WHERE " + shape.where)
            cursor = await connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(shape.table)) + where)
            names = [column.name for column in cursor.description or ()]
            places = [names.index(name) for name in shape.key]
            columns[shape.name] = names
            rows[shape.name] = {tuple(row[place] for place in places): row for row in await cursor.fetchall()}
    return Truth(str(answer[0]), columns, rows)


async def confirmed(server: Server, lsn: str) -> None:
    """Return when G is there: everything below it is durable in all logs."""
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
            while True:
                server.child.must_run()
                status = await server.status()
                if status is not None and parse_lsn(status["global_flushed_lsn"]) >= parse_lsn(lsn):
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise TooSlow(f"not all up to {lsn} was confirmed within {CATCH_UP_SECONDS_MAX:.0f} s") from None


async def prove(
    shapes: Sequence[DemoShape],
    wanted: Truth,
    server: Server,
    folds: Mapping[str, Fold],
    tally: Tally,
    lake: Lake | None,
) -> list[Compared]:
    """Compare all. Raises `Mismatch` or `TooSlow`."""
    await _followed(shapes, wanted, folds, tally)
    if lake is not None:
        await _in_the_lake(lake, wanted)
    found = []
    for shape in shapes:
        rows, columns, fold = wanted.rows[shape.name], wanted.columns[shape.name], folds[shape.name]
        again = await read_once(server.url, shape)
        compare(shape.name, "a second reader", again.keyed(shape.key, columns), rows)
        parquet = None
        if lake is not None:
            stored = await asyncio.to_thread(lake.rows, shape, columns)
            compare(shape.name, "the lake", stored, rows)
            parquet = len(stored)
        committed = _changes(shape, fold, tally)
        found.append(Compared(shape.name, len(rows), len(fold.rows), parquet, fold.changes, committed))
    return found


async def _followed(shapes: Sequence[DemoShape], wanted: Truth, folds: Mapping[str, Fold], tally: Tally) -> None:
    """Return when those who followed have everything; what they lack after a while is a mismatch."""
    mismatch: Mismatch | None = None
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
            while True:
                for shape in shapes:
                    _not_too_many(shape, folds[shape.name], tally)
                try:
                    for shape in shapes:
                        _compare_followed(shape, wanted, folds[shape.name], tally)
                except Mismatch as found:
                    mismatch = found
                else:
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise mismatch or TooSlow("nothing was compared") from None


def _not_too_many(shape: DemoShape, fold: Fold, tally: Tally) -> None:
    committed = _changes(shape, fold, tally)
    if committed is not None and fold.changes > committed:
        raise Mismatch(f"{shape.name}: {fold.changes:,} changes came over HTTP, and only {committed:,} were committed")


def _compare_followed(shape: DemoShape, wanted: Truth, fold: Fold, tally: Tally) -> None:
    committed = _changes(shape, fold, tally)
    if committed is not None and fold.changes != committed:
        raise Mismatch(f"{shape.name}: {fold.changes:,} changes came over HTTP, and {committed:,} were committed")
    rows = fold.keyed(shape.key, wanted.columns[shape.name])
    compare(shape.name, "the reader over HTTP", rows, wanted.rows[shape.name])


def _changes(shape: DemoShape, fold: Fold, tally: Tally) -> int | None:
    return None if shape.where is not None or fold.restarts else tally.changes[shape.table]


async def _in_the_lake(lake: Lake, wanted: Truth) -> None:
    try:
        await lake.reached(parse_lsn(wanted.lsn))
    except TimeoutError:
        raise TooSlow(f"the lake did not reach {wanted.lsn} in time") from None
