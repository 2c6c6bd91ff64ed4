"""The end of the demo: everything is read once more, as by anybody who finds the folder, and held to what was sent.

Proven: every committed transaction is in each log that it touched, once, whole and in order; nothing else is; every
checksum is right; and what was confirmed is exactly what was committed.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cdc.demo import shop
from cdc.demo.board import Board
from cdc.demo.check import Mismatch
from cdc.demo.reader import Follower, logs_when_ready
from storage.disk import LocalDisk
from storage.folder_reader import FolderReader
from storage.progress import ProgressReader
from storage.verify import verify


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a demo ended, in facts."""

    is_sound: bool
    problem: str | None
    """What is not as it should be."""
    seconds: float
    kills: int
    transactions: int
    rows: dict[str, int]
    """Of each table, found in its log and held against what was sent."""
    cut_rows: int
    """Rows of open transactions that recoveries removed."""
    sent_again: int
    """Transactions that were on disk, not confirmed, and sent again after a kill."""
    slowest_recovery_seconds: float
    confirmed: int
    blocks: int
    """Whose checksums were checked at the end."""
    folder: str | None
    """Where the logs are, if they were kept."""

    def facts(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)


def prove(folder: Path, last: int) -> tuple[dict[str, int], int]:
    """The rows of each table and the number of blocks. Raises `Mismatch`, or the error of storage that prevents it."""
    disk = LocalDisk(folder)
    try:
        rows = {table: _rows(disk, table, log, last) for table, log in logs_when_ready(disk).items()}
        progress = ProgressReader(disk)
        progress.refresh()
        confirmed = 0 if progress.history.latest is None else progress.history.latest.lsn
        if confirmed != shop.confirmed_by(last):
            raise Mismatch(f"confirmed is {confirmed}, and the last transaction ends at {shop.confirmed_by(last)}")
        report = verify(disk, lambda _: None)
        if report.damage:
            raise Mismatch(f"log {report.damage[0].log}: {report.damage[0].message}")
        return rows, report.blocks
    finally:
        disk.close()


def _rows(disk: LocalDisk, table: str, log: int, last: int) -> int:
    follower = Follower(FolderReader(disk), table, log, None)
    follower.catch_up()
    if not follower.check.has_all_upto(last):
        raise Mismatch(f"{table}: the log ends with transaction {follower.check.last}, and {last} was committed")
    return follower.check.rows


def outcome(
    board: Board, rows: dict[str, int], blocks: int, *, problem: str | None = None, kept: Path | None = None
) -> Outcome:
    """What the board and the proof say."""
    return Outcome(
        is_sound=problem is None,
        problem=problem,
        seconds=round(board.now - board.started_at, 1),
        kills=board.kills,
        transactions=board.transactions,
        rows=rows,
        cut_rows=board.cut_rows,
        sent_again=board.again,
        slowest_recovery_seconds=round(board.slowest_recovery_seconds, 3),
        confirmed=board.confirmed,
        blocks=blocks,
        folder=None if kept is None else str(kept),
    )
