"""The segments of one log: which files are alive, what blocks they hold, and where the next block goes.

Invariants:
    segments are in the order of their first rows and do not overlap; the blocks of each are chained by `previous`
    only the last one, live (generation 0) and not closed, is appended to; only a live one may be torn
    of two generations that cover a range the higher one is alive
    refs hold whole, synced blocks; of a closed segment they are read when first needed
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage import layout
from storage.bases import Base
from storage.block import BlockHeader, BlockKind
from storage.disk import Disk, Stamp
from storage.errors import CorruptBlock, LogFault
from storage.layout import SegmentName
from storage.limits import SEGMENT_BYTES_MAX
from storage.offset import SNAPSHOT_END, LogOffset
from storage.repair import Repair
from storage.scan import BlockRef, scan


@dataclass(slots=True)
class Segment:
    """One file of blocks."""

    name: SegmentName
    path: str
    size: int = 0
    """Synced bytes, all of them whole blocks."""
    refs: list[BlockRef] = field(default_factory=list)
    """Blocks of rows, in order."""
    ledger: BlockRef | None = None
    """The ranges that a compaction folded, in a compacted segment."""
    loaded: bool = False
    proven: int = 0
    """Bytes up to here are certain, whoever wrote them: a later block says so, or G."""
    damage: LogFault | None = None
    """What lies behind the blocks, if it is not the end of the file: readers come so far and no further."""
    closed: bool = False
    """Never appended to again: full, compacted, or a sync of it failed."""
    stamp: Stamp | None = None
    """Of the file when all of it was known; kept by readers in other processes, who need not look while it is so."""

    @property
    def first(self) -> LogOffset:
        return self.name.first

    @property
    def last(self) -> LogOffset:
        """Its last row. Only of a loaded segment that has blocks."""
        return self.refs[-1].header.last

    def takes_more(self, bytes_max: int) -> bool:
        """Whether the next block goes to this file, if files are to be of about `bytes_max`."""
        return not self.closed and self.damage is None and self.name.generation == 0 and self.size < bytes_max

    def add(self, refs: Sequence[BlockRef]) -> None:
        """Blocks that were found or written."""
        for ref in refs:
            if ref.header.kind is BlockKind.LEDGER:
                self.ledger = ref
            else:
                self.refs.append(ref)
            self.size = max(self.size, ref.end)

    def load(self, disk: Disk) -> None:
        """Find the blocks, once. A closed segment was synced whole, so a torn tail in it would be damage.

        Threads that do so at the same time find the same, and none of them sees less than all of it.
        """
        if not self.loaded:
            scanned = scan(disk, self.path)
            found = Segment(self.name, self.path)
            found.add(scanned.refs)
            self.refs, self.ledger, self.size = found.refs, found.ledger, found.size
            self.proven = found.size
            self.damage = scanned.damage
            if scanned.torn is not None:
                self.damage = CorruptBlock(f"a closed segment ends in {scanned.torn}", path=self.path)
            self.loaded = True


def list_segments(disk: Disk, log: int) -> tuple[list[Segment], list[str]]:
    """The living segments in order, and the paths of files that a higher generation has replaced."""
    names = [name for name in map(SegmentName.parse, disk.names(layout.log_folder(log))) if name is not None]
    living, dead = living_names(names)
    segments = [Segment(name, layout.segment_path(log, name)) for name in living]
    return segments, [layout.segment_path(log, name) for name in dead]


def newest_header(disk: Disk, segments: Sequence[Segment]) -> BlockHeader | None:
    """The header of a log's last whole block of rows, found without loading the segments."""
    for segment in reversed(segments):
        rows = [ref.header for ref in scan(disk, segment.path).refs if ref.header.kind is BlockKind.ROWS]
        if rows:
            return rows[-1]
    return None


def strays(disk: Disk, files: "LogFiles") -> list[str]:
    """What lies before a log's last segment and is not a segment any more, or never became one. Under the store's lock.

    That is what was compacted or retired just now, and what was left when that failed before. A file behind the last
    segment may be on its way to become one.
    """
    living = {str(segment.name) for segment in files.segments}
    end = files.segments[-1].first if files.segments else SNAPSHOT_END
    folder = layout.log_folder(files.log)
    found: list[str] = []
    for name in disk.names(folder):
        parsed = SegmentName.parse(name.removesuffix(layout.TEMPORARY_SUFFIX))
        if parsed is not None and parsed.first < end and name not in living:
            found.append(f"{folder}/{name}")
    return found


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    """Remove files of one folder, for certain."""
    for path in paths:
        disk.remove(path)
    if paths:
        disk.sync_folder(paths[0].rpartition("/")[0])


def living_names(names: Sequence[SegmentName]) -> tuple[list[SegmentName], list[SegmentName]]:
    """Split names into those that count, in order, and those that a higher generation covers."""
    ordered = sorted(names, key=lambda name: (name.first, name.generation))
    dead = [name for name in ordered if any(_covers(other, name) for other in ordered)]
    return [name for name in ordered if name not in dead], dead


def _covers(higher: SegmentName, lower: SegmentName) -> bool:
    if higher.last is None or higher.generation <= lower.generation:
        return False
    # A compaction takes whole segments, so a live segment that begins in its range lies in it.
    last = lower.last if lower.last is not None else lower.first
    return higher.first <= lower.first and last <= higher.last


class Tail(NamedTuple):
    """Where what comes next continues."""

    last: LogOffset
    aligned: LogOffset
    wire_end: int


class LogFiles:
    """What a log has on disk besides its shares in the journal."""

    def __init__(self, log: int, segments: list[Segment], bases: list[Base]) -> None:
        self.log = log
        self.segments = segments
        self.bases = [base for base in bases if base.damage is None]
        self.repairs: list[Repair] = []
        self.segment_bytes_max = SEGMENT_BYTES_MAX
        self._bases_begun = 1 + max((base.number for base in bases), default=-1)

    def target(self, first: LogOffset) -> Segment:
        """The segment for a block that starts with this row: the last one, or a new one."""
        # One that was cut back to a commit without rows keeps the name of a row that it lost: it gets that row again.
        if self.takes_commits or (self.segments and self.segments[-1].first >= first):
            return self.segments[-1]
        name = SegmentName(first, None, 0)
        return Segment(name, layout.segment_path(self.log, name), loaded=True)

    @property
    def takes_commits(self) -> bool:
        """Whether a commit without rows has a segment to go to; it cannot name a new one."""
        return bool(self.segments) and self.segments[-1].takes_more(self.segment_bytes_max)

    def new_base_number(self) -> int:
        """For the next base. Used once, whatever becomes of that base: somebody may have seen its file."""
        self._bases_begun += 1
        return self._bases_begun - 1

    @property
    def base(self) -> Base | None:
        """The newest complete base."""
        return next((base for base in reversed(self.bases) if base.is_complete), None)

    def tail(self, before: LogOffset | None = None) -> Tail:
        """The end of the segments; where there are none, of the newest base or of an empty log.

        `before`: what the first share in the journal continues from, if there is one. A base that was made after a
        TRUNCATE may end among these shares: then it is not what they continue from.
        """
        if self.segments:
            header = self.segments[-1].refs[-1].header
            return Tail(header.last, header.aligned, header.wire_end)
        for base in reversed(self.bases):
            if base.is_complete and (before is None or base.last <= before):
                return Tail(base.last, base.floor, base.wire_end)
        return Tail(SNAPSHOT_END, SNAPSHOT_END, 0)

    def took(self, segment: Segment, refs: Sequence[BlockRef]) -> None:
        """Blocks were written to the target and synced."""
        if not segment.refs:
            self.segments.append(segment)
        segment.add(refs)
        self.repairs.clear()

    def lost(self, segment: Segment, repair: Repair | None, *, sync_failed: bool) -> None:
        """A write to the target failed; what it left must be mended first, and after a failed sync it is given up."""
        if repair is not None:
            self.repairs.append(repair)
        segment.closed = segment.closed or sync_failed

    def overlapping(self, after: LogOffset) -> list[Segment]:
        """The segments that may hold rows above `after`, in order."""
        for index in range(len(self.segments) - 1, -1, -1):
            if self.segments[index].first <= after:
                return self.segments[index:]
        return list(self.segments)
