"""One capture of a backlog, in a process of its own so that its time and memory are its own. Prints a JSON line."""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from cdc.app import AppSettings, running
from tests.waiting import eventually


async def capture(conninfo: str, data: Path, end: int) -> dict[str, float]:
    began, cpu_began = time.perf_counter(), time.process_time()
    async with running(AppSettings(conninfo, data)) as app:
        await eventually(lambda: app.house.lineage.g[0] >= end, "the backlog to be confirmed", 3600)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "cpu": cpu, "peak": peak}


def main() -> None:
    conninfo, data, end = sys.argv[1:]
    json.dump(asyncio.run(capture(conninfo, Path(data), int(end))), sys.stdout)


if __name__ == "__main__":
    main()
