"""What the source hands on, in order: fragments of changes, new versions of relations, keepalives.

A fragment is a run of transactions, cut anywhere between two changes: many small ones, or a part of a huge one.
Nothing in it is an object for each change or each transaction; both are columns.

Invariants:
    only the first transaction of a fragment may lack its BEGIN, only the last may lack its COMMIT
    a fragment that ends open is followed, on the same connection, by one that starts open; never by another event
        than relations and keepalives in between
    the rows of one relation are in ascending (tx, op), and no (tx, op) is twice in a fragment, whatever the relation
    tx = the transaction's commit LSN (where its commit record starts); op = 0, 2, 4 .. over its changes as sent
    changes[i] counts the transaction's changes up to the fragment's end, those of earlier fragments included: for an
        ended transaction its aligned offset is (commit_lsn, 2 * changes - 1), or (commit_lsn, 0) without changes
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import pyarrow as pa

from cdc.source.lsn import LSN_ZERO, Lsn
from cdc.source.numbers import Bytes, Integers, Unsigned, Words
from cdc.source.relations import Relation
from storage.offset import LogOffset

# The columns of a change are those of a log's row in storage, so that a fragment's tables are stored as they are.
TX: Final = "tx"
OP: Final = "op"
KIND: Final = "kind"
ABSENT: Final = "absent"
NEW: Final = "new"
OLD: Final = "old"


class Kind(IntEnum):
    """What happened to a row; the numbers are storage's."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4


class OldTuple(IntEnum):
    """What Postgres sent of the row as it was: it depends on the table's replica identity."""

    NONE = 0
    KEY = ord("K")
    """The columns of the identity only, those with `Column.in_identity`; the others are unknown, not NULL."""
    FULL = ord("O")


@dataclass(frozen=True, slots=True)
class Changes:
    """A fragment's changes of one relation.

    The columns of `rows`:

        tx      uint64   the transaction's commit LSN
        op      uint64   the change's number in its transaction
        kind    uint8    `Kind`
        absent  binary   a bitmap, lowest bit first, of the columns of `new` that Postgres did not send; NULL: none
        new     struct   the row that the change is about, a string column each: as it became by an INSERT or UPDATE,
                         as it was before a DELETE; NULL for a TRUNCATE
        old     struct   the row before an UPDATE, where it was sent; the column is left out when no row has it

    An absent value is not NULL: it is what it was. Its place in `new` holds NULL only because something must.
    """

    relation: Relation
    rows: pa.RecordBatch
    transaction: Integers
    """For each row, the index of its transaction in the fragment's `Transactions`."""
    old_tuple: Bytes
    """For each row, an `OldTuple`: what `old` holds, or for a DELETE what `new` holds."""


@dataclass(frozen=True, slots=True)
class Transactions:
    """A fragment's transactions in commit order, a column for each fact."""

    xid: Words
    commit_lsn: Unsigned
    """Where the commit record starts: BEGIN says it."""
    end_lsn: Unsigned
    """Where the commit record ends; 0 while the transaction has not ended in this fragment."""
    commit_time: Integers
    """Microseconds since 1970, UTC."""
    changes: Unsigned
    origins: Mapping[int, str] = field(default_factory=dict)
    """The replication origin of those transactions that have one, by index."""

    def __len__(self) -> int:
        return len(self.xid)


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What somebody wrote with `pg_logical_emit_message`. Never counted as a change."""

    lsn: Lsn
    prefix: str
    content: bytes
    transactional: bool
    inside: bool
    """Whether it came between a BEGIN and its COMMIT, as all transactional ones do."""
    transaction: int
    """Index of the transaction that it came in; outside, of the next one to begin (in this fragment or after it)."""
    op: int
    """The number of the change that follows it in its transaction; 0 outside."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """The options of one TRUNCATE; its relations have a row each, with these numbers."""

    transaction: int
    op_first: int
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class Fragment:
    """A run of transactions, or of parts of them."""

    transactions: Transactions
    begins_open: bool
    """The first transaction's BEGIN came in an earlier fragment."""
    ends_open: bool
    """The last transaction's COMMIT comes in a later fragment."""
    changes: tuple[Changes, ...] = ()
    messages: tuple[LogicalMessage, ...] = ()
    truncates: tuple[Truncate, ...] = ()

    @property
    def changes_count(self) -> int:
        """Rows in all relations."""
        return sum(changes.rows.num_rows for changes in self.changes)

    @property
    def rows_bytes(self) -> int:
        """Of the rows in all relations, in memory."""
        return sum(changes.rows.nbytes for changes in self.changes)

    @property
    def ended_count(self) -> int:
        """How many of the transactions ended in this fragment."""
        return len(self.transactions) - self.ends_open

    def aligned_offset(self, index: int) -> LogOffset:
        """At or above every offset of an ended transaction."""
        return LogOffset.aligned(int(self.transactions.commit_lsn[index]), int(self.transactions.changes[index]))


@dataclass(frozen=True, slots=True)
class RelationChange:
    """A relation is new to us, or has another definition from here on."""

    relation: Relation
    previous: Relation | None
    commit_lsn: Lsn = LSN_ZERO
    """Of the transaction in which it is described so ..."""
    xid: int = 0
    """... and who that is; both 0 outside of any."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The server has sent all that it had up to here. It stands behind all the data that came before it (A1)."""

    wal_end: Lsn
    wants_reply: bool


Event = Fragment | RelationChange | KeepAlive
