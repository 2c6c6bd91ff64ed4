"""What logs must hold, computed from the list of commits.

Safety, for every shape that is ready: its base has exactly the rows that its snapshot saw; its log has exactly the
changes of the transactions that the snapshot did not see, in the order of commits, whole transactions only; base and
log folded by key are the table's rows as of V.

The expectation is computed a change at a time with dicts, from what the server did, not from what it sent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cdc.simulate.definitions import Named, Predicate
from cdc.simulate.server import Change, Seen, Server, Transaction
from cdc.simulate.tables import Key, Version
from shapes.definition import Definition
from storage.catalog_records import Shape
from storage.offset import LogOffset
from storage.rows import Kind

Rows = dict[Key, Named]
"""By their keys."""


class Violation(Exception):
    """Something that must never be."""


@dataclass(frozen=True, slots=True)
class Told:
    """A row of a log; of a DELETE that tells the key only, the key."""

    at: LogOffset
    kind: Kind
    values: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return f"{self.at} {self.kind.name} {dict(self.values)}"


@dataclass(slots=True)
class Expectation:
    """What one log must hold."""

    server: Server
    definition: Definition
    matches: Predicate
    seen: Seen
    rows: list[Told] = field(default_factory=list)
    ends_at: int | None = None
    """The first commit with a change of the table as it should not be: the shape ends before it."""
    hole_at: int | None = None
    """The first commit of which something is missing in the stream, since somebody else altered the publication."""
    has_moved: bool = False
    """A partition came or went: a process that starts knows them as they are now, and what it is sent is older."""
    _passed: int = 0
    """How many commits are in `rows`."""
    _fitting: dict[Version, bool] = field(default_factory=dict)

    def fits(self, version: Version) -> bool:
        """Whether a table like this is still the one that the shape was defined for."""
        if version not in self._fitting:
            now = {column.name: column.type_oid for column in version.columns}
            wanted = (*self.definition.columns, *self.definition.where_columns)
            is_same = version.name == self.definition.table and all(now.get(one.name) == one.type_oid for one in wanted)
            is_known = version.identity == "f" or not self.definition.needs_full_identity
            has_all = not self.definition.selects_all or len(now) == len(self.definition.columns)
            self._fitting[version] = is_same and has_all and is_known
        return self._fitting[version]

    def check_end(self, tx: int) -> None:
        """Raise `Violation` if the shape should not be born, or should have ended before this commit, or at it."""
        if not self.fits(self.seen.versions[self.definition.oid]):
            raise Violation(f"{self.definition} is there, and its table was another one when its snapshot was taken")
        self._catch_up()
        if self.ends_at is not None and self.ends_at <= tx:
            raise Violation(f"{self.definition} is there at {tx}, and its table was another one at {self.ends_at}")

    def up_to(self, tx: int) -> list[Told]:
        """The rows of the transactions at or below."""
        self._catch_up()
        return [row for row in self.rows if row.at.tx <= tx]

    def last_below(self, tx: int) -> LogOffset | None:
        """The last row of a transaction below that must be there."""
        self._catch_up()
        if self.has_moved:
            return None
        return next((row.at for row in reversed(self.rows) if row.at.tx < tx), None)

    def last_truncate_below(self, tx: int) -> LogOffset | None:
        """The last TRUNCATE of a transaction below that must have its base."""
        self._catch_up()
        if self.has_moved:
            return None  # it may be of a partition that came, and is not known yet
        return next((row.at for row in reversed(self.rows) if row.at.tx < tx and row.kind is Kind.TRUNCATE), None)

    def is_unsound_at(self, tx: int) -> bool:
        """Whether a log up to this commit may lack something, or have more: its shape will end for that."""
        self._catch_up()
        ends = [one for one in (self.ends_at, self.hole_at) if one is not None]
        return self.has_moved or any(one <= tx for one in ends)

    def base(self) -> Rows:
        """What the snapshot shows of the shape."""
        return self._matching(self._rows_seen())

    def table_at(self, at: LogOffset) -> Rows:
        """The shape's rows of the table when all changes up to there, and those of the snapshot, are visible."""
        rows = self._rows_seen()
        for transaction in self.server.wal:
            if transaction.commit_lsn > at.tx:
                break
            if transaction.xid not in self.seen.xids:
                self._apply(rows, transaction, at)
        return self._matching(rows)

    def _apply(self, rows: Rows, transaction: Transaction, at: LogOffset) -> None:
        is_whole = transaction.commit_lsn < at.tx or self.server.is_forgetful
        op = 0
        for change in transaction.changes:
            if change.table == self.definition.oid and (is_whole or op <= at.op):
                if change.kind == "T":
                    rows.clear()
                if change.old is not None and not rows.pop(self._key(change.version.named(change.old)), None):
                    raise Violation(f"{self.definition}: what was at {change.old} is not in the snapshot's rows")
                if change.new is not None:
                    whole = change.version.named(change.new)
                    rows[self._key(whole)] = whole
            op += 2 * change.is_published

    def _rows_seen(self) -> Rows:
        version = self.seen.versions[self.definition.oid]
        rows = (version.named(row) for row in self.seen.rows[self.definition.oid].values())
        return {self._key(row): row for row in rows}

    def _matching(self, rows: Rows) -> Rows:
        return {key: self._selected(row) for key, row in rows.items() if self.matches(row)}

    def _catch_up(self) -> None:
        for transaction in self.server.wal[self._passed :]:
            if transaction.xid not in self.seen.xids and self.ends_at is None:
                self.rows += self._told_of(transaction)
        self._passed = len(self.server.wal)

    def _told_of(self, transaction: Transaction) -> list[Told]:
        op = 0
        rows: list[Told] = []
        for change in transaction.changes:
            if change.table == self.definition.oid:
                if change.is_published and self._ends_with(change):
                    self.ends_at = transaction.commit_lsn
                    return []
                self.has_moved = self.has_moved or change.kind == "-"
                if change.is_hole:
                    self.hole_at = self.hole_at or transaction.commit_lsn
                else:
                    rows += self._told(LogOffset(transaction.commit_lsn, op), change)
            op += 2 * change.is_published
        return rows

    def _ends_with(self, change: Change) -> bool:
        """Whether the table is another one; or a partition was emptied, of which only a snapshot knows what is left."""
        if change.relation.oid != self.definition.oid:
            return change.kind == "T" and not self.has_moved  # else it may be one that came, and is not known yet
        return not self.fits(change.version) or self._is_half_told(change)

    def _is_half_told(self, change: Change) -> bool:
        """Whether a row gets another key, and not all of it is sent: what it is under the new key nobody could say."""
        version, old, new = change.version, change.old, change.new
        if old is None or new is None or version.identity == "f" or version.key_of(old) == version.key_of(new):
            return False
        return not version.unsent(old, new).isdisjoint(self.definition.view.columns)

    def _told(self, at: LogOffset, change: Change) -> Iterator[Told]:
        if change.kind == "T":
            yield Told(at, Kind.TRUNCATE, ())
            return
        old = change.version.named(change.old) if change.old is not None else None
        new = change.version.named(change.new) if change.new is not None else None
        before, after = old is not None and self.matches(old), new is not None and self.matches(new)
        is_second = False
        if before and old is not None and (not after or new is None or self._key(old) != self._key(new)):
            names = self.definition.view.columns if self.definition.view.full else self.definition.key
            yield Told(at, Kind.DELETE, tuple((name, old[name]) for name in names))
            before, is_second = False, after
        if after and new is not None and not before:
            yield self._whole(LogOffset(at.tx, at.op + is_second), Kind.INSERT, new)
        elif after and new is not None and old is not None:
            assert change.old is not None, "there is one"
            assert change.new is not None, "there is one"
            has_old = change.version.identity == "f"
            unsent = frozenset() if has_old else change.version.unsent(change.old, change.new)
            yield from self._updated(at, old, new, has_old=has_old, unsent=unsent)

    def _updated(
        self, at: LogOffset, old: Named, new: Named, *, has_old: bool, unsent: frozenset[str]
    ) -> Iterator[Told]:
        columns = [name for name in self.definition.view.columns if name not in unsent]
        changed = [name for name in columns if not has_old or old[name] != new[name]]
        sent = {*changed, *self.definition.key}
        if not has_old and sent == {*self.definition.key}:
            changed = []
        if not changed:
            return
        if self.definition.view.full:
            yield self._whole(at, Kind.UPDATE, new)
        else:
            yield Told(at, Kind.UPDATE, tuple((name, new[name]) for name in columns if name in sent))

    def _whole(self, at: LogOffset, kind: Kind, row: Named) -> Told:
        return Told(at, kind, tuple(self._selected(row).items()))

    def _selected(self, row: Named) -> dict[str, str | None]:
        return {name: row[name] for name in self.definition.view.columns}

    def _key(self, row: Named) -> Key:
        return tuple(row[name] for name in self.definition.key)


Expected = Callable[[Shape], Expectation]
