"""A made-up server: transactions over two tables, and the fragments that it would send of them, cut anywhere.

The model's side of the collector's tests: lists and dicts, a change at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from cdc.source.fragments import Fragment, Kind, OldTuple, Transactions, Truncate
from cdc.source.relations import Column, Relation
from tests.unit.changed_table import Change, Values, changes_of

TABLES: Final = (1, 2)
NAMES: Final = ("id", "part")
FULL: Final = frozenset(NAMES)

RELATIONS: Final = {
    oid: Relation(oid, "public", f"t{oid}", "f", tuple(Column(name, 25, -1, True) for name in NAMES)) for oid in TABLES
}


class Sent(NamedTuple):
    """A change of some table."""

    table: int
    change: Change


class Draw(NamedTuple):
    """What becomes a change, if it can."""

    table: int
    action: str
    id: str
    part: str


@dataclass(frozen=True)
class Transaction:
    """One of the server's, in the order of commits."""

    number: int
    xid: int
    commit: int
    end: int
    sent: tuple[Sent, ...]


@dataclass
class PlainStream:
    """A server's tables and its history, and how far a connection has come in it."""

    lsn: int = 1_000
    transactions: list[Transaction] = field(default_factory=list)
    rows: dict[int, dict[str, Values]] = field(default_factory=lambda: {oid: {} for oid in TABLES})
    items: list[tuple[int, int]] = field(default_factory=list)
    """What is sent, in order: a transaction and -1 for its BEGIN, the number of a change, or the count of them for its
    COMMIT."""
    position: int = 0

    # The server

    def commit(self, draws: list[Draw], gap: int) -> None:
        number, commit = len(self.transactions), self.lsn + gap
        changes = [one for draw in draws if (one := self._legal(draw)) is not None]
        sent = tuple(
            Sent(table, Change(commit, 2 * op, kind, before, after, OldTuple.FULL if before else OldTuple.NONE))
            for op, (table, kind, before, after) in enumerate(changes)
        )
        # Neighbours' ids are swapped: transactions commit in another order than they began in.
        self.transactions.append(Transaction(number, 700 + (number ^ 1), commit, commit + 10, sent))
        self.items += [(number, item) for item in range(-1, len(sent) + 1)]
        self.lsn = commit + 10

    def _legal(self, draw: Draw) -> tuple[int, Kind, Values | None, Values | None] | None:
        rows = self.rows[draw.table]
        before, after = rows.get(draw.id), {"id": draw.id, "part": draw.part}
        if draw.action == "truncate":
            rows.clear()
            return draw.table, Kind.TRUNCATE, None, None
        if draw.action == "delete":
            return None if before is None else (draw.table, Kind.DELETE, rows.pop(draw.id), None)
        rows[draw.id] = dict(after)
        return draw.table, Kind.INSERT if before is None else Kind.UPDATE, before, dict(after)

    # The connection

    @property
    def is_between(self) -> bool:
        return self.position == len(self.items) or self.items[self.position][1] == -1

    @property
    def passed(self) -> int:
        """How many transactions were sent whole."""
        if self.position == len(self.items):
            return len(self.transactions)
        return self.items[self.position][0]

    @property
    def wal_end(self) -> int:
        """What a keepalive says here: a commit record may begin just there."""
        passed = self.passed
        return self.transactions[passed].commit if passed < len(self.transactions) else self.lsn

    def connect(self, confirmed: int) -> None:
        """The slot sends again what did not end at or below."""
        first = next((one.number for one in self.transactions if one.end > confirmed), len(self.transactions))
        self.position = next((at for at, item in enumerate(self.items) if item[0] == first), len(self.items))

    def send(self, count: int) -> Fragment | None:
        """So many more BEGINs, changes and COMMITs; None if there are none."""
        part = self.items[self.position : self.position + count]
        if not part:
            return None
        self.position += len(part)
        first, last = part[0], part[-1]
        involved = self.transactions[first[0] : last[0] + 1]
        ends_open = last[1] < len(self.transactions[last[0]].sent)
        changed = [last[1] + 1 if ends_open and one.number == last[0] else len(one.sent) for one in involved]
        ended = [0 if ends_open and one.number == last[0] else one.end for one in involved]
        return Fragment(
            Transactions(
                np.array([one.xid for one in involved], np.uint32),
                np.array([one.commit for one in involved], np.uint64),
                np.array(ended, np.uint64),
                np.array([one.number for one in involved], np.int64),
                np.array(changed, np.uint64),
            ),
            begins_open=first[1] != -1,
            ends_open=ends_open,
            changes=tuple(self._changes(part, first[0])),
            truncates=tuple(self._truncates(part, first[0])),
        )

    def _sent(self, part: list[tuple[int, int]]) -> Iterator[tuple[int, Sent]]:
        for number, item in part:
            sent = self.transactions[number].sent
            if 0 <= item < len(sent):
                yield number, sent[item]

    def _changes(self, part: list[tuple[int, int]], first: int) -> Iterator[Any]:
        for table in TABLES:
            own = [(number, sent.change) for number, sent in self._sent(part) if sent.table == table]
            if own:
                ordinals = [number - first for number, _ in own]
                yield changes_of(RELATIONS[table], [change for _, change in own], ordinals)

    def _truncates(self, part: list[tuple[int, int]], first: int) -> Iterator[Truncate]:
        for number, sent in self._sent(part):
            if sent.change.kind is Kind.TRUNCATE:
                yield Truncate(number - first, sent.change.op, (sent.table,), cascade=False, restart_identity=False)
