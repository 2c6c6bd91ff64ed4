"""The command `shapelog status`: how the server is, why G is where it is, and what the slot costs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc.commands.connection import DEFAULT_URL, Database, Secret, Slot, Url


def status(
    url: Url = DEFAULT_URL,
    secret: Secret = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Ask this folder's files, and no server.", show_default=False),
    ] = None,
    database: Database = "",
    slot: Slot = "shapelog",
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Show how the server is: what G is and who holds it, what the slot costs, and each shape.

    With --data-dir the server need not run: what its files tell, and the slot if the database is given.

    \b
      shapelog status
      shapelog status --json
      shapelog status --data-dir data -d postgresql://localhost/shop
    """  # noqa: D301 - typer wants the control character itself
    from cdc.output import print_json
    from cdc.status.show import show_status

    facts = _of_server(url, secret) if data_dir is None else _of_folder(data_dir, database, slot)
    if as_json:
        print_json(facts)
    else:
        show_status(facts)


def _of_server(url: str, secret: str | None) -> dict[str, Any]:
    from cdc.admin_client import AdminClient

    with AdminClient(url, secret) as client:
        return client.status()


def _of_folder(data_dir: Path, database: str, slot: str) -> dict[str, Any]:
    import asyncio

    from cdc.inspect.folder import opened
    from cdc.status.folder_report import folder_status

    with opened(data_dir) as disk:
        return asyncio.run(folder_status(disk, database, slot))
