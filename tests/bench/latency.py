"""How long a single change takes on an idle server: from its commit, by the server's clock, to a decoded fragment."""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import psycopg

from cdc.source.copy_both import Framing, start_stream
from cdc.source.fragments import Fragment
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from tests.bench._slots import drop_slot
from tests.bench.rows import Row
from tests.postgres import Server

COMMAND = "START_REPLICATION SLOT followed LOGICAL 0/0 (proto_version '1', publication_names 'followed')"


async def follow(conninfo: str, framing: Framing, changes: int) -> list[float]:
    """Commit one change after the other, each when the one before has arrived; microseconds for each."""
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, replication="database")
    writer = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    stream = await start_stream(connection, COMMAND, framing)
    decoder, delays = Decoder(Relations()), list[float]()
    try:
        for number in range(changes):
            writing = asyncio.ensure_future(writer.execute("INSERT INTO notes VALUES (%s, 'a note')", [number]))
            arrived = False
            while not arrived:
                for event in decoder.feed(await stream.batch()):
                    if isinstance(event, Fragment) and event.ended_count:
                        delays.append(time.time() * 1e6 - int(event.transactions.commit_time[-1]))
                        arrived = True
            await writing
    finally:
        stream.close()
        await connection.close()
        await writer.close()
    return delays


def run(arguments: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(prog="latency")
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--version", default="15", help="of Postgres")
    options = parser.parse_known_args(arguments)[0]  # options of the other benchmarks are not ours
    rows = []
    with tempfile.TemporaryDirectory(prefix="latency") as folder:
        Path(folder).chmod(0o755)
        server = Server(options.version, Path(folder) / "server")
        server.create()
        server.start()
        try:
            with psycopg.connect(server.conninfo(), autocommit=True) as admin:
                admin.execute("CREATE TABLE notes (id int, body text)")
                admin.execute("CREATE PUBLICATION followed FOR ALL TABLES")
                for framing in (Framing.LIBPQ, Framing.PLAIN):
                    admin.execute("SELECT pg_create_logical_replication_slot('followed', 'pgoutput')")
                    delays = asyncio.run(follow(server.conninfo(), framing, options.changes))
                    drop_slot(admin, "followed")
                    cuts = statistics.quantiles(delays[len(delays) // 10 :], n=100)
                    name = f"commit to fragment, {framing.name.lower()}"
                    rows += [Row(f"{name}, p{at}", cuts[at - 1], "us") for at in (50, 99)]
        finally:
            server.stop("immediate")
    return rows
