"""The journal: one block and one sync for the flushes of many small logs; and the index of what it still holds.

Invariants:
    files are numbered, only the newest is appended to, and only by the process that made it
    a log's rows are its segments, then its shares here, chained by `previous`
    live = the number of a file's shares that no segment has taken over; at 0 a closed file may be removed
    a file is never cut in its middle: what must go is left behind when the rest is copied into the next file
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from storage import layout
from storage.block import BlockFlag
from storage.errors import LogFault
from storage.journal_block import Directory, PackedDirectory, ShareEntry
from storage.limits import JOURNAL_LOGS_IN_ORDER_MAX
from storage.offset import SNAPSHOT_END, LogOffset
from storage.repair import Repair
from storage.scan import BlockRef

# A share's code is the serial of its block, then its row: 26 bits count the shares of the largest block, and 38 bits of
# serials last for centuries of ten blocks a second.
_ROW_BITS: Final = 26
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


@dataclass(frozen=True, slots=True)
class JournalShare:
    """A share on disk: its row of the directory, and the block it is in."""

    ref: BlockRef
    entry: ShareEntry


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A place where a block was that is damaged."""

    position: int
    fault: LogFault
    logs: frozenset[int] | None
    """Whose shares were in it; None if nobody knows."""


@dataclass(slots=True)
class JournalFile:
    """One file, with the directories of its blocks."""

    number: int
    path: str
    size: int = 0
    """Synced bytes."""
    proven: int = 0
    """Bytes up to here are certain, whoever wrote them: a later block says so, or G."""
    live: int = 0
    refs: list[BlockRef] = field(default_factory=list)
    directories: list[PackedDirectory] = field(default_factory=list)
    serials: list[int] = field(default_factory=list)
    """Of the blocks, in the index."""
    unreadable: list[Unreadable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Block:
    """What the serial of a block stands for."""

    file: JournalFile
    ref: BlockRef
    directory: PackedDirectory


@dataclass(slots=True)
class _InOrder:
    """A log's shares as objects, oldest first, each once: what somebody asked for is kept, and continued."""

    codes_count: int = 0
    """Of the log's codes, so many were looked at."""
    shares: list[JournalShare] = field(default_factory=list)
    lasts: list[LogOffset] = field(default_factory=list)

    def take(self, found: list[JournalShare]) -> bool:
        """Go on with shares that were added since; False if one of them belongs before those that are here."""
        found.sort(key=_place)
        if self.shares and found and _place(found[0]) < _place(self.shares[-1]):
            return False
        for share in found:
            entry, before = share.entry, self.shares[-1].entry if self.shares else None
            if before is None or entry.last > before.last or entry.aligned > before.aligned:
                self.shares.append(share)
                self.lasts.append(entry.last)
        return True


def _place(share: JournalShare) -> tuple[LogOffset, LogOffset, str]:
    return share.entry.last, share.entry.aligned, share.ref.path


class JournalIndex:
    """Which shares of which log are in which block. A share is a packed number until somebody asks for it."""

    def __init__(self) -> None:
        self.files: dict[int, JournalFile] = {}
        self.repairs: list[Repair] = []
        """What failed writes left to be mended before the next one."""
        self._next_number = 1
        self._next_serial = 0
        self._blocks: dict[int, _Block] = {}
        self._codes: dict[int, array[int]] = {}
        """Eight bytes for each share: there may be hundreds of thousands."""
        self._in_order: dict[int, _InOrder] = {}
        """Of the logs that were asked for last."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def new_file(self) -> JournalFile:
        """A file for the next number, not in the index yet. A number is used once, whatever becomes of the file."""
        file = JournalFile(self._next_number, layout.journal_path(self._next_number))
        self._next_number += 1
        return file

    def add_file(self, file: JournalFile) -> None:
        """A file that is on disk."""
        self.files[file.number] = file
        self._next_number = max(self._next_number, file.number + 1)

    def add_block(self, file: JournalFile, ref: BlockRef, directory: Directory) -> None:
        """A block that is on disk and synced."""
        block = _Block(file, ref, directory.packed())
        serial = self._next_serial
        self._next_serial += 1
        self._blocks[serial] = block
        file.serials.append(serial)
        file.refs.append(ref)
        file.directories.append(block.directory)
        file.size = max(file.size, ref.end)
        file.live += len(directory)
        codes = self._codes
        for row, log in enumerate(directory.logs()):
            own = codes.get(log)
            if own is None:
                own = codes[log] = array("Q")
            own.append(serial << _ROW_BITS | row)

    def holds(self, log: int) -> bool:
        return log in self._codes

    def logs(self) -> Collection[int]:
        """The logs with any share."""
        return self._codes.keys()

    def shares_count(self, log: int) -> int:
        """How many shares a log has, those that a crash left twice counted twice."""
        return len(self._codes.get(log, ()))

    def shares_of(self, log: int, after: LogOffset | None = None) -> list[JournalShare]:
        """A log's shares that end above `after`, oldest first, each once: a crash during a copy leaves some twice."""
        codes = self._codes.get(log)
        if codes is None:
            return []
        known = self._in_order.pop(log, None) or _InOrder()
        if not known.take([self._share(code) for code in codes[known.codes_count :]]):
            known = _InOrder()
            known.take([self._share(code) for code in codes])
        known.codes_count = len(codes)
        self._in_order[log] = known  # the last one that was asked for
        if len(self._in_order) > JOURNAL_LOGS_IN_ORDER_MAX:
            del self._in_order[next(iter(self._in_order))]
        return known.shares[0 if after is None else bisect_right(known.lasts, after) :]

    def drop_covered(self, log: int, last: LogOffset, aligned: LogOffset) -> None:
        """The segments have these shares too: the crash came after they were carried over."""
        kept = []
        for code in self._codes.get(log, ()):
            entry = self._share(code).entry
            if entry.last <= last and entry.aligned <= aligned:
                self._block(code).file.live -= 1
            else:
                kept.append(code)
        self._keep(log, kept)

    def drop(self, log: int) -> None:
        """A segment has all that the journal held of this log, or the log is gone."""
        self._in_order.pop(log, None)
        for code in self._codes.pop(log, ()):
            self._block(code).file.live -= 1

    def drop_file(self, number: int) -> None:
        """The file was removed, after its living shares were copied or taken over."""
        file = self.files.pop(number)
        for directory in file.directories:
            for log in set(directory.logs()):
                self._keep(log, [code for code in self._codes.get(log, ()) if self._block(code).file is not file])
        for serial in file.serials:
            del self._blocks[serial]

    def logs_in(self, number: int) -> list[int]:
        """The logs for which a file is still needed, in order."""
        file = self.files[number]
        found = sorted({log for directory in file.directories for log in directory.logs()})
        return [log for log in found if any(self._block(code).file is file for code in self._codes.get(log, ()))]

    def living(self, number: int) -> list[JournalShare]:
        """The shares of a file that are still needed, in the order of the file."""
        file = self.files[number]
        shares = []
        for serial, directory in zip(file.serials, file.directories, strict=True):
            for row, log in enumerate(directory.logs()):
                code = serial << _ROW_BITS | row
                if code in self._codes.get(log, ()):
                    shares.append(self._share(code))
        return shares

    def aligned(self, logs: Collection[int]) -> dict[int, LogOffset]:
        """What each log's shares claim at most, for many logs at once: no object is made of a share."""
        found = dict.fromkeys(logs, SNAPSHOT_END)
        for serial, block in self._blocks.items():
            offsets = block.directory.offsets("aligned")
            for row, (log, aligned) in enumerate(zip(block.directory.logs(), offsets, strict=True)):
                if log in found and aligned > found[log] and serial << _ROW_BITS | row in self._codes.get(log, ()):
                    found[log] = aligned
        return found

    def files_with_open_blocks(self) -> list[JournalFile]:
        """Files with a block whose transaction was open when it was written."""
        return [file for file in self.files.values() if any(BlockFlag.OPEN in ref.header.flags for ref in file.refs)]

    def has_rows(self, log: int) -> bool:
        """Whether any of a log's shares is more than a commit."""
        return any(self._block(code).directory.has_rows(code & _ROW_MASK) for code in self._codes.get(log, ()))

    def _keep(self, log: int, codes: list[int]) -> None:
        self._in_order.pop(log, None)
        if codes:
            self._codes[log] = array("Q", codes)
        else:
            self._codes.pop(log, None)

    def _share(self, code: int) -> JournalShare:
        block = self._block(code)
        return JournalShare(block.ref, block.directory.entry(code & _ROW_MASK))

    def _block(self, code: int) -> _Block:
        return self._blocks[code >> _ROW_BITS]


def aligned_of(shares: Iterable[JournalShare]) -> LogOffset | None:
    """The greatest aligned offset that a log's shares claim."""
    return max((share.entry.aligned for share in shares), default=None)
