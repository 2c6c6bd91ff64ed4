"""What the commands that talk to Postgres share: the option that says where it is."""

from typing import Annotated

import typer

Database = Annotated[
    str,
    typer.Option(
        "-d",
        "--database",
        metavar="WHERE",
        envvar=["SHAPELOG_DATABASE_URL", "DATABASE_URL"],
        help="Where Postgres is: a URL or key=value pairs, as libpq takes them; its PG* variables hold too.",
        show_default=False,
        show_envvar=True,
    ),
]
