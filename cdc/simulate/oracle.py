"""What logs must hold, computed from the list of commits; and the comparison.

Safety, for every shape that is ready: its base has exactly the rows that its snapshot saw; its log has exactly the
changes of the transactions that the snapshot did not see, in the order of commits, whole transactions only; base and
log folded by key are the table's rows as of V.

The expectation is computed a change at a time with dicts, from what the server did, not from what it sent.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.simulate.definitions import Named, Predicate
from cdc.simulate.server import Change, Seen, Server, Transaction
from cdc.simulate.tables import Version
from shapes.definition import Definition
from storage.bases import Base
from storage.catalog_records import Shape
from storage.offset import LogOffset
from storage.rows import Kind
from storage.store_reader import StoreReader


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
    _passed: int = 0
    """How many commits are in `rows`."""
    _fitting: dict[Version, bool] = field(default_factory=dict)

    @property
    def is_stillborn(self) -> bool:
        """The table was altered before its snapshot was taken: it will end, and until then nobody knows what it has."""
        return not self.fits(self.seen.versions[self.definition.oid])

    def fits(self, version: Version) -> bool:
        """Whether a table like this is still the one that the shape was defined for."""
        if version not in self._fitting:
            now = {column.name: column.type_oid for column in version.columns}
            wanted = (*self.definition.columns, *self.definition.where_columns)
            is_same = version.name == self.definition.table and all(now.get(one.name) == one.type_oid for one in wanted)
            has_all = not self.definition.selects_all or len(now) == len(self.definition.columns)
            self._fitting[version] = is_same and has_all
        return self._fitting[version]

    def check_end(self, tx: int) -> None:
        """Raise `Violation` if the shape should have ended before this commit, or at it."""
        self._catch_up()
        if self.ends_at is not None and self.ends_at <= tx and not self.is_stillborn:
            raise Violation(f"{self.definition} is there at {tx}, and its table was another one at {self.ends_at}")

    def up_to(self, tx: int) -> list[Told]:
        """The rows of the transactions at or below."""
        self._catch_up()
        return [row for row in self.rows if row.at.tx <= tx]

    def last_below(self, tx: int) -> LogOffset | None:
        """The last row of a transaction below."""
        self._catch_up()
        return next((row.at for row in reversed(self.rows) if row.at.tx < tx), None)

    def last_truncate_below(self, tx: int) -> LogOffset | None:
        """The last TRUNCATE of a transaction below."""
        self._catch_up()
        return next((row.at for row in reversed(self.rows) if row.at.tx < tx and row.kind is Kind.TRUNCATE), None)

    def base(self) -> dict[tuple[str | None, ...], Named]:
        """What the snapshot shows of the shape."""
        return self._matching(self._rows_seen())

    def table_at(self, tx: int) -> dict[tuple[str | None, ...], Named]:
        """The shape's rows of the table when all commits up to there, and those of the snapshot, are visible."""
        rows = self._rows_seen()
        for transaction in self.server.wal:
            if transaction.commit_lsn > tx:
                break
            if transaction.xid in self.seen.xids:
                continue
            for change in transaction.changes:
                if change.relation.oid != self.definition.oid:
                    continue
                if change.kind == "T":
                    rows.clear()
                if change.old is not None:
                    del rows[self._key(change.version.named(change.old))]
                if change.new is not None:
                    whole = change.version.named(change.new)
                    rows[self._key(whole)] = whole
        return self._matching(rows)

    def _rows_seen(self) -> dict[tuple[str | None, ...], Named]:
        version = self.seen.versions[self.definition.oid]
        rows = (version.named(row) for row in self.seen.rows[self.definition.oid].values())
        return {self._key(row): row for row in rows}

    def _matching(self, rows: dict[tuple[str | None, ...], Named]) -> dict[tuple[str | None, ...], Named]:
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
            if change.relation.oid == self.definition.oid:
                if change.is_published and not self.fits(change.version):
                    self.ends_at = transaction.commit_lsn
                    return []
                if change.is_hole:
                    self.hole_at = self.hole_at or transaction.commit_lsn
                else:
                    rows += self._told(LogOffset(transaction.commit_lsn, op), change)
            op += 2 * change.is_published
        return rows

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
            yield from self._updated(at, old, new, has_old=change.version.identity == "f")

    def _updated(self, at: LogOffset, old: Named, new: Named, *, has_old: bool) -> Iterator[Told]:
        columns = self.definition.view.columns
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

    def _key(self, row: Named) -> tuple[str | None, ...]:
        return tuple(row[name] for name in self.definition.key)


def base_of(reader: StoreReader, shape: Shape) -> Base:
    """The log's newest base; the shape's own, or one that is complete and not recorded yet."""
    bases = [one for one in reader.bases(shape.log) if one.is_complete]
    if shape.base not in {one.number for one in bases}:
        raise Violation(f"{shape.handle}: its base {shape.base} is not there")
    return bases[-1]


def compare(reader: StoreReader, shape: Shape, expected: Expectation, visible: LogOffset) -> None:
    """Raise `Violation` where a log, read from its base on, is not what it must be up to `visible`."""
    expected.check_end(visible.tx)
    if expected.is_stillborn:
        return
    base = base_of(reader, shape)
    where = f"log {shape.log} ({shape.handle}, {expected.definition}) up to {visible}"
    rows = _base_rows(reader, shape.log, base, expected)
    if base.last.is_snapshot:
        _same(f"{where}: base", sorted(map(str, rows.values())), sorted(map(str, expected.base().values())))
    elif rows:
        raise Violation(f"{where}: a base after a TRUNCATE has rows: {rows}")
    floor = base.floor
    found = list(_log_rows(reader, shape.log, floor, expected.definition))
    wanted = [row for row in expected.up_to(visible.tx) if row.at > floor]
    _same(where, _texts(found, expected.server), _texts(wanted, expected.server))
    if expected.hole_at is not None and expected.hole_at <= visible.tx:
        return
    for told in found:
        _apply(where, rows, told, expected.definition)
    if floor.tx <= visible.tx:
        _same(f"{where}: folded", _sorted(rows), _sorted(expected.table_at(visible.tx)))


def follow(reader: StoreReader, shape: Shape, expected: Expectation, after: LogOffset, visible: LogOffset) -> None:
    """Raise `Violation` where what came after an offset is not what it must be, for a reader who goes on from there."""
    expected.check_end(visible.tx)
    if expected.is_stillborn:
        return
    found = list(_log_rows(reader, shape.log, after, expected.definition))
    wanted = [row for row in expected.up_to(visible.tx) if row.at.tx > after.tx]
    where = f"log {shape.log} ({shape.handle}, {expected.definition}) from {after} up to {visible}"
    _same(where, _texts(found, expected.server), _texts(wanted, expected.server))


def _texts(rows: list[Told], server: Server) -> list[str]:
    """Rows as texts. Where a server numbers changes now so, now otherwise, only their order counts."""
    if not server.is_forgetful:
        return list(map(str, rows))
    counts: Counter[int] = Counter()
    texts = []
    for row in rows:
        counts[row.at.tx] += 1
        texts.append(str(replace(row, at=LogOffset(row.at.tx, counts[row.at.tx]))))
    return texts


def _base_rows(reader: StoreReader, log: int, base: Base, expected: Expectation) -> dict[tuple[str | None, ...], Named]:
    rows: dict[tuple[str | None, ...], Named] = {}
    number = 0
    while (chunk := reader.read_chunk(log, base.number, number)) is not None:
        for row in chunk.column("new").to_pylist():
            key = tuple(row[name] for name in expected.definition.key)
            if key in rows:
                raise Violation(f"log {log}: {key} is twice in its base")
            rows[key] = row
        number += 1
    return rows


def _log_rows(reader: StoreReader, log: int, position: LogOffset, definition: Definition) -> Iterator[Told]:
    at_end = False
    while not at_end:
        result = reader.read(log, position)
        for batch in result.rows:
            for row in batch.to_pylist():
                yield _told(row, definition)
        position, at_end = result.next, result.at_end


def _told(row: dict[str, Any], definition: Definition) -> Told:
    kind, bitmap = Kind(row["kind"]), row.get("absent") or b""
    at = LogOffset(row["tx"], row["op"])
    if kind is Kind.TRUNCATE:
        return Told(at, kind, ())
    sent = {
        name: value
        for index, (name, value) in enumerate(row["new"].items())
        if not (index // 8 < len(bitmap) and bitmap[index // 8] >> index % 8 & 1)
    }
    if kind is Kind.DELETE and not definition.view.full:
        sent = {name: sent[name] for name in definition.key}
    return Told(at, kind, tuple(sent.items()))


def _apply(where: str, rows: dict[tuple[str | None, ...], Named], told: Told, definition: Definition) -> None:
    if told.kind is Kind.TRUNCATE:
        rows.clear()
        return
    values = dict(told.values)
    key = tuple(values[name] for name in definition.key)
    if (key in rows) == (told.kind is Kind.INSERT):
        raise Violation(f"{where}: {told} does not fit what is there: {rows.get(key)}")
    if told.kind is Kind.DELETE:
        del rows[key]
    else:
        rows[key] = {**rows.get(key, {}), **values}


def _sorted(rows: dict[tuple[str | None, ...], Named]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows.values())


def _same(where: str, found: list[str], wanted: list[str]) -> None:
    if found == wanted:
        return
    missing = [row for row in wanted if row not in found]
    surplus = [row for row in found if row not in wanted]
    twice = sorted({row for row in found if found.count(row) > wanted.count(row)})
    raise Violation(
        f"{where}: lost {missing[:5]}, too many {surplus[:5] or twice[:5]}, in all {len(found)} of {len(wanted)}"
    )
