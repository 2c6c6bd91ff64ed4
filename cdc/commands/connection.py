"""What the commands share that talk to Postgres or to a running server: the options that say where it is."""

from pathlib import Path
from typing import Annotated, Final

import typer

DATABASE_VARIABLES: Final = ["SHAPELOG_DATABASE_URL", "DATABASE_URL"]

_WHERE_HELP: Final = "Where Postgres is: a URL or key=value pairs, as libpq takes them; its PG* variables hold too."

Database = Annotated[
    str,
    typer.Option(
        "-d",
        "--database",
        metavar="WHERE",
        envvar=DATABASE_VARIABLES,
        help=_WHERE_HELP,
        show_default=False,
        show_envvar=True,
    ),
]

DatabaseUrl = Annotated[
    str,
    typer.Option(
        "-d",
        "--database",
        "--database-url",
        metavar="WHERE",
        envvar=DATABASE_VARIABLES,
        help=_WHERE_HELP,
        show_default=False,
        show_envvar=True,
    ),
]

DEFAULT_URL: Final = "http://127.0.0.1:3000"

Url = Annotated[
    str, typer.Option(metavar="URL", envvar="SHAPELOG_URL", help="Where the server listens.", show_envvar=True)
]

Secret = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", envvar="SHAPELOG_SECRET", help="The server's secret.", show_default=False, show_envvar=True
    ),
]

DataDir = Annotated[
    Path,
    typer.Option(
        metavar="DIR", envvar="SHAPELOG_DATA_DIR", help="The data folder.", show_default=False, show_envvar=True
    ),
]
