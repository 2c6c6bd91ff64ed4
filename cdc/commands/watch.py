"""The command `shapelog watch`: print what a slot delivers, live."""

import sys
from typing import Annotated, Final

import typer

from cdc.commands.connection import Database

SIGNALLED: Final = 128
"""The exit code of a command that a signal ended is this and the signal's number."""


def watch(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE", help="Tables to watch; without any, all that can be watched.", show_default=False
        ),
    ] = None,
    database: Database = "",
    slot: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use this slot and its publication, make them if need be, and keep them.",
            show_default="a temporary slot",
        ),
    ] = None,
    publication: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Watch what this one has, and alter nothing.", show_default="a temporary publication"
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many changes.", show_default="Ctrl-C")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each change.")] = False,
) -> None:
    """Print the changes of a Postgres database as they are committed, until Ctrl-C.

    Nothing is stored, no table is altered, and nothing is left behind unless a slot is named.

    \b
      shapelog watch -d postgresql://localhost/shop
      shapelog watch orders customers --count 10
      shapelog watch --publication shop --json
    """  # noqa: D301 - typer wants the control character itself
    import asyncio

    from cdc.mistake import Mistake
    from cdc.output import for_a_pipe
    from cdc.watch import Request, follow_until_told

    if tables and publication is not None:
        raise Mistake("a publication says itself which tables it has: name tables or a publication")
    with for_a_pipe():
        request = Request(database, tuple(tables or ()), slot, publication, as_json, count)
        number = asyncio.run(follow_until_told(request, sys.stdout))
    if number:
        raise typer.Exit(SIGNALLED + number)
