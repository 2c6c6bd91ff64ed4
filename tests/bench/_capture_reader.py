"""One capture of a backlog, in a process made like the program's own; its time and memory are its own. Prints JSON."""

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from cdc.app import AppSettings, running
from cdc.settle import settle_process
from tests.bench.process_memory import peak_bytes
from tests.waiting import eventually

LOOK_SECONDS = 0.002
"""Between two looks whether all is confirmed: a thousandth of the shortest run, and a look takes some microseconds."""

LEAST_SHARE = 0.5
"""Of the load that must be left when its first part is confirmed: else the clock has missed the better part of it."""


async def capture(conninfo: str, data: Path, warm: int, end: int) -> dict[str, float]:
    """From the start to `end`; where `warm` is a place of the WAL, from the first confirmation at or above it.

    `share` is how much of what lies between `warm` and `end` was measured: that confirmation may be far above `warm`,
    since a backlog is taken in large pieces. If too little is left, all of it counts, with the start: the share is 1.
    """
    began, cpu_began = time.perf_counter(), time.process_time()
    moment, cpu_moment, share = began, cpu_began, 1.0
    async with running(AppSettings(conninfo, data)) as app:
        if warm:
            await eventually(lambda: app.house.lineage.g[0] >= warm, "the first part to be confirmed", 3600)
            left = (end - app.house.lineage.g[0]) / (end - warm)
            if left >= LEAST_SHARE:
                moment, cpu_moment, share = time.perf_counter(), time.process_time(), left
        confirmed = "the backlog to be confirmed"
        await eventually(lambda: app.house.lineage.g[0] >= end, confirmed, 3600, look_seconds=LOOK_SECONDS)
        seconds, cpu = time.perf_counter() - moment, time.process_time() - cpu_moment
    return {"seconds": seconds, "cpu": cpu, "peak": peak_bytes(), "start": moment - began, "share": share}


def main() -> None:
    conninfo, data, warm, end = sys.argv[1:]
    settle_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(capture(conninfo, Path(data), int(warm), int(end))), sys.stdout)


if __name__ == "__main__":
    main()
