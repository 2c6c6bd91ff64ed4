"""How commands print: tables and bars for terminals, plain columns for files and pipes, JSON for programs."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from storage.verify_report import Report  # with Arrow behind it, which most commands can do without

SIGPIPE_STATUS = 128 + 13
"""What a shell reports of a program whose reader went away."""


def console() -> Console:
    """Standard output. Rich looks at NO_COLOR, and at whether it is a terminal."""
    return Console(highlight=False)


def print_json(value: Any) -> None:  # noqa: ANN401 - anything with a form in JSON
    """One object, indented."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
    """Numbers stand to the right."""
    out = console()
    texts: list[list[str]] = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    is_number = [isinstance(cell, int) for cell in rows[0]] if rows else [False] * len(titles)
    if out.is_terminal:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for title, right in zip(titles, is_number, strict=True):
            table.add_column(title, justify="right" if right else "left")
        for row in texts:
            table.add_row(*row)
        out.print(table, markup=False)
        return
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    for line in ([*titles], *texts):
        cells = zip(line, widths, is_number, strict=True)
        typer.echo(
            "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()
        )


def print_report(report: "Report") -> None:
    """What `verify` found."""
    for end in report.unfinished:
        typer.echo(f"unfinished: {end}; no damage: it is being written, or the writer's next start cuts it")
    for one in report.damage:
        where = "all logs" if one.log is None else f"log {one.log} ({one.handle or 'handle unknown'})"
        typer.echo(f"DAMAGED: {where}: [{one.code}] {one.message} {one.hint}")
    verdict = f"{len(report.damage)} damaged places" if report.damage else "all sound"
    typer.echo(
        f"{verdict}: {report.logs:,} logs, {report.blocks:,} blocks, {report.rows:,} rows, {report.bytes:,} bytes"
    )


@contextlib.contextmanager
def progress_of(size: int) -> Iterator[Callable[[int], None]]:
    """A bar that is told of bytes, where somebody sees it."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda _: None
        return
    with Progress(TextColumn("reading"), BarColumn(), DownloadColumn(), console=screen, transient=True) as progress:
        task = progress.add_task("reading", total=size)
        yield lambda count: progress.advance(task, count)


@contextlib.contextmanager
def waiting_for(seconds: float, what: str) -> Iterator[Callable[[float], None]]:
    """A bar that is told how many seconds have passed, where somebody sees it."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn(what), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task(what, total=seconds)
        yield lambda passed: progress.update(task, completed=passed)


@contextlib.contextmanager
def for_a_pipe() -> Iterator[None]:
    """End quietly when who reads us has seen enough, as with `head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains of it at the end
        raise typer.Exit(SIGPIPE_STATUS) from None
