"""The command `shapelog doctor`: is this server fit to be followed, and if not, which statement mends it."""

import asyncio
from typing import Annotated

import typer

from cdc.commands.connection import EXIT_UNFIT, ConnectionOption, errors_as_messages

app = typer.Typer()


@app.command()
def doctor(
    database: ConnectionOption = "",
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables to be followed; without any, those that are published.")
    ] = None,
    slot: Annotated[str, typer.Option(help="The replication slot.")] = "shapelog",
    publication: Annotated[str, typer.Option(help="The publication.")] = "shapelog",
    manual: Annotated[bool, typer.Option("--manual", help="Nothing is altered for you: show what to run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a Postgres server, and print what mends it. Changes nothing. Exit status 1: it is not fit yet."""
    from cdc.doctor import as_json_text, examine, show
    from cdc.source.checks import is_fit
    from cdc.source.connections import printable

    with errors_as_messages():
        findings = asyncio.run(examine(database, slot, publication, tables or [], "manual" if manual else "managed"))
    if as_json:
        typer.echo(as_json_text(findings))
    else:
        show(findings, printable(database))
    if not is_fit(findings):
        raise typer.Exit(EXIT_UNFIT)
