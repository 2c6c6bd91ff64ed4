"""What lies on disk of each log, committed or not, as headers and directories tell it.

`FolderReader` answers what a reader may see; this also counts what recovery is going to cut.
"""

from storage.block import BlockKind
from storage.disk import Disk
from storage.folder_reader import FolderReader
from storage.journal import JournalIndex
from storage.journal_scan import load_journal
from storage.offset import SNAPSHOT_END
from storage.scan import scan
from storage.segments import list_segments


def rows_on_disk(disk: Disk) -> dict[int, int]:
    """The rows of each log, those of an open transaction included; torn tails and rows of bases are not."""
    index = JournalIndex()
    load_journal(disk, index, confirmed_tx=0, on_torn=_leave_it)
    return {log: _rows_of(disk, index, log) for log in FolderReader(disk).logs()}


def _rows_of(disk: Disk, index: JournalIndex, log: int) -> int:
    living, _ = list_segments(disk, log)
    headers = [
        ref.header for segment in living for ref in scan(disk, segment.path).refs if ref.header.kind is BlockKind.ROWS
    ]
    last = max((header.last for header in headers), default=SNAPSHOT_END)
    shares = [share.entry.rows for share in index.shares_of(log) if share.entry.last > last]
    return sum(header.rows for header in headers) + sum(shares)


def _leave_it(path: str, end: int, why: str) -> None:
    """Whoever opens the folder to write cuts what is torn."""
