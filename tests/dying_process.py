"""The app in a process that ends itself at a named point: `python -m tests.dying_process CONNINFO FOLDER POINT [MODE]`.

A point is a function of ours and a side of it: `before storage.progress:ProgressLog.append`, or `after ..`. The process
ends there as by SIGKILL: nothing is flushed, nobody is told. It asks for one more shape, so that births are met too;
with `fold`, it folds logs that are above a small bound instead; with `start`, it may meet its point before it streams.
"""

import asyncio
import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from cdc.app import AppSettings, running
from shapes.requests import Request, define
from shapes.tables import find_table
from storage.flush_control import FlushOptions
from storage.store import StoreOptions

DIED: Final = 77
"""The exit code of a process that came to its point."""

LATE: Final = "late"
"""The name of the shape that is asked for."""


FOLDED_ABOVE_BYTES: Final = 20_000

FOLDING: Final[dict[str, Any]] = {
    "log_bytes_kept": FOLDED_ABOVE_BYTES,
    "chunk_bytes": 2_000,
    "store": StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=1)),
}
"""Each flush makes a segment, and a few of them are too many."""


def die_at(point: str) -> None:
    side, where = point.split()
    module, _, path = where.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    original: Callable[..., Any] = getattr(holder, name)

    @functools.wraps(original)
    def dying(*arguments: Any, **named: Any) -> Any:
        if side == "before":
            os._exit(DIED)
        original(*arguments, **named)
        os._exit(DIED)

    @functools.wraps(original)
    async def dying_later(*arguments: Any, **named: Any) -> Any:
        if side == "before":
            os._exit(DIED)
        await original(*arguments, **named)
        os._exit(DIED)

    setattr(holder, name, dying_later if inspect.iscoroutinefunction(original) else dying)


async def main(conninfo: str, folder: Path, point: str, *, is_folding: bool, is_starting: bool) -> None:
    more = FOLDING if is_folding else {}
    looks = mock.patch("shapes.folding.FOLD_LOOK_SECONDS", 0.05) if is_folding else contextlib.nullcontext()
    with looks:
        await work(AppSettings(conninfo, folder, **more), point, is_folding=is_folding, is_starting=is_starting)


async def work(settings: AppSettings, point: str, *, is_folding: bool, is_starting: bool) -> None:
    if is_starting:
        die_at(point)
    async with running(settings) as app:
        async with app.house.turn:
            await app.house.turn.wait_for(lambda: app.house.is_streaming)
        if not is_starting:
            die_at(point)
        sys.stdout.write("streaming\n")
        sys.stdout.flush()
        if not is_folding:
            async with app.house.control() as connection:
                facts = await find_table(connection, "orders")
            app.nursery.order(define(Request(where="id > 0"), facts), LATE)
        await asyncio.Event().wait()


if __name__ == "__main__":
    options = sys.argv[4:]
    asyncio.run(
        main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], is_folding="fold" in options, is_starting="start" in options)
    )
