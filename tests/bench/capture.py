"""How fast a backlog becomes durable logs, acknowledged, beside `pg_recvlogical` writing it to nowhere.

The app is made ready with its shapes and stopped, and the load written. Then each in turn drains a copy of the slot,
ours into a copy of the folder. Our clock runs from the start of the app to the confirmation, that of pg_recvlogical
over its whole process. Shapes in thousands are put into the folder as the program would leave them, not born one by
one.

With indexed shapes the rate is that of the stream: the clock starts when the first part of the load, which opens all
logs, is confirmed; what came before is shown as the start's seconds. How much of the rest was confirmed by then is left
out, by its share of the WAL: counted in full, a load that is taken in few pieces would take no time at all.

Our process is as `shapelog serve` makes it: its memory settled, the loop uvloop's. A run begins with questions to the
server and ends with some hundredths of a second, of which pg_recvlogical knows nothing: the stream falls quiet, the
last rows are flushed, and G is stored. They count, so small scales are unjust to us.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

from cdc.app import AppSettings, running
from cdc.source.lsn import parse_lsn
from shapes.registry import Registry
from shapes.requests import Request, define
from shapes.tables import find_table
from storage.catalog import Catalog
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END
from storage.store import Store
from tests.bench._drain_loads import loads
from tests.bench._slots import drop_slot
from tests.bench.drain import SETTINGS, Reader
from tests.bench.measuring import progress
from tests.bench.rows import Row
from tests.postgres import Server, binaries

SLOT = "shapelog"
RATIO_TARGET = 0.9
SHARE_OF_ONE_TARGET = 0.5
PEAK_TARGET_MB = 300

TENANTS: LiteralString = """
    CREATE TABLE events (id bigint PRIMARY KEY, tenant int, kind text, what text, at timestamptz);
    CREATE PROCEDURE fill_events(first int, last int, size int, tenants int) LANGUAGE plpgsql AS $$
    BEGIN
        FOR number IN first..last LOOP
            INSERT INTO events SELECT n, n::bigint * 7919 % tenants, 'kind ' || n % 9, md5(n::text), now()
            FROM generate_series((number - 1) * size + 1, number * size) n;
            COMMIT;
        END LOOP;
    END $$;
"""


@dataclass(frozen=True)
class Case:
    """A load, and the shapes that follow it."""

    name: str
    prepare: LiteralString
    call: LiteralString
    arguments: tuple[int, ...]
    changes: int
    tables: tuple[str, ...]
    wheres: tuple[str | None, ...] = (None,)
    first: tuple[int, ...] = ()
    """Arguments of a first part of the load; the changes of this one are not counted."""


def cases(scale: float) -> list[Case]:
    """The four loads with a shape for each table; then more and more shapes of one table."""
    tables = {"fill_orders": ("orders",), "move_money": ("accounts",)}
    shop = ("points", "articles", "settings", "readings", "papers")
    found = [
        Case(load.name, load.prepare, load.call, load.arguments, load.changes, tables.get(load.call, shop))
        for load in loads(scale)
    ]
    many = max(1, round(1000 * scale))
    found += [case_of_shapes(count, many) for count in (1, 100, 1_000, 10_000)]
    for count in (100, 1_000):
        wheres = tuple(f"tenant + 0 = {number}" for number in range(count))
        found.append(_events(f"{count:,} unindexed shapes", max(1, many // 10), 1000, wheres, first=0))
    return found


def case_of_shapes(count: int, transactions: int = 1) -> Case:
    """So many shapes of one table, of which each wants another tenant's rows."""
    wheres = tuple(f"tenant = {number}" for number in range(count)) if count > 1 else (None,)
    name = f"{count:,} indexed shapes" if count > 1 else "one shape"
    return _events(name, transactions, max(count, 100), wheres)


def _events(name: str, transactions: int, tenants: int, wheres: tuple[str | None, ...], first: int = 2) -> Case:
    """Rows for all tenants in turn, in transactions of a thousand; if any come first, then enough for each tenant."""
    first = max(first, tenants // 1000) if first else 0
    arguments = (first + 1, first + transactions, 1000, tenants)
    before = (1, first, 1000, tenants) if first else ()
    return Case(name, TENANTS, "fill_events", arguments, transactions * 1000, ("events",), wheres, before)


def run(arguments: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(prog="capture")
    parser.add_argument("--scale", type=float, default=0.1, help="1.0 is a million changes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="15", help="of Postgres; its pg_recvlogical is the one compared with")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_known_args(arguments)[0]
    rows: list[Row] = []
    one_rate: float | None = None
    for case in cases(options.scale):
        if options.only not in case.name:
            continue
        progress(f"capture: {case.name}")
        with _server(options.version) as (server, folder):
            theirs, ours, start, shares = _measure(server, folder, case, options.rounds)
        found = _rows(case, theirs, ours, shares, one_rate)
        if case.first:
            found.append(Row(case.name, start, "s to start"))
        rows += found
        if case.name == "one shape":
            one_rate = found[0].value
    return rows


@contextmanager
def _server(version: str) -> Iterator[tuple[Server, Path]]:
    with tempfile.TemporaryDirectory(prefix="capture") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(version, folder / "server", SETTINGS)
        server.create()
        server.start()
        try:
            yield server, folder
        finally:
            server.stop("immediate")


def _measure(server: Server, folder: Path, case: Case, rounds: int) -> tuple[Reader, Reader, float, list[float]]:
    """Theirs, ours, the seconds that our start took, and of each round which share of the load was measured."""
    conninfo, starts, shares = server.conninfo(), list[float](), list[float]()
    theirs, ours = Reader("pg_recvlogical", None, conninfo), Reader("shapelog", "APP", conninfo)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(case.prepare)
        connection.execute("VACUUM ANALYZE")
        asyncio.run(prepare_folder(conninfo, folder / "data", case))
        connection.execute("CHECKPOINT")
        warm = _write(connection, case.call, case.first) if case.first else "0/0"
        end = _write(connection, case.call, case.arguments)
        connection.execute("CHECKPOINT")
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, 'loaded')", [SLOT])
        for _ in range(rounds):
            connection.execute("SELECT pg_copy_logical_replication_slot('loaded', 'drained')")
            theirs.drain("drained", end, case.changes, binaries()[server.version], publication=SLOT)
            drop_slot(connection, "drained")
            drop_slot(connection, SLOT)
            connection.execute("SELECT pg_copy_logical_replication_slot('loaded', %s)", [SLOT])
            data = folder / "copy"
            shutil.copytree(folder / "data", data)
            module = "tests.bench._capture_reader"
            places = [str(parse_lsn(warm)), str(parse_lsn(end))]
            found = json.loads(ours.run([sys.executable, "-m", module, conninfo, str(data), *places]))
            ours.seconds[-1], ours.cpu[-1], ours.peak[-1] = found["seconds"], found["cpu"], found["peak"]
            starts.append(found["start"])
            shares.append(found["share"])
            shutil.rmtree(data)
    return theirs, ours, statistics.median(starts), shares


def _write(connection: "psycopg.Connection[tuple[object, ...]]", call: str, arguments: tuple[int, ...]) -> str:
    """Write a load; where its end is."""
    connection.execute(f"CALL {call}({', '.join(['%s'] * len(arguments))})".encode(), arguments)
    connection.execute("SELECT pg_logical_emit_message(true, 'end', '')")
    return str(connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0])  # type: ignore[index]  # a row


async def prepare_folder(conninfo: str, data: Path, case: Case) -> None:
    """A folder with its shapes, and a slot that begins where they do."""
    async with running(AppSettings(conninfo, data)) as app:
        for table in case.tables:
            async with app.house.control() as connection:
                facts = await find_table(connection, table)
            assert await app.nursery.order(define(Request(where=case.wheres[0]), facts)).done
        snapshot = app.house.registry.living()[0].shape.snapshot
    if len(case.wheres) > 1:
        disk, clocks = LocalDisk(data), Clocks()
        store, registry = Store(disk, clocks), Registry(Catalog(disk), clocks.wall, clocks.monotonic())
        for where in case.wheres[1:]:
            definition = define(Request(where=where), facts)
            entry = registry.born(definition, snapshot, clocks.monotonic())
            store.create_log(LogFacts(entry.log, entry.handle, definition.view.key))
            writer = store.new_base(entry.log)
            base = writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=clocks.wall())
            registry.ready(entry.handle, base.number)
        disk.close()


def _rows(case: Case, theirs: Reader, ours: Reader, shares: list[float], one_rate: float | None) -> list[Row]:
    all_changes = case.changes + (case.first[1] * 1000 if case.first else 0)  # pg_recvlogical drains both parts
    limits = [all_changes / seconds for seconds in theirs.seconds]
    rates = [case.changes * share / seconds for share, seconds in zip(shares, ours.seconds, strict=True)]
    limit, rate = statistics.median(limits), statistics.median(rates)
    ratio = statistics.median(mine / his for mine, his in zip(rates, limits, strict=True))
    cpu = statistics.median(spent / (case.changes * share) for spent, share in zip(ours.cpu, shares, strict=True))
    is_load = case.call != "fill_events"
    rows = [
        Row(
            case.name,
            rate,
            "changes/s",
            limit,
            ratio,
            f">= {RATIO_TARGET}" if is_load else "",
            ratio >= RATIO_TARGET if is_load else None,
        )
    ]
    if one_rate is not None and "10,000" in case.name:
        share = rate / one_rate
        rows.append(
            Row(
                f"{case.name}, share of one shape's rate",
                rate,
                "changes/s",
                one_rate,
                share,
                f">= {SHARE_OF_ONE_TARGET}",
                share >= SHARE_OF_ONE_TARGET,
            )
        )
    rows.append(Row(case.name, cpu * 1e6, "CPU s per 1M"))
    peak = max(ours.peak) / 1e6
    rows.append(Row(case.name, peak, "MB peak", target=f"<= {PEAK_TARGET_MB}", met=peak <= PEAK_TARGET_MB))
    return rows
