"""The command `shapelog doctor`: is this server fit to be followed, and if not, which statement mends it."""

from typing import Annotated, Final

import typer

from cdc.commands.connection import Database, Manual, Publication, Slot

UNFIT: Final = 1
"""The exit code of a command that did its work, and the answer is no."""


def doctor(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE", help="Tables to be followed; without any, those that are published.", show_default=False
        ),
    ] = None,
    database: Database = "",
    slot: Slot = "shapelog",
    publication: Publication = "shapelog",
    manual: Manual = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Check whether a Postgres server is fit to be followed, and print what mends it.

    It changes nothing. Exit code 1 if the server is not fit yet.

    \b
      shapelog doctor -d postgresql://localhost/shop
      shapelog doctor -d postgresql://localhost/shop orders customers
      shapelog doctor --manual --json
    """  # noqa: D301 - typer wants the control character itself
    import asyncio

    from cdc.doctor import as_json_text, examine, show
    from cdc.source.checks import is_fit
    from cdc.source.connections import printable

    findings = asyncio.run(examine(database, slot, publication, tables or [], "manual" if manual else "managed"))
    if as_json:
        typer.echo(as_json_text(findings))
    else:
        show(findings, printable(database))
    if not is_fit(findings):
        raise typer.Exit(UNFIT)
