"""The command `shapelog tail`: a shape's changes as they become visible."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cdc.commands.connection import DEFAULT_URL, Secret, Url


def tail(
    shape: Annotated[str, typer.Argument(metavar="SHAPE", help="A name or handle.", show_default=False)],
    after: Annotated[
        str, typer.Option(metavar="OFFSET", help="From where: -1 is the start, with the rows that are there.")
    ] = "now",
    url: Url = DEFAULT_URL,
    secret: Secret = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read this folder's files, and ask no server.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """Follow a shape: print its changes as they become visible, until Ctrl-C.

    When the shape begins anew, as after a TRUNCATE or another definition of its table, so does this.

    \b
      shapelog tail orders
      shapelog tail orders --after -1 --json
      shapelog tail orders --data-dir data
    """  # noqa: D301 - typer wants the control character itself
    from cdc.admin_client import AdminClient
    from cdc.inspect.folder import opened
    from cdc.output import for_a_pipe
    from cdc.tail import NOW, folder_steps, print_steps
    from cdc.tail_server import server_steps
    from storage.offset import LogOffset

    if after != NOW:
        LogOffset.parse(after)
    with for_a_pipe():
        if data_dir is None:
            with AdminClient(url, secret) as client:
                steps = server_steps(client, url, secret, shape, after)
                print_steps(steps, sys.stdout, sys.stderr, as_json=as_json)
        else:
            with opened(data_dir) as disk:
                print_steps(folder_steps(disk, shape, after), sys.stdout, sys.stderr, as_json=as_json)
