"""Start-up: from what a crash may have left to logs that may be appended to. The ordinary way to open a folder.

Journals are read when the store opens, each log's segments when that log is first used. What is removed: torn tails,
rows of a transaction whose end never came, files that were never finished, files that a higher generation replaced.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from storage import layout
from storage.bases import list_bases
from storage.block import BlockHeader
from storage.disk import Disk
from storage.errors import Hole, LogFault, from_os_error
from storage.file_write import FileWrite
from storage.journal import JournalFile, JournalIndex, JournalShare, aligned_of, load_journal
from storage.journal_write import JournalCopy
from storage.offset import SNAPSHOT_END, LogOffset
from storage.repair import Repair, repair_now, run_repairs
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
    for name in disk.names(layout.JOURNAL):
        if name.endswith(layout.TEMPORARY_SUFFIX):
            disk.remove(f"{layout.JOURNAL}/{name}")
    load_journal(disk, index, confirmed_tx=confirmed_tx, on_torn=_note_torn)
    for file in index.files.values():
        if file.size:
            # Cut what is torn; and sync: whoever wrote this may have died before that, and from here on it counts.
            Repair(file.path, file.size).run(disk)
    suspects = {log for file in index.files_with_open_blocks() for log in index.logs_in(file.number)}
    uncommitted = {log: aligned_of(index.shares_of(log)) or SNAPSHOT_END for log in suspects}
    remove_open_shares(disk, index, uncommitted, written_at=written_at)
    for number in [number for number, file in index.files.items() if not file.live]:
        disk.remove(index.files[number].path)
        index.drop_file(number)
    disk.sync_folder(layout.JOURNAL)


def _note_torn(path: str, end: int, why: str) -> None:
    logger.warning("cutting the torn tail of %s at %d bytes: %s", path, end, why)


def remove_open_shares(disk: Disk, index: JournalIndex, aligned: dict[int, LogOffset], *, written_at: int) -> None:
    """Copy what is committed out of the files that hold rows above a log's `aligned`, and remove those files (A8)."""
    tainted = [number for number, file in sorted(index.files.items()) if _has_rows_above(file, aligned)]
    if not tainted:
        return
    living = [share for number in tainted for share in index.living(number)]
    kept = [share for share in living if share.entry.log not in aligned or share.entry.last <= aligned[share.entry.log]]
    logger.info("rewriting %d journal files without %d open shares", len(tainted), len(living) - len(kept))
    copy_shares(disk, index, kept, tainted, written_at=written_at)


def _has_rows_above(file: JournalFile, aligned: dict[int, LogOffset]) -> bool:
    """Shares that a segment took over count too: they are gone only with the file."""
    return any(
        log in aligned and directory.entry(row).last > aligned[log]
        for directory in file.directories
        for row, log in enumerate(directory.logs())
    )


def copy_shares(
    disk: Disk, index: JournalIndex, shares: Sequence[JournalShare], old: Sequence[int], *, written_at: int
) -> None:
    """Copy shares into the next journal file, synced; only then remove the old files. Raises what the disk raises."""
    run_repairs(disk, index.repairs)
    if shares:
        target = index.new_file()
        file = FileWrite(target.path, is_new=True, size=0, synced=0, repairs=[], shared=True)
        copy = JournalCopy(shares, target, file, min(old))
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


def open_log(disk: Disk, log: int, index: JournalIndex, repairs: list[Repair], *, confirmed_tx: int) -> OpenedLog:
    """Look at a log's files for the first time, and take away what must not be there.

    `repairs`: what an attempt before this one could not finish; what this one cannot is added.
    """
    try:
        return _open_log(disk, log, index, repairs, confirmed_tx)
    except OSError as error:
        raise from_os_error(error, layout.log_folder(log), log=log) from None


def _open_log(disk: Disk, log: int, index: JournalIndex, repairs: list[Repair], confirmed_tx: int) -> OpenedLog:
    run_repairs(disk, repairs)
    segments, dead = list_segments(disk, log)
    bases = list_bases(disk, log)
    unfinished = [base.path for base in bases if not base.is_complete and base.damage is None]
    _remove_leftovers(disk, log, [*dead, *unfinished])
    files = LogFiles(log, segments, [base for base in bases if base.is_complete])
    files.repairs = repairs
    fault = next((base.damage for base in bases if base.damage is not None), None)
    shares = index.shares_of(log)
    fault = fault or _cut_tail(disk, files, shares, confirmed_tx)
    if fault is None:
        _cut_torn_carry(disk, files, shares)
    _make_certain(disk, files, is_sound=fault is None)
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


def _make_certain(disk: Disk, files: LogFiles, *, is_sound: bool) -> None:
    """Cut what is torn; and sync: whoever wrote this may have died before that, and from here on it counts."""
    if files.segments:
        segment = files.segments[-1]
        if is_sound:
            repair_now(disk, files.repairs, Repair(segment.path, segment.size))
        else:
            disk.sync(segment.path)
    if files.base is not None:
        disk.sync(files.base.path)
    disk.sync_folder(layout.log_folder(files.log))


def _cut_tail(disk: Disk, files: LogFiles, shares: Sequence[JournalShare], confirmed_tx: int) -> LogFault | None:
    """Cut the torn tail of the last live segment, and open rows over as many segments as it takes.

    Where there is damage, nothing is cut: it is returned, and the files that are left end with the last whole block.
    """
    journal_aligned = aligned_of(shares)
    if files.segments:
        _load_last(disk, files.segments[-1], shares, confirmed_tx)
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
            if _cut_above(disk, files, claimed if journal_aligned is None else max(claimed, journal_aligned)):
                return None
        else:
            logger.info("removing %s: it holds no whole block", segment.path)
        if damage is None:
            repair_now(disk, files.repairs, Repair(segment.path, 0))
        files.segments.pop()
    return damage


def _cut_torn_carry(disk: Disk, files: LogFiles, shares: Sequence[JournalShare]) -> None:
    """Undo a write that carried shares over and was torn between two blocks, the last of which had the claim for all.

    It shows in a share whose rows are in the segments while its claim is not. The journal still has all of them.
    """
    tail = files.tail()
    for share in shares:
        entry = share.entry
        if entry.rows and entry.last <= tail.last and entry.aligned > tail.aligned:
            logger.warning("log %d: removing what a torn write carried over after %s", files.log, entry.previous)
            cut_open_rows(disk, files, entry.previous)
            return


def _load_last(disk: Disk, segment: Segment, shares: Sequence[JournalShare], confirmed_tx: int) -> None:
    rows = [share.entry for share in shares if share.entry.rows]

    def is_in_journal(header: BlockHeader) -> bool:
        # A torn write begins with the rows that it carried over; those behind them were durable nowhere yet.
        if not rows or rows[0].first > header.first:
            return False
        return header.last <= rows[-1].last or header.last.tx >= confirmed_tx

    found = scan(disk, segment.path, confirmed_tx=confirmed_tx, is_elsewhere=is_in_journal)
    if found.torn is not None:
        _note_torn(segment.path, found.end, found.torn)
    segment.add(found.refs)
    segment.damage = found.damage
    segment.loaded = True


def _cut_above(disk: Disk, files: LogFiles, aligned: LogOffset) -> bool:
    """Cut the blocks above `aligned` off the last segment. False if no block would be left: it is to be removed."""
    segment = files.segments[-1]
    kept = [ref for ref in segment.refs if ref.header.last <= aligned]
    if kept and len(kept) < len(segment.refs):
        repair = Repair(segment.path, kept[-1].end)
        try:
            repair_now(disk, files.repairs, repair)
        finally:
            # Readers in other processes may have the file open that was replaced, and would see nothing new in it.
            segment.closed = segment.closed or repair.must_copy
        segment.refs = kept
        segment.size = kept[-1].end
    return bool(kept)


def cut_open_rows(disk: Disk, files: LogFiles, aligned: LogOffset) -> None:
    """Remove the rows above `aligned` from a log's segments, for good (A3)."""
    run_repairs(disk, files.repairs)
    while files.segments and not _cut_above(disk, files, aligned):
        repair_now(disk, files.repairs, Repair(files.segments[-1].path, 0))
        files.segments.pop()
        if files.segments:
            files.segments[-1].load(disk)


def _remove_leftovers(disk: Disk, log: int, paths: list[str]) -> None:
    folder = layout.log_folder(log)
    paths += [f"{folder}/{name}" for name in disk.names(folder) if name.endswith(layout.TEMPORARY_SUFFIX)]
    if paths:
        disk.sync_folder(folder)  # what replaced them has its name for certain before they lose theirs
    for path in paths:
        logger.info("removing %s: unfinished or replaced", path)
        disk.remove(path)
    if paths:
        disk.sync_folder(folder)
