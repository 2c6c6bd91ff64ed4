"""Rows of a transaction whose end never came are removed from the disk, before the transaction is sent again (A3, A8).

Nothing is ever cut off a file: what stays of it is copied, synced, and takes its name. A file that was cut looks like
one that met no fault, and if the sync of the cut failed and the process died of it, nobody could tell that a power cut
brings back what was cut.
"""

import logging
from collections.abc import Callable, Sequence

from storage import layout
from storage.disk import Disk
from storage.file_write import FileWrite
from storage.journal import JournalFile, JournalIndex, JournalShare
from storage.journal_write import JournalCopy
from storage.offset import LogOffset
from storage.repair import Repair, repair_now, run_repairs
from storage.segments import LogFiles

logger = logging.getLogger(__name__)


def remove_open_shares(disk: Disk, index: JournalIndex, aligned: dict[int, LogOffset], *, written_at: int) -> None:
    """Copy what is committed out of the files that hold rows above a log's `aligned`, and remove those files (A8)."""
    tainted = [number for number, file in sorted(index.files.items()) if _has_rows_above(file, aligned)]
    if not tainted:
        return
    tainted = index.with_witnesses(tainted)
    living = [share for number in tainted for share in index.living(number)]
    kept = [share for share in living if share.entry.log not in aligned or share.entry.last <= aligned[share.entry.log]]
    logger.info("rewriting %d journal files without %d open shares", len(tainted), len(living) - len(kept))
    copy_shares(disk, index, kept, tainted, written_at=written_at)


def _has_rows_above(file: JournalFile, aligned: dict[int, LogOffset]) -> bool:
    """Shares that a segment took over count too: they are gone only with the file."""
    return any(
        log in aligned and last > aligned[log]
        for directory in file.directories
        for log, last in zip(directory.logs(), directory.offsets("last"), strict=True)
    )


def copy_shares(
    disk: Disk, index: JournalIndex, shares: Sequence[JournalShare], old: Sequence[int], *, written_at: int
) -> None:
    """Copy shares into the next journal file, synced; only then remove the old files. Raises what the disk raises."""
    add_copies = write_copies(disk, index, shares, min(old), written_at=written_at)
    for number in old:
        index.drop_file(number)
    add_copies()
    # Before anything else is written: an open transaction's rows in an old file must be gone when it comes again.
    index.repairs.extend(Repair(layout.journal_path(number), 0) for number in old)
    run_repairs(disk, index.repairs)


def write_copies(
    disk: Disk, index: JournalIndex, shares: Sequence[JournalShare], old: int, *, written_at: int
) -> Callable[[], None]:
    """Write shares of old files, of which `old` goes first, to a new one. What is returned puts them into the index."""
    run_repairs(disk, index.repairs)
    if not shares:
        return lambda: None
    target = index.new_file()
    file = FileWrite(target.path, is_new=True, size=0, synced=0, repairs=[], shared=True)
    copy = JournalCopy(shares, target, file, old)
    copy.run(disk, written_at)
    if file.failure is not None:
        index.repairs.extend([file.repair] if file.repair else [])
        raise file.failure

    def add_copies() -> None:
        index.add_file(target)
        for ref, block in zip(file.refs, copy.blocks, strict=True):
            index.add_block(target, ref, block.directory)

    return add_copies


def cut_open_rows(disk: Disk, files: LogFiles, aligned: LogOffset) -> None:
    """Remove the rows above `aligned` from a log's segments, for good (A3)."""
    run_repairs(disk, files.repairs)
    while files.segments and not cut_last(disk, files, aligned):
        repair_now(disk, files.repairs, Repair(files.segments[-1].path, 0))
        files.segments.pop()
        _load_last(disk, files)


def _load_last(disk: Disk, files: LogFiles) -> None:
    """See how the segment ends that is the last one now. Raises its damage: nothing can continue from there."""
    damage = None
    while files.segments:
        segment = files.segments[-1]
        segment.load(disk)
        damage = damage or segment.damage
        if segment.refs:
            break
        files.segments.pop()
    if damage is not None:
        raise damage


def cut_last(disk: Disk, files: LogFiles, aligned: LogOffset) -> bool:
    """Cut the blocks above `aligned` off the last segment. False if no block would be left: it is to be removed."""
    segment = files.segments[-1]
    kept = [ref for ref in segment.refs if ref.header.last <= aligned]
    if kept and len(kept) < len(segment.refs):
        repair_now(disk, files.repairs, Repair(segment.path, kept[-1].end, must_copy=True))
        segment.refs = kept
        segment.size = segment.proven = kept[-1].end
        segment.closed = False  # the file is new, and all of it is synced
    return bool(kept)
