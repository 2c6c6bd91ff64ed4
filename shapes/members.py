"""The shapes that the collector feeds: what it must know of each to hand on its rows. Pure.

Invariants:
    a number is given out once in a process
    `log` is None iff the shape has joined and is not born: its rows are held in memory
    a shape's log and its number belong to each other for as long as it is a member
    flushes at or below `told_from` are not the tracker's business: it was never told of those rows
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc.source.numbers import Flags
from shapes.definition import Definition
from shapes.snapshot_filter import is_to_append
from shapes.views import View
from storage.catalog_records import Snapshot
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import TX, Integers, Unsigned, column


@dataclass(slots=True)
class Held:
    """Rows of a shape since it joined, until it is born: only then it is known which of them its snapshot has."""

    joined_at: float
    rows: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    """Bytes."""
    tx: list[Unsigned] = field(default_factory=list)
    """Of the transactions that left rows, batch by batch: the commit LSN ..."""
    xid: list[Unsigned] = field(default_factory=list)
    """... who it was ..."""
    aligned_op: list[Unsigned] = field(default_factory=list)
    """... and the op of its end."""

    def add(self, rows: pa.RecordBatch, tx: Unsigned, xid: Unsigned, aligned_op: Unsigned) -> None:
        """Keep a copy of rows, and the transactions that they belong to."""
        self.rows.append(rows)
        self.size += rows.nbytes
        self.tx.append(tx)
        self.xid.append(xid)
        self.aligned_op.append(aligned_op)

    def ended(self, tx: int, aligned_op: int) -> None:
        """The transaction ended of which rows came before its end was known; it is the last of those held."""
        for txs, ops in zip(reversed(self.tx), reversed(self.aligned_op), strict=True):
            if int(txs[-1]) != tx:
                break
            ops[-1] = aligned_op

    def released(self, snapshot: Snapshot) -> tuple[pa.RecordBatch, LogOffset] | None:
        """The rows that the snapshot has not (A7), and the end of the last transaction among them; None if it has all.

        Every transaction that is held has ended.
        """
        if not self.rows:
            return None
        tx, xid = np.concatenate(self.tx), np.concatenate(self.xid)
        kept = is_to_append(snapshot, tx, xid)
        if not kept.any():
            return None
        last = int(np.flatnonzero(kept)[-1])
        end = LogOffset(int(tx[last]), int(np.concatenate(self.aligned_op)[last]))
        tables = [pa.Table.from_batches([rows]) for rows in self.rows]
        # Only fragments in which some row has an `old` have that column.
        batch = pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]
        wanted = np.isin(column(batch, TX), tx[kept])
        return batch.filter(pa.array(wanted)), end


@dataclass(slots=True)
class Member:
    """One shape."""

    number: int
    table: int
    """Its oid."""
    definition: Definition
    view: View
    handle: str | None = None
    log: int | None = None
    snapshot: Snapshot | None = None
    """For its whole life: which transactions are in its base and must not come again (A7)."""
    held: Held | None = None
    told_from: LogOffset = SNAPSHOT_END
    truncated_at: LogOffset | None = None
    """A TRUNCATE that is committed and has no base of its own yet (see `truncation`)."""

    def has_seen(self, tx: int, xid: int) -> bool:
        """Whether its snapshot has all of a transaction of the stream, so that nothing of it comes here (A7)."""
        if self.snapshot is None:
            return False
        return not is_to_append(self.snapshot, np.array([tx], np.uint64), np.array([xid], np.uint32)).any()


class Members:
    """All of them, by number and by log; with arrays, since a batch touches thousands."""

    def __init__(self) -> None:
        self._by_number: dict[int, Member] = {}
        self._by_log: dict[int, Member] = {}
        self._by_table: dict[int, dict[int, None]] = {}
        self._views: dict[View, View] = {}
        self._next_number = 0
        self._logs: Integers = np.full(64, -1, np.int64)
        """The log of each number; -1 for those that are not born or not there."""
        self._births: Unsigned = np.zeros(64, np.uint64)
        """The birth of each number: below it the filter counts."""
        self._attached: Flags = np.zeros(64, np.bool_)
        """Whether the tracker knows the number. A log of an earlier life is opened when its first row comes."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_number.values()))

    def add(self, definition: Definition) -> Member:
        """A new member, which has no log yet."""
        number = self._next_number
        self._next_number += 1
        if number >= len(self._logs):
            self._logs = np.concatenate((self._logs, np.full(len(self._logs), -1, np.int64)))
            self._births = np.concatenate((self._births, np.zeros(len(self._births), np.uint64)))
            self._attached = np.concatenate((self._attached, np.zeros(len(self._attached), np.bool_)))
        view = self._views.setdefault(definition.view, definition.view)  # one object for all, found by identity
        member = self._by_number[number] = Member(number, definition.oid, definition, view)
        self._by_table.setdefault(member.table, {})[number] = None
        return member

    def settle(self, member: Member, handle: str, log: int, snapshot: Snapshot) -> None:
        """It has a log from now on."""
        member.handle, member.log, member.snapshot = handle, log, snapshot
        self._by_log[log] = member
        self._logs[member.number] = log
        self._births[member.number] = snapshot.birth

    def remove(self, number: int) -> Member | None:
        """Forget a member; its number is not given out again."""
        member = self._by_number.pop(number, None)
        if member is not None:
            self._logs[number] = -1
            self._births[number] = 0
            if member.log is not None:
                del self._by_log[member.log]
            of_table = self._by_table[member.table]
            del of_table[number]
            if not of_table:
                del self._by_table[member.table]
        return member

    def get(self, number: int) -> Member | None:
        return self._by_number.get(number)

    def of_log(self, log: int) -> Member | None:
        return self._by_log.get(log)

    def of_table(self, table: int) -> list[Member]:
        return [self._by_number[number] for number in self._by_table.get(table, ())]

    def has_table(self, table: int) -> bool:
        """Whether somebody follows it."""
        return table in self._by_table

    def tables(self) -> list[int]:
        return list(self._by_table)

    def logs(self, numbers: Integers) -> Integers:
        """The log of each; -1 where there is none."""
        found: Integers = self._logs[numbers]
        return found

    def young(self, numbers: Integers, tx: int) -> Integers:
        """Those that were born above a place of the stream: what comes there may be in their snapshots."""
        found: Integers = numbers[self._births[numbers] > np.uint64(tx)]
        return found

    def unattached(self, numbers: Integers) -> Integers:
        """Those that the tracker does not know yet."""
        found: Integers = numbers[~self._attached[numbers]]
        return found

    def attached(self, number: int) -> None:
        """The tracker knows it from now on."""
        self._attached[number] = True

    def detach_all(self) -> None:
        """The tracker forgot them all (another life of the slot)."""
        self._attached[:] = False
