"""The command `shapelog watch`: print what a slot delivers, live."""

import asyncio
import sys
from contextlib import suppress
from typing import Annotated

import typer

from cdc.commands.connection import ConnectionOption, errors_as_messages

app = typer.Typer()


@app.command()
def watch(
    database: ConnectionOption = "",
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables to watch; without any, all that can be watched.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="Use this slot, make it if need be, and keep it; otherwise a temporary one.")
    ] = None,
    publication: Annotated[str | None, typer.Option(help="Watch what this publication has, and alter nothing.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each change.")] = False,
    count: Annotated[int | None, typer.Option(help="End after so many changes.", min=1)] = None,
) -> None:
    """Print changes as they are committed, until Ctrl-C."""
    from cdc.watch import Request, follow

    request = Request(database, tuple(tables or ()), slot, publication, as_json, count)
    with errors_as_messages(), suppress(KeyboardInterrupt):
        asyncio.run(follow(request, sys.stdout))
