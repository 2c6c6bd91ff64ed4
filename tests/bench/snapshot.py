r"""How fast a table is copied into a base, beside `psql \copy` of the same rows to a file, in interleaved rounds.

Psql's clock runs over its whole process, ours from before the connection to the synced end mark.
"""

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from shapes.snapshot_copy import copy_snapshot
from shapes.snapshot_transaction import Selection, SnapshotTransaction
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.limits import CHUNK_WIRE_BYTES
from storage.log_facts import LogFacts
from storage.store import Store
from tests.bench.measuring import MB, options_parser, progress, scaled, scratch
from tests.bench.process_memory import peak_bytes
from tests.bench.rows import Row, compared
from tests.postgres import Server

ROWS = 1_000_000
RATIO_MIN = {"ten columns": 1 / 1.5, "two columns": 1 / 1.5}
"""At most half as long again. Escapes in each value of tiny rows are shown only: we decode them, psql does not."""
SETTINGS = {"shared_buffers": "512MB", "autovacuum": "off", "max_wal_size": "4GB"}

TABLES = {
    "ten columns": "SELECT i AS id, i * 7 AS n, 'name ' || i AS name, md5(i::text) AS h, i % 2 = 0 AS b, "
    "(i / 3.0)::numeric(12, 3) AS num, now() + i * interval '1 s' AS ts, 'text that is in each row ' || i AS t, "
    "NULL::text AS nothing, i::float8 / 7 AS f FROM generate_series(1, {rows}) i",
    "two columns": "SELECT i AS id, 'note ' || i AS note FROM generate_series(1, {rows}) i",
    "escapes": r"SELECT i AS id, E'a\tb\\c\n' || i AS note FROM generate_series(1, {rows}) i",
}


def psql_seconds(server: Server, folder: Path) -> float:
    began = time.perf_counter()
    file = folder.resolve() / "psql.out"
    command = rf"\copy (SELECT * FROM copied) TO '{file}'"  # noqa: S608 - a path of ours
    subprocess.run([server.programs / "psql", server.conninfo(), "-qc", command], check=True)
    return time.perf_counter() - began


async def our_seconds(server: Server, store: Store, selection: Selection, rows: int) -> float:
    began = time.perf_counter()
    transaction = await SnapshotTransaction.open(server.conninfo(), "bench", selection)
    try:
        base = await copy_snapshot(transaction, store.new_base(1), CHUNK_WIRE_BYTES, Clocks())
    finally:
        await transaction.close()
    assert base.rows == rows
    return time.perf_counter() - began


def measure(server: Server, folder: Path, name: str, rows: int, rounds: int) -> Row:
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS copied")
        admin.execute(f"CREATE TABLE copied AS {TABLES[name].format(rows=rows)}".encode())
        admin.execute("VACUUM ANALYZE copied")
        query = (
            "SELECT attrelid::int8, array_agg(attname::text ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = 'copied'::regclass AND attnum > 0 GROUP BY 1"
        )
        found = admin.execute(query).fetchone()
        assert found is not None
    selection = Selection(found[0], "public", "copied", tuple(found[1]))
    theirs, ours = list[float](), list[float]()
    for number in range(rounds):
        progress(f"snapshot: {name}, round {number + 1} of {rounds}")
        with scratch(folder) as data:
            theirs.append(psql_seconds(server, data))
            store = Store(LocalDisk(data), Clocks())
            store.create_log(LogFacts(1, "bench"))
            ours.append(asyncio.run(our_seconds(server, store, selection, rows)))
    mine, limit = ([rows / seconds for seconds in times] for times in (ours, theirs))
    return compared(f"copy of a table, {name}", "rows/s", mine, limit, ratio_min=RATIO_MIN.get(name))


def run(arguments: list[str]) -> list[Row]:
    parser = options_parser("snapshot", __doc__)
    parser.add_argument("--version", default="15", help="of Postgres")
    options = parser.parse_known_args(arguments)[0]  # options of the other benchmarks are not ours
    rows = scaled(ROWS, options.scale)
    with tempfile.TemporaryDirectory(prefix="snapshot") as folder:
        Path(folder).chmod(0o755)
        server = Server(options.version, Path(folder) / "server", SETTINGS)
        server.create()
        server.start()
        try:
            found = [measure(server, options.folder, name, rows, options.rounds) for name in TABLES]
        finally:
            server.stop("immediate")
    return [*found, Row("memory at most, whole process", peak_bytes() / MB, "MB")]
