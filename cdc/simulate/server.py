"""A model of Postgres, as far as followers can tell: tables, transactions, their order in the WAL, snapshots, one slot.

It is the truth that logs are compared with, so it is as plain as can be: dicts and lists.

Invariants:
    a row, or a truncated table, belongs to one transaction from its first change until that one is visible or undone:
        so the order of commits in the WAL and the order in which they become visible lead to the same rows
    a commit is in the WAL, and may be streamed, before it is visible
    ids are given out at the first write; commits come in any order
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from storage.catalog_records import Snapshot

Row = tuple[str | None, ...]
Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column."""

    name: str
    type_oid: int
    type_name: str
    is_key: bool = False


@dataclass(slots=True, eq=False)
class Relation:
    """A table with its rows as new snapshots see them."""

    oid: int
    name: str
    columns: tuple[Column, ...]
    identity: str = "f"
    rows: dict[Key, Row] = field(default_factory=dict)
    published_since: int | None = None
    """The number of the alteration of the publication that added it."""
    owners: dict[Key, "Transaction"] = field(default_factory=dict)
    """Who changed a row and is not visible yet."""
    truncated_by: "Transaction | None" = None
    readers: int = 0
    """Open snapshots of the table: nobody empties it meanwhile."""

    def key_of(self, row: Row) -> Key:
        return tuple(value for value, column in zip(row, self.columns, strict=True) if column.is_key)


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction did; `kind` is the letter of the stream: I, U, D, or T for one table of a TRUNCATE."""

    kind: str
    relation: Relation
    old: Row | None
    new: Row | None
    is_published: bool
    statement: int
    """Tables that are truncated together have the same number."""


@dataclass(slots=True, eq=False)
class Transaction:
    """One that has written; 0 where there is no commit yet."""

    xid: int
    changes: list[Change] = field(default_factory=list)
    own: dict[tuple[int, Key], Row | None] = field(default_factory=dict)
    emptied: list[Relation] = field(default_factory=list)
    commit_lsn: int = 0
    end_lsn: int = 0
    time: int = 0
    is_sent: bool = True
    """Whether the stream has it: of those without a published change it may leave out all."""

    @property
    def published(self) -> list[Change]:
        return [change for change in self.changes if change.is_published]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a snapshot shows."""

    xids: frozenset[int]
    rows: dict[int, dict[Key, Row]]
    """Of each table by its oid."""


class Server:
    """One database and one slot."""

    def __init__(self, random: Random, relations: tuple[Relation, ...]) -> None:
        self.random = random
        self.relations = {relation.oid: relation for relation in relations}
        self.insert_lsn = random.randrange(1, 1 << 40)
        self.wal: list[Transaction] = []
        """Commits, in their order."""
        self.active: dict[int, Transaction] = {}
        """Those that are not visible: they run, or their commit waits."""
        self.visible: set[int] = set()
        self.confirmed: int | None = None
        """The slot, if there is one."""
        self.publication_version = 1
        self.snapshots: dict[tuple[int, int, tuple[int, ...]], Seen] = {}
        self._next_xid = random.choice((800, (1 << 32) - 20, (1 << 33) - 5))
        self._latest = self._next_xid - 1
        self._statements = 0

    # Transactions

    def begin(self) -> Transaction:
        transaction = Transaction(self._next_xid)
        self._next_xid += 1
        self.active[transaction.xid] = transaction
        return transaction

    def running(self) -> list[Transaction]:
        """Those that may write."""
        return [one for one in self.active.values() if not one.commit_lsn]

    def waiting(self) -> list[Transaction]:
        """Committed, and not visible."""
        return [one for one in self.active.values() if one.commit_lsn]

    def rows_for(self, transaction: Transaction, relation: Relation) -> Iterator[tuple[Key, Row]]:
        """The rows that it may change."""
        if relation not in transaction.emptied:
            for key, row in relation.rows.items():
                if relation.owners.get(key) is None:
                    yield key, row
        for (oid, key), own in transaction.own.items():
            if oid == relation.oid and own is not None:
                yield key, own

    def is_free(self, transaction: Transaction, relation: Relation, key: Key) -> bool:
        """Whether it may insert a row with the key."""
        if (relation.oid, key) in transaction.own:
            return transaction.own[relation.oid, key] is None
        if relation.owners.get(key) is not None:
            return False
        return key not in relation.rows or relation in transaction.emptied

    def may_write(self, transaction: Transaction, relation: Relation) -> bool:
        return relation.truncated_by in {None, transaction}

    def change(self, transaction: Transaction, kind: str, relation: Relation, old: Row | None, new: Row | None) -> None:
        """Write."""
        self._statements += 1
        is_published = relation.published_since is not None
        transaction.changes.append(Change(kind, relation, old, new, is_published, self._statements))
        for row, is_there in ((old, False), (new, True)):
            if row is not None:
                key = relation.key_of(row)
                relation.owners[key] = transaction
                transaction.own[relation.oid, key] = row if is_there else None

    def may_truncate(self, transaction: Transaction, relation: Relation) -> bool:
        others = [owner for owner in relation.owners.values() if owner is not transaction]
        return not others and not relation.readers and self.may_write(transaction, relation)

    def truncate(self, transaction: Transaction, relations: list[Relation]) -> None:
        """Nobody else has changed a row of these tables."""
        self._statements += 1
        for relation in relations:
            is_published = relation.published_since is not None
            transaction.changes.append(Change("T", relation, None, None, is_published, self._statements))
            relation.truncated_by = transaction
            if relation not in transaction.emptied:
                transaction.emptied.append(relation)
            for oid, key in list(transaction.own):
                if oid == relation.oid:
                    transaction.own[oid, key] = None

    def commit(self, transaction: Transaction) -> None:
        """From here on it is streamed; it is not visible yet."""
        self.write_something(self.random.choice((0, 0, 8, 200)))
        transaction.commit_lsn = self.insert_lsn
        self.insert_lsn += self.random.choice((1, 48, 300))
        transaction.end_lsn = self.insert_lsn
        transaction.time = 1_000_000 * len(self.wal) + self.random.randrange(-3_000_000, 3_000_000)
        transaction.is_sent = bool(transaction.published) or self.random.random() < 0.5
        self.wal.append(transaction)

    def show(self, transaction: Transaction) -> None:
        """A commit becomes visible."""
        for relation in transaction.emptied:
            relation.rows.clear()
        for (oid, key), row in transaction.own.items():
            rows = self.relations[oid].rows
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        self.visible.add(transaction.xid)
        self._end(transaction)

    def abort(self, transaction: Transaction) -> None:
        self._end(transaction)

    def write_something(self, size: int) -> None:
        """WAL without a commit."""
        self.insert_lsn += size

    # Snapshots

    def look(self, birth: int) -> Snapshot:
        """What `pg_current_snapshot()` says."""
        xmax = self._latest + 1
        xip = tuple(sorted(xid for xid in self.active if xid < xmax))
        return Snapshot(min(self.active, default=xmax) if xip else xmax, xmax, xip, birth)

    def take(self) -> Snapshot:
        """A snapshot whose rows are kept for comparison; its birth is read later."""
        found = self.look(0)
        rows = {oid: dict(relation.rows) for oid, relation in self.relations.items()}
        self.snapshots[found.xmin, found.xmax, found.xip] = Seen(frozenset(self.visible), rows)
        return found

    def burn_xid(self) -> None:
        """A transaction begins and ends."""
        self.abort(self.begin())

    def _end(self, transaction: Transaction) -> None:
        del self.active[transaction.xid]
        self._latest = max(self._latest, transaction.xid)
        for relation in self.relations.values():
            relation.owners = {key: owner for key, owner in relation.owners.items() if owner is not transaction}
            if relation.truncated_by is transaction:
                relation.truncated_by = None
