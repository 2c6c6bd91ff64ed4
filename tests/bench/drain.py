"""How fast a backlog is drained, decode included, beside `pg_recvlogical` writing it to nowhere.

Every reader drains a copy of the same slot, in turn, in interleaved rounds; a ratio is the median of the rounds'
ratios. Our clock runs from before the connection to the last fragment; pg_recvlogical's over its whole process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from cdc.source.lsn import parse_lsn
from tests.bench._drain_loads import PUBLICATION, Load, loads
from tests.bench._slots import drop_slot
from tests.bench.rows import Row
from tests.postgres import Server, binaries

SETTINGS = {
    "shared_buffers": "512MB",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1d",
    "wal_sender_timeout": "0",
    "logical_decoding_work_mem": "64MB",
}
RATIO_TARGETS = {"LIBPQ": 0.9, "PLAIN": 1.05}
CPU_TARGETS = {"LIBPQ": 2.5, "PLAIN": 2.0}
PEAK_TARGET_MB = 150


@dataclass
class Reader:
    """Somebody who drains the slot, and what that took in each round."""

    name: str
    framing: str | None
    conninfo: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)

    def drain(self, slot: str, end: str, changes: int, programs: Path, publication: str = PUBLICATION) -> None:
        options = {"proto_version": "1", "publication_names": publication}
        if self.framing is None:
            words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
            where = ["--dbname", self.conninfo, "--slot", slot, "--endpos", end]
            command = [str(programs / "pg_recvlogical"), *where, "--start", "--no-loop", "-f", "/dev/null", *words]
            self.run(command)
            return
        given = ", ".join(f"{name} '{value}'" for name, value in options.items())
        start = f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({given})"
        module = "tests.bench._drain_reader"
        command = [sys.executable, "-m", module, self.conninfo, start, str(parse_lsn(end)), self.framing]
        found = json.loads(self.run(command))
        assert found["changes"] == changes, found
        self.seconds[-1], self.cpu[-1], self.peak[-1] = found["seconds"], found["cpu"], found["peak"]

    def run(self, command: list[str]) -> bytes:
        """Run a program; its seconds and processor time are noted."""
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            output = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{command[0]} failed with {process.returncode}")
        self.seconds.append(time.perf_counter() - began)
        self.cpu.append(used.ru_utime + used.ru_stime)
        self.peak.append(0.0)  # the system's figure is that of whoever started it; our readers tell their own
        return output


def run(arguments: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(prog="drain")
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is a million changes; 0.1 for a quick look")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="15", help="of Postgres; its pg_recvlogical is the one compared with")
    parser.add_argument("--only", default="", help="loads whose name contains this")
    parser.add_argument("--tcp", action="store_true", help="over TCP on loopback too")
    options = parser.parse_known_args(arguments)[0]
    with tempfile.TemporaryDirectory(prefix="drain") as folder:
        Path(folder).chmod(0o755)
        server = Server(options.version, Path(folder) / "server", SETTINGS)
        server.create()
        server.start()
        try:
            return [
                row
                for load in loads(options.scale)
                if options.only in load.name
                for row in _measure(server, load, options.rounds, tcp=options.tcp)
            ]
        finally:
            server.stop("immediate")


def _measure(server: Server, load: Load, rounds: int, *, tcp: bool) -> list[Row]:
    programs = binaries()[server.version]
    ways = {"unix": server.conninfo(dbname="bench")} | (
        {"tcp": server.conninfo(dbname="bench", host="127.0.0.1")} if tcp else {}
    )
    readers = {
        way: [
            Reader("pg_recvlogical", None, conninfo),
            Reader("through libpq", "LIBPQ", conninfo),
            Reader("own framing", "PLAIN", conninfo),
        ]
        for way, conninfo in ways.items()
    }
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE bench")
    with psycopg.connect(server.conninfo(dbname="bench"), autocommit=True) as connection:
        connection.execute(load.prepare)
        connection.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES")
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
        connection.execute("SELECT pg_create_logical_replication_slot('loaded', 'pgoutput')")
        load.write(connection)
        connection.execute("SELECT pg_logical_emit_message(true, 'end', '')")
        end = str(connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0])  # type: ignore[index]  # a row
        connection.execute("CHECKPOINT")  # else the last WAL may not be on disk, which the walsender waits for
        for _ in range(rounds):
            for reader in (reader for way in readers.values() for reader in way):
                connection.execute("SELECT pg_copy_logical_replication_slot('loaded', 'drained')")
                reader.drain("drained", end, load.changes, programs)
                drop_slot(connection, "drained")
        drop_slot(connection, "loaded")
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("DROP DATABASE bench WITH (FORCE)")
    return [row for way, present in readers.items() for row in _rows(load, way, present)]


def _rows(load: Load, way: str, readers: list[Reader]) -> list[Row]:
    base = readers[0]
    limit = load.changes / statistics.median(base.seconds)
    rows = []
    for reader in readers:
        name = f"{load.name}, {way}, {reader.name}"
        ratio = statistics.median(theirs / ours for theirs, ours in zip(base.seconds, reader.seconds, strict=True))
        rate = load.changes / statistics.median(reader.seconds)
        wanted = RATIO_TARGETS.get(reader.framing or "")
        target = f">= {wanted}" if wanted and way == "unix" else ""
        rows.append(Row(name, rate, "changes/s", limit, ratio, target, ratio >= wanted if wanted and target else None))
        cpu = statistics.median(reader.cpu) / load.changes * 1e6
        cpu_max = CPU_TARGETS.get(reader.framing or "") if load.name.startswith("1,000") and way == "unix" else None
        rows.append(
            Row(
                name,
                cpu,
                "CPU s per 1M",
                target=f"<= {cpu_max}" if cpu_max else "",
                met=cpu <= cpu_max if cpu_max else None,
            )
        )
        if reader.framing is not None:
            peak = max(reader.peak) / 1e6
            rows.append(Row(name, peak, "MB peak", target=f"<= {PEAK_TARGET_MB}", met=peak <= PEAK_TARGET_MB))
    return rows
