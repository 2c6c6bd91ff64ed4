"""What the demo found at the end, for people and as JSON. Pure."""

from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

from cdc.demo.board import Board
from cdc.demo.tally import Tally


@dataclass(frozen=True, slots=True)
class Compared:
    """How many rows of a shape there are; all of them equal."""

    shape: str
    postgres: int
    http: int
    parquet: int | None
    """None where there is no lake."""
    changes: int
    """That the reader saw who followed."""
    changes_committed: int | None
    """None for a part of a table, whose changes nobody counted, and after a shape began anew."""


@dataclass(frozen=True, slots=True)
class Proven:
    """What was found, all of it as it should be."""

    lsn: str
    shapes: list[Compared]
    tally: Tally
    kills: int
    slowest_return_seconds: float
    """From a kill until readers were served again."""
    lake_version: int | None


_TITLES: Final = ("shape", "Postgres", "HTTP", "Parquet", "changes")


def summary(proven: Proven, no_lake: str | None, kept: Path | None) -> list[str]:
    """For people."""
    tally = proven.tally
    rows = [(one.shape, one.postgres, one.http, one.parquet, one.changes) for one in proven.shapes]
    cells = [_TITLES, *(tuple(_cell(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    returned = f"; the slowest was back after {proven.slowest_return_seconds:.1f} s" if proven.kills else ""
    lake = f"the lake's newest version is {proven.lake_version}" if no_lake is None else f"no lake: {no_lake}"
    lines = [
        "",
        f"At {proven.lsn} every row is the same everywhere, value by value; nothing is lost, nothing came twice:",
        "",
        *table,
        "",
        f"{tally.transactions:,} transactions, {tally.large} of them large; {tally.rolled_back:,} rolled back",
        f"kills of the server: {proven.kills}{returned}",
        lake,
    ]
    if kept is not None:
        lines += ["", f"Look at it: shapelog logs {quote(str(kept / 'data'))}"]
        lines += [f"            shapelog lake show {quote(str(kept / 'lake'))}"] if no_lake is None else []
    return lines


def facts_of(proven: Proven, no_lake: str | None, board: Board, kept: Path | None) -> dict[str, Any]:
    """For `--json`."""
    return _common(board, kept) | {
        "is_sound": True,
        "problem": None,
        "transactions": proven.tally.transactions,
        "large_transactions": proven.tally.large,
        "rolled_back": proven.tally.rolled_back,
        "kills": proven.kills,
        "slowest_return_seconds": round(proven.slowest_return_seconds, 3),
        "lsn": proven.lsn,
        "shapes": [asdict(one) for one in proven.shapes],
        "lake_version": proven.lake_version,
        "no_lake": no_lake,
    }


def problem_facts(problem: str, board: Board, folder: Path) -> dict[str, Any]:
    """For `--json`, when something is not as it should be."""
    return _common(board, folder) | {
        "is_sound": False,
        "problem": problem,
        "transactions": board.transactions,
        "kills": board.kills,
    }


def _common(board: Board, folder: Path | None) -> dict[str, Any]:
    return {
        "seconds": round(board.now - board.started_at, 1),
        "folder": None if folder is None else str(folder),
    }


def _cell(value: str | int | None) -> str:
    return value if isinstance(value, str) else "-" if value is None else f"{value:,}"
