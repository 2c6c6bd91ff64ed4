"""What a log no longer has of the rows that a table needs next.

    a compaction folded updates of a key into a later one         the ledger of the log tells (`storage.ledger`)
    a prefix was folded into a new base, and removed              the log cannot be read there any more

A history misses both, and says so before a cut is decided. A state misses neither: the later update has all values that
the folded ones sent, and what a base has is read from the base. Only the moments in between are gone, so no cut ends
inside a folded range, or below the floor of a base that has taken the place of rows.
"""

import pyarrow as pa

from storage.bases import Base
from storage.errors import AboveUpper, Refetch, UnknownLog
from storage.fold import merge_ledgers
from storage.folder_reader import FolderReader
from storage.lake.cuts import TableCut
from storage.lake.errors import LogGap
from storage.ledger import first_folded, may_cut_at
from storage.offset import LogOffset


class LogGaps:
    """Asks the files each time: somebody else writes them."""

    def __init__(self, reader: FolderReader) -> None:
        self._reader = reader

    def ledger(self, log: int) -> pa.RecordBatch:
        """Where a log may not be cut; nowhere where there is no log."""
        try:
            return self._reader.folded_ranges(log)
        except UnknownLog:
            return merge_ledgers([])

    def base_instead(self, log: int, after: LogOffset) -> Base | None:
        """The base that has the rows above `after`; None if the log still has them, or is gone itself."""
        try:
            if after < self._reader.upper(log):
                self._reader.read(log, after, 0)
        except Refetch:
            return self.newest_base(log)
        except (AboveUpper, UnknownLog):
            return None
        return None

    def newest_base(self, log: int) -> Base:
        """The one from which the log can be read on."""
        return max((base for base in self._reader.bases(log) if base.is_complete), key=lambda base: base.number)

    def refuse_folded(self, part: TableCut) -> None:
        """Raise `LogGap` if updates of a table's part of a cut came into later ones: a history misses them."""
        if (found := first_folded(self.ledger(part.log), part.after, part.upto)) is not None:
            message = f"changes of table {part.name!r} were folded into later ones before the lake had them"
            raise LogGap(message, after=part.after, upto=part.upto, folded=f"{found[0]} to {found[1]}")

    def refuse_retired(self, part: TableCut) -> None:
        """Raise `LogGap` if rows of a table that goes on are in a base only: a history misses them."""
        base = None if part.begins else self.base_instead(part.log, part.after)
        if base is not None:
            message = f"changes of table {part.name!r} were folded into a new base before the lake had them"
            raise LogGap(message, after=part.after, upto=part.upto, base_ends=base.floor)

    def is_torn(self, part: TableCut) -> bool:
        """Whether a table's rows as of a cut are nowhere any more."""
        return part.after < part.upto and not may_cut_at(self.ledger(part.log), part.upto)

    def refuse_torn(self, part: TableCut) -> None:
        """Raise `LogGap` if they are not."""
        if self.is_torn(part):
            message = f"the rows of table {part.name!r} were folded into later ones before the lake had them"
            raise LogGap(message, after=part.after, upto=part.upto)
