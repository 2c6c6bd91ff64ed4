"""Start-up: from what a crash may have left to logs that may be appended to. The ordinary way to open a folder.

Journals are read when the store opens, each log's segments when that log is first used. What is removed: torn tails,
rows of a transaction whose end never came, files that were never finished, files that a higher generation replaced.

What is certain? A sync tells a failure once, maybe to a process that died of it, and the next process could not tell
such a file from a sound one by a sync of its own. So nothing is made certain by a sync:
    certain are the bytes in front of which a later header says that they were synced, and the blocks below G
    a file with anything else at its end is copied to a new one, which takes its name
    a file of an earlier process is never appended to
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage import layout
from storage.bases import list_bases
from storage.block import BlockHeader
from storage.disk import Disk
from storage.doubts import Doubts, read_doubts
from storage.errors import Hole, LogFault, from_os_error
from storage.journal import JournalIndex, JournalShare, aligned_of
from storage.journal_damage import put_aside
from storage.journal_scan import load_journal
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END
from storage.open_rows import cut_last, cut_open_rows, remove_open_shares
from storage.repair import Repair, repair_now, run_repairs
from storage.scan import scan
from storage.segments import LogFiles, Segment, list_segments
from storage.shape_log import Recovered

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TornTail:
    """What a power cut left at the end of a file, and was cut."""

    path: str
    position: int
    why: str


@dataclass(slots=True)
class Found:
    """What recovery found in a folder so far; whoever opens it tells."""

    torn: list[TornTail] = field(default_factory=list)
    doubts: Doubts = field(default_factory=dict)

    def note_torn(self, path: str, position: int, why: str) -> None:
        logger.warning("cutting the torn tail of %s at %d bytes: %s", path, position, why)
        self.torn.append(TornTail(path, position, why))


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log's files, and where it stands."""

    files: LogFiles
    recovered: Recovered
    fault: LogFault | None
    """Why it can be read up to there and takes no more rows."""


def recover_journal(disk: Disk, index: JournalIndex, found: Found, *, confirmed_tx: int, written_at: int) -> None:
    """Read all journal files; leave no torn tail, no damaged file, and no open transaction's rows behind."""
    for name in disk.names(layout.JOURNAL):
        if layout.is_temporary(name):
            disk.remove(f"{layout.JOURNAL}/{name}")
    load_journal(disk, index, confirmed_tx=confirmed_tx, on_torn=found.note_torn)
    for file in [file for file in index.files.values() if not file.unreadable]:
        # Before anything else goes: that a torn copy lost nothing is known from the file that it copied.
        _make_certain(disk, index.repairs, file.path, file.size, file.proven)
        if not file.size:
            index.drop_file(file.number)
    put_aside(disk, index, confirmed_tx=confirmed_tx, written_at=written_at)
    found.doubts = read_doubts(disk, disk.names(layout.JOURNAL))
    # Of a log in doubt the commit may be what was lost: it takes no more rows, so they can stay.
    suspects = {log for file in index.files_with_open_blocks() for log in index.logs_in(file.number)} - set(
        found.doubts
    )
    remove_open_shares(disk, index, index.aligned(suspects), written_at=written_at)
    for number in [number for number, file in index.files.items() if not file.live]:
        disk.remove(index.files[number].path)
        index.drop_file(number)
    disk.sync_folder(layout.JOURNAL)


def _make_certain(disk: Disk, repairs: list[Repair], path: str, size: int, proven: int) -> bool:
    """Let a file end after `size` bytes, for certain. Whether it is another file now."""
    if proven == size == disk.size(path):
        return False
    repair_now(disk, repairs, Repair(path, size, must_copy=True))
    return True


def open_log(
    disk: Disk, facts: LogFacts, index: JournalIndex, repairs: list[Repair], found: Found, *, confirmed_tx: int
) -> OpenedLog:
    """Look at a log's files for the first time, and take away what must not be there.

    `repairs`: what an attempt before this one could not finish; what this one cannot is added.
    """
    try:
        return _Opening(disk, facts, index, found, confirmed_tx).run(repairs)
    except OSError as error:
        raise from_os_error(error, layout.log_folder(facts.log), log=facts.log) from None


class _Opening:
    """One log on its way from files to a state."""

    def __init__(self, disk: Disk, facts: LogFacts, index: JournalIndex, found: Found, confirmed_tx: int) -> None:
        self._disk = disk
        self._log = log = facts.log
        self._handle = facts.handle
        self._index = index
        self._found = found
        self._confirmed_tx = confirmed_tx
        self._shares = index.shares_of(log)
        self._before = self._shares[0].entry.previous if self._shares else None
        self._doubt = found.doubts.get(log)

    def run(self, repairs: list[Repair]) -> OpenedLog:
        disk, log, index = self._disk, self._log, self._index
        run_repairs(disk, repairs)
        index.drop_doubled(log)  # or it would be joined once more, with what came later
        segments, dead = list_segments(disk, log)
        bases = list_bases(disk, log)
        kept = [base for base in bases if base.is_complete or base.damage is not None]
        self._remove_leftovers([*dead, *(base.path for base in bases if base not in kept)])
        files = LogFiles(log, segments, kept)
        files.repairs = repairs
        damage = self._cut_tail(files)
        if damage is None and self._doubt is None:
            damage = self._cut_torn_carry(files)
        self._make_certain(files)
        last, aligned, wire_end = files.tail(self._before)
        retired = SNAPSHOT_END if files.base is None else files.base.last
        if damage is None:
            index.drop_covered(log, last, aligned)
        fault = damage or self._doubt or next((base.damage for base in bases if base.damage is not None), None)
        # Nobody reads on behind damage in a segment; a segment that has nothing else is not read at all.
        is_read_on = not files.segments or files.segments[-1].damage is None
        for entry in (share.entry for share in index.shares_of(log) if is_read_on):
            if damage is not None and entry.previous < last:
                continue  # older segments have it
            if entry.previous != last and not last < entry.previous <= retired:
                message = f"the journal goes on after {entry.previous}, the segments end at {last}"
                fault = fault or Hole(message, log=log)
                break
            last, wire_end = entry.last, entry.wire_end
            aligned = max(aligned, entry.aligned)
        base = files.base
        if fault is None and base is not None and last < base.last:
            self._remove_retired(files)
            last, wire_end = base.last, base.wire_end
            aligned = max(aligned, base.floor)
        return OpenedLog(files, Recovered(last=last, durable=aligned, wire_end=wire_end), fault)

    def _remove_retired(self, files: LogFiles) -> None:
        """Let the log begin with its base. What lay behind that had open rows, and went with them.

        What is left is from before, since a crash kept a file that was retired, or the journal's first copy of rows
        that a segment had: nobody may read on there, for what came between is in the base alone.
        """
        while files.segments:
            path = files.segments[-1].path
            self._note_removal(path, "a base has its rows, and those behind them")
            repair_now(self._disk, files.repairs, Repair(path, 0))
            files.segments.pop()
        self._index.drop(self._log)

    def _make_certain(self, files: LogFiles) -> None:
        """What D will be said to be must be on the disk; older segments were certain before the last one was made."""
        if not (files.segments or files.bases or self._shares):
            # A process that was killed may have made the log, and not come so far. Who wrote to it had it for certain.
            self._disk.sync_folder(layout.log_folder(files.log))
        if not files.segments:
            return
        segment = files.segments[-1]
        if segment.damage is not None:
            size = self._disk.size(segment.path)  # all of it: somebody may want to look at the damage
            if segment.proven < segment.size:
                repair_now(self._disk, files.repairs, Repair(segment.path, size, must_copy=True))
            return
        # One that holds a commit alone has the name of a row that it lost, and gets it again: it must be a new file.
        is_bare = segment.first > segment.last
        proven = 0 if is_bare else segment.proven
        is_new = _make_certain(self._disk, files.repairs, segment.path, segment.size, proven)
        segment.proven = segment.size
        segment.closed = segment.closed or not is_new

    def _cut_tail(self, files: LogFiles) -> LogFault | None:
        """Cut the torn tail of the last live segment, and open rows over as many segments as it takes.

        Where there is damage, nothing is cut: it is returned, and the files left end with the last whole block.
        """
        journal_aligned = aligned_of(self._shares)
        if files.segments:
            self._load_last(files.segments[-1])
        damage = None
        while files.segments:
            segment = files.segments[-1]
            segment.load(self._disk)
            damage = damage or segment.damage
            if damage is not None:
                if segment.refs:
                    return damage
            elif segment.refs:
                claimed = segment.refs[-1].header.aligned
                if self._doubt is not None:
                    return None  # the commit may be what was lost
                if cut_last(self._disk, files, max(claimed, journal_aligned or claimed)):
                    return None
            else:
                self._note_removal(segment.path, "it holds no whole block")
            if damage is None:
                repair_now(self._disk, files.repairs, Repair(segment.path, 0))
            files.segments.pop()
        return damage

    def _cut_torn_carry(self, files: LogFiles) -> LogFault | None:
        """Undo a write that carried shares over and was torn between two blocks; the last had the claim for all.

        It shows in a share whose rows are in the segments while its claim is not. The journal still has all of them.
        """
        tail = files.tail(self._before)
        for share in self._shares:
            entry = share.entry
            if entry.rows and entry.last <= tail.last and entry.aligned > tail.aligned:
                what = "log %d (%s): removing what a torn write carried over after %s"
                logger.warning(what, self._log, self._handle, entry.previous)
                try:
                    cut_open_rows(self._disk, files, entry.previous)
                except LogFault as fault:
                    return fault
                break
        return None

    def _remove_leftovers(self, paths: list[str]) -> None:
        disk, folder = self._disk, layout.log_folder(self._log)
        paths = sorted({*paths, *(f"{folder}/{name}" for name in disk.names(folder) if layout.is_leftover(name))})
        if paths:
            disk.sync_folder(folder)  # what replaced them has its name for certain before they lose theirs
        for path in paths:
            self._note_removal(path, "unfinished or replaced")
            disk.remove(path)
        if paths:
            disk.sync_folder(folder)

    def _note_removal(self, path: str, why: str) -> None:
        logger.info("log %d (%s): removing %s: %s", self._log, self._handle, path, why)

    def _load_last(self, segment: Segment) -> None:
        is_in_journal = is_in(self._shares, self._confirmed_tx)
        found = scan(self._disk, segment.path, confirmed_tx=self._confirmed_tx, is_elsewhere=is_in_journal)
        if found.torn is not None:
            self._found.note_torn(segment.path, found.end, found.torn)
        segment.add(found.refs)
        segment.damage = found.damage
        segment.loaded = True
        segment.proven = found.proven if segment.name.generation == 0 else found.end
        for ref in found.refs:
            header = ref.header
            if max(header.last, header.aligned).tx < self._confirmed_tx and not is_in_journal(header):
                segment.proven = max(segment.proven, ref.end)


def is_in(shares: Sequence[JournalShare], confirmed_tx: int) -> Callable[[BlockHeader], bool]:
    """Whether the journal still has what a block of a segment took over: then the block says nothing of itself."""
    rows = [share.entry for share in shares if share.entry.rows]
    claimed = aligned_of(shares)

    def is_in_journal(header: BlockHeader) -> bool:
        if not header.rows:
            return claimed is not None and claimed >= header.aligned
        # A torn write begins with the rows that it carried over; those behind them were durable nowhere yet.
        if not rows or rows[0].first > header.first:
            return False
        return header.last <= rows[-1].last or header.last.tx >= confirmed_tx

    return is_in_journal
