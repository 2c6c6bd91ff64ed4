"""The command `shapelog`."""

import typer

from cdc.commands import doctor, watch

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Follow a Postgres database, change by change.")
app.add_typer(doctor.app)
app.add_typer(watch.app)


def main() -> None:
    """Run a command."""
    app()
