"""Changes of partitions as changes of the table that they are partitions of.

The publication names leaves, never roots, since Postgres says nothing of a truncated partition otherwise. So the
changes of a root's leaves are put together here, in the order of the stream, with the root's columns. These are found
by name, for a leaf may have them in another order. A row that moves between leaves stays the DELETE and the INSERT
that it came as.

Invariants:
    the rows are strictly ascending by (tx, op), and each has what its leaf's row had of the root's columns
    a column counts as part of the identity only if it is in the identity of every leaf that has changes here
    a column that some leaf lacks is missing: who wants it is told so, and nothing is made up
    a TRUNCATE of a leaf is none of the root; it is kept under the leaf's name
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc.source.fragments import ABSENT, KIND, NEW, OLD, OP, TX, Changes, Fragment, Kind
from cdc.source.numbers import Flags
from cdc.source.relations import Relation
from cdc.source.tuples import bitmaps
from storage.columns import Bitmaps
from storage.rows import column, row_schema


@dataclass(frozen=True, slots=True)
class RootChanges:
    """What the changes of some leaves are to their root."""

    changes: Changes | None
    """INSERTs, UPDATEs and DELETEs; None if there are none."""
    truncates: tuple[Changes, ...]
    """TRUNCATEs, each with the relation of the leaf that it emptied."""


class Partitions:
    """Which leaves belong to which roots. With several levels, a leaf belongs to several."""

    def __init__(self) -> None:
        self._roots: dict[int, Relation] = {}
        self._roots_of_leaf: dict[int, list[int]] = {}

    def follow(self, root: Relation, leaves: Iterable[int]) -> None:
        """From here on, changes of these leaves are changes of this root; replaces what was said of it before."""
        self.forget(root.oid)
        self._roots[root.oid] = root
        for leaf in leaves:
            self._roots_of_leaf.setdefault(leaf, []).append(root.oid)

    def forget(self, root: int) -> None:
        """Nobody follows this root any more."""
        if self._roots.pop(root, None) is not None:
            for leaf, roots in list(self._roots_of_leaf.items()):
                self._roots_of_leaf[leaf] = [other for other in roots if other != root]
                if not self._roots_of_leaf[leaf]:
                    del self._roots_of_leaf[leaf]

    def leaves_of(self, root: int) -> set[int] | None:
        """The leaves that count for a root; None if nobody follows it."""
        if root not in self._roots:
            return None
        return {leaf for leaf, roots in self._roots_of_leaf.items() if root in roots}

    def roots_of(self, leaf: int) -> tuple[int, ...]:
        """The roots that a leaf's changes count for."""
        return tuple(self._roots_of_leaf.get(leaf, ()))

    def merged(self, fragment: Fragment) -> Iterator[tuple[int, Changes]]:
        """For each root with changes in the fragment these changes, but for TRUNCATEs."""
        for root, found in self._found(fragment).items():
            if (changes := as_root(self._roots[root], found).changes) is not None:
                yield root, changes

    def truncated(self, fragment: Fragment) -> Iterator[tuple[int, Changes]]:
        """Each TRUNCATE of a leaf with each of its roots."""
        if fragment.truncates:
            for root, found in self._found(fragment).items():
                for changes in as_root(self._roots[root], found).truncates:
                    yield root, changes

    def _found(self, fragment: Fragment) -> dict[int, list[Changes]]:
        found: dict[int, list[Changes]] = {}
        for changes in fragment.changes:
            for root in self._roots_of_leaf.get(changes.relation.oid, ()):
                found.setdefault(root, []).append(changes)
        return found


def as_root(root: Relation, leaves: Sequence[Changes]) -> RootChanges:
    """The changes of some leaves of a root as the root's own."""
    truncates, others = [], []
    for changes in leaves:
        is_truncate = column(changes.rows, KIND) == Kind.TRUNCATE
        if not is_truncate.any():
            others.append(changes)
            continue
        truncates.append(_some(changes, is_truncate))
        if not is_truncate.all():
            others.append(_some(changes, ~is_truncate))
    return RootChanges(_merged(root, others) if others else None, tuple(truncates))


def _some(changes: Changes, which: Flags) -> Changes:
    rows = changes.rows.take(pa.array(np.flatnonzero(which)))
    return Changes(changes.relation, rows, changes.transaction[which], changes.old_tuple[which])


def _merged(root: Relation, leaves: Sequence[Changes]) -> Changes:
    relation = _common(root, [changes.relation for changes in leaves])
    names = [entry.name for entry in relation.columns]
    has_old = any(OLD in changes.rows.schema.names for changes in leaves)
    batches = [_with_columns(changes.rows, names, has_old=has_old) for changes in leaves]
    transaction = np.concatenate([changes.transaction for changes in leaves])
    old_tuple = np.concatenate([changes.old_tuple for changes in leaves])
    if len(batches) == 1:
        return Changes(relation, batches[0], transaction, old_tuple)
    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    order = np.lexsort((column(rows, OP), column(rows, TX)))
    return Changes(relation, rows.take(pa.array(order)), transaction[order], old_tuple[order])


def _common(root: Relation, leaves: Sequence[Relation]) -> Relation:
    """The root with the columns that all these leaves have, and with the identity that all of them send."""
    entries = [{entry.name: entry for entry in leaf.columns} for leaf in leaves]
    columns = tuple(
        replace(wanted, in_identity=all(of_leaf[wanted.name].in_identity for of_leaf in entries))
        for wanted in root.columns
        if all(wanted.name in of_leaf for of_leaf in entries)
    )
    return replace(root, columns=columns)


def _with_columns(rows: pa.RecordBatch, names: list[str], *, has_old: bool) -> pa.RecordBatch:
    """The rows with these columns in this order; themselves if they have them so."""
    schema = row_schema(names, old=has_old)
    if rows.schema.equals(schema):
        return rows
    found = [field.name for field in rows.schema.field(NEW).type]
    order = [found.index(name) for name in names]
    columns = {name: rows.column(name) for name in (TX, OP, KIND)}
    columns[ABSENT] = _absent(rows.column(ABSENT), order)
    columns[NEW] = _struct(rows.column(NEW), order, names)
    if has_old:
        values = schema.field(OLD).type
        sent = OLD in rows.schema.names
        columns[OLD] = _struct(rows.column(OLD), order, names) if sent else pa.nulls(rows.num_rows, values)
    return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def _struct(values: pa.StructArray, order: list[int], names: list[str]) -> pa.StructArray:
    children = [values.field(index) for index in order]
    return pa.StructArray.from_arrays(children, names=names, mask=values.is_null() if values.null_count else None)


def _absent(absent: pa.Array, order: list[int]) -> pa.Array:
    """The bitmaps for columns in another order."""
    if absent.null_count == len(absent):
        return absent
    unsent = Bitmaps(absent.cast(pa.large_binary()))
    flags = np.zeros((len(absent), len(order)), np.bool_)
    for place, index in enumerate(order):
        flags[unsent.rows_without(index), place] = True
    return bitmaps(flags)
