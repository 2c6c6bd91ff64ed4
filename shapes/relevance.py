"""What an alteration of a table means to a shape: nothing, or its end. Pure.

A shape ends where the texts of its rows, its key or its condition may no longer mean what they meant when it was
defined; whoever follows it begins anew with the table as it is. All else leaves it alone.

Two sources tell of alterations. The stream describes a relation before its next change: at the right place between
changes, but only where there is a change, and without primary key and number of a column. The catalog of Postgres has
these, and tells of tables that nobody writes to, at any time.

Invariants:
    a definition made from a table is unconcerned by that same table
    what is said does not depend on the order of columns, nor on columns that the shape neither selects nor reads
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cdc.source.relations import Relation
from shapes.definition import DefinedColumn, Definition, Table


class Reason(StrEnum):
    """Why a shape ends. Stored with its end."""

    TABLE_GONE = "table_gone"
    TABLE_RENAMED = "table_renamed"
    NOT_LOGGED = "not_logged"
    COLUMNS_CHANGED = "columns_changed"
    COLUMN_GONE = "column_gone"
    COLUMN_RETYPED = "column_retyped"
    LABEL_RENAMED = "label_renamed"
    KEY_CHANGED = "key_changed"
    IDENTITY_LOST = "identity_lost"


@dataclass(frozen=True, slots=True)
class Irrelevant:
    """The shape goes on."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The shape ends before the next change of the table."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """A column as it is now; `number` is None where the source does not tell."""

    number: int | None
    type_oid: int
    typmod: int


IRRELEVANT: Final = Irrelevant()


def relevance(definition: Definition, now: Relation | Table | None) -> Irrelevant | Ends:
    """Compare a definition with its table, or a leaf partition of it, as it is now; None where it is gone."""
    match now:
        case None:
            return Ends(Reason.TABLE_GONE, f"the table {definition.schema}.{definition.table} was dropped")
        case Table():
            wanted = {column.name for column in (*definition.columns, *definition.where_columns)}
            seen = {
                column.name: _Seen(column.number, column.type_oid, column.typmod)
                for column in now.columns
                # One that is generated is sent or not as the publication says: only the stream knows.
                if not column.generated or column.name in wanted
            }
            found = _renamed(definition, now.oid, now.schema, now.name) or _silence(now) or _columns(definition, seen)
            found = found or _labels(definition, now)
            return found or _key(definition, now.key) or _identity(definition, now) or IRRELEVANT
        case Relation():
            seen = {column.name: _Seen(None, column.type_oid, column.type_modifier) for column in now.columns}
            found = _renamed(definition, now.oid, now.namespace, now.name) or _columns(definition, seen)
            return found or _sent_key(definition, now) or _identity(definition, now) or IRRELEVANT


def what_matters(definition: Definition) -> Hashable:
    """What `relevance` reads of a definition. Thousands that differ in constants of their conditions have it alike."""
    return (
        definition.oid,
        definition.schema,
        definition.table,
        definition.key,
        definition.columns,
        definition.selects_all,
        definition.where_columns,
        definition.needs_full_identity,
        tuple(definition.enums.items()),
    )


def _renamed(definition: Definition, oid: int, schema: str, name: str) -> Ends | None:
    """A leaf, which has another oid, may be called as it likes."""
    if oid != definition.oid or (schema, name) == (definition.schema, definition.table):
        return None
    return Ends(Reason.TABLE_RENAMED, f"the table {definition.schema}.{definition.table} is now called {schema}.{name}")


def _silence(now: Table) -> Ends | None:
    """What is in no WAL is in no stream. Postgres lets what is published by its schema or root become so."""
    if now.persistence != "p":
        return Ends(Reason.NOT_LOGGED, f"the table {now} is unlogged, and so writes no logical changes any more")
    if now.silent:
        return Ends(Reason.NOT_LOGGED, f"partitions of {now} write no logical changes: {', '.join(now.silent)}")
    return None


def _columns(definition: Definition, seen: Mapping[str, _Seen]) -> Ends | None:
    for column in (*definition.columns, *definition.where_columns):
        if found := _column(column, seen.get(column.name)):
            return found
    if definition.selects_all and len(seen) != len(definition.columns):
        added = sorted(seen.keys() - {column.name for column in definition.columns})
        return Ends(
            Reason.COLUMNS_CHANGED, f"the shape has all columns of its table, and got new ones: {', '.join(added)}"
        )
    return None


def _column(then: DefinedColumn, now: _Seen | None) -> Ends | None:
    if now is None:
        return Ends(Reason.COLUMN_GONE, f"the column {then.name} was dropped or renamed")
    if now.number is not None and now.number != then.number:
        return Ends(Reason.COLUMN_GONE, f"the column {then.name} was dropped, and another of this name added")
    if (now.type_oid, now.typmod) != (then.type_oid, then.typmod):
        return Ends(Reason.COLUMN_RETYPED, f"the column {then.name} has another type")
    return None


def _labels(definition: Definition, now: Table) -> Ends | None:
    """A label that is renamed changes rows, and no stream tells; one that is added does not, wherever it is put."""
    for column in now.columns:
        for oid, labels in column.enums.items():
            then = definition.enums.get(oid, labels)
            if then == labels:
                continue  # soon said: thousands of shapes are compared each minute
            known = frozenset(then)
            kept = tuple(label for label in labels if label in known)
            if kept != then:  # also where two changed names: nothing else brings them into another order
                gone = known.difference(labels)
                which = [label for label in then if label in gone] or [*kept, "in another order"]
                text = f"labels of the enum of the column {column.name} were renamed: {', '.join(which)}"
                return Ends(Reason.LABEL_RENAMED, text)
    return None


def _key(definition: Definition, key: tuple[str, ...]) -> Ends | None:
    if key == definition.key:
        return None
    return Ends(Reason.KEY_CHANGED, f"the primary key was ({', '.join(definition.key)}), and is now ({', '.join(key)})")


def _sent_key(definition: Definition, now: Relation) -> Ends | None:
    """What a relation's flags tell of the key: with the default identity its columns, in no order; else nothing."""
    if now.replica_identity != "d":
        return None
    if now.oid != definition.oid and not definition.key:
        return None  # a leaf may have a key of its own, which is not the root's
    flagged = {column.name for column in now.columns if column.in_identity}
    return None if flagged == set(definition.key) else _key(definition, tuple(sorted(flagged)))


def _identity(definition: Definition, now: Relation | Table) -> Ends | None:
    if not definition.needs_full_identity or now.replica_identity == "f":
        return None
    if isinstance(now, Table) and now.kind == "p":
        return None  # its leaves have theirs
    return Ends(
        Reason.IDENTITY_LOST, f"{now} no longer has REPLICA IDENTITY FULL, which a condition or replica=full needs"
    )
