"""The journal: one block and one sync for the flushes of many small logs; and the index of what it still holds.

Invariants:
    files are numbered, only the newest is appended to, and only by the process that made it
    a log's rows are its segments, then its shares here, chained by `previous`
    live = the number of a file's shares that no segment and no other file has taken over; at 0 a closed file may go
    a share that a join made counts instead of those that it was made of, while a crash has left both
    a file is never cut in its middle: what must go is left behind when the rest is copied into the next file
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from storage import layout
from storage.block import BlockFlag
from storage.disk import Stamp
from storage.errors import LogFault
from storage.journal_block import DIRECTORY_FIELDS, Directory, PackedDirectory, ShareEntry
from storage.limits import JOURNAL_LOGS_IN_ORDER_MAX
from storage.offset import SNAPSHOT_END, LogOffset
from storage.repair import Repair
from storage.rows import Flags, Unsigned
from storage.scan import BlockRef
from storage.scattered import Scattered

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
    stamp: Stamp | None = None
    """Of the file when all of it was known; kept by readers in other processes, who need not look while it is so."""

    @property
    def is_young(self) -> bool:
        """Whether its shares are as flushes wrote them; in other files they are joined, or copies."""
        return not (self.refs and self.refs[0].header.log)


@dataclass(frozen=True, slots=True)
class _Block:
    """What the serial of a block stands for."""

    file: JournalFile
    ref: BlockRef
    directory: PackedDirectory
    is_needed: Flags
    """Of each share, whether it still is."""


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
            entry = share.entry
            while self.shares and _has_joined(entry, self.shares[-1].entry):
                self.shares.pop()
                self.lasts.pop()
            before = self.shares[-1].entry if self.shares else None
            if before is None or entry.last > before.last or entry.aligned > before.aligned:
                self.shares.append(share)
                self.lasts.append(entry.last)
        return True


def _place(share: JournalShare) -> tuple[LogOffset, LogOffset, str]:
    return share.entry.last, share.entry.aligned, share.ref.path


def _has_joined(joined: ShareEntry, entry: ShareEntry) -> bool:
    """Whether a share begins before another, and ends no sooner: only one that was made of it does."""
    if joined.last < entry.last or joined.aligned < entry.aligned or not joined.rows:
        return False
    is_more = (joined.last, joined.aligned) > (entry.last, entry.aligned)
    return joined.previous < entry.previous or (joined.previous == entry.previous and entry.rows > 0 and is_more)


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

    @property
    def young_files(self) -> dict[int, JournalFile]:
        """The files that hold what flushes wrote."""
        return {number: file for number, file in self.files.items() if file.is_young}

    @property
    def joined_files(self) -> dict[int, JournalFile]:
        """The others."""
        return {number: file for number, file in self.files.items() if not file.is_young}

    def new_file(self) -> JournalFile:
        """A file for the next number, not in the index yet. A number is used once, whatever becomes of the file."""
        file = JournalFile(self._next_number, layout.journal_path(self._next_number))
        self._next_number += 1
        return file

    def add_file(self, file: JournalFile) -> None:
        """A file that is on disk."""
        self.files[file.number] = file
        self.was_used(file.number)

    def was_used(self, number: int) -> None:
        """No new file gets this number, nor one below it."""
        self._next_number = max(self._next_number, number + 1)

    def add_block(self, file: JournalFile, ref: BlockRef, directory: Directory) -> None:
        """A block that is on disk and synced."""
        block = _Block(file, ref, directory.packed(), np.ones(len(directory), np.bool_))
        serial = self._next_serial
        self._next_serial += 1
        self._blocks[serial] = block
        file.serials.append(serial)
        file.refs.append(ref)
        file.directories.append(block.directory)
        file.size = max(file.size, ref.end)
        # The file that a copy or a join names may be gone, and no other may have its name.
        self.was_used(ref.header.log)
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

    def drop_doubled(self, log: int) -> None:
        """Let go of what does not count, since a crash left it beside a copy or a join that is certain."""
        shares = {code: self._share(code) for code in self._codes.get(log, ())}
        counted = _InOrder()
        counted.take(list(shares.values()))
        if len(counted.shares) < len(shares):
            numbers = set(map(id, counted.shares))
            kept = [code for code, share in shares.items() if id(share) in numbers]
            for code in shares.keys() - set(kept):
                self._let_go(code)
            self._keep(log, kept)

    def drop_covered(self, log: int, last: LogOffset, aligned: LogOffset) -> None:
        """The segments have these shares too: the crash came after they were carried over."""
        kept = []
        for code in self._codes.get(log, ()):
            entry = self._share(code).entry
            if entry.last <= last and entry.aligned <= aligned:
                self._let_go(code)
            else:
                kept.append(code)
        self._keep(log, kept)

    def drop(self, log: int) -> None:
        """A segment has all that the journal held of this log, or the log is gone."""
        self._in_order.pop(log, None)
        for code in self._codes.pop(log, ()):
            self._let_go(code)

    def drop_file(self, number: int) -> None:
        """The file was removed, after its living shares were copied or taken over."""
        for log in self.logs_in(number):
            kept = [code for code in self._codes[log] if self._block(code).file.number != number]
            self._keep(log, kept)
        for serial in self.files.pop(number).serials:
            del self._blocks[serial]

    def with_witnesses(self, numbers: Iterable[int]) -> list[int]:
        """These files, and those that have to go before them.

        While the file is there that a joined block names, all are taken to be there that it was made of, and a block
        that cannot be read at the end of its file is taken for torn. So it goes first, whichever goes out of turn.
        """
        going = set(numbers)
        named = {file.refs[-1].header.log for file in self.joined_files.values()}
        youngest = max(going & self.young_files.keys(), default=0)
        return sorted(going | {number for number in named & self.files.keys() if number < youngest})

    def logs_in(self, number: int) -> list[int]:
        """The logs for which a file is still needed, in order."""
        blocks = [self._blocks[serial] for serial in self.files[number].serials]
        found = [block.directory.column("log")[block.is_needed] for block in blocks]
        logs: list[int] = np.unique(np.concatenate(found)).tolist() if found else []
        return logs

    def is_needed(self, number: int, log: int) -> bool:
        """Whether a file is still needed for a log."""
        return any(self._block(code).file.number == number for code in self._codes.get(log, ()))

    def scattered(self, logs: Iterable[int]) -> Scattered:
        """What these logs have in young files."""
        all_codes = np.sort(np.concatenate([np.array(self._codes[log], np.uint64) for log in logs]))
        codes: list[Unsigned] = []
        tables: list[Unsigned] = []
        blocks: list[_Block] = []
        for own in _by_block(all_codes):
            block = self._block(int(own[0]))
            if block.file.is_young:
                codes.append(own)
                tables.append(block.directory.table((own & np.uint64(_ROW_MASK)).astype(np.int64)))
                blocks.append(block)
        columns = dict(zip(DIRECTORY_FIELDS, np.concatenate(tables).T, strict=True))
        order = np.lexsort([columns[name] for name in ("aligned_op", "aligned_tx", "last_op", "last_tx", "log")])
        return Scattered(
            {name: values[order] for name, values in columns.items()},
            np.concatenate(codes)[order],
            np.repeat(np.arange(len(blocks)), [len(own) for own in codes])[order],
            [block.ref for block in blocks],
            min(block.file.number for block in blocks),
        )

    def join(self, scattered: Scattered, file: JournalFile, ref: BlockRef, directory: Directory) -> None:
        """A block has these shares, joined, and is synced."""
        taken = np.sort(scattered.codes)
        logs = set(directory.logs())
        gone = logs - self._codes.keys()
        self.add_block(file, ref, directory)
        there: list[Unsigned] = []
        for log in logs:
            codes = np.array(self._codes[log], np.uint64)
            places = np.minimum(np.searchsorted(taken, codes), len(taken) - 1)
            is_taken = taken[places] == codes
            there.append(codes[is_taken])  # others went already, and each is counted once
            self._keep(log, codes[~is_taken].tolist())
        for own in _by_block(np.sort(np.concatenate(there))):
            block = self._block(int(own[0]))
            block.is_needed[(own & np.uint64(_ROW_MASK)).astype(np.int64)] = False
            block.file.live -= len(own)
        for log in gone:
            self.drop(log)

    def living(self, number: int) -> list[JournalShare]:
        """The shares of a file that are still needed, in the order of the file."""
        file = self.files[number]
        shares: list[JournalShare] = []
        for serial in file.serials:
            rows = np.flatnonzero(self._blocks[serial].is_needed)
            shares += [self._share(serial << _ROW_BITS | row) for row in rows.tolist()]
        return shares

    def aligned(self, logs: Collection[int]) -> dict[int, LogOffset]:
        """What each log's shares claim at most, for many logs at once: no object is made of a share."""
        found = dict.fromkeys(logs, SNAPSHOT_END)
        for block in self._blocks.values():
            offsets = block.directory.offsets("aligned")
            needed = block.is_needed.tolist()
            for log, aligned, is_needed in zip(block.directory.logs(), offsets, needed, strict=True):
                if is_needed and log in found and aligned > found[log]:
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

    def _let_go(self, code: int) -> None:
        block = self._block(code)
        block.is_needed[code & _ROW_MASK] = False
        block.file.live -= 1

    def _share(self, code: int) -> JournalShare:
        block = self._block(code)
        return JournalShare(block.ref, block.directory.entry(code & _ROW_MASK))

    def _block(self, code: int) -> _Block:
        return self._blocks[code >> _ROW_BITS]


def _by_block(codes: Unsigned) -> list[Unsigned]:
    """Codes in order, those of each block by themselves; none where there are none."""
    serials = codes >> np.uint64(_ROW_BITS)
    return np.split(codes, np.flatnonzero(serials[1:] != serials[:-1]) + 1) if len(codes) else []


def aligned_of(shares: Iterable[JournalShare]) -> LogOffset | None:
    """The greatest aligned offset that a log's shares claim."""
    return max((share.entry.aligned for share in shares), default=None)
