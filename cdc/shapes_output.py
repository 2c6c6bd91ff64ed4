"""How shapes and their births are printed: lists, one shape, progress, and what is wrong with each field."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cdc.errors import AnswerRefused
from cdc.output import print_table
from cdc.wording import plain_sql, size_words

WAITING: Final = {
    "publishing": "putting the table into the publication",
    "joining": "joining the stream",
    "looking": "taking a snapshot",
    "leaving": "leaving the stream for a while",
    "outside": "waiting for transactions that are not visible yet",
    "recording": "recording the snapshot",
    "copying": "copying rows",
    "finishing": "finishing",
    "retreating": "trying again",
    "waiting": "its successor could not be born yet",
}


def print_shapes(shapes: Sequence[dict[str, Any]], births: Sequence[dict[str, Any]]) -> None:
    """One line each."""
    titles = ("name", "handle", "table", "where", "state", "visible", "durable", "rows", "bytes")
    plain = [one | {"where": one["where"] and plain_sql(one["where"])} for one in shapes]
    rows = [tuple("" if one[title] is None else one[title] for title in titles) for one in plain]
    print_table(titles, rows)
    for birth in births:
        if birth["handle"] is None:
            typer.echo(f"{birth['name'] or birth['table']}: {birth_words(birth)}")


def print_shape(shape: dict[str, Any]) -> None:
    """A line for each fact."""
    width = max(map(len, shape))
    for name, value in shape.items():
        if value is not None:
            shown = ", ".join(value) if isinstance(value, list) else f"{value:,}" if name in _COUNTS else value
            typer.echo(f"{name:<{width}}  {shown}")


_COUNTS: Final = {"rows", "bytes"}


def birth_words(birth: dict[str, Any]) -> str:
    """Where a birth is, and whom it waits for."""
    parts = [WAITING.get(birth["step"], birth["step"])]
    if birth["rows"]:
        parts.append(f"{birth['rows']:,} rows, {size_words(birth['bytes'])}")
    if birth["attempt"] > 1:
        parts.append(f"attempt {birth['attempt']}")
    if birth["reason"]:
        parts.append(birth["reason"])
    if birth["mend"]:
        parts.append("; ".join(birth["mend"]))
    return "; ".join(parts)


def print_field_errors(error: AnswerRefused) -> None:
    """A line for each field at fault, before the error's own line."""
    for field, texts in error.fields.items():
        for text in texts:
            typer.echo(f"{field}: {text}", err=True)


@contextlib.contextmanager
def birth_progress() -> Iterator["BirthBar"]:
    """A bar where somebody sees it; else a line when the step changes."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield BirthBar(None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        yield BirthBar(progress)


class BirthBar:
    """Shows how far a birth is."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=None)
        self._told = ""

    def show(self, birth: dict[str, Any]) -> None:
        """The birth as the server tells of it now."""
        if self._progress is not None and self._task is not None:
            share = birth["share"]
            total = None if share is None else 1.0
            self._progress.update(self._task, description=birth_words(birth), total=total, completed=share or 0.0)
        elif birth["step"] != self._told:
            self._told = birth["step"]
            typer.echo(birth_words(birth), err=True)
