"""What follows from a damaged block of the journal, in which nobody knows which logs had shares.

A log whose later shares continue from what is before the damage lost nothing, and one whose later shares do not has a
hole, which whoever reads finds. Of a log that ends before the damage nobody can say whether it had a share in it. It
had none that matters if it claims to be whole up to G, or if its segments were written after the damaged block: a
flush to a segment takes along what the journal holds. All others are in doubt: they stop, and say why.

The writer keeps the verdict (`<number>.doubts`), copies what can be read, and puts the damaged file aside
(`<number>.damaged`): a later start could not judge again, since copies do not tell when they were first written.
"""

import logging
from collections.abc import Iterable

from storage import layout
from storage.disk import Disk
from storage.doubts import Doubts, write_doubts
from storage.errors import LogFault
from storage.journal import JournalFile, JournalIndex, JournalShare, Unreadable
from storage.journal_parts import rows_of_shares
from storage.log_facts import list_logs
from storage.offset import LogOffset
from storage.open_rows import write_copies
from storage.scan import BlockRef, read_batches
from storage.segments import list_segments, newest_header

logger = logging.getLogger(__name__)


def doubt_about(
    disk: Disk, index: JournalIndex, log: int, shares: Iterable[JournalShare], *, confirmed_tx: int | None
) -> LogFault | None:
    """Why a log may lack rows that it had; None if there is no reason to think so. `confirmed_tx`: G, if known."""
    damaged = [file for file in index.files.values() if file.unreadable]
    if not damaged:
        return None
    shares = list(shares)
    segments, _ = list_segments(disk, log)
    newest = newest_header(disk, segments)
    whole = max((share.entry.aligned for share in shares), default=LogOffset(-1, 0))
    whole = whole if newest is None else max(whole, newest.aligned)
    if confirmed_tx is not None and whole.tx >= confirmed_tx:
        return None
    # Not open rows: they are removed, and the hole that they show goes with them.
    witnesses = [share for share in shares if share.entry.last <= whole and not share.ref.header.log]
    for file in damaged:
        until = _written_behind(index, file)
        for place in file.unreadable:
            behind = (file.path, place.position)
            is_continued = any((one.ref.path, one.ref.position) > behind for one in witnesses)
            is_moved = newest is not None and until is not None and newest.written_at > until
            if (place.logs is None or log in place.logs) and not (is_continued or is_moved):
                return place.fault
    return None


def _written_behind(index: JournalIndex, damaged: JournalFile) -> int | None:
    """When the first block behind the last damage of a file was written, or one behind that.

    Not a copy: its file has a number of its own, while the file that is being written may take blocks after it.
    """
    last = (damaged.path, max(place.position for place in damaged.unreadable))
    refs = (ref for file in index.files.values() for ref in file.refs if not ref.header.log)
    return min((ref.header.written_at for ref in refs if (ref.path, ref.position) > last), default=None)


def put_aside(disk: Disk, index: JournalIndex, *, confirmed_tx: int, written_at: int) -> None:
    """Note which logs are in doubt, copy what can be read of damaged files, and put them aside. Each step is synced."""
    for file in index.files_with_open_blocks():
        _note_unreadable(disk, index, file)
    damaged = [number for number, file in sorted(index.files.items()) if file.unreadable]
    if not damaged:
        return
    doubts: Doubts = {}
    for log in list_logs(disk):
        fault = doubt_about(disk, index, log, index.shares_of(log), confirmed_tx=confirmed_tx)
        if fault is not None:
            doubts[log] = fault
    for number in index.with_witnesses(damaged):
        file = index.files[number]
        logger.error("%s is put aside for damage; %d logs may have lost rows and stop", file.path, len(doubts))
        readable = list(_readable(disk, index.living(number), doubts))
        write_doubts(disk, number, doubts)
        add_copies = write_copies(disk, index, readable, number, written_at=written_at)
        disk.rename(file.path, layout.damaged_journal_path(number))
        disk.sync_folder(layout.JOURNAL)
        index.drop_file(number)
        add_copies()


def _note_unreadable(disk: Disk, index: JournalIndex, file: JournalFile) -> None:
    """A file with open rows may have to be copied: what cannot be read must not stand in the way."""
    if all(_is_sound(disk, ref) for ref in file.refs):
        return
    faults: Doubts = {}
    list(_readable(disk, index.living(file.number), faults))
    for log, fault in faults.items():
        file.unreadable.append(Unreadable(0, fault, frozenset((log,))))


def _is_sound(disk: Disk, ref: BlockRef) -> bool:
    """Whether all rows of a block can be read."""
    try:
        read_batches(disk, ref)
    except LogFault:
        return False
    return True


def _readable(disk: Disk, shares: Iterable[JournalShare], doubts: Doubts) -> Iterable[JournalShare]:
    """The shares whose rows can be copied; the logs of others are in doubt."""
    wanted = list(shares)
    for share, rows in zip(wanted, rows_of_shares(disk, wanted), strict=True):
        if isinstance(rows, OSError):
            raise rows
        if isinstance(rows, LogFault):
            doubts.setdefault(share.entry.log, rows)
        else:
            yield share
