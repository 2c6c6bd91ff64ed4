"""The plain truth that the tests of the store compare it with: a stream of transactions, and what each log has of it.

A log is a list of rows and the offset up to which they are visible. Where a read ends, what a crash may take and what
it may not are worked out from that list alone, slowly and without a thought of files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from storage.limits import CHUNK_WIRE_BYTES, READ_BYTES_MAX, ROW_WIRE_OVERHEAD_BYTES
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import Kind, row_schema
from storage.shape_log import Mode

TX_STEP = 10
"""Between the LSNs of two transactions, so that there are offsets between them."""

NARROW = row_schema(["id", "text"], absent=False)
WIDE = row_schema(["id", "text", "more"], absent=False)


class Row(NamedTuple):
    """One row: where it stands, and its values."""

    offset: LogOffset
    values: tuple[tuple[str, str], ...]

    @property
    def wire(self) -> int:
        return ROW_WIRE_OVERHEAD_BYTES + sum(len(value) for _, value in self.values)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction as the source sends it: for each of its changes, the logs that get a row of it."""

    tx: int
    changes: tuple[frozenset[int], ...]
    text_bytes: int = 8
    wide: bool = False

    @property
    def aligned(self) -> LogOffset:
        return LogOffset.aligned(self.tx, len(self.changes))

    @property
    def logs(self) -> frozenset[int]:
        return frozenset().union(*self.changes)

    @property
    def schema(self) -> pa.Schema:
        return WIDE if self.wide else NARROW

    def row(self, change: int) -> Row:
        """The row of a change; the same in every log, and each time that it is sent."""
        offset = LogOffset(self.tx, 2 * change)
        text = f"{self.tx}.{2 * change} ".ljust(self.text_bytes, "x")
        values = (("id", f"{self.tx}.{2 * change}"), ("text", text))
        return Row(offset, (*values, ("more", "m" * (self.tx % 7))) if self.wide else values)

    def rows(self, log: int) -> list[Row]:
        """What one log gets of it."""
        return [self.row(change) for change, logs in enumerate(self.changes) if log in logs]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as storage takes them; all of one schema."""
    return pa.RecordBatch.from_pylist(
        [{"tx": row.offset.tx, "op": row.offset.op, "kind": Kind.INSERT, "new": dict(row.values)} for row in rows],
        schema=WIDE if len(rows[0].values) > 2 else NARROW,
    )


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """What storage returned."""
    return [
        Row(LogOffset(tx, op), tuple(new.items()))
        for batch in batches
        for tx, op, new in zip(*(batch.column(name).to_pylist() for name in ("tx", "op", "new")), strict=True)
    ]


class Expected(NamedTuple):
    """What a read should return."""

    rows: list[Row]
    next: LogOffset
    at_end: bool
    chunk_ended: bool


@dataclass
class LogModel:
    """One log as it should be."""

    number: int
    birth: int
    """How many transactions there were before it: it gets nothing of those."""
    mode: Mode = Mode.APPEND
    chunk_bytes: int = CHUNK_WIRE_BYTES
    rows: list[Row] = field(default_factory=list)
    """Those taken, committed or open."""
    visible: LogOffset = SNAPSHOT_END
    told: LogOffset = SNAPSHOT_END
    """The greatest D that somebody outside relies on."""
    ends: set[LogOffset] = field(default_factory=lambda: {SNAPSHOT_END})
    """Where V has been: D may be found at one of these."""
    has_ended: bool = False
    """A fault of its own stopped it: it takes nothing more, and what is durable stays."""

    @property
    def upper(self) -> LogOffset:
        """Nothing at or below is news for it."""
        return max(self.visible, self.rows[-1].offset if self.rows else SNAPSHOT_END)

    @property
    def visible_rows(self) -> list[Row]:
        return [row for row in self.rows if row.offset <= self.visible]

    def take(self, rows: Iterable[Row]) -> None:
        """Add what is new of them."""
        for row in rows:
            if row.offset > self.upper:
                self.rows.append(row)

    def commit(self, aligned: LogOffset) -> None:
        """The rows taken are visible, unless that was known."""
        if aligned > self.visible:
            assert aligned >= self.upper, "the tests commit what was sent"
            self.visible = aligned
            self.ends.add(aligned)

    def drop_open_rows(self) -> None:
        """The transaction under way begins again."""
        self.rows = self.visible_rows

    def back_to(self, durable: LogOffset) -> None:
        """A crash, or a fault of this log, left what is durable."""
        assert durable in self.ends, f"log {self.number} was never whole at {durable}, but at {sorted(self.ends)}"
        assert durable >= self.told, f"log {self.number} was durable up to {self.told}, now it ends at {durable}"
        self.visible = self.told = durable
        self.ends = {end for end in self.ends if end <= durable}
        self.drop_open_rows()

    def read(self, after: LogOffset, max_bytes: int | None) -> Expected:
        """What a read returns: to the end of the chunk, or of as many bytes as are allowed, one row at least."""
        rows = self.visible_rows
        start = sum(row.offset <= after for row in rows)
        if start == len(rows):
            return Expected([], after, at_end=True, chunk_ended=False)
        before = [0]
        for row in rows:
            before.append(before[-1] + row.wire)
        if max_bytes is None:
            limit = (before[start] // self.chunk_bytes + 1) * self.chunk_bytes
        else:
            limit = before[start] + max(1, min(max_bytes, READ_BYTES_MAX))
        stop = next((index for index in range(start + 1, len(rows)) if before[index] >= limit), len(rows))
        at_end = stop == len(rows)
        chunk_ended = max_bytes is None and not at_end
        return Expected(rows[start:stop], rows[stop - 1].offset, at_end, chunk_ended)


@dataclass
class Stream:
    """All transactions in commit order, and how far they were sent and confirmed."""

    transactions: list[Transaction] = field(default_factory=list)
    sent: int = 0
    """Transactions sent whole, in the present connection."""
    changes_sent: int = 0
    """And changes of the one after them."""
    confirmed: int = 0
    """Transactions that Postgres was told to forget."""

    def add(self, *changes: Iterable[int], text_bytes: int = 8, wide: bool = False) -> Transaction:
        """Postgres commits another transaction."""
        tx = TX_STEP * (len(self.transactions) + 1)
        self.transactions.append(Transaction(tx, tuple(map(frozenset, changes)), text_bytes, wide))
        return self.transactions[-1]

    @property
    def position(self) -> LogOffset:
        """Up to where everything was sent."""
        if self.changes_sent:
            return LogOffset(self.transactions[self.sent].tx, 2 * (self.changes_sent - 1))
        return self.end_of(self.sent)

    def end_of(self, count: int) -> LogOffset:
        """Where the first so many transactions end."""
        return self.transactions[count - 1].aligned if count else SNAPSHOT_END

    @property
    def confirmed_tx(self) -> int:
        """G: all transactions below it are durable."""
        return self.transactions[self.confirmed - 1].tx + 1 if self.confirmed else 0

    def may_confirm(self, logs: Iterable[LogModel]) -> int:
        """How many transactions are durable in every log that they touched, and were sent."""
        living = [log for log in logs if not log.has_ended]
        count = self.confirmed
        while count < self.sent:
            transaction = self.transactions[count]
            touched = [log for log in living if log.number in transaction.logs and count >= log.birth]
            if any(log.told < transaction.aligned for log in touched):
                break
            count += 1
        return count

    def of_log(self, log: LogModel) -> list[Row]:
        """All rows of a log, sent or not."""
        return [row for one in self.transactions[log.birth :] for row in one.rows(log.number)]

    def connect_again(self) -> None:
        """What was not confirmed is sent again, from its first transaction's begin."""
        self.sent, self.changes_sent = self.confirmed, 0
