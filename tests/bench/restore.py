"""How long a start takes with ten thousand shapes: from an empty process's first look at the folder to the stream.

All of it counts: the catalog is read, definitions and clauses become trees again, the index is built, the server is
asked who it is. Logs are opened later, each with its first row or reader: `capture` has that in its start's seconds.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path

import psycopg

from cdc.app import AppSettings, running
from cdc.settle import settle_process
from tests.bench.capture import case_of_shapes, prepare_folder
from tests.bench.drain import SETTINGS
from tests.bench.measuring import progress
from tests.bench.rows import Row, bounded
from tests.postgres import Server

SHAPES = 10_000
SECONDS_TARGET = 2.0


def run(arguments: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(prog="restore")
    parser.add_argument("--scale", type=float, default=1.0, help=f"1.0 is {SHAPES:,} shapes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="15", help="of Postgres")
    options = parser.parse_known_args(arguments)[0]
    shapes = max(2, round(SHAPES * options.scale))
    progress(f"restore: {shapes:,} shapes")
    with tempfile.TemporaryDirectory(prefix="restore") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(options.version, folder / "server", SETTINGS)
        server.create()
        server.start()
        try:
            case = case_of_shapes(shapes)
            with psycopg.connect(server.conninfo(), autocommit=True) as connection:
                connection.execute(case.prepare)
            asyncio.run(prepare_folder(server.conninfo(), folder / "data", case))
            settle_process()
            found = [asyncio.run(_start(server.conninfo(), folder / "data", shapes)) for _ in range(options.rounds)]
        finally:
            server.stop("immediate")
    seconds, processor = zip(*found, strict=True)
    measure = f"a start with {shapes:,} shapes"
    return [
        bounded(measure, "s", seconds, value_max=SECONDS_TARGET),
        bounded(f"{measure}, processor", "s", processor, value_max=SECONDS_TARGET),
    ]


async def _start(conninfo: str, data: Path, shapes: int) -> tuple[float, float]:
    """Seconds, and seconds of the processor."""
    gc.collect()
    began, spent = time.perf_counter(), time.process_time()
    async with running(AppSettings(conninfo, data)) as app:
        async with app.house.turn:
            await app.house.turn.wait_for(lambda: app.house.is_streaming)
        took = time.perf_counter() - began, time.process_time() - spent
        assert len(app.house.collector.members) == shapes, "all go on"
    return took
