"""What the commands that talk to Postgres share: the connection's option, and errors without a traceback."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from cdc.source.errors import SourceError

ConnectionOption = Annotated[
    str,
    typer.Option(
        "--database",
        "-d",
        envvar=["SHAPELOG_DATABASE_URL", "DATABASE_URL"],
        help="Where Postgres is: a URL or key=value pairs, as libpq takes them; its PG* variables hold too.",
        show_default=False,
        show_envvar=True,
    ),
]

EXIT_UNFIT = 1
"""The command did its work, and the answer is no."""
EXIT_ERROR = 2
"""The command could not do its work."""


@contextlib.contextmanager
def errors_as_messages() -> Iterator[None]:
    """What a person can mend is a message and an exit status; only a defect of ours has a traceback."""
    try:
        yield
    except SourceError as error:
        typer.echo(f"shapelog: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
