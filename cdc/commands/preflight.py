"""The command `shapelog preflight`: watch a database for a while, and say what following it takes."""

from typing import Annotated, Final

import typer

from cdc.commands.connection import Database, Manual, Publication, Slot
from cdc.limits import PREFLIGHT_SECONDS_MAX

UNFIT: Final = 1
"""The exit code of a command that did its work, and the answer is no."""

SIGNALLED: Final = 128
"""The exit code of a command that a signal ended is this and the signal's number."""


def preflight(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Tables to be followed; without any, all of them.", show_default=False),
    ] = None,
    observe: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=PREFLIGHT_SECONDS_MAX, help="Watch for so long.")
    ] = 60,
    database: Database = "",
    slot: Slot = "shapelog",
    publication: Publication = "shapelog",
    manual: Manual = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Watch a database for a while; say what following it will cost, and print the SQL that it needs.

    Nothing is stored, no table is altered, and nothing is left behind, also after Ctrl-C. What is watched are changes
    of the tables that this role owns; of others the server's counts tell. Exit code 1 if something is missing.

    \b
      shapelog preflight -d postgresql://localhost/shop
      shapelog preflight --observe 600 orders customers
      shapelog preflight --observe 60 --json
    """  # noqa: D301 - typer wants the control character itself
    import asyncio
    from typing import Any

    from cdc.output import print_json, waiting_for
    from cdc.passing import until_told
    from cdc.preflight.measure import Wish, preflight
    from cdc.preflight.show import show_report
    from cdc.source.publication import Mode

    found: dict[str, Any] = {}

    async def measure() -> None:
        found.update(await preflight(wish, on_seconds))

    mode: Mode = "manual" if manual else "managed"
    wish = Wish(database, tuple(tables or ()), observe, slot, publication, mode)
    with waiting_for(observe, "watching") as on_seconds:
        number = asyncio.run(until_told(measure()))
    if number:
        raise typer.Exit(SIGNALLED + number)
    if as_json:
        print_json(found)
    else:
        show_report(found)
    if any(one["level"] == "fault" for one in found["findings"]):
        raise typer.Exit(UNFIT)
