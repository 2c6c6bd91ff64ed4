"""Verdicts that are kept: which logs may have lost rows with a damaged file of the journal (`<number>.doubts`)."""

from collections.abc import Iterable, Mapping
from typing import Final

from storage import layout, small_file
from storage.disk import Disk
from storage.errors import CorruptBlock, LogFault, UnknownFormat

FORMAT: Final = 1

Doubts = dict[int, LogFault]
"""For logs that may have lost rows: why."""


def write_doubts(disk: Disk, number: int, doubts: Mapping[int, LogFault]) -> None:
    """Keep the verdict on a journal file, for certain."""
    facts = {"format": FORMAT, "path": layout.damaged_journal_path(number), "logs": sorted(doubts)}
    small_file.write(disk, layout.doubts_path(number), facts)


def read_doubts(disk: Disk, names: Iterable[str]) -> Doubts:
    """The verdicts that were kept, of the names in the journal's folder."""
    doubts: Doubts = {}
    for name in names:
        if layout.is_doubts(name):
            path = f"{layout.JOURNAL}/{name}"
            facts = small_file.read(disk, path)
            if facts.get("format") != FORMAT:
                raise UnknownFormat(
                    f"the file has format {facts.get('format')}, this program reads {FORMAT}", path=path
                )
            reason = "a block of the journal was damaged, and may have held rows of this log"
            doubts.update((log, CorruptBlock(reason, path=facts["path"], log=log)) for log in facts["logs"])
    return doubts
