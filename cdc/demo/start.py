"""The command `shapelog demo`: a folder, a screen, a run, a summary, and nothing left over."""

import asyncio
import contextlib
import logging
import shutil
import signal
import tempfile
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import psycopg
from rich.console import Console

from cdc.beside import first_of
from cdc.demo.board import Board
from cdc.demo.fold import Mismatch
from cdc.demo.lake import why_not
from cdc.demo.outcome import Proven, facts_of, problem_facts, summary
from cdc.demo.proof import TooSlow
from cdc.demo.run import Demo
from cdc.demo.screen import LineScreen, LiveScreen, NoScreen, Screen
from cdc.demo.writer import RowsDiffer
from cdc.embedded.processes import ProcessEnded
from cdc.embedded.server import NotAdded
from cdc.mistake import Mistake
from shapes.errors import ShapeError
from storage.errors import StorageError

PROBLEMS: Final = (
    Mismatch,
    TooSlow,
    ProcessEnded,
    NotAdded,
    RowsDiffer,
    ShapeError,
    StorageError,
    psycopg.Error,
    TimeoutError,
)
"""What a demo may end with that does not prove what it is to prove."""

_READERS_LOG: Final = "shapes.client_stream"

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ends."""

    status: int
    lines: list[str]


class Interrupted(Exception):
    """Somebody asked for the end, by this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def run_demo(console: Console, seconds: float, keep: Path | None, *, with_lake: bool, as_json: bool) -> Ended:
    """Run the demo in a folder, and say how it ended."""
    logging.getLogger(_READERS_LOG).setLevel(logging.ERROR)  # readers lose the server at each kill
    no_lake = why_not() if with_lake else "not asked for"
    board = Board(seconds, started_at=time.monotonic(), now=time.monotonic())
    board.lake = "" if no_lake is None else f"none, {no_lake}"
    folder = _new_folder(keep)
    is_kept = keep is not None
    screen = _screen(console, as_json=as_json)
    try:
        demo = Demo(folder, board, screen.show, with_lake=no_lake is None)
        proven = asyncio.run(_interruptible(demo.run()))
        screen.close()
        lines = summary(proven, no_lake, folder if is_kept else None)
        facts = facts_of(proven, no_lake, board, folder if is_kept else None)
        return Ended(0, [orjson.dumps(facts).decode()] if as_json else lines)
    except Interrupted as interrupted:
        return Ended(128 + interrupted.number, [] if as_json else ["stopped"])
    except PROBLEMS as problem:
        is_kept = True  # somebody will want to see what happened
        text = str(problem) or type(problem).__name__
        facts = problem_facts(text, board, folder)
        lines = [f"NOT AS IT SHOULD BE: {text}", f"The folder is left for you: {folder}"]
        return Ended(1, [orjson.dumps(facts).decode()] if as_json else lines)
    finally:
        screen.close()
        shutil.rmtree(folder / "scratch", ignore_errors=True)
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


async def _interruptible(work: Coroutine[Any, Any, Proven]) -> Proven:
    """The work; a signal cancels it once, and what it then does to end in good order is not disturbed again."""
    loop, came = asyncio.get_running_loop(), list[int]()
    task = loop.create_task(work)

    def hear(number: int) -> None:
        if not came:
            came.append(number)
            task.cancel()

    with _heard(loop, hear):
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted(came[0]) from None
        except BaseExceptionGroup as group:
            raise first_of(group) from None


@contextlib.contextmanager
def _heard(loop: asyncio.AbstractEventLoop, hear: Any) -> Iterator[None]:  # noqa: ANN401 - a function of a number
    for number in _SIGNALS:
        loop.add_signal_handler(number, hear, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _new_folder(keep: Path | None) -> Path:
    """A temporary folder, or the one that was asked for; raises `Mistake` if that is somebody else's."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="shapelog-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Mistake(f"{keep} is not empty: name a new folder to keep the demo's data in")
    except OSError as error:
        raise Mistake(f"{keep}: {error.strerror or error}") from None
    return keep


def _screen(console: Console, *, as_json: bool) -> Screen:
    if as_json:
        return NoScreen()
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else LineScreen(console)
