"""A fragment's plan: which logs get which rows, which transactions touched which shapes. Arrays, and pure.

Invariants:
    a shape is in one feed of a fragment at most
    what a shape's snapshot has (A7) is in no feed, and touches nothing
    `Touches` speak of transactions that ended in the fragment, those whose rows came in earlier fragments included
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc.source.fragments import Fragment
from cdc.source.numbers import Flags
from flush_tracker.stream import Commits, Touched
from shapes.deliveries import Part
from shapes.faults import ShapeFault
from storage.incoming import FragmentShares
from storage.offset import LogOffset, offsets_of
from storage.rows import Integers


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows of one table for its shapes: shape i gets `rows[indices[starts[i]:starts[i + 1]]]`."""

    rows: pa.RecordBatch
    shapes: Integers
    starts: Integers
    indices: Integers
    ordinals: Integers
    """For each entry of `indices`, the transaction's number in the fragment."""

    @property
    def owners(self) -> Integers:
        """For each entry of `indices`, its shape."""
        return np.repeat(self.shapes, np.diff(self.starts))

    def where(self, kept: Flags) -> "Feed":
        """Without some of the entries, and without the shapes that have none left."""
        before = np.concatenate(([0], np.cumsum(kept)))[self.starts]
        left = before[1:] > before[:-1]
        starts = np.concatenate((before[:1], before[1:][left]))
        return Feed(self.rows, self.shapes[left], starts, self.indices[kept], self.ordinals[kept])

    @classmethod
    def of(cls, part: Part) -> "Feed":
        return cls(part.rows, part.shapes, part.starts, part.indices, part.ordinals)


@dataclass(slots=True)
class Plan:
    """What is to be done about a fragment; made once, carried out in steps that may be repeated."""

    fragment: Fragment
    feeds: list[Feed]
    faults: dict[int, ShapeFault] = field(default_factory=dict)
    """Shapes that have to end before any step: they got nothing of the fragment."""
    truncated: dict[int, LogOffset] = field(default_factory=dict)
    """Shapes of which a TRUNCATE came, and where the last one stands."""
    repeated: dict[int, LogOffset] = field(default_factory=dict)
    """The same of a TRUNCATE that is durable, and sent again: it needs its base before the tracker hears of it."""

    @property
    def ended_count(self) -> int:
        return self.fragment.ended_count

    def without(self, shapes: Sequence[int]) -> None:
        """Leave shapes out that have ended since."""
        gone = np.array(sorted(shapes), np.int64)
        self.feeds = [feed.where(~np.isin(feed.owners, gone)) for feed in self.feeds]

    def commits(self) -> Commits:
        """The transactions that ended, as the tracker takes them."""
        transactions, count = self.fragment.transactions, self.ended_count
        changes = transactions.changes[:count].astype(np.int64)
        return Commits(
            final_lsn=transactions.commit_lsn[:count].astype(np.int64),
            end_lsn=transactions.end_lsn[:count].astype(np.int64),
            aligned_op=np.where(changes > 0, 2 * changes - 1, 0),
            commit_time=transactions.commit_time[:count],
        )

    def touched(self, opened: Integers, *, without: Integers) -> Touched:
        """Which shapes the ended transactions left rows in; `opened` got rows of the first one before."""
        owners = [feed.owners for feed in self.feeds]
        ordinals = [feed.ordinals for feed in self.feeds]
        if self.fragment.begins_open and self.ended_count:
            owners.append(opened)
            ordinals.append(np.zeros(len(opened), np.int64))
        if not owners:
            return Touched.nothing()
        shape, ordinal = np.concatenate(owners), np.concatenate(ordinals)
        ended = ordinal < self.ended_count
        if len(without):
            ended &= ~np.isin(shape, without)
        shape, ordinal = shape[ended], ordinal[ended]
        order = np.lexsort((ordinal, shape))
        shape, ordinal = shape[order], ordinal[order]
        is_first = np.ones(len(shape), np.bool_)
        is_first[1:] = (shape[1:] != shape[:-1]) | (ordinal[1:] != ordinal[:-1])
        shape, ordinal = shape[is_first], ordinal[is_first]
        starts = np.flatnonzero(np.concatenate(([True], shape[1:] != shape[:-1]))) if len(shape) else shape
        return Touched(shape[starts], np.concatenate((starts, [len(shape)])), ordinal)

    def ended_in(self, feed: Feed) -> Integers:
        """The shapes that got rows of a transaction which has ended."""
        return feed.shapes[feed.ordinals[feed.starts[:-1]] < self.ended_count]

    def shares(self, feed: Feed, logs: Integers) -> FragmentShares:
        """A feed as storage takes it; `logs` are those of its shapes."""
        is_ended = feed.ordinals < self.ended_count
        # Ordinals ascend within a shape, so its ended entries come first, and its last ended transaction last of them.
        committed = np.add.reduceat(is_ended.astype(np.int64), feed.starts[:-1])
        last = feed.ordinals[np.maximum(feed.starts[:-1] + committed - 1, 0)]
        ends: list[LogOffset | None] = list(self._ends_of(last))
        for shape in np.flatnonzero(committed == 0).tolist():
            ends[shape] = None
        return FragmentShares(logs.tolist(), feed.indices, feed.starts[1:].tolist(), committed.tolist(), ends)

    def _ends_of(self, ordinals: Integers) -> list[LogOffset]:
        """Where these transactions end, an object for each transaction and not for each shape."""
        transactions = self.fragment.transactions
        found, places = np.unique(ordinals, return_inverse=True)
        changes = transactions.changes[found].astype(np.int64)
        ops = np.where(changes > 0, 2 * changes - 1, 0)
        ends = offsets_of(transactions.commit_lsn[found].tolist(), ops.tolist())
        return [ends[place] for place in places.tolist()]

    def still_open(self) -> Integers:
        """The shapes that got rows of a transaction which has not ended."""
        if not self.fragment.ends_open:
            return np.zeros(0, np.int64)
        found = [feed.shapes[feed.ordinals[feed.starts[1:] - 1] >= self.ended_count] for feed in self.feeds]
        return np.concatenate(found) if found else np.zeros(0, np.int64)
