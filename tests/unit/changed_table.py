"""What the tests of deliveries write: a table, its changes as Postgres sends them, and routers of plain predicates.

The model goes row by row with dicts. A `ChangedTable` takes draws, makes legal changes of them, remembers each with the
row before and after, and says what Postgres would send: it knows replica identities, and long values that are left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from cdc.source.fragments import Changes, Kind, OldTuple
from cdc.source.numbers import Integers
from cdc.source.relations import Column, Relation
from storage.rows import ABSENT, NEW, OLD, row_schema

COLUMNS: Final = ("id", "part", "text", "note", "c5", "c6", "c7", "c8", "c9")
"""Nine: the last one's bit is in the second byte of a bitmap. The tests change the first four and the last."""

LIVELY: Final = ("id", "part", "text", "note", "c9")

Values = dict[str, str | None]
Predicate = Callable[[Mapping[str, str | None]], bool]


class Draw(NamedTuple):
    """What becomes a change."""

    action: str
    which: int
    values: tuple[str | None, ...]
    changed: int
    """A bit for each lively column: an UPDATE changes it."""
    toasted: int
    """A bit for each lively column: its value is so long that it is not sent again."""
    ends: bool
    """The transaction ends here."""


DRAWS = st.lists(
    st.builds(
        Draw,
        st.sampled_from(["insert"] * 4 + ["update"] * 8 + ["delete"] * 2 + ["truncate"]),
        st.integers(0, 7),
        st.tuples(*[st.sampled_from([None, "", "1", "2", "é"]) for _ in LIVELY]),
        st.integers(0, 31),
        st.integers(0, 31),
        st.booleans(),
    ),
    min_size=6,
    max_size=25,
)


@dataclass(frozen=True)
class Change:
    """A change with all that is true of it, and what is sent of it."""

    tx: int
    op: int
    kind: Kind
    before: Values | None = None
    after: Values | None = None
    old_tuple: OldTuple = OldTuple.NONE
    unsent: frozenset[str] = frozenset()


@dataclass
class ChangedTable:
    """A table and its history."""

    key: tuple[str, ...]
    identity: frozenset[str]
    """The columns of the replica identity; all of them is FULL."""
    rows: list[Values] = field(default_factory=list)
    history: list[list[Change]] = field(default_factory=lambda: [[]])
    """By transaction."""

    @property
    def is_full(self) -> bool:
        return self.identity == frozenset(COLUMNS)

    def relation(self, names: Sequence[str] = COLUMNS, oid: int = 1) -> Relation:
        columns = tuple(Column(name, 25, -1, name in self.identity) for name in names)
        return Relation(oid, "public", "t", "f" if self.is_full else "d", columns)

    def run(self, draws: Iterable[Draw]) -> None:
        for draw in draws:
            if (change := self._legal(draw)) is not None:
                self.history[-1].append(change)
                self._apply(change)
            if draw.ends and self.history[-1]:
                self.history.append([])

    def _apply(self, change: Change) -> None:
        if change.kind == Kind.TRUNCATE:
            self.rows.clear()
        elif change.before is None:
            assert change.after is not None
            self.rows.append(change.after)
        else:
            place = next(place for place, row in enumerate(self.rows) if row == change.before)
            self.rows[place : place + 1] = [] if change.after is None else [change.after]

    def _legal(self, draw: Draw) -> Change | None:
        tx, op = 100 * len(self.history), 2 * len(self.history[-1])
        values = dict.fromkeys(COLUMNS, "same") | dict(zip(LIVELY, draw.values, strict=True))
        values |= {name: values[name] or "0" for name in self.key}
        if draw.action == "truncate":
            return Change(tx, op, Kind.TRUNCATE)
        if draw.action == "insert" or not self.rows:
            return None if self._has_key(values) else Change(tx, op, Kind.INSERT, after=values)
        before = self.rows[draw.which % len(self.rows)]
        if draw.action == "delete":
            return Change(tx, op, Kind.DELETE, before, None, OldTuple.FULL if self.is_full else OldTuple.KEY)
        after = before | {name: values[name] for bit, name in enumerate(LIVELY) if draw.changed >> bit & 1}
        if any(before[name] != after[name] for name in self.key) and self._has_key(after):
            return None
        toasted = {name for bit, name in enumerate(LIVELY) if draw.toasted >> bit & 1}
        unsent = frozenset(name for name in toasted if before[name] == after[name] and before[name] is not None)
        return Change(tx, op, Kind.UPDATE, before, after, self._old_tuple(before, after, unsent), unsent)

    def _old_tuple(self, before: Values, after: Values, unsent: frozenset[str]) -> OldTuple:
        if self.is_full:
            return OldTuple.FULL
        # A key with a long value is sent even if it did not change: the row's new version does not have it.
        has_news = any(before[name] != after[name] for name in self.identity) or unsent & self.identity
        return OldTuple.KEY if has_news else OldTuple.NONE

    def _has_key(self, values: Values) -> bool:
        return any(all(row[name] == values[name] for name in self.key) for row in self.rows) if self.key else False


def changes_of(relation: Relation, sent: Sequence[Change], ordinals: Sequence[int]) -> Changes:
    """The changes as the source decodes them."""
    names = [entry.name for entry in relation.columns]
    identity = {entry.name for entry in relation.columns if entry.in_identity}
    records = [_record(change, names, identity) for change in sent]
    has_old = any(record[OLD] is not None for record in records)
    rows = pa.RecordBatch.from_pylist(records, schema=row_schema(names, old=has_old))
    old_tuple = np.array([change.old_tuple for change in sent], np.uint8)
    return Changes(relation, rows, np.array(ordinals, np.int64), old_tuple)


def _record(change: Change, names: Sequence[str], identity: set[str]) -> dict[str, Any]:
    unsent: Iterable[str] = change.unsent
    is_key = change.old_tuple == OldTuple.KEY
    before = change.before
    if before is not None and is_key:
        before = {name: value if name in identity else None for name, value in before.items()}
    new, old = change.after, before if change.old_tuple != OldTuple.NONE else None
    if change.kind == Kind.DELETE:
        new, old = before, None
        unsent = set(names) - identity if is_key else ()
    bits = sum(1 << bit for bit, name in enumerate(names) if name in unsent)
    if new is not None:
        new = {name: None if name in unsent else new[name] for name in names}
    absent = bits.to_bytes(-(-len(names) // 8), "little") if bits else None
    return {"tx": change.tx, "op": change.op, "kind": change.kind, ABSENT: absent, NEW: new, OLD: old}


@dataclass(frozen=True)
class PlainMatches:
    shapes: Integers
    rows: Integers
    failed: Mapping[int, str]


@dataclass
class PlainRouter:
    """Asks each predicate of each row; `None` is no where clause. Remembers what it was asked of."""

    predicates: dict[int, Predicate | None]
    asked: list[Values] = field(default_factory=list)

    def shapes_of(self, table: int) -> Integers:
        return np.array(sorted(self.predicates), np.int64)

    def conditional(self, table: int) -> Integers:
        found = [shape for shape, predicate in sorted(self.predicates.items()) if predicate is not None]
        return np.array(found, np.int64)

    def needs_old(self, table: int) -> bool:
        return len(self.conditional(table)) > 0

    def match(self, table: int, rows: pa.StructArray) -> PlainMatches:
        values = rows.to_pylist()
        self.asked += values
        pairs, failed = [], {}
        for shape, predicate in sorted(self.predicates.items()):
            try:
                pairs += [(shape, row) for row, value in enumerate(values) if predicate is None or predicate(value)]
            except ZeroDivisionError as error:
                failed[shape] = str(error)
        found = np.array([pair for pair in pairs if pair[0] not in failed], np.int64).reshape(-1, 2)
        return PlainMatches(found[:, 0], found[:, 1], failed)
