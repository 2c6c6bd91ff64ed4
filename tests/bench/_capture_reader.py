"""One capture of a backlog, in a process of its own so that its time and memory are its own. Prints a JSON line."""

import asyncio
import json
import sys
import time
from pathlib import Path

from cdc.app import AppSettings, running
from tests.bench.process_memory import peak_bytes
from tests.waiting import eventually


async def capture(conninfo: str, data: Path, warm: int, end: int) -> dict[str, float]:
    """From the start to `end`; or from `warm` on, where that is a place of the WAL."""
    began, cpu_began = time.perf_counter(), time.process_time()
    start = 0.0
    async with running(AppSettings(conninfo, data)) as app:
        if warm:
            await eventually(lambda: app.house.lineage.g[0] >= warm, "the first part to be confirmed", 3600)
            start = time.perf_counter() - began
            began, cpu_began = time.perf_counter(), time.process_time()
        await eventually(lambda: app.house.lineage.g[0] >= end, "the backlog to be confirmed", 3600)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return {"seconds": seconds, "cpu": cpu, "peak": peak_bytes(), "start": start}


def main() -> None:
    conninfo, data, warm, end = sys.argv[1:]
    json.dump(asyncio.run(capture(conninfo, Path(data), int(warm), int(end))), sys.stdout)


if __name__ == "__main__":
    main()
