"""The tables and the shapes that simulations are about; what a clause means is said here a second time, in Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from cdc.simulate.server import Column, Relation
from shapes.definition import Definition, Table, TableColumn
from shapes.requests import Request, define

Named = Mapping[str, str | None]
Predicate = Callable[[Named], bool]

INT4, TEXT = (23, "int4"), (25, "text")

CLAUSES: Final[dict[str, Predicate]] = {
    "grp = 1": lambda row: row["grp"] == "1",
    "grp IN (1, 2)": lambda row: row["grp"] in {"1", "2"},
    "grp > 1": lambda row: row["grp"] is not None and int(row["grp"]) > 1,
    "grp = 2 AND val LIKE 'a%'": lambda row: row["grp"] == "2" and (row["val"] or "").startswith("a"),
    "val IS NULL": lambda row: row["val"] is None,
}
"""Clauses for the table with these columns."""


def relations() -> tuple[Relation, ...]:
    """Empty tables: one key column and two, with whole old rows and without."""
    return (
        Relation(16401, "items", (Column("id", *INT4, True), Column("grp", *INT4), Column("val", *TEXT))),
        Relation(16402, "lines", (Column("id", *INT4, True), Column("pos", *INT4, True), Column("note", *TEXT))),
        Relation(16403, "loose", (Column("id", *INT4, True), Column("note", *TEXT)), identity="d"),
    )


def facts_of(relation: Relation) -> Table:
    """The table as the server's catalog has it."""
    keys = [column.name for column in relation.columns if column.is_key]
    columns = tuple(
        TableColumn(
            one.name,
            number,
            one.type_oid,
            one.type_name,
            not_null=one.is_key,
            pk_index=keys.index(one.name) if one.is_key else None,
        )
        for number, one in enumerate(relation.columns, 1)
    )
    return Table(relation.oid, "public", relation.name, "r", "p", relation.identity, columns, relation.oid)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A shape to be asked for."""

    definition: Definition
    predicate: Predicate


def some_shape(random: Random, relation: Relation) -> Wanted:
    """A shape of the table."""
    is_full = relation.identity == "f"
    clause = random.choice((None, *CLAUSES)) if relation.name == "items" else None
    keys = ",".join(column.name for column in relation.columns if column.is_key)
    columns = random.choice((None, None, keys))
    replica = random.choice((None, "full")) if is_full else None
    definition = define(Request(clause, {}, columns, replica), facts_of(relation))
    return Wanted(definition, CLAUSES[clause] if clause else lambda _: True)


def named(relation: Relation, row: Sequence[str | None]) -> dict[str, str | None]:
    """A row with its columns' names."""
    return {column.name: value for column, value in zip(relation.columns, row, strict=True)}
