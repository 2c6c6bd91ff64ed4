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
from typing import Final

from cdc.simulate.tables import Key, Relation, Row, Version, rows_of
from storage.catalog_records import Snapshot

FORGETFUL_ODDS: Final = 0.2
"""How often the server is of the forgetful kind."""

LATE_ODDS: Final = (0.0, 0.0, 0.5)
"""How often a commit is visible before it is on the server's disk, as with `synchronous_commit = off`."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction did; `kind` is the letter of the stream: I, U, D, or T for one table of a TRUNCATE."""

    kind: str
    relation: Relation
    version: Version
    old: Row | None
    new: Row | None
    is_published: bool
    table: int
    """Whose change it is to followers, by its oid: of a partition, the table that it is one of."""
    statement: int
    """Tables that are truncated together have the same number."""
    is_hole: bool = False
    """It would be published, had not somebody else altered the publication."""
    is_late: bool = False
    """Its table was published when the transaction ran already."""


@dataclass(slots=True, eq=False)
class Transaction:
    """One that has written; 0 where there is no commit yet."""

    xid: int
    began: int = 0
    """The number of the publication's last alteration then."""
    changes: list[Change] = field(default_factory=list)
    altered: dict[int, Version] = field(default_factory=dict)
    """What it has made of tables, by their oids."""
    own: dict[tuple[int, Key], Row | None] = field(default_factory=dict)
    emptied: list[Relation] = field(default_factory=list)
    replaced: list[tuple[Relation, Relation]] = field(default_factory=list)
    """Tables that it dropped, and those that it made in their places."""
    moved: list[tuple[Relation, Relation | None, int]] = field(default_factory=list)
    """Partitions that it attached, or detached, each with the statement."""
    commit_lsn: int = 0
    end_lsn: int = 0
    time: int = 0
    is_sent: bool = True
    """Whether the stream has it: of those without a published change it may leave out all."""

    @property
    def published(self) -> list[Change]:
        return [change for change in self.changes if change.is_published]

    def version_of(self, relation: Relation) -> Version:
        """The table as the transaction has it."""
        return self.altered.get(relation.oid, relation.version)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a snapshot shows."""

    xids: frozenset[int]
    rows: dict[int, dict[Key, Row]]
    """Of each table by its oid."""
    versions: dict[int, Version]


class Server:
    """One database and one slot."""

    def __init__(self, random: Random, relations: tuple[Relation, ...]) -> None:
        self.random = random
        self.relations = {relation.oid: relation for relation in relations}
        self._first_relations = {relation.oid: (relation, relation.version) for relation in relations}
        self._next_oid = 20000
        self.insert_lsn = random.randrange(1, 1 << 40)
        self.flushed_lsn = self.insert_lsn
        """All WAL below is on the server's disk, and only that is streamed."""
        self.wal: list[Transaction] = []
        """Commits, in their order."""
        self.active: dict[int, Transaction] = {}
        """Those that are not visible: they run, or their commit waits."""
        self.visible: set[int] = set()
        self.confirmed: int | None = None
        """The slot, if there is one."""
        self.confirmations: list[int] = []
        """What it was confirmed to, one after the other: a checkpoint has written one of them."""
        self.is_slot_lost = False
        """It is there, and the WAL that it needs is not."""
        self.publication_version = 1
        self.timeline = 1
        self.crashes = 0
        self._late_odds = random.choice(LATE_ODDS)
        self.switch_points: dict[int, int] = {}
        self.is_forgetful = random.random() < FORGETFUL_ODDS
        """A transaction that was under way when a table was published: one connection sends its later changes of it,
        another does not. As servers did before the releases of May 2025."""
        self.snapshots: dict[Snapshot, Seen] = {}
        self._next_xid = random.choice((800, (1 << 32) - 20, (1 << 33) - 5))
        self._first_xid = self._next_xid
        self._traces: dict[int, int] = {}
        """Numbers of transactions that wrote nothing to a table, by where their commits are in the WAL."""
        self._latest = self._next_xid - 1
        self._statements = 0

    # Transactions

    def begin(self) -> Transaction:
        transaction = Transaction(self._next_xid, self.publication_version)
        self._next_xid += 1
        self.active[transaction.xid] = transaction
        return transaction

    def begin_subtransaction(self) -> None:
        """It takes a number of its own; whether it is rolled back or not, no follower ever hears of it."""
        self._next_xid += 1

    def running(self) -> list[Transaction]:
        """Those that may write."""
        return [one for one in self.active.values() if not one.commit_lsn]

    def waiting(self) -> list[Transaction]:
        """Committed, and not visible."""
        return [one for one in self.active.values() if one.commit_lsn]

    def rows_for(self, transaction: Transaction, relation: Relation) -> Iterator[tuple[Key, Row]]:
        """The rows that it may change."""
        now = transaction.version_of(relation)
        if relation not in transaction.emptied:
            for key, row in relation.rows.items():
                if relation.owners.get(key) is None:
                    yield key, now.converted(row, relation.version) or ()
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
        return relation.locked_by in {None, transaction}

    def change(self, transaction: Transaction, kind: str, relation: Relation, old: Row | None, new: Row | None) -> None:
        """Write."""
        self._statements += 1
        version = transaction.version_of(relation)
        self._add(transaction, kind, relation, old, new)
        for row, is_there in ((old, False), (new, True)):
            if row is not None:
                key = version.key_of(row)
                relation.owners[key] = transaction
                transaction.own[relation.oid, key] = row if is_there else None

    def _add(self, transaction: Transaction, kind: str, relation: Relation, old: Row | None, new: Row | None) -> None:
        published = relation.published
        since = published.published_since
        change = Change(
            kind,
            relation,
            transaction.version_of(relation),
            old,
            new,
            since is not None,
            published.oid,
            self._statements,
            is_hole=since is None and published.has_holes,
            is_late=since is not None and since > transaction.began and not relation.is_followed,
        )
        transaction.changes.append(change)

    def may_lock(self, transaction: Transaction, relation: Relation) -> bool:
        others = [owner for owner in relation.owners.values() if owner is not transaction]
        readers = relation.readers + relation.published.readers
        return not others and not readers and self.may_write(transaction, relation)

    def truncate(self, transaction: Transaction, relations: list[Relation]) -> None:
        """Nobody else has changed a row of these tables."""
        self._statements += 1
        for relation in relations:
            self._add(transaction, "T", relation, None, None)
            relation.locked_by = transaction
            if relation not in transaction.emptied:
                transaction.emptied.append(relation)
            for oid, key in list(transaction.own):
                if oid == relation.oid:
                    transaction.own[oid, key] = None

    def alter(self, transaction: Transaction, relation: Relation, version: Version) -> None:
        """Nobody else has changed a row of the table."""
        then = transaction.version_of(relation)
        relation.locked_by = transaction
        transaction.altered[relation.oid] = version
        for (oid, key), row in list(transaction.own.items()):
            if oid == relation.oid:
                transaction.own[oid, key] = version.converted(row, then)

    def replace(self, transaction: Transaction, relation: Relation) -> None:
        """Drop a table that nobody else uses, and make it anew as it was in the beginning."""
        relation.locked_by = transaction
        _, version = self._first_relations[relation.first_oid]
        now = Relation(self._next_oid, version, relation.is_followed, first_oid=relation.first_oid)
        self._next_oid += 1
        transaction.replaced.append((relation, now))

    def move(self, transaction: Transaction, leaf: Relation, root: Relation) -> None:
        """Attach a partition, or detach it: its rows come or go, and nothing of that is sent."""
        self._statements += 1
        leaf.locked_by = root.locked_by = transaction
        version = transaction.version_of(leaf)
        change = Change("-", leaf, version, None, None, False, root.oid, self._statements, is_hole=True)
        transaction.changes.append(change)
        transaction.moved.append((leaf, None if leaf.root else root, self._statements))

    def identity_of(self, relation: Relation) -> str:
        """What whoever publishes the table wants its rows to be known by."""
        return self._first_relations[relation.first_oid][1].identity

    def publish(self, relation: Relation, *, is_published: bool) -> None:
        """Alter the publication."""
        self.publication_version += 1
        relation.published_since = self.publication_version if is_published else None

    def commit(self, transaction: Transaction) -> None:
        """From here on it is streamed; it is not visible yet."""
        self.write_something(self.random.choice((0, 0, 8, 200)))
        transaction.commit_lsn = self.insert_lsn
        self.insert_lsn += self.random.choice((1, 48, 300))
        transaction.end_lsn = self.insert_lsn
        transaction.time = 1_000_000 * len(self.wal) + self.random.randrange(-3_000_000, 3_000_000)
        transaction.is_sent = bool(transaction.published) or self.random.random() < 0.5
        self.wal.append(transaction)
        if self.random.random() >= self._late_odds:
            self.flush()

    def flush(self) -> None:
        """All WAL is on the server's disk."""
        self.flushed_lsn = self.insert_lsn

    def confirm(self, lsn: int) -> None:
        """The slot is there, or hears that all below is durable."""
        if self.confirmed is None or lsn > self.confirmed:
            self.confirmed = lsn
            self.confirmations.append(lsn)

    def crash(self, confirmed: int) -> None:
        """The server ends, and comes back without what was not on its disk; of its slot it may know less."""
        self.crashes += 1
        self._go_back(self.flushed_lsn, confirmed)

    def lose_slot(self, *, is_dropped: bool) -> None:
        """Somebody drops it, or it held back more WAL than it may: what was not confirmed is not sent any more."""
        if is_dropped:
            self.confirmed, self.confirmations = None, []
        self.is_slot_lost = not is_dropped

    def show(self, transaction: Transaction) -> None:
        """A commit becomes visible."""
        for relation in transaction.emptied:
            relation.rows.clear()
        for oid, version in transaction.altered.items():
            relation = self.relations[oid]
            then, relation.version = relation.version, version
            relation.rows = {key: version.converted(row, then) or () for key, row in relation.rows.items()}
        for (oid, key), row in transaction.own.items():
            rows = self.relations[oid].rows
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        for dropped, made in transaction.replaced:
            del self.relations[dropped.oid]
            self.relations[made.oid] = made
        for leaf, root, statement in transaction.moved:
            leaf.root, leaf.attached = root, statement
        self.visible.add(transaction.xid)
        self._end(transaction)

    def abort(self, transaction: Transaction) -> None:
        self._end(transaction)

    def write_something(self, size: int) -> None:
        """WAL without a commit."""
        self.insert_lsn += size

    def fork(self, switch: int, confirmed: int) -> None:
        """A standby takes over that has all up to a place of the WAL; its slot may know of less."""
        # One that had less than where an earlier one took over left that one's history before it began.
        left = min([one for one, at in self.switch_points.items() if at > switch], default=self.timeline)
        self.switch_points = {one: at for one, at in self.switch_points.items() if one < left} | {left: switch}
        self.timeline += 1
        self._go_back(switch, confirmed)

    def _go_back(self, switch: int, confirmed: int) -> None:
        for transaction in list(self.active.values()):
            if transaction.commit_lsn and transaction.end_lsn <= switch:
                self.show(transaction)
            else:
                self.abort(transaction)
        kept = [one for one in self.wal if one.end_lsn <= switch]
        if len(kept) < len(self.wal):
            self._undo(kept)
        self.insert_lsn = self.flushed_lsn = switch
        self.confirmed = confirmed
        self.confirmations = [*(one for one in self.confirmations if one < confirmed), confirmed]
        self._take_numbers_back()

    def _take_numbers_back(self) -> None:
        """What left no trace in the WAL has no number either: it is given out again."""
        self._traces = {at: xid for at, xid in self._traces.items() if at <= self.insert_lsn}
        used = max((self._first_xid - 1, *(one.xid for one in self.wal), *self._traces.values()))
        self._next_xid = self.random.randrange(used + 1, self._next_xid + 1)
        self._latest = self._next_xid - 1

    def _undo(self, kept: list[Transaction]) -> None:
        """Do again what is left."""
        self.wal, self.visible, self.relations = kept, set(), {}
        for oid, (relation, version) in self._first_relations.items():
            self.relations[oid] = relation
            relation.rows.clear()
            relation.version = version
            relation.root, relation.attached = relation.first_root, 0
            relation.locked_by, relation.owners = None, {}  # of those that dropped it, and did not come over
        for transaction in kept:
            for _, made in transaction.replaced:
                made.rows.clear()
                made.version = self._first_relations[made.first_oid][1]
                made.locked_by, made.owners = None, {}
            self.active[transaction.xid] = transaction
            self.show(transaction)

    # Snapshots

    def look(self, birth: int) -> Snapshot:
        """What `pg_current_snapshot()` says."""
        xmax = self._latest + 1
        xip = tuple(sorted(xid for xid in self.active if xid < xmax))
        return Snapshot(min(self.active, default=xmax) if xip else xmax, xmax, xip, birth)

    def take(self) -> tuple[Snapshot, Seen]:
        """A snapshot and what it shows; its birth is read later."""
        found = self.look(0)
        rows = {oid: rows_of(relation) for oid, relation in self.relations.items()}
        versions = {oid: relation.version for oid, relation in self.relations.items()}
        return found, Seen(frozenset(self.visible), rows, versions)

    def use_a_number(self) -> None:
        """A transaction begins and ends, and is on the server's disk, though it wrote to no table."""
        transaction = self.begin()
        self.write_something(8)
        self._traces[self.insert_lsn] = transaction.xid
        self.flush()
        self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        del self.active[transaction.xid]
        self._latest = max(self._latest, transaction.xid)
        for relation in self.relations.values():
            relation.owners = {key: owner for key, owner in relation.owners.items() if owner is not transaction}
            if relation.locked_by is transaction:
                relation.locked_by = None
