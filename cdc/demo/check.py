"""Whether a table's log has what the shop sent: every row once, in order, and only whole transactions. Pure.

Invariants:
    rows = how many were fed, all of them equal to the shop's first `rows`
    last = the transaction of the last of them
"""

from dataclasses import dataclass

import pyarrow as pa

from cdc.demo.shop import KEYS, round_of, transaction_at
from storage.rows import NEW, TX, offset_at


class Mismatch(Exception):
    """A log has something else than the shop sent."""


@dataclass(slots=True)
class TableCheck:
    """The rows of one table so far."""

    table: str
    rows: int = 0
    last: int = -1
    _round: int = 0
    _row: int = 0
    """The row of the round that comes next."""

    def feed(self, found: pa.RecordBatch) -> None:
        """The next rows of the log. Raises `Mismatch`."""
        while found.num_rows:
            wanted = self._next_rows(found.num_rows)
            same = found.slice(0, wanted.num_rows)
            if not same.equals(wanted):
                raise Mismatch(self._difference(same, wanted))
            self.rows += wanted.num_rows
            self._row += wanted.num_rows
            self.last = transaction_at(wanted.column(TX)[wanted.num_rows - 1].as_py())
            found = found.slice(wanted.num_rows)

    def must_be_whole(self) -> None:
        """Raise `Mismatch` if only a part of the last transaction was fed."""
        following = self._next_rows(1)
        if transaction_at(following.column(TX)[0].as_py()) == self.last:
            raise Mismatch(
                f"{self.table}: transaction {self.last} is visible only in part, {self._what(following)} lacks"
            )

    def has_all_upto(self, transaction: int) -> bool:
        """Whether all rows up to the last committed transaction were fed. Raises `Mismatch` for any above it."""
        if self.last > transaction:
            raise Mismatch(f"{self.table}: there are rows of transaction {self.last}, and only {transaction} committed")
        return transaction_at(self._next_rows(1).column(TX)[0].as_py()) > transaction

    def _next_rows(self, count: int) -> pa.RecordBatch:
        """The shop's next rows of this table, at most `count` and at least one."""
        while self._row == (table := round_of(self._round).tables[self.table]).num_rows:
            self._round += 1
            self._row = 0
        return table.slice(self._row, count)

    def _difference(self, found: pa.RecordBatch, wanted: pa.RecordBatch) -> str:
        if found.schema != wanted.schema:
            return f"{self.table}: the columns are {found.schema.names}, not {wanted.schema.names}"
        row = next(row for row in range(wanted.num_rows) if found.slice(row, 1) != wanted.slice(row, 1))
        return f"{self.table}: found {self._what(found.slice(row, 1))}, expected {self._what(wanted.slice(row, 1))}"

    def _what(self, row: pa.RecordBatch) -> str:
        values = row.column(NEW)[0].as_py()
        key = ", ".join(f"{name} {values[name]}" for name in KEYS[self.table])
        return f"{key} at {offset_at(row, 0)}"
