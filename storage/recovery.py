"""Start-up: from what a crash may have left to logs that may be appended to. The ordinary way to open a folder.

Journals are read when the store opens, each log's segments when that log is first used. What is removed: torn tails,
rows of a transaction whose end never came, files that were never finished, files that a higher generation replaced.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from storage import layout
from storage.bases import list_bases
from storage.disk import Disk
from storage.errors import Hole, LogFault, from_os_error
from storage.file_write import FileWrite
from storage.journal import JournalIndex, JournalShare, aligned_of, load_journal
from storage.journal_write import JournalCopy
from storage.offset import SNAPSHOT_END, LogOffset
from storage.repair import Repair
from storage.scan import scan
from storage.segments import LogFiles, Segment, list_segments
from storage.shape_log import Recovered

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log's files, and where it stands."""

    files: LogFiles
    recovered: Recovered
    fault: LogFault | None
    """Why it can be read up to there and takes no more rows."""


def recover_journal(disk: Disk, index: JournalIndex, *, confirmed_tx: int, written_at: int) -> None:
    """Read all journal files; cut torn tails; leave no open transaction's rows behind."""

    def cut(path: str, end: int, why: str) -> None:
        logger.warning("cut the torn tail of %s at %d bytes: %s", path, end, why)
        disk.truncate(path, end)
        disk.sync(path)

    load_journal(disk, index, confirmed_tx=confirmed_tx, on_torn=cut)
    suspects = {log for file in index.files_with_open_blocks() for log in index.logs_in(file.number)}
    uncommitted = {log: aligned_of(index.shares_of(log)) or SNAPSHOT_END for log in suspects}
    remove_open_shares(disk, index, uncommitted, written_at=written_at)
    for number in [number for number, file in index.files.items() if not file.live]:
        disk.remove(index.files[number].path)
        index.drop_file(number)
    disk.sync_folder(layout.JOURNAL)


def remove_open_shares(disk: Disk, index: JournalIndex, aligned: dict[int, LogOffset], *, written_at: int) -> None:
    """Copy what is committed out of the files that hold rows above a log's `aligned`, and remove those files (A8)."""
    tainted = [
        number
        for number in sorted(index.files)
        if any(
            share.entry.log in aligned and share.entry.last > aligned[share.entry.log] for share in index.living(number)
        )
    ]
    if not tainted:
        return
    living = [share for number in tainted for share in index.living(number)]
    kept = [share for share in living if share.entry.log not in aligned or share.entry.last <= aligned[share.entry.log]]
    logger.info("rewriting %d journal files without %d open shares", len(tainted), len(living) - len(kept))
    copy_shares(disk, index, kept, tainted, written_at=written_at)


def copy_shares(
    disk: Disk, index: JournalIndex, shares: Sequence[JournalShare], old: Sequence[int], *, written_at: int
) -> None:
    """Copy shares into the next journal file, synced; only then remove the old files. Raises what the disk raises."""
    run_repairs(disk, index.repairs)
    if shares:
        target = index.new_file()
        file = FileWrite(target.path, is_new=True, size=0, synced=0, repairs=[], shared=True)
        copy = JournalCopy(shares, target, file)
        copy.run(disk, written_at)
        if file.failure is not None:
            index.repairs.extend([file.repair] if file.repair else [])
            raise file.failure
    for number in old:
        index.drop_file(number)
    if shares:
        index.add_file(target)
        for ref, block in zip(file.refs, copy.blocks, strict=True):
            index.add_block(target, ref, block.directory)
    # Before anything else is written: an open transaction's rows in an old file must be gone when it comes again.
    index.repairs.extend(Repair(layout.journal_path(number), 0) for number in old)
    run_repairs(disk, index.repairs)


def open_log(disk: Disk, log: int, index: JournalIndex, *, confirmed_tx: int) -> OpenedLog:
    """Look at a log's files for the first time, and take away what must not be there."""
    try:
        return _open_log(disk, log, index, confirmed_tx)
    except OSError as error:
        raise from_os_error(error, layout.log_folder(log), log=log) from None


def _open_log(disk: Disk, log: int, index: JournalIndex, confirmed_tx: int) -> OpenedLog:
    segments, dead = list_segments(disk, log)
    bases = list_bases(disk, log)
    unfinished = [base.path for base in bases if not base.is_complete and base.damage is None]
    _remove_leftovers(disk, log, [*dead, *unfinished])
    files = LogFiles(log, segments, [base for base in bases if base.is_complete])
    fault = next((base.damage for base in bases if base.damage is not None), None)
    fault = fault or _cut_tail(disk, files, aligned_of(index.shares_of(log)), confirmed_tx)
    last, aligned, wire_end = files.tail()
    if fault is None:
        index.drop_covered(log, last, aligned)
        for share in index.shares_of(log):
            entry = share.entry
            if entry.previous != last:
                fault = Hole(f"the journal goes on after {entry.previous}, the segments end at {last}", log=log)
                break
            last, wire_end = entry.last, entry.wire_end
            aligned = max(aligned, entry.aligned)
    return OpenedLog(files, Recovered(last=last, durable=aligned, wire_end=wire_end), fault)


def _cut_tail(disk: Disk, files: LogFiles, journal_aligned: LogOffset | None, confirmed_tx: int) -> LogFault | None:
    """Cut the torn tail of the last live segment, and open rows over as many segments as it takes.

    Where there is damage, nothing is cut: it is returned, and the files that are left end with the last whole block.
    """
    if files.segments:
        _load_last(disk, files.segments[-1], confirmed_tx)
    damage = None
    while files.segments:
        segment = files.segments[-1]
        segment.load(disk)
        damage = damage or segment.damage
        if damage is not None:
            if segment.refs:
                return damage
        elif segment.refs:
            claimed = segment.refs[-1].header.aligned
            if cut_above(disk, segment, claimed if journal_aligned is None else max(claimed, journal_aligned)):
                return None
        else:
            logger.info("removing %s: it holds no whole block", segment.path)
        if damage is None:
            disk.remove(segment.path)
            disk.sync_folder(layout.log_folder(files.log))
        files.segments.pop()
    return damage


def _load_last(disk: Disk, segment: Segment, confirmed_tx: int) -> None:
    found = scan(disk, segment.path, confirmed_tx=confirmed_tx)
    if found.torn is not None:
        logger.warning("cut the torn tail of %s at %d bytes: %s", segment.path, found.end, found.torn)
        disk.truncate(segment.path, found.end)
        disk.sync(segment.path)
    segment.add(found.refs)
    segment.damage = found.damage
    segment.loaded = True


def cut_above(disk: Disk, segment: Segment, aligned: LogOffset) -> bool:
    """Cut the blocks above `aligned` off a segment. False if no block would be left: the segment is to be removed."""
    kept = [ref for ref in segment.refs if ref.header.last <= aligned]
    if kept and len(kept) < len(segment.refs):
        disk.truncate(segment.path, kept[-1].end)
        disk.sync(segment.path)
        segment.refs = kept
        segment.size = kept[-1].end
    return bool(kept)


def cut_open_rows(disk: Disk, files: LogFiles, aligned: LogOffset) -> None:
    """Remove the rows above `aligned` from a log's segments, for good (A3)."""
    run_repairs(disk, files.repairs)
    while files.segments and not cut_above(disk, files.segments[-1], aligned):
        disk.remove(files.segments[-1].path)
        disk.sync_folder(layout.log_folder(files.log))
        files.segments.pop()
        if files.segments:
            files.segments[-1].load(disk)


def run_repairs(disk: Disk, repairs: list[Repair]) -> None:
    """Mend what failed writes left; what was mended is off the list, whatever happens next."""
    while repairs:
        repairs[0].run(disk)
        repairs.pop(0)


def _remove_leftovers(disk: Disk, log: int, paths: list[str]) -> None:
    folder = layout.log_folder(log)
    paths += [f"{folder}/{name}" for name in disk.names(folder) if name.endswith(layout.TEMPORARY_SUFFIX)]
    for path in paths:
        logger.info("removing %s: unfinished or replaced", path)
        disk.remove(path)
    if paths:
        disk.sync_folder(folder)
