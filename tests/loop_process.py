"""The app in a process of its own, to be killed: `python -m tests.loop_process CONNINFO FOLDER`.

Says `streaming`, then does what it is told on its standard input, a JSON array a line: `["add", TABLE, NAME, REQUEST]`
and `["remove", SHAPE]` go unanswered, and `["marks"]` is answered with the shapes that it keeps and their D.
"""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import orjson

from cdc.app import App, AppSettings, running
from cdc.source.coded_error import CodedError
from shapes.requests import Request
from shapes.service import ShapeService
from storage.catalog_records import Life
from storage.errors import StorageError


async def main(conninfo: str, folder: Path) -> None:
    async with running(AppSettings(conninfo, folder)) as app, asyncio.TaskGroup() as tasks:
        async with app.house.turn:
            await app.house.turn.wait_for(lambda: app.house.is_streaming)
        say("streaming")
        service = ShapeService(app.house, app.nursery)
        while line := await asyncio.to_thread(sys.stdin.readline):
            match orjson.loads(line):
                case ["marks"]:
                    say(orjson.dumps(marks(app)).decode())
                case deed:
                    tasks.create_task(do(service, deed))
        await asyncio.Event().wait()


async def do(service: ShapeService, deed: list[Any]) -> None:
    """What cannot be now, in the midst of kills and alterations, is left."""
    with contextlib.suppress(CodedError, StorageError, OSError):
        match deed:
            case ["add", table, name, request]:
                await service.add(table, Request(**request), name)
            case ["remove", shape]:
                await service.remove_named(shape)
            case _:
                raise AssertionError(deed)


def marks(app: App) -> list[dict[str, Any]]:
    """The shapes that a G may speak of, and how far each is durable."""
    return [
        {
            "handle": entry.handle,
            "name": entry.shape.name,
            "table": entry.definition.table,
            "where": entry.definition.where,
            "birth": entry.shape.snapshot.birth,
            "durable": [*app.house.store.marks(entry.log)[1]],
        }
        for entry in app.house.registry.living()
        if entry.shape.life is Life.READY
    ]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
