"""The app in a process that ends itself at a named point: `python -m tests.dying_process CONNINFO FOLDER POINT`.

A point is a function of ours and a side of it: `before storage.progress:ProgressLog.append`, or `after ..`. The process
ends there as by SIGKILL: nothing is flushed, nobody is told. It asks for one more shape, so that births are met too.
"""

import asyncio
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cdc.app import AppSettings, running
from shapes.requests import Request, define
from shapes.tables import find_table

DIED: Final = 77
"""The exit code of a process that came to its point."""

LATE: Final = "late"
"""The name of the shape that is asked for."""


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


async def main(conninfo: str, folder: Path, point: str) -> None:
    async with running(AppSettings(conninfo, folder)) as app:
        async with app.house.turn:
            await app.house.turn.wait_for(lambda: app.house.is_streaming)
        die_at(point)  # from now on: the start itself is struck by random kills
        sys.stdout.write("streaming\n")
        sys.stdout.flush()
        async with app.house.control() as connection:
            facts = await find_table(connection, "orders")
        app.nursery.order(define(Request(where="id > 0"), facts), LATE)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
