"""What a stream brought while it was watched: changes by table, sizes of transactions, large values. Pure.

Invariants:
    its memory does not grow with what comes: sizes are counted in classes, and of each table there are sums
    a transaction counts once it has ended, whole, however many fragments it came in
    a size that is told from the classes is at most SIZE_CLASS_ERROR above the real one; the largest is exact
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc.source.fragments import ABSENT, KIND, NEW, Changes, Fragment, Kind
from cdc.source.numbers import Integers
from storage.rows import wire_sizes

CLASSES_PER_DOUBLING: Final = 16
SIZE_CLASS_ERROR: Final = 2 ** (1 / CLASSES_PER_DOUBLING) - 1
_CLASSES: Final = CLASSES_PER_DOUBLING * 50
"""Up to a petabyte."""

LARGE_VALUE_BYTES: Final = 2000
"""About where Postgres begins to keep values out of line (TOAST)."""


@dataclass(slots=True)
class TableTally:
    """Sums of one table."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    bytes: int = 0
    """On the wire: values, and a constant for each row."""
    large_bytes: int = 0
    """Of them, in values that are large enough to be kept out of line."""
    updates_unsent: int = 0
    """Updates of which a large value did not change, and so was not sent."""

    @property
    def changes(self) -> int:
        """Rows of all kinds."""
        return self.inserts + self.updates + self.deletes + self.truncates


@dataclass(slots=True)
class Sizes:
    """How large transactions were."""

    count: int = 0
    bytes: int = 0
    largest_bytes: int = 0
    largest_changes: int = 0
    classes: Integers = field(default_factory=lambda: np.zeros(_CLASSES, np.int64))

    def add(self, sizes: Integers, changes: Integers) -> None:
        """Some more, each with at least one change."""
        if not len(sizes):
            return
        self.count += len(sizes)
        self.bytes += int(sizes.sum())
        at = int(sizes.argmax())
        if sizes[at] > self.largest_bytes:
            self.largest_bytes, self.largest_changes = int(sizes[at]), int(changes[at])
        classes = np.ceil(np.log2(np.maximum(sizes, 1)) * CLASSES_PER_DOUBLING).astype(np.int64)
        self.classes += np.bincount(np.minimum(classes, _CLASSES - 1), minlength=_CLASSES)

    def quantile(self, share: float) -> int:
        """So many of them are at most this large; 0 if there were none."""
        if not self.count:
            return 0
        rank = max(int(np.ceil(share * self.count)), 1)
        at = int(np.searchsorted(np.cumsum(self.classes), rank))
        return min(int(2 ** (at / CLASSES_PER_DOUBLING)), self.largest_bytes)


class Observation:
    """All that came."""

    def __init__(self) -> None:
        self.tables: dict[int, TableTally] = {}
        """By the relation's oid."""
        self.sizes = Sizes()
        self._open_bytes = 0
        """Of the transaction that has not ended."""

    def add(self, fragment: Fragment) -> None:
        """A fragment, in order."""
        transactions = fragment.transactions
        count = len(transactions)
        sizes = np.zeros(count, np.int64)
        for changes in fragment.changes:
            wires = wire_sizes(changes.rows)
            sizes += np.bincount(changes.transaction, weights=wires, minlength=count).astype(np.int64)
            _add_changes(self.tables.setdefault(changes.relation.oid, TableTally()), changes, int(wires.sum()))
        if fragment.begins_open and count:
            sizes[0] += self._open_bytes
        ended = fragment.ended_count
        self._open_bytes = int(sizes[-1]) if fragment.ends_open and count else 0
        numbers = transactions.changes[:ended].astype(np.int64)
        self.sizes.add(sizes[:ended][numbers > 0], numbers[numbers > 0])

    def forget_open(self) -> None:
        """A new connection: what was open comes again."""
        self._open_bytes = 0


def _add_changes(tally: TableTally, changes: Changes, wire: int) -> None:
    rows = changes.rows
    kinds = rows.column(KIND).to_numpy()
    tally.inserts += int((kinds == Kind.INSERT).sum())
    updates = kinds == Kind.UPDATE
    tally.updates += int(updates.sum())
    tally.deletes += int((kinds == Kind.DELETE).sum())
    tally.truncates += int((kinds == Kind.TRUNCATE).sum())
    tally.bytes += wire
    unsent = rows.column(ABSENT).is_valid().to_numpy(zero_copy_only=False)
    tally.updates_unsent += int((updates & unsent).sum())
    for values in rows.column(NEW).flatten():
        lengths = pc.binary_length(values)
        large = pc.sum(pc.filter(lengths, pc.greater_equal(lengths, pa.scalar(LARGE_VALUE_BYTES, lengths.type))))
        tally.large_bytes += large.as_py() or 0
