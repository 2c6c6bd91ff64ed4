"""The server that `serve` measures: a shape of ten columns over a store in memory, told by lines what to do."""

import asyncio
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import uvloop
from starlette.applications import Starlette

from cdc.http.server import listen, serving
from cdc.settle import settle_process
from shapes.http.envelope import Envelope
from shapes.http.settings import HttpSettings
from storage.fold import chunks_by_wire
from storage.limits import CHUNK_WIRE_BYTES
from storage.offset import LogOffset
from storage.rows import Kind, row_schema
from tests.shape_rig import Rig

COLUMNS = ("id", *(f"column_{number}" for number in range(9)))
BATCH_ROWS = 50_000
PAGE_BYTES = 4096


def chunks(rows: int) -> Iterator[pa.RecordBatch]:
    """A base, cut as a snapshot is."""
    number = 0
    for start in range(0, rows, BATCH_ROWS):
        whole = batch(0, 0, start, min(start + BATCH_ROWS, rows))
        for chunk in chunks_by_wire([whole], CHUNK_WIRE_BYTES):
            op = pa.array(np.full(chunk.num_rows, number, np.uint64))
            yield chunk.set_column(1, chunk.schema.field(1), op)
            number += 1


def batch(tx: int, op: int, start: int, stop: int) -> pa.RecordBatch:
    count = stop - start
    ids = pa.array(np.arange(start, stop)).cast(pa.string())
    values = [pa.array(np.arange(start, stop) * (number + 7) % 1_000_003).cast(pa.string()) for number in range(9)]
    ops = np.full(count, op, np.uint64) if not tx else op + 2 * np.arange(count, dtype=np.uint64)
    arrays = [
        pa.array(np.full(count, tx, np.uint64)),
        pa.array(ops),
        pa.array(np.full(count, Kind.INSERT, np.uint8)),
        pa.StructArray.from_arrays([ids, *values], COLUMNS),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(COLUMNS, absent=False))


async def serve(rows: int) -> None:
    rig = Rig(HttpSettings(following_requests_max=20_000, long_poll_seconds=60, encoded_bytes_max=2**30))
    rig.entry = rig.born(COLUMNS, CHUNK_WIRE_BYTES, chunks(rows))
    listener = listen("127.0.0.1", 0)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tx = 500
    async with serving(Envelope(rig.app.in_front_of(Starlette())), listener):
        say(f"{listener.getsockname()[1]} {rig.entry.handle}")
        while (line := (await lines.readline()).decode().strip()) and line != "stop":
            match line:
                case "cpu":
                    used = resource.getrusage(resource.RUSAGE_SELF)
                    say(str(used.ru_utime + used.ru_stime))
                case "rss":
                    say(str(resident_bytes()))
                case "held":
                    say(str(rig.app.held))
                case "offset":
                    say(f"{tx}_0")
                case "commit":
                    tx += 1
                    after = rig.store.log(rig.entry.log).state.upper
                    row = batch(tx, 0, tx * 10_000, tx * 10_000 + 1)
                    rig.store.append(rig.entry.log, row, after=after, aligned=LogOffset.aligned(tx, 1))
                    rig.collector.upto = LogOffset.aligned(tx, 1)
                    say(f"{tx}_0")
        rig.app.stop()
    say("stopped")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    settle_process()
    uvloop.run(serve(int(sys.argv[1])))
