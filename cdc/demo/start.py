"""The command `shapelog demo`: a folder, a screen, a run, a proof, and nothing left over."""

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import orjson
from rich.console import Console

from cdc.demo.board import Board
from cdc.demo.check import Mismatch
from cdc.demo.proof import Outcome, outcome, prove
from cdc.demo.run import Demo, DemoFailed, Interrupted, Interrupts
from cdc.demo.screen import LineScreen, LiveScreen, NoScreen, Screen
from cdc.demo.shop import SEED
from cdc.mistake import Mistake
from storage.errors import StorageError

MARK: Final = "demo.json"
"""Says that a folder is the demo's own: it never writes into anybody else's."""

REFUSALS: Final = frozenset({"folder_in_use", "shared_disk_fault", "permission_lost", "os_error"})
"""Codes of what prevents a demo, and says nothing about the logs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ends."""

    status: int
    lines: list[str]


def run_demo(console: Console, seconds: float, data_dir: Path | None, *, as_json: bool) -> Ended:
    """Run the demo in a folder, of its own if none is given, and say how it ended."""
    interrupts = Interrupts()
    with interrupts.caught(), _folder_of_demo(data_dir) as folder:
        keep = data_dir is not None
        board = Board(seconds, started_at=time.monotonic())
        screen = _screen(console, as_json=as_json)
        try:
            last = Demo(folder, board, screen.show, interrupts).run()
            board.tell("all processes have ended; reading everything once more")
            screen.show(board)
            rows, blocks = prove(folder, last)
            result = outcome(board, rows, blocks, kept=folder if keep else None)
        except Interrupted as signal:
            return Ended(128 + signal.number, [] if as_json else ["stopped"])
        except (Mismatch, DemoFailed, StorageError) as error:
            if getattr(error, "code", None) in REFUSALS:
                raise Mistake(str(error)) from None
            keep = True  # somebody will want to see what happened
            result = outcome(board, {}, 0, problem=str(error), kept=folder)
        finally:
            screen.close()
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
    lines = [orjson.dumps(result.facts()).decode()] if as_json else _summary(result)
    return Ended(0 if result.is_sound else 1, lines)


@contextlib.contextmanager
def _folder_of_demo(asked_for: Path | None) -> Iterator[Path]:
    """A temporary folder, or the one that was asked for: made if it is not there, marked, and held for this demo."""
    if asked_for is None:
        yield Path(tempfile.mkdtemp(prefix="shapelog-demo-"))
        return
    try:
        mark = _marked(asked_for)
    except BlockingIOError:
        raise Mistake(f"another demo runs in {asked_for}") from None
    except OSError as error:
        raise Mistake(f"{asked_for}: {error.strerror or error}") from None
    with mark:
        yield asked_for


def _marked(folder: Path) -> IO[bytes]:
    """The mark, locked as long as it is open."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARK).exists() and any(folder.iterdir()):
        raise Mistake(f"{folder} has files in it that no demo made: choose another folder")
    file = (folder / MARK).open("ab")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.truncate(0)
    file.write(orjson.dumps({"format": 1, "seed": SEED}))
    file.flush()
    return file


def _screen(console: Console, *, as_json: bool) -> Screen:
    if as_json:
        return NoScreen()
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else LineScreen(console)


def _summary(result: Outcome) -> list[str]:
    """What people read at the end."""
    if not result.is_sound:
        return [f"NOT SOUND: {result.problem}", f"The folder is left for you: {result.folder}"]
    rows = ", ".join(f"{count:,} {table}" for table, count in result.rows.items())
    facts = [
        (result.transactions, "transactions were committed"),
        (sum(result.rows.values()), f"rows: {rows}"),
        (result.kills, f"kills; the slowest recovery took {result.slowest_recovery_seconds * 1000:.0f} ms"),
        (result.cut_rows, "rows without a commit were cut by recoveries, and came again"),
        (result.sent_again, "transactions that were on disk came again, and were recognised"),
        (result.blocks, "blocks have the right checksums"),
    ]
    lines = [
        "",
        "Sound: every committed transaction is in each log exactly once, whole, in order.",
        "Two processes read all of it while it happened, and a third one after it.",
        "",
        *(f"{count:>9,} {what}" for count, what in facts),
    ]
    if result.folder is not None:
        lines.append(f"\nLook at it: shapelog logs {result.folder}")
    return lines
