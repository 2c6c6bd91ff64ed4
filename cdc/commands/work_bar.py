"""How far long work of the lake is: a bar on a terminal, now and then a line elsewhere, nothing if it is short."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from storage.lake.work_progress import Share

SILENT_SECONDS: Final = 1.0
"""Work that is done sooner is not worth a bar."""

LINE_SECONDS: Final = 10.0
"""Between two lines, where there is no terminal."""


class WorkBar:
    """Hears of shares, from any thread."""

    def __init__(self, screen: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen or Console(stderr=True)
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._said = 0.0
        self._bar: tuple[Progress, TaskID] | None = None

    def __call__(self, share: "Share") -> None:
        """A share of 0 begins some work, a full one ends it."""
        with self._lock:
            now = self._clock()
            if share.pieces == share.of:
                self._end()
            elif share.pieces == 0:
                self._end()
                self._began = self._said = now
            elif self._screen.is_terminal:
                self._draw(share, now)
            elif now - self._said >= LINE_SECONDS:
                self._said = now
                typer.echo(words_of(share, now - self._began), err=True)

    def _draw(self, share: "Share", now: float) -> None:
        if self._bar is None:
            if now - self._began < SILENT_SECONDS:
                return
            progress = Progress(BarColumn(), TextColumn("{task.description}"), console=self._screen, transient=True)
            self._bar = progress, progress.add_task("", total=share.of)
            progress.start()
        progress, task = self._bar
        progress.update(task, completed=share.pieces, description=words_of(share, now - self._began))

    def _end(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


def words_of(share: "Share", seconds: float) -> str:
    """What is done of some work, and how long the rest takes if it goes on like that."""
    left = seconds * (share.of - share.pieces) / share.pieces
    return (
        f"{share.pieces:,} of {share.of:,} pieces, {share.rows:,} rows, {share.files:,} files, about {left:.0f} s left"
    )
