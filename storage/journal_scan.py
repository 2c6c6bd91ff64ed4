"""Looking at journal files after a crash, or while somebody writes them: blocks, torn tails, damage.

Damage is no reason to stop: the walk goes on at the next good header, and what lies between is noted as unreadable.
What follows from that for the logs is decided in `storage.journal_damage`.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from storage import layout
from storage.block import HEADER_SIZE, BlockHeader, BlockKind
from storage.disk import Disk
from storage.errors import CorruptBlock, LogFault, UnknownFormat
from storage.journal import JournalFile, JournalIndex, Unreadable
from storage.journal_block import Directory, decode_directory
from storage.scan import BlockRef, next_block, read_part, scan

OnTorn = Callable[[str, int, str], None]
"""Hears of a torn tail: the file, where it begins, and what is wrong with it."""

_CLAIMS: Final = ("last_tx", "aligned_tx")


def load_journal(disk: Disk, index: JournalIndex, *, confirmed_tx: int, on_torn: OnTorn) -> None:
    """Read the directories of all journal files."""
    for name in disk.names(layout.JOURNAL):
        # Another file with the number of one that was put aside would take its name then, and that of its verdicts.
        index.was_used(layout.used_journal_number(name))
        number = layout.journal_number(name)
        if number is not None and number not in index.files:
            file = JournalFile(number, layout.journal_path(number))
            index.add_file(file)
            load_blocks(disk, index, file, confirmed_tx=confirmed_tx, on_torn=on_torn)


def load_blocks(disk: Disk, index: JournalIndex, file: JournalFile, *, confirmed_tx: int = 0, on_torn: OnTorn) -> None:
    """Read what is new in a journal file since `file.size`. Raises `UnknownFormat` for what another version wrote."""

    def is_copied(header: BlockHeader) -> bool:
        # A copy is synced before the first of the old files goes: while that is there, nothing is lost with the copy.
        return header.log > 0 and disk.exists(layout.journal_path(header.log))

    while True:
        found = scan(disk, file.path, start=file.size, confirmed_tx=confirmed_tx, is_elsewhere=is_copied)
        file.proven = max(file.proven, found.proven)
        for ref in found.refs:
            try:
                directory = _directory(disk, ref)
            except CorruptBlock as error:
                _note(file, Unreadable(ref.position, error.anew(), None))
                file.size = ref.end
                continue
            index.add_block(file, ref, directory)
            if _is_below(directory, confirmed_tx) and not is_copied(ref.header):
                file.proven = ref.end
        if found.torn is not None:
            on_torn(file.path, found.end, found.torn)
        if found.damage is None:
            return
        _note(file, _damaged(disk, file.path, found.end, found.damage))
        following = next_block(disk, file.path, found.end)
        if following is None:
            return
        file.size = following


def _directory(disk: Disk, ref: BlockRef) -> Directory:
    if ref.header.kind is not BlockKind.JOURNAL:
        raise CorruptBlock("a journal holds a block of another kind", path=ref.path, position=ref.position)
    return decode_directory(read_part(disk, ref, 0))


def _damaged(disk: Disk, path: str, position: int, fault: LogFault) -> Unreadable:
    """What is known of a block that is damaged: if its directory is not, whose shares it had."""
    try:
        header = BlockHeader.decode(disk.read(path, position, HEADER_SIZE))
        logs = frozenset(_directory(disk, BlockRef(path, position, header)).logs())
    except LogFault:
        logs = None
    return Unreadable(position, fault, logs)


def _note(file: JournalFile, found: Unreadable) -> None:
    if isinstance(found.fault, UnknownFormat):
        raise found.fault
    if all(place.position != found.position for place in file.unreadable):
        file.unreadable.append(found)


def _is_below(directory: Directory, confirmed_tx: int) -> bool:
    """Whether all that a block holds and claims lies below G, which was confirmed after the sync of all of it."""
    return all(int(np.max(directory.columns[name])) < confirmed_tx for name in _CLAIMS)
