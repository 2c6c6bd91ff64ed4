"""From a writer's statement to a reader of the shape, while a hundred write: the whole program beside a real Postgres.

A row says when it was made, by the clock that the reader has too; so its own commit is part of what is measured.
Transactions have ten changes: a hundred writers on a small machine make no more of them than that.
"""

import http.client
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.bench.measuring import progress, scaled
from tests.bench.rows import Row, bounded
from tests.postgres import Database, Server, binaries
from tests.served import Served, serving

WRITERS = 100
RATES = (1_000, 10_000)
TRANSACTION_CHANGES = 10
SECONDS = 20
MEDIAN_MS_MAX, MOST_MS_MAX = 10, 50
ANSWER_SECONDS_MAX = 60
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "max_connections": "150"}
TABLE = "CREATE TABLE changes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at float8)"
LAST = "INSERT INTO changes (at) VALUES (0)"
SCRIPT = "INSERT INTO changes (at) SELECT extract(epoch FROM clock_timestamp()) FROM generate_series(1, :changes);\n"


def writers(scale: float) -> list[Row]:
    """Latencies at each rate, each on a server of its own."""
    rows: list[Row] = []
    for rate in RATES:
        progress(f"serve: {WRITERS} writers, {rate:,} changes/s")
        with tempfile.TemporaryDirectory(prefix="writers") as name:
            folder = Path(name)
            folder.chmod(0o755)
            server = Server(max(binaries(), key=int), folder / "server", SETTINGS)
            server.create()
            server.start()
            try:
                rows += _rows(rate, *_measured(Database(server, "postgres"), folder, rate, scaled(SECONDS, scale)))
            finally:
                server.stop("immediate")
    return rows


def _rows(rate: int, latencies_ms: list[float], seconds: float) -> list[Row]:
    settled = latencies_ms[len(latencies_ms) // 10 :]
    median, most = statistics.quantiles(settled, n=100)[49::49]
    name = f"{WRITERS} writers, {rate:,} changes/s: statement to reader"
    came = Row(f"{WRITERS} writers, {rate:,} changes/s: those that came", len(latencies_ms) / seconds, "changes/s")
    if rate > min(RATES):  # the targets are of a reader whose writers leave it some of the processor
        return [came, Row(f"{name}, median", median, "ms"), Row(f"{name}, 99 of 100", most, "ms")]
    return [
        came,
        bounded(f"{name}, median", "ms", [median], value_max=MEDIAN_MS_MAX),
        bounded(f"{name}, 99 of 100", "ms", [most], value_max=MOST_MS_MAX),
    ]


def _measured(database: Database, folder: Path, rate: int, seconds: int) -> tuple[list[float], float]:
    """How long each change took, in milliseconds, and how long all of it."""
    database.execute(TABLE)
    script = folder / "script.sql"
    script.write_text(SCRIPT, "ascii")
    with serving(database, folder / "data") as served:
        served.active()
        served.add("changes")
        reader = _Reader(served)
        command = [
            str(database.server.programs / "pgbench"),
            *("--no-vacuum", f"--client={WRITERS}", "--jobs=2", f"--time={seconds}"),
            *(f"--rate={rate / TRANSACTION_CHANGES:g}", f"--define=changes={TRANSACTION_CHANGES}", f"--file={script}"),
            database.conninfo(),
        ]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as writing:
            found = reader.follow(lambda: writing.poll() is not None, database)
            lasted = time.perf_counter() - began
        assert writing.returncode == 0, "the writers failed"
    return found, lasted


class _Reader:
    """One live reader, by long polls."""

    def __init__(self, served: Served) -> None:
        address = urlsplit(served.url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_SECONDS_MAX)
        self._place = "offset=now"
        self._answer()  # before anybody writes

    def follow(self, is_over: Callable[[], bool], database: Database) -> list[float]:
        """The latencies of all changes, until the last one after the writers have ended."""
        found: list[float] = []
        is_last_made = False
        while True:
            messages, now = self._answer()
            times = [float(one["value"]["at"]) for one in messages if "value" in one]
            found += [(now - at) * 1_000 for at in times if at]
            if 0.0 in times:
                return found
            if not is_last_made and is_over():
                database.execute(LAST)
                is_last_made = True

    def _answer(self) -> tuple[list[dict[str, Any]], float]:
        """What came, and when it had."""
        self._connection.request("GET", f"/v1/shape?table=changes&{self._place}", headers={"host": "localhost"})
        answer = self._connection.getresponse()
        body = answer.read()
        now = time.time()
        assert answer.status == 200, body
        handle, offset = answer.headers["electric-handle"], answer.headers["electric-offset"]
        live = "&live=true" if "electric-up-to-date" in answer.headers else ""
        self._place = f"handle={handle}&offset={offset}{live}"
        messages: list[dict[str, Any]] = orjson.loads(body)
        return messages, now
